"""An inventory entry into a rig: every name in it is resolved, and what cannot be is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from rigwright.declaration.catalog import DRIVER
from rigwright.declaration.container_packages import groups_for, refuse_without_cdi, resolve_container_packages
from rigwright.declaration.entry_validation import validate_entry
from rigwright.declaration.envs import resolve_envs
from rigwright.declaration.instance_resolution import (
    LoadPurpose,
    Refuse,
    refuse_engine_keys,
    refuse_forbidden_keys,
    resolve_instance,
)
from rigwright.declaration.inventory_locks import refuse_inventory_locks
from rigwright.gateway.served_models import refuse_gateway
from rigwright.model.catalog import Catalog
from rigwright.model.containers import archive_tables
from rigwright.model.entry import RigEntry
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.model.monitoring.scrape_targets import ScrapeTarget
from rigwright.model.nvidia.driver_tables import DriverTables, load_driver_tables
from rigwright.model.origins import token_origin
from rigwright.model.rig import PATCHED_TOOLKIT, Rig, artefact_urls, needs_toolkit
from rigwright.monitoring.validation import refuse_monitoring
from rigwright.patches.patch import Patch, select_patches
from rigwright.problems import Invalid, Problem, describe_unknown, format_count, format_value
from rigwright.supply import bundle as bundles
from rigwright.supply.bundle import Bundle
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.root_programs import CUDA, GPU_EXPORTER, HUB_CLIENT, INSTALLERS, TOOLS

HEADER = re.compile("nvidia/[^/]+/include/.+")
"""Path of a header of the CUDA toolkit, from where its wheels are installed."""


def resolve_rig(
    file: str,
    name: str,
    data: object,
    catalog: Catalog,
    lock: Lock,
    also: frozenset[str] = frozenset(),
    *,
    making: LoadPurpose = "",
    watched: tuple[ScrapeTarget, ...] = (),
) -> Rig:
    """Validate one inventory entry and resolve every name in it.

    Args:
        file: The inventory, for messages.
        name: The rig's name.
        data: Its entry.
        catalog: What it names.
        lock: What that is made of.
        also: Keys that are valid beside these, for suggestions.
        making: What of it is only being made: its lock, its bundle, or nothing.
        watched: The boxes of its inventory that it asks.

    Raises:
        Invalid: with every mistake in the entry.
    """
    given = validate_entry(file, name, data, also)
    entry, present, problems, refuse = given.entry, given.cards, given.problems, given.refuse
    for index, card in enumerate(entry.cards):
        if isinstance(card, str) and card not in catalog.cards:
            refuse(f"cards[{index}]", describe_unknown("card", card, catalog.cards))
    instances = [
        instance
        for instance_name, declared in entry.instances.items()
        if (instance := resolve_instance(instance_name, declared, present, catalog, lock, refuse, Path(file), making))
    ]
    if entry.gateway:
        taken = {entry.share.port: "the port for sharing weights"} if entry.share else {}
        ports = {instance_name: one.port for instance_name, one in entry.instances.items()}
        refuse_gateway(entry.gateway, instances, ports, taken, refuse)
    if entry.monitoring:
        refuse_monitoring(entry, given.resolve_path, refuse)
    if wrong := describe_uncovered(TOOLS, "wheel", catalog.inputs, lock, file):
        refuse("tools", wrong)
    running = {f"instances.{one.name}.variant": one.env for one in instances if one.env}
    envs = resolve_envs(entry, running, catalog, lock, file, refuse, locking=making == "lock")
    installers: tuple[Artefact, ...] = ()
    if envs:
        if wrong := describe_uncovered(INSTALLERS, "wheel", catalog.inputs, lock, file):
            refuse("envs", f"the environment installer cannot be used: {wrong}")
        installers = lock.groups.get(INSTALLERS, ())
    cuda: tuple[Artefact, ...] = ()
    if entry.cuda_root is None and needs_toolkit(bool(entry.cards), instances, envs):
        if wrong := describe_uncovered(CUDA, "wheel", catalog.inputs, lock, file):
            refuse("cuda_root", f"no cuda_root is set, and the locked toolkit cannot be used: {wrong}")
        cuda = lock.groups.get(CUDA, ())
    patches = _toolkit_patches(catalog, cuda, refuse, locking=making == "lock")
    problems += _refuse_changed_programs(patches)
    drivers = load_driver_tables(Path(file).parent)
    _refuse_driver(entry, catalog, drivers, present, refuse)
    locked = _drivers(catalog, lock) if entry.driver.managed else []
    for group in locked:
        if wrong := describe_uncovered(group, "deb", catalog.inputs, lock, file):
            refuse("driver.managed", wrong)
    container_tables = archive_tables.load_container_tables(Path(file).parent)
    container_groups = resolve_container_packages(entry, catalog, lock, file, refuse, container_tables)
    refuse_without_cdi(instances, entry, refuse)
    engine_artefacts = {one.engine_name: one.artefacts for one in instances if one.env is None}
    # which version an environment will have, nobody knows while its lock is being made
    known = [one for one in instances if making != "lock" or one.env is None]
    for instance in known:
        env = next((one for one in envs if one.name == instance.env), None)
        refuse_engine_keys(instance, entry, catalog, Path(file).parent, refuse, env, making)
    if making != "lock":
        refuse_inventory_locks(lock, [*locked, *container_groups], entry.allow, refuse)
    if len(known) == len(entry.instances):
        refuse_forbidden_keys(instances, entry.allow, refuse)
    weights = [artefact for i in instances for artefact in i.weights]
    client: tuple[Artefact, ...] = ()
    if entry.bundle is None and any(source.startswith(f"{HUB}:") for one in weights for source in one.sources):
        if wrong := describe_uncovered(HUB_CLIENT, "wheel", catalog.inputs, lock, file):
            refuse("instances", f"some weights come from the hub, and its client cannot be used: {wrong}")
        client = lock.groups.get(HUB_CLIENT, ())
    exporter: tuple[Artefact, ...] = ()
    if entry.monitoring and entry.cards:
        if wrong := describe_uncovered(GPU_EXPORTER, "wheel", catalog.inputs, lock, file):
            refuse("monitoring", f"the card exporter cannot be used: {wrong}")
        exporter = lock.groups.get(GPU_EXPORTER, ())
    needed = [*(one for artefacts in engine_artefacts.values() for one in artefacts), *weights]
    brought = [*cuda, *lock.groups.get(TOOLS, ()), *installers, *exporter]
    brought += [one for env in envs for one in env.artefacts]
    bundle, faults = None, []
    bundle_folder = given.resolve_path(entry.bundle) if entry.bundle is not None else None
    if bundle_folder is not None and not making:
        try:
            bundle = bundles.load_bundle(Path(bundle_folder))
            locked_debs = [one for system in bundle.systems for one in groups_for(container_groups, system)]
            debs = dict.fromkeys(row for one in locked_debs for row in one.packages.values())
            faults = _find_unbundled(bundle, [*needed, *brought, *debs], file, name)
        except Invalid as error:
            faults = error.problems
    elif bundle_folder is None and making != "bundle":
        _refuse_unreachable(needed, entry.mirrors, refuse)
    if problems:
        raise Invalid(problems)
    return Rig(
        name=name,
        inventory=file,
        cards=tuple(catalog.cards[card] if isinstance(card, str) else card for card in entry.cards),
        reserved_gpus=tuple(sorted(entry.reserved_gpus)),
        driver=entry.driver,
        drivers=drivers,
        driver_packages={group.removeprefix(DRIVER): lock.groups[group] for group in locked},
        driver_keys={group.removeprefix(DRIVER): lock.keys[group] for group in locked if group in lock.keys},
        containers=entry.containers,
        container_tables=container_tables,
        container_groups=container_groups,
        instances=tuple(sorted(instances, key=lambda instance: instance.name)),
        roots=entry.roots,
        service_user=entry.service_user,
        mirrors=entry.mirrors,
        proxy=entry.proxy,
        no_proxy=entry.no_proxy,
        ca_certificates=given.ca_certificates,
        peers=entry.peers,
        share=entry.share,
        gateway=entry.gateway,
        monitoring=entry.monitoring,
        scrape_targets=watched,
        hub_token_file=given.token_file,
        hub_token_origin=token_origin(entry.hub_token_origin) if given.token_file else None,
        registry_logins=given.logins,
        redirects=entry.redirects,
        fs_verity=entry.fs_verity,
        keep_generations=entry.keep_generations,
        cuda_root=entry.cuda_root,
        cuda=cuda,
        also_build_for=entry.extra_capabilities,
        bundle_folder=bundle_folder,
        bundle=bundle,
        bundle_faults=tuple(faults),
        variants=tuple(catalog.variants.values()),
        engine_artefacts=engine_artefacts,
        tools=lock.groups[TOOLS],
        gpu_exporter=exporter,
        hub_client=client,
        envs=envs,
        installers=installers,
        lock=lock,
        requests={name: one.requirements for name, one in catalog.inputs.items() if one.kind in ("wheel", "conda")},
        toolkit_patches=patches,
    )


def _toolkit_patches(
    catalog: Catalog, wheels: Sequence[Artefact], refuse: Refuse, *, locking: bool
) -> tuple[Patch, ...]:
    """The patches of the locked CUDA toolkit; those that are not for its wheels are refused."""
    if not wheels:
        return ()
    versions: dict[str, str] = {canonicalize_name(one.name): one.version for one in wheels}
    found, wrong = select_patches(
        catalog.toolkit_patches, catalog.patches, None if locking else versions, PATCHED_TOOLKIT
    )
    for line in wrong:
        refuse("cuda_root", f"no cuda_root is set, and the locked toolkit cannot be used: {line}")
    return found


def _refuse_changed_programs(patches: Sequence[Patch]) -> list[Problem]:
    """Refusals of patches of the CUDA toolkit that change more than its headers: root runs programs of the toolkit."""
    return [
        Problem(
            one.file,
            f"targets.{path}",
            f"a patch of the {PATCHED_TOOLKIT} may change files below nvidia/*/include/ alone: root runs its programs",
        )
        for one in patches
        for path in one.patched_digests
        if not HEADER.fullmatch(path)
    ]


def _drivers(catalog: Catalog, lock: Lock) -> list[str]:
    """The drivers that are asked for or locked, as the lock's groups are called."""
    asked = {name for name, one in catalog.inputs.items() if one.kind == "deb" and name.startswith(DRIVER)}
    return sorted(asked | {group for group in lock.groups if group.startswith(DRIVER)})


def _refuse_driver(entry: RigEntry, catalog: Catalog, known: DriverTables, present: int, refuse: Refuse) -> None:
    """Refuse what the cards, or the tables of drivers, have no place for."""
    driver = entry.driver
    cards = [catalog.cards.get(one) if isinstance(one, str) else one for one in entry.cards]
    if driver.managed and not present:
        refuse("driver.managed", "the rig declares no cards, so it needs no driver")
    for key in ("power_w", "clocks_mhz"):
        if getattr(driver, key) is not None and not present:
            refuse(f"driver.{key}", "the rig declares no cards, so it has no power limits or clocks")
    if driver.branch is not None and driver.branch < known.minimum:
        refuse("driver.branch", f"{driver.branch} is refused: must be at least {known.minimum}")
    if driver.managed and entry.bundle is not None:
        refuse("driver.managed", "a bundle contains no driver: omit bundle, or install the driver yourself")
    for key, listed in (("pcie_link_width", driver.pcie_link_width), ("power_w", driver.power_w)):
        if isinstance(listed, tuple) and listed and len(listed) != present:
            refuse(
                f"driver.{key}",
                f"{len(listed)} are listed, but the rig declares {format_count(present, 'card')}: one per card",
            )
    if missing := sorted({index for pair in driver.nvlinks for index in pair if index >= present}):
        refuse(
            "driver.nvlinks", f"no card {missing[0]}: the rig declares {format_count(present, 'card')}, counted from 0"
        )
    for index, card in enumerate(cards):
        generation = known.capability_generation(card.capability) if card else None
        if card and generation and driver.flavour and driver.flavour not in generation.flavours:
            refuse(
                "driver.flavour",
                f"{format_value(driver.flavour)} is refused for card {index}: {card.name} ({generation.name}) "
                f"only works "
                f"with {' or '.join(generation.flavours) or 'no supported'} modules",
            )
    for index, (card, limit) in enumerate(zip(cards, driver.power_limits(present), strict=False)):
        if card and card.power_w and limit is not None and not card.power_w[0] <= limit <= card.power_w[1]:
            refuse(
                "driver.power_w",
                f"{limit} W is refused for card {index}: {card.name} accepts {card.power_w[0]} to {card.power_w[1]} W",
            )


def _find_unbundled(bundle: Bundle, artefacts: list[Artefact], file: str, name: str) -> list[Problem]:
    return [
        Problem(file, f"{name}.bundle", f"{bundle.folder} lacks {one} ({one.file}): {bundles.AGAIN}")
        for one in artefacts
        if bundle.find(one) is None
    ]


def _refuse_unreachable(artefacts: list[Artefact], mirrors: dict[str, tuple[str, ...]], refuse: Refuse) -> None:
    for artefact in artefacts:
        if artefact.is_written:
            continue
        known = {"source": "index:", "weight": f"{HUB}:"}.get(artefact.kind, "")
        if not any(known and source.startswith(known) for source in artefact.sources) and not artefact_urls(
            artefact, mirrors
        ):
            lacking = dict.fromkeys(source.partition(":")[0] for source in artefact.sources if source[:6] != "index:")
            said = f"{artefact} of the lock has no address: its sources are {', '.join(artefact.sources)}"
            refuse("mirrors", f"{said}; add a mirror named {' or '.join(lacking)}")
