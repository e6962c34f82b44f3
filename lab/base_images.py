"""Base images: one debootstrap tree a Debian release, shared read-only by all hosts of that release."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lab.machine_requirements import CACHE, UnsupportedMachine
from rigwright.file_lock import file_lock
from rigwright.host.supported_systems import CODENAMES

# The packages of a freshly installed server that debootstrap's minbase lacks, and no more: roles must bring the rest.
PACKAGES = ("systemd", "systemd-sysv", "dbus", "openssh-server", "sudo", "iproute2", "ca-certificates")


@dataclass(frozen=True)
class DebianRelease:
    """A Debian release that can be booted."""

    name: str
    codename: str


RELEASES = {name: DebianRelease(name, CODENAMES[name]) for name in ("debian-12", "debian-13")}


def tree_path(release: DebianRelease) -> Path:
    """Where the release's base tree is, or will be: a folder named by the digest of what it is made from."""
    inputs = json.dumps([release.codename, PACKAGES, _file_adjustments()])
    return CACHE / f"{release.name}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"


def build_base(release: DebianRelease) -> Path:
    """Return the release's base tree, building it first where it is missing (about a minute).

    A marker beside the tree, written last, says that it is whole.

    Raises:
        UnsupportedMachine: debootstrap fails.
    """
    tree = tree_path(release)
    marker = tree.with_suffix(".complete")
    CACHE.mkdir(parents=True, exist_ok=True)
    with file_lock(tree.with_suffix(".lock"), f"building the {release.name} base image"):
        if not marker.exists():
            shutil.rmtree(tree, ignore_errors=True)
            _run_debootstrap(release, tree)
            for path, text in _file_adjustments().items():
                _write_adjustment(tree / path, text)
            (tree / "etc/machine-id").unlink(missing_ok=True)
            marker.touch()
    return tree


def _run_debootstrap(release: DebianRelease, tree: Path) -> None:
    print(f"building the {release.name} base image in {tree} (about a minute)", file=sys.stderr, flush=True)
    log = tree.with_suffix(".log")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", release.codename, str(tree)]
    if mirror := _machine_mirror():
        command.append(mirror)
    with open(log, "w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = " ".join(log.read_text().splitlines()[-1:])
        raise UnsupportedMachine(f"debootstrap of {release.codename} failed ({last}); the whole log is {log}")


def _machine_mirror() -> str | None:
    """The Debian mirror this machine uses; None on another distribution, where debootstrap's own default serves."""
    if "\nID=debian\n" not in "\n" + Path("/etc/os-release").read_text():
        return None
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL)", "Created-By: Packages"]
    listed = subprocess.run(targets, capture_output=True, text=True, check=False).stdout
    mirrors = [line.split()[0] for line in listed.splitlines() if line.endswith(" Debian")]
    return mirrors[0] if mirrors else None


def _file_adjustments() -> dict[str, str | None]:
    """Files changed in every tree: path -> text, or None for a link to /dev/null (a masked unit)."""
    return {
        # they would take the dpkg lock at a moment of their own choosing
        "etc/systemd/system/apt-daily.timer": None,
        "etc/systemd/system/apt-daily-upgrade.timer": None,
        "etc/ssh/sshd_config.d/lab.conf": "UseDNS no\n",
    }


def _write_adjustment(path: Path, text: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if text is None:
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/null")
    else:
        path.write_text(text)
