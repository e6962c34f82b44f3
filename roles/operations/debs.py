"""Operations on packages that are locked one by one, from an archive beside the distribution's."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Generator, Mapping
from dataclasses import dataclass, field

from pyinfra import host, logger
from pyinfra.api import FunctionCommand, operation

from rigwright.debs import simulation
from rigwright.debs.simulation import AptSimulation, find_transaction_problems
from rigwright.delivery.network import job_network
from rigwright.model.debs.group import PackageGroup, find_version_differences
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.bundle import BundledPackages, LocalFile
from roles.operations.jobs import sent_files_folder
from roles.operations.package_run import PackageRun, fail_host_on_error

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
    """What that has of the distribution's, for what they need."""

    @property
    def kept_folder(self) -> str:
        """The folder of this set."""
        return f"{self.folder}/{self.group.store_name}"


@operation()
def install_locked_packages(
    rig: Rig, wanted: PackageTarget, there: Mapping[str, str], kept: bool, half: Collection[str]
) -> Commands:
    """Bring locked packages, and keep their files. What apt would do is judged before it does anything.

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
    # what an earlier run has begun goes on by itself
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
    how, seen = simulation.read_simulation(one.shell.run(f"cat {shlex.quote(one.done_path(look))}"), AptSimulation)
    if reasons := find_transaction_problems(seen, group, wanted.removed):
        if seen.complaints and wanted.files:
            reasons.append("the bundle does not fit this host: if it is older than the host's packages, make it again")
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
