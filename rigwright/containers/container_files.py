"""The files that a rig's containers have on a host, as text; one function says which there are."""

from __future__ import annotations

from rigwright.containers.container_facts import CDI_SPEC, REFRESH_PATH, REFRESH_UNIT, SOURCES, source_path
from rigwright.containers.container_plan import ContainerPlan
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, KnownArchive
from rigwright.model.debs.group import PackageGroup
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_setting_files import SettingFile
from rigwright.nvidia.packages.pins import PRIORITY
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


def spec_program_path(rig: Rig) -> str:
    """What writes the spec of the cards."""
    return f"{rig.roots.config}/containers/refresh"


def managed_paths(rig: Rig) -> tuple[str, ...]:
    """Every one of these files that may be ours; one that `settings` does not name is removed."""
    sources = (SOURCES.format(TOOLKIT_ARCHIVE), SOURCES.format(DOCKER_ARCHIVE))
    return (*sources, PREFERENCES, UNATTENDED, DROP_IN, PATH_DROP_IN, UDEV, spec_program_path(rig))


def managed_folders(rig: Rig, settings: tuple[SettingFile, ...]) -> tuple[str, ...]:
    """The folders that they need and that are ours alone."""
    own = {
        one.path.rpartition("/")[0] for one in settings if one.path in (DROP_IN, PATH_DROP_IN, spec_program_path(rig))
    }
    return tuple(sorted(own))


def system_folders(settings: tuple[SettingFile, ...]) -> tuple[str, ...]:
    """Those of the system's that they need, which it may lack."""
    return tuple(one.path.rpartition("/")[0] for one in settings if one.path == UDEV)


def render_settings(rig: Rig, plan: ContainerPlan, system: str) -> tuple[SettingFile, ...]:
    """The files that a rig's containers have; none of them is empty.

    Args:
        rig: The rig.
        plan: For its host.
        system: Its host's, such as debian-13.
    """
    # what a bundle brings nobody asks an archive for
    asked = () if rig.bundle_folder else plan.groups
    files = {source_path(group): _source(rig, group, system) for group in asked}
    if plan.groups:
        pins = "\n".join(group.render_pin(PRIORITY) for group in plan.groups)
        files[PREFERENCES] = render("containers/preferences.j2", owned=OWNED, pins=pins)
        files[UNATTENDED] = render("containers/unattended.j2", owned=OWNED, names=plan.holds)
    found = [SettingFile(path, text) for path, text in files.items()]
    if any(group.name == TOOLKIT_ARCHIVE for group in plan.groups):
        values = {"owned": OWNED, "program": spec_program_path(rig), "patience": PATIENCE, "again": AGAIN}
        found += [
            SettingFile(DROP_IN, render("containers/refresh.service.j2", **values)),
            SettingFile(PATH_DROP_IN, render("containers/refresh.path.j2", owned=OWNED)),
            SettingFile(UDEV, render("containers/refresh.rules.j2", owned=OWNED, unit=REFRESH_UNIT)),
            SettingFile(
                spec_program_path(rig),
                render("containers/refresh.sh.j2", owned=OWNED, spec=CDI_SPEC, patience=PATIENCE),
                "755",
            ),
        ]
    return tuple(sorted(found, key=lambda one: one.path))


def archive_of(rig: Rig, group: PackageGroup) -> tuple[str, KnownArchive]:
    """The name of a group's archive among a rig's mirrors, and what the tables say of it."""
    if group.name == TOOLKIT_ARCHIVE:
        return TOOLKIT_ARCHIVE, rig.container_supply.tables.toolkit
    return DOCKER_ARCHIVE, rig.container_supply.tables.docker


def archive_locations(rig: Rig, group: PackageGroup, system: str) -> tuple[list[str], str]:
    """Where a group's archive is looked for, in order, and its suite and components, as apt's sources have them."""
    name, known = archive_of(rig, group)
    found = [known.apt_source(base, system) for base in rig.network.mirrors.get(name) or (known.base,)]
    return [address for address, _ in found], found[0][1]


def _source(rig: Rig, group: PackageGroup, system: str) -> str:
    where, suite = archive_locations(rig, group, system)
    suite, _, component = suite.partition(" ")
    return render(
        "containers/archive.sources.j2", owned=OWNED, archive=where, suite=suite, component=component, key=group.key
    )
