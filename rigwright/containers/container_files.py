"""The files that a rig's containers have on a host, as text; one function says which there are."""

from __future__ import annotations

from rigwright.containers.container_facts import CDI_SPEC, REFRESH_PATH, REFRESH_UNIT, SOURCES, source_path
from rigwright.containers.container_plan import ContainerPlan
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, KnownArchive
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_setting_files import SettingFile
from rigwright.nvidia.packages.locked_driver import PRIORITY
from rigwright.render import render

OWNED = "# Written by rigwright for containers; changes here are undone by the next deploy."
PREFERENCES = "/etc/apt/preferences.d/rigwright-containers"
UNATTENDED = "/etc/apt/apt.conf.d/52rigwright-containers"
DROP_IN = f"/etc/systemd/system/{REFRESH_UNIT}.d/rigwright.conf"
PATH_DROP_IN = f"/etc/systemd/system/{REFRESH_PATH}.d/rigwright.conf"
UDEV = "/etc/udev/rules.d/71-rigwright-cdi.rules"
# Seconds that the cards may take to answer after a boot, or a module's change.
PATIENCE = 90
# Seconds after which a refresh that came to nothing is tried again.
AGAIN = 30


def spec_program_path(roots: Roots) -> str:
    """The path of the program that writes the spec of the cards."""
    return f"{roots.config}/containers/refresh"


def managed_paths(roots: Roots) -> tuple[str, ...]:
    """Every one of these files that may be ours; one that `settings` does not name is removed."""
    sources = (SOURCES.format(TOOLKIT_ARCHIVE), SOURCES.format(DOCKER_ARCHIVE))
    return (*sources, PREFERENCES, UNATTENDED, DROP_IN, PATH_DROP_IN, UDEV, spec_program_path(roots))


def managed_folders(roots: Roots, settings: tuple[SettingFile, ...]) -> tuple[str, ...]:
    """The folders that they need and that are ours alone."""
    own = {
        one.path.rpartition("/")[0] for one in settings if one.path in (DROP_IN, PATH_DROP_IN, spec_program_path(roots))
    }
    return tuple(sorted(own))


def system_folders(settings: tuple[SettingFile, ...]) -> tuple[str, ...]:
    """Those of the system's that they need, which it may lack."""
    return tuple(one.path.rpartition("/")[0] for one in settings if one.path == UDEV)


def render_settings(
    roots: Roots,
    container_supply: ContainerSupply,
    network: DownloadNetwork,
    bundle_folder: str | None,
    plan: ContainerPlan,
    system: str,
) -> tuple[SettingFile, ...]:
    """The files that a rig's containers have; none of them is empty.

    Args:
        roots: Directories on the host.
        container_supply: The packages of containers.
        network: Where and how the host downloads.
        bundle_folder: The folder of the bundle on the operator's machine.
        plan: For its host.
        system: Its host's, such as debian-13.
    """
    # no archive is asked for packages that a bundle brings
    asked = () if bundle_folder else plan.groups
    files = {source_path(group): _source(container_supply, network, group, system) for group in asked}
    if plan.groups:
        pins = "\n".join(group.render_pin(PRIORITY) for group in plan.groups)
        files[PREFERENCES] = render("containers/preferences.j2", owned=OWNED, pins=pins)
        files[UNATTENDED] = render("containers/unattended.j2", owned=OWNED, names=plan.holds)
    found = [SettingFile(path, text) for path, text in files.items()]
    if any(group.name == TOOLKIT_ARCHIVE for group in plan.groups):
        values = {"owned": OWNED, "program": spec_program_path(roots), "patience": PATIENCE, "again": AGAIN}
        found += [
            SettingFile(DROP_IN, render("containers/refresh.service.j2", **values)),
            SettingFile(PATH_DROP_IN, render("containers/refresh.path.j2", owned=OWNED)),
            SettingFile(UDEV, render("containers/refresh.rules.j2", owned=OWNED, unit=REFRESH_UNIT)),
            SettingFile(
                spec_program_path(roots),
                render("containers/refresh.sh.j2", owned=OWNED, spec=CDI_SPEC, patience=PATIENCE),
                "755",
            ),
        ]
    return tuple(sorted(found, key=lambda one: one.path))


def archive_of(container_supply: ContainerSupply, group: PackageGroup) -> tuple[str, KnownArchive]:
    """The name of a group's archive among a rig's mirrors, and what the tables say of it."""
    if group.name == TOOLKIT_ARCHIVE:
        return TOOLKIT_ARCHIVE, container_supply.tables.toolkit
    return DOCKER_ARCHIVE, container_supply.tables.docker


def archive_locations(
    container_supply: ContainerSupply, network: DownloadNetwork, group: PackageGroup, system: str
) -> tuple[list[str], str]:
    """Where a group's archive is looked for, in order, and its suite and components, as apt's sources have them."""
    name, known = archive_of(container_supply, group)
    found = [known.apt_source(base, system) for base in network.mirrors.get(name) or (known.base,)]
    return [address for address, _ in found], found[0][1]


def _source(container_supply: ContainerSupply, network: DownloadNetwork, group: PackageGroup, system: str) -> str:
    where, suite = archive_locations(container_supply, network, group, system)
    suite, _, component = suite.partition(" ")
    return render(
        "containers/archive.sources.j2", owned=OWNED, archive=where, suite=suite, component=component, key=group.key
    )
