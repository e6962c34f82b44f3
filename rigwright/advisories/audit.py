"""The audit of a rig against advisories, and its text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rigwright.advisories.advisory_catalog import DRIVER, MaintainedData, load_maintained
from rigwright.advisories.assessment import Assessment, assess, packages_of
from rigwright.advisories.components import Component, Gap, HostPackage, collect_components, collect_host_components
from rigwright.advisories.debian_tracker import read_tracker
from rigwright.advisories.osv_records import AdvisoryExport, UnreadableExport, read_export
from rigwright.advisories.predicates import PredicateScene
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.inventory import layer_folders
from rigwright.model.catalog_schema import MissingModelFile
from rigwright.model.fact_types import HostFacts
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import build_target_state
from rigwright.project_root import ROOT
from rigwright.supply.bundle import ADVISORIES, Bundle
from rigwright.supply.lock import Lock

# A host of the newest supported Debian. Of its values units have the release's way to run containers alone.
NOMINAL = HostFacts(
    os_id="debian",
    os_version="13",
    architecture="x86_64",
    kernel="6.12.0-amd64",
    systemd=257,
    uid=0,
    memory_kib=64 << 20,
    disk_free_kib=MappingProxyType({}),
    cuda_version="13.0",
    apt_lock_holder="",
)


def render_scene(rig: Rig, lock: Lock) -> PredicateScene:
    """A rig with its lock and units. An instance that cannot be rendered, because something of it is not locked, has
    none: predicates then answer unknown.
    """
    services: dict[str, ServiceSpec] = {}
    units: dict[str, str] = {}
    try:
        made = build_target_state(rig, NOMINAL)
        texts = {one.instance: one.text for one in made.generation.units}
        for one in rig.instances:
            services[one.name] = kind_of(one).service(rig, one, made.installations[one.installed_as])
            units[one.name] = texts[one.name]
    except (ArithmeticError, AttributeError, LookupError, MissingModelFile, StopIteration, TypeError, ValueError):
        # stand-ins for what is not locked lack what units are made of
        return PredicateScene(rig, lock)
    return PredicateScene(rig, lock, services, units)


NOT_ASKED = Gap("packages of the host", "no host was asked: --installed reads them")
NOT_LISTED = Gap("packages of the host", "the host did not list them")


class UnreadableData(Exception):
    """A file of advisories cannot be used; the text names it and says why."""


def bundled_files(bundle: Bundle | None) -> list[Path]:
    """The files of advisories in a rig's bundle, verified.

    Raises:
        UnreadableData: the bytes of one are not those of the bundle's index.
    """
    if bundle is None:
        return []
    found = bundle.folder_files(ADVISORIES)
    for one in found:
        if why := one.refusal():
            raise UnreadableData(why)
    return [one.path for one in found]


def read_data(paths: Iterable[Path], packages: Iterable[tuple[str, str]]) -> list[AdvisoryExport]:
    """Read exports and tracker files for some packages.

    Raises:
        UnreadableData: one cannot be read at all.
    """
    wanted = set(packages)
    exports = []
    for path in dict.fromkeys(paths):
        try:
            exports.append(read_tracker(path, wanted) or read_export(path, wanted))
        except UnreadableExport as error:
            raise UnreadableData(f"{path} {error}") from None
    return exports


def audit(
    rigs: Mapping[str, Rig],
    paths: Sequence[Path] = (),
    installed: Mapping[str, tuple[str, tuple[HostPackage, ...]]] | None = None,
    data: MaintainedData | None = None,
) -> list[Assessment]:
    """The advisories of several rigs.

    Args:
        rigs: By name, as they were loaded; of an inventory that is not locked whole, with stand-ins.
        paths: Files of advisories; each rig's bundle may have more.
        installed: Rig -> its host's release and packages; rigs that are not in it were not asked.
        data: Maintained data; default: the shipped ones.

    Raises:
        UnreadableData: a file of advisories cannot be read.
        rigwright.problems.Invalid: a mistake in the shipped data, or in a lock.
    """
    known = load_maintained(ROOT / "catalog") if data is None else data
    locks: dict[str, Lock] = {}
    parts: dict[str, tuple[list[Component], list[Gap], list[Path]]] = {}
    for name, rig in rigs.items():
        if rig.inventory not in locks:
            locks[rig.inventory] = Lock.load(layer_folders(Path(rig.inventory), "locks"))
        lock = locks[rig.inventory]
        found, gaps = collect_components(rig, lock, known)
        if installed is not None and name in installed:
            system, packages = installed[name]
            of_host = collect_host_components(packages, system, driver_known=any(one.name == DRIVER for one in found))
            if any(one.name == DRIVER for one in of_host):
                gaps = [one for one in gaps if one.what != "NVIDIA driver"]
            found += of_host
        else:
            gaps.append(NOT_ASKED if installed is None else NOT_LISTED)
        parts[name] = found, gaps, [*paths, *bundled_files(rig.bundle)]
    wanted = packages_of(component for found, _, _ in parts.values() for component in found)
    read: dict[tuple[Path, ...], list[AdvisoryExport]] = {}
    made = []
    for name, (found, gaps, files) in parts.items():
        key = tuple(files)
        if key not in read:
            read[key] = read_data(files, wanted)
        scene = render_scene(rigs[name], locks[rigs[name].inventory])
        made.append(assess(scene, found, gaps, known, read[key]))
    return made
