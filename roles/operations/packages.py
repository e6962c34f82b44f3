"""Packages on a host: distribution packages, locked packages of other archives, and the run that installs them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyinfra import host, logger
from pyinfra.api import FunctionCommand, operation

from rigwright import apt_transactions
from rigwright.apt_transactions import AptSimulation, find_transaction_problems
from rigwright.fetch_job_spec import job_network
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.deb_package_groups import PackageGroup, find_version_differences
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.bundle import BundledPackages, LocalFile
from roles.operations.jobs import JobDoneFact, ensure_job, run_job, sent_files_folder
from roles.operations.reconnecting_shell import HostLost, ReconnectingShell


@operation()
def install_distribution_packages(
    names: Sequence[str],
    rig: Rig,
    system: str,
    masked: Mapping[str, Sequence[str]] = MappingProxyType({}),
    accounts: Mapping[str, str] = MappingProxyType({}),
) -> Generator[FunctionCommand, None, None]:
    """Install packages that are missing, from the rig's bundle, its apt mirrors or else the archives the host is
    configured with, and write down which are new.

    Waits up to ten minutes for another program to release dpkg's lock. Of a bundle, the host is sent the files that its
    apt takes.

    + names: package names
    + rig: the rig
    + system: the host's, such as debian-12
    + masked: units that these packages bring and would start, each with files that its package leaves behind; one that
      is there already is foreign, and stays as it is. One that a deploy has masked stays masked
    + accounts: of these packages, the user that each makes and leaves behind

    **Example:**

    .. code:: python

        install_distribution_packages(name="Install packages", names=["curl"], rig=rig, system="debian-12")
    """
    roots, bundled = rig.roots, rig.bundle.packages(system) if rig.bundle else BundledPackages()
    installed = _render_installed_test(names, masked, roots.ledger)
    values: dict[str, object] = {
        **{"names": names, "network": job_network(roots, rig.network), "ledger": roots.ledger, "units": UNIT_FOLDER},
        **{"masked": masked, "accounts": accounts},
    }
    if not bundled.files:
        script = render("packages/install.sh.j2", **values, packages=bundled, sent="")
        yield from ensure_job._inner(unit=PACKAGES_JOB, script=script, test=installed, folder=roots.jobs)
    elif host.get_fact(JobDoneFact, test=installed):
        host.noop(f"{PACKAGES_JOB} is done")
    else:
        yield FunctionCommand(fail_host_on_error, (install_from_bundle, rig, values, bundled, installed), {})


def _render_installed_test(names: Sequence[str], masked: Mapping[str, Sequence[str]], ledger: str) -> str:
    """A shell condition: all of the packages are installed, and their units are masked."""
    states = f"dpkg-query -W -f '${{db:Status-Status}}\\n' {shlex.join(names)} 2>/dev/null"
    installed = f'[ "$({states} | grep -cx installed)" = {len(names)} ]'
    for one in masked:
        line, link = shlex.quote(f"mask {one}"), shlex.quote(f"{UNIT_FOLDER}/{one}")
        ours = f"grep -qsxF {line} {shlex.quote(ledger)}"
        installed += f' && {{ ! {ours} || [ "$(readlink {link})" = /dev/null ]; }}'
    return installed


PACKAGES_JOB = "rw-job-packages"
OTHER_BUNDLE = "the bundle does not fit this host: if it is older than the host's packages, make it again"
WRITE = 'mkdir -p "$1" && cat > "$1/$2.new" && sync -d "$1/$2.new" && mv "$1/$2.new" "$1/$2"'


class PackageRun:
    """One host."""

    def __init__(self, state: Any, host: Any, rig: Rig) -> None:
        self.state, self.host, self.rig = state, host, rig
        self.shell = ReconnectingShell(host)
        self.jobs = rig.roots.jobs

    def run_package_job(self, unit: str, script: str, files: Sequence[LocalFile] = ()) -> bool:
        """Run a script that makes `done` in the job's folder as its last step; without a script, watch it."""
        test = f"[ -e {shlex.quote(self.done_path(unit))} ]"
        return run_job(self.state, self.host, unit, script, test, self.jobs, files=files)

    def done_path(self, unit: str) -> str:
        """The last step of a job's script."""
        return f"{self.jobs}/{unit}/done"

    def is_job_active(self, unit: str) -> bool:
        """Whether a job runs, of an earlier run that was ended."""
        said = self.shell.run(f"systemctl is-active {shlex.quote(unit)}.service || true")[0]
        return said in ("active", "activating")

    def report_error(self, *lines: str) -> bool:
        """Say why this host fails."""
        for line in lines:
            logger.error(f"{self.host.print_prefix}{line}")
        return False

    def write_lines(self, folder: str, name: str, lines: Iterable[str]) -> None:
        """Write a file of a line each in a folder of ours."""
        script = f"set -- {shlex.quote(folder)} {shlex.quote(name)}; {WRITE}"
        self.shell.run(script, stdin="".join(f"{line}\n" for line in lines))

    def mark_packages(self, verb: str, names: list[str]) -> None:
        """Have apt hold packages, or release them."""
        if names:
            self.shell.run(f"{shlex.join(['apt-mark', verb, *names])} >/dev/null")


def fail_host_on_error(state: Any, host: Any, function: Any, rig: Rig, *arguments: Any) -> bool:
    """False fails this host, where an exception would show a traceback."""
    try:
        return bool(function(PackageRun(state, host, rig), *arguments))
    except (HostLost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False


def install_from_bundle(
    one: PackageRun, values: Mapping[str, object], bundled: BundledPackages, installed: str
) -> bool:
    """Send the host the lists of its archives, then the packages that its apt takes, and install these."""
    unit, look = PACKAGES_JOB, f"{PACKAGES_JOB}-look"
    if one.is_job_active(unit):  # work of an earlier run goes on by itself
        return run_job(one.state, one.host, unit, "", installed, one.jobs)
    lists = bundled.with_files_of(())
    sent, kept, done = sent_files_folder(one.jobs, look), sent_files_folder(one.jobs, unit), one.done_path(look)
    script = render("packages/look.sh.j2", **values, packages=lists, sent=sent, kept=kept, done=done)
    if not one.run_package_job(look, script, lists.files):
        return False
    # if apt finds no solution, the next job fails with apt's message
    _, seen = apt_transactions.read_simulation(one.shell.run(f"cat {shlex.quote(one.done_path(look))}"), AptSimulation)
    needed = bundled.with_files_of({name for name, _, _ in seen.installed})
    script = render("packages/install.sh.j2", **values, packages=needed, sent=kept)
    return run_job(one.state, one.host, unit, script, installed, one.jobs, files=needed.files)


Commands = Generator[FunctionCommand, None, None]


@dataclass(frozen=True)
class PackageTarget:
    """Packages that a host is to have."""

    group: PackageGroup
    folder: str
    """Where files of it are kept: a folder each set of them."""
    sources: tuple[tuple[str, str], ...]
    """Our files of apt's sources, each with the words for whose archive it names."""
    removed: tuple[str, ...] = ()
    """Packages that go with it."""
    files: tuple[LocalFile, ...] = ()
    """Its own in the rig's bundle; none without one."""
    distribution: BundledPackages = field(default_factory=BundledPackages)
    """Its packages of the distribution's, for their dependencies."""

    @property
    def kept_folder(self) -> str:
        """The folder of this set."""
        return f"{self.folder}/{self.group.store_name}"


@operation()
def install_locked_packages(
    rig: Rig, wanted: PackageTarget, there: Mapping[str, str], kept: bool, half: Collection[str]
) -> Commands:
    """Bring locked packages, and keep their files. apt's plan is judged before it does anything.

    + rig: the rig
    + wanted: the packages
    + there: package -> the version that is installed, as found before the run
    + kept: whether files of this set are kept
    + half: packages whose installation was begun and not ended
    """
    missing = find_version_differences(wanted.group, dict(there)) + [name for name in wanted.removed if name in there]
    if not missing and not half:
        host.noop(f"{wanted.group.name} {wanted.group.version} is installed")
        return
    yield FunctionCommand(fail_host_on_error, (_install_packages, rig, wanted, kept), {})


def _install_packages(one: PackageRun, wanted: PackageTarget, kept: bool) -> bool:
    group = wanted.group
    look, install = f"rw-job-{group.name}-look", f"rw-job-{group.name}"
    # work of an earlier run goes on by itself
    if one.is_job_active(install) and not one.run_package_job(install, ""):
        return False
    values: dict[str, object] = {
        "network": job_network(one.rig.roots, one.rig.network),
        "ledger": one.rig.roots.ledger,
        "component": "",
        "source_files": wanted.sources,
    }
    # apt says by lists alone what it would do: the files of the others need not be sent
    lists = wanted.distribution.with_files_of(())
    targets = [*group.targets, *(f"{name}-" for name in wanted.removed)]
    script = render(
        "debs/look.sh.j2",
        **values,
        done=one.done_path(look),
        sent=sent_files_folder(one.jobs, look) if wanted.files else "",
        packages=lists,
        files=wanted.files,
        targets=targets,
        names=sorted(group.packages),
        removed=wanted.removed,
        kept=wanted.kept_folder if kept or wanted.files else "",
    )
    if not one.run_package_job(look, script, (*lists.files, *wanted.files) if wanted.files else ()):
        return False
    how, seen = apt_transactions.read_simulation(
        one.shell.run(f"cat {shlex.quote(one.done_path(look))}"), AptSimulation
    )
    if reasons := find_transaction_problems(seen, group, wanted.removed):
        if seen.complaints and wanted.files:
            reasons.append(OTHER_BUNDLE)
        return one.report_error(*(f"refused: {reason}" for reason in reasons))
    if how == "kept":
        if not wanted.files:
            logger.warning(
                f"{one.host.print_prefix}the archive has dropped {group.name} {group.version}: using stored files"
            )
        targets = [f"{name}-" for name in wanted.removed]
    coming = {name for name, _, _ in seen.installed} & set(group.packages)
    needed = wanted.distribution.with_files_of({name for name, _, _ in seen.installed})
    script = render(
        "debs/install.sh.j2",
        **values,
        done=one.done_path(install),
        sent=sent_files_folder(one.jobs, install) if wanted.files else "",
        packages=needed,
        what=f"{group.name} {group.version}",
        folder=wanted.folder,
        targets=targets,
        kept=wanted.kept_folder if how == "kept" else "",
        hashes=[(name, group.packages[name].sha256) for name in sorted(coming)],
        names=sorted(coming),
        # the files of a part are no way back to it
        whole=coming == set(group.packages),
        version=group.store_name,
        fresh=[name for name, before, _ in seen.installed if not before],
    )
    return one.run_package_job(install, script, needed.files if wanted.files else ())
