"""Distribution packages with all that they need, as a flat archive that apt can install from.

The machine's own apt finds, fetches and verifies them, with state of its own in a temporary folder: what is installed
here is nobody's concern, and neither is which release this machine runs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from rigwright.cli.resolving.web import Unavailable

# Releases that preflight supports, and what their archives call them (wiki.debian.org/DebianReleases,
# wiki.ubuntu.com/Releases).
CODENAMES = {
    "debian-12": "bookworm",
    "debian-13": "trixie",
    "ubuntu-22.04": "jammy",
    "ubuntu-24.04": "noble",
    "ubuntu-26.04": "resolute",
}
COMPONENTS = {"debian": "main", "ubuntu": "main universe"}


class Archive:
    """One system's packages."""

    def __init__(self, system: str, mirrors: Sequence[str]) -> None:
        self.distribution = system.partition("-")[0]
        self.codename = CODENAMES[system]
        self.mirrors = mirrors
        self.keyring = Path(f"/usr/share/keyrings/{self.distribution}-archive-keyring.gpg")

    def bring(self, names: Iterable[str], folder: Path) -> None:
        """Make the folder an archive of packages and all that they need, as if nothing was installed.

        Raises:
            Unavailable: there is no apt here, no key or no archive of this distribution, or apt fails.
        """
        if not self.keyring.exists():
            package = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-keyring"}[self.distribution]
            raise Unavailable(f"{self.keyring} is not on this machine: install {package}")
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            options = self._options(work)
            _apt([*options, "update"])
            _apt([*options, "--yes", "--no-install-recommends", "--download-only", "install", *names])
            self._archive(sorted((work / "archives").glob("*.deb")), folder)

    def _options(self, work: Path) -> list[str]:
        for name in ("lists/partial", "archives/partial", "state", "cache", "parts"):
            (work / name).mkdir(parents=True)
        (work / "status").touch()
        (work / "sources.list").write_text("".join(f"{line}\n" for line in self._sources()))
        set_ = {
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Dir::State": work / "state",
            "Dir::State::status": work / "status",
            "Dir::State::Lists": work / "lists",
            "Dir::Cache": work / "cache",
            "Dir::Cache::archives": work / "archives",
            "Dir::Etc::SourceList": work / "sources.list",
            "Dir::Etc::SourceParts": work / "parts",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": work / "parts",
        }
        return [word for name, value in set_.items() for word in ("-o", f"{name}={value}")]

    def _sources(self) -> list[str]:
        """The archive's places: the rig's mirrors, or what this machine uses itself for the same distribution."""
        signed = f"deb [signed-by={self.keyring}]"
        if self.mirrors:
            suites = [self.codename, f"{self.codename}-updates"]
            if self.distribution == "ubuntu":
                suites.append(f"{self.codename}-security")
            places = [(base.rstrip("/"), suite) for base in self.mirrors for suite in suites]
            if self.distribution == "debian":
                places += [(f"{base.rstrip('/')}-security", f"{self.codename}-security") for base in self.mirrors]
        else:
            places = self._own()
        return [f"{signed} {base} {suite} {COMPONENTS[self.distribution]}" for base, suite in places]

    def _own(self) -> list[tuple[str, str]]:
        release = _release()
        if release.get("ID") != self.distribution:
            raise Unavailable("this machine has another distribution: name its archive in the rig's mirrors, as apt")
        own, label = release.get("VERSION_CODENAME", ""), self.distribution.capitalize()
        asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(LABEL)", "Created-By: Packages"]
        found = [line.split(" ", 2) for line in _run(asked).splitlines()]
        places = [(base, suite.replace(own, self.codename)) for base, suite, of in found if of.startswith(label)]
        if not places:
            raise Unavailable("this machine's apt has no archive: name one in the rig's mirrors, as apt")
        return list(dict.fromkeys(places))

    def _archive(self, debs: list[Path], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        stanzas = []
        for deb in debs:
            # apt writes the colon of an epoch as %3a
            name, content = deb.name.replace("%3a", "~"), deb.read_bytes()
            new = folder / f"{name}.part"
            new.write_bytes(content)
            new.replace(folder / name)
            control = _run(["dpkg-deb", "--field", str(deb)]).rstrip("\n")
            digest = hashlib.sha256(content).hexdigest()
            stanzas.append(f"{control}\nFilename: ./{name}\nSize: {len(content)}\nSHA256: {digest}\n")
        (folder / "Packages").write_text("\n".join(stanzas))
        for path in set(folder.iterdir()) - {folder / "Packages", *(folder / d.name.replace("%3a", "~") for d in debs)}:
            path.unlink()


def _release() -> dict[str, str]:
    pairs = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {name: value.strip('"') for name, _, value in pairs}


def _apt(options: list[str]) -> None:
    _run(["apt-get", "-qq", *options])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C.UTF-8"}
        )
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not on this machine: packages need Debian or Ubuntu") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise Unavailable(f"{command[0]} failed: {' '.join(said)}")
    return done.stdout
