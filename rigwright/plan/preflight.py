"""Preflight: refusals, warnings and notices for a rig on a host, each with a remedy."""

from __future__ import annotations

import re
from collections import Counter

from rigwright.engines import kind_of, known_issues
from rigwright.gateway.gateway_units import GATEWAY_PREFIX as GATEWAY_PREFIX
from rigwright.host.supported_systems import system_refusals
from rigwright.model.catalog_schema import Card
from rigwright.model.engine_schema import ParsedEvidence, describe_evidence
from rigwright.model.fact_types import HostFacts
from rigwright.model.installation import Installation
from rigwright.model.instance import EnvSpec, Instance, loaded_weights
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.nvidia_tables import ToolkitSpec
from rigwright.model.rig import Rig, account_names
from rigwright.monitoring.monitoring_facts import expected_growth_kib
from rigwright.monitoring.validation import find_monitoring_refusals
from rigwright.nvidia.cuda_toolkit import DISK_KIB, glibc_refusals, toolkit_refusals
from rigwright.plan.host_probe import find_missing_host_packages
from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.port_conflicts import (
    describe_used_addresses,
    find_instance_conflicts,
    find_listener_conflicts,
    find_reserved_conflicts,
    is_own_listener,
)
from rigwright.supply.cuda_machine_code import find_unrunnable_files
from rigwright.supply.supply_signatures import describe_expiring_signatures, find_older_signatures
from rigwright.validated_types import memory_bytes

GIB = 1 << 20  # in KiB
# Files without code for a card that are named: the lock has the others.
LISTED = 3


def describe_shared_memory(instances: tuple[Instance, ...], facts: HostFacts) -> list[str]:
    """The contents of /dev/shm are memory: where there is less than instances may keep there, they are killed in place
    of being refused."""
    given = {one.name: size for one in instances if (size := kind_of(one).shared_memory(one))}
    kib = sum(memory_bytes(size, facts.memory_kib) for size in given.values()) // 1024
    if kib <= facts.memory_kib:
        return []
    have = facts.memory_kib / GIB
    said = f"{', '.join(given)}: /dev/shm may take {kib / GIB:.1f} GiB, and the host has {have:.1f} GiB of memory"
    return [f"{said}: lower shm_size"]


def describe_other_cards(cards: tuple[Card, ...], envs: tuple[EnvSpec, ...]) -> list[str]:
    """Files of environments that none of a rig's cards can run, and that are known to be for others: programs that need
    them fail there.
    """
    found = []
    for env in envs:
        for capability in sorted({card.capability for card in cards}):
            paths = sorted({path for path, _ in find_unrunnable_files(env.packages, capability)})
            if paths:
                shown = ", ".join(paths[:LISTED]) + (f" and {len(paths) - LISTED} more" if paths[LISTED:] else "")
                found.append(f"{env.name}: no code for compute capability {capability}, so not used: {shown}")
    return found


ARCHITECTURE = "x86_64"
# LoadCredential= came with 247 and Ubuntu 22.04 has 249 (systemd NEWS)
SYSTEMD_MINIMUM = 247
# The oldest kernel that a supported release has shipped with: Ubuntu 22.04's (Ubuntu release notes)
KERNEL_MINIMUM = "5.15"
HOME = "/nonexistent"  # of the services' users
# Measured: the largest compiler process of a CPU build takes 1.2 GiB.
MEMORY_MINIMUM = 2 * GIB
# Seconds. apt refuses package lists from the future, and TLS certificates have a beginning; a slow probe takes some.
CLOCK_TOLERANCE = 600
# Measured with vLLM 0.21.0: a process that has imported what serves takes 0.8 GiB; there is one, and one a card.
ENV_MEMORY = 4 * GIB
# A file system filled to the brim breaks more than a download.
DISK_RESERVE = 1 * GIB


def kernel_numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^0-9.]", text)[0]))


def find_signature_refusals(wanted: TargetState, accept_older: int = 0) -> list[str]:
    """The missing and older signatures of lock and bundle, which no waiver covers."""
    rig = wanted.rig
    older = find_older_signatures(rig.signatures, wanted.facts.accepted_serials, accept_older)
    return [*map(str, rig.signature_faults), *older]


def find_refusals(wanted: TargetState, now: float, accept_older: int = 0) -> list[str]:
    """Everything that stands in the way, one sentence each; empty when nothing does.

    Args:
        wanted: The host's target.
        now: Seconds since the epoch, as the operator's machine has it.
        accept_older: The serial of a signed lock or bundle that the operator accepts although it is older.
    """
    rig, facts = wanted.rig, wanted.facts
    installations = list(wanted.installations.values())
    found = find_signature_refusals(wanted, accept_older)
    found += system_refusals(facts.os_id, facts.os_version, facts.kernel)
    if facts.architecture != ARCHITECTURE:
        found.append(f"the CPU architecture is {facts.architecture}: only {ARCHITECTURE} is supported")
    if facts.systemd < SYSTEMD_MINIMUM:
        found.append(f"systemd {facts.systemd or 'is missing'}: at least {SYSTEMD_MINIMUM} is required")
    if kernel_numbers(facts.kernel) < kernel_numbers(KERNEL_MINIMUM):
        found.append(f"kernel {facts.kernel}: at least {KERNEL_MINIMUM} is required; boot the distribution's newest")
    if abs(facts.clock - now) > CLOCK_TOLERANCE:
        hours = f"{abs(facts.clock - now) / 3600:.1f} hours {'ahead of' if facts.clock > now else 'behind'}"
        found.append(
            f"its clock is {hours} this machine's, so certificates and package lists would be invalid: set it "
            "(timedatectl set-ntp true)"
        )
    found += [f"{path} is a symbolic link: name its target in roots" for path in facts.linked_roots]
    if facts.uid == 0:
        found += [
            f"{path} is on a read-only file system: mount it writable (`findmnt --target {path}` shows it), or move "
            "the root to another disk"
            for path in facts.read_only_roots
        ]
    else:
        found.append('not root: log in as root, or set "_sudo": True in the inventory and allow the user sudo')
    if facts.memory_kib < MEMORY_MINIMUM:
        found.append(f"{facts.memory_kib / GIB:.1f} GiB of memory: at least {MEMORY_MINIMUM // GIB} GiB is required")
    found += (
        _cards(rig.cards, facts)
        + _user(rig, facts)
        + _roots(facts)
        + _toolkit(rig.cards, rig.toolkit, facts, installations)
    )
    return (
        found
        + _cpu_features(rig.instances, facts)
        + _bundle(rig, facts)
        + find_instance_conflicts(rig.instances, facts)
        + _share(rig.share, facts)
        + find_listener_conflicts(rig.gateway, facts)
        + find_monitoring_refusals(rig.monitoring, facts, is_own_listener)
        + _disks(rig, facts, installations)
    )


JOB_PREFIX = "rw-job-"
"""Start of the names of transient units that a deploy starts."""


def find_warnings(rig: Rig, facts: HostFacts) -> list[str]:
    """Facts worth knowing that refuse nothing."""
    # the host's clock differs from the controller's by minutes at most
    found = describe_expiring_signatures(rig.signatures, facts.clock)
    if facts.accepted_serials and not rig.signers:
        found.append(
            "the inventory has no signers, and this host has accepted signed locks: a deploy takes any lock; add the "
            "signers again, unless you have removed them yourself"
        )
    if facts.apt_lock_holder:
        ours = "Rigwright's own job " if facts.apt_lock_holder.startswith(JOB_PREFIX) else ""
        found.append(
            f"dpkg's lock is held by {ours}{facts.apt_lock_holder}: package installs wait until it is released"
        )
    if rig.envs and facts.memory_kib < ENV_MEMORY:
        have, need = facts.memory_kib / GIB, ENV_MEMORY // GIB
        found.append(f"{have:.1f} GiB of memory: an engine in an environment uses {need} GiB before it loads a model")
    for one in rig.instances:
        size = sum(file.size for file in one.weights) // 1024
        if one.env and size > facts.memory_kib:
            # measured by others with 19 GiB of weights and 9 GiB of memory: 185 to 200 s, and once it never ended
            said = f"{facts.memory_kib / GIB:.1f} GiB of memory, and {size / GIB:.1f} GiB of weights"
            found.append(f"{one.name}: {said}: loading them is slow, and may not finish")
        found += [f"{one.name}: {note}" for note in kind_of(one).notes(one)]
        if isinstance(one.variant.evidence, ParsedEvidence):
            found.append(f"{one.name}: {one.variant_name} is {one.variant.evidence.description}")
    held = {one.port for one in facts.listeners if is_own_listener(one)}
    found += sorted(
        {
            f"{place} is in use by {one.holder_text}: clients of the gateway that reach it send their keys "
            f"there: stop it"
            for place, one in find_reserved_conflicts(rig.gateway, facts)
            if one.port in held
        }
    )
    measured, unread = _describe_memory(rig)
    return (
        found
        + describe_shared_memory(rig.instances, facts)
        + known_issues.describe_warnings(rig.cards, rig.instances, rig.envs, rig.toolkit, measured)
        + unread
    )


def _describe_memory(rig: Rig) -> tuple[dict[str, str], list[str]]:
    """The measured statements about the instances of a rig, and why there are none where records are invalid."""
    if not rig.memory_records.is_dir() and not any(one.is_on_demand for one in rig.instances):
        return {}, []
    # few inventories have records, or instances on demand
    from rigwright.memory_answers import describe_measured
    from rigwright.memory_records import UnreadableRecords

    try:
        return describe_measured(rig), []
    except UnreadableRecords as error:
        return {}, [str(error)]


def describe_variant_evidence(cards: tuple[Card, ...], instances: tuple[Instance, ...]) -> list[str]:
    """The evidence of the variants that it serves, a line an instance; a warning names those that were only parsed."""
    return [
        f"{one.name}: {one.variant_name}: {describe_evidence(known, (cards[index].name for index in one.cards))}"
        for one in instances
        if (known := one.variant.evidence) and not isinstance(known, ParsedEvidence)
    ]


def _cards(cards: tuple[Card, ...], facts: HostFacts) -> list[str]:
    """Card number n of the rig must be the nth on the bus: that is how instances are given theirs.

    Cards after the declared ones are the operator's business.
    """
    listing = ", ".join(f"{one.pci_id} at {one.address}" for one in facts.pci_cards) or "no NVIDIA card"
    found = []
    for index, card in enumerate(cards):
        present = facts.pci_cards[index].pci_id if index < len(facts.pci_cards) else ""
        if present not in card.pci_ids:
            found.append(
                f"card {index} is declared as {card.name} ({' or '.join(card.pci_ids)}); the PCI bus shows {listing}: "
                "list the cards in the order of the bus"
            )
    return found


def _cpu_features(instances: tuple[Instance, ...], facts: HostFacts) -> list[str]:
    """Engines whose machine code would end with an illegal instruction."""
    needed = {one.engine_name: kind_of(one).cpu_features for one in instances}
    return [
        f"the CPU has no {', '.join(missing)}, which the prebuilt engine {engine} needs: use an engine that is "
        'compiled from source (kind = "llama.cpp")'
        for engine, features in sorted(needed.items())
        if (missing := [one for one in features if one not in facts.cpu_features])
    ]


def _user(rig: Rig, facts: HostFacts) -> list[str]:
    """A user that another program or person made has files, processes and rights of its own."""
    there = [account for account in facts.users if account.name in account_names(rig)]
    found = [
        f"the user {one.name} exists, not managed by Rigwright: choose another service_user or instance name"
        for one in there
        if not one.ours
    ]
    found += [
        f"the group {name} exists, not managed by Rigwright: choose another service_user or instance name"
        for name in facts.foreign_groups
        if name in account_names(rig)
    ]
    # usermod changes the home only of a user without processes
    return found + [
        f"the home of the user {one.name} is {one.home or 'empty'}, must be {HOME}, and cannot change while "
        f"it has processes: {', '.join(one.processes)}: stop them, then re-run deploy"
        for one in there
        if one.ours and one.processes and one.home != HOME
    ]


def _roots(facts: HostFacts) -> list[str]:
    """Roots that were there before us stay as they are, so they must be fit to be one."""
    found = [
        f"{path} is {owner}'s with mode {mode:o}: users other than root can change its contents; name a "
        "dedicated subdirectory in roots"
        for path, owner, mode in facts.foreign_roots
        if owner != "root" or mode & 0o022
    ]
    if facts.covered:
        found.append(
            f"mounted over Rigwright's files: {', '.join(facts.covered)}: a deploy would use the mounted files, and "
            f"the next boot the files below: umount --lazy {' '.join(reversed(facts.covered))}, and remove it from "
            "/etc/fstab and the mount units"
        )
    if facts.elsewhere:
        found.append(
            f"this host is already deployed with its configuration in {facts.elsewhere}: set that as "
            "roots.config, or remove it first with the inventory that it was deployed with (rigwright remove)"
        )
    return found


def _toolkit(
    cards: tuple[Card, ...], toolkit_spec: ToolkitSpec, facts: HostFacts, installations: list[Installation]
) -> list[str]:
    # its version is one of the inputs that name an engine's folder, so it is needed after the build too
    made = [one for one in installations if one.toolkit]
    if made and toolkit_spec.own_root is not None and not facts.cuda_version:
        return [
            f"no CUDA toolkit at {toolkit_spec.own_root} to compile {made[0].name} with: install one, or omit "
            "cuda_root to have it installed"
        ]
    toolkits = {one.toolkit.root: one.toolkit for one in made if one.toolkit}.values()
    return [
        reason
        for one in toolkits
        for reason in (*toolkit_refusals(cards, toolkit_spec, one.nvcc), *glibc_refusals(one, facts))
    ]


def _bundle(rig: Rig, facts: HostFacts) -> list[str]:
    missing = find_missing_host_packages(rig, facts)
    if rig.bundle and missing and facts.system not in rig.bundle.systems:
        there = ", ".join(rig.bundle.systems) or "no system"
        return [
            f"{', '.join(missing)} must be installed, but {rig.bundle.folder} has packages of {there}: recreate "
            f"it with `rigwright bundle --system {facts.system}`"
        ]
    return []


def _share(share: ShareEntry | None, facts: HostFacts) -> list[str]:
    if not share:
        return []
    needed = {f"port {share.port}, for sharing weights,": [(share.address, share.port)]}
    found = describe_used_addresses(facts, needed, "choose another share.port")
    if not facts.has(share.address):
        found.append(
            f"it has no address {share.address} to share weights on, only "
            f"{', '.join(sorted(facts.addresses))}: set one of these as share.address"
        )
    return sorted(set(found))


def _disks(rig: Rig, facts: HostFacts, installations: list[Installation]) -> list[str]:
    """Space for what is still missing, for each root alone, as if no two shared a file system.

    Where two do, what was sent already counts for both: it is moved, not copied.
    """
    needed = Counter[str]()
    for one in installations:
        if one.folder not in facts.built_engines | facts.started_builds:
            needed[rig.roots.state] += one.work_kib
            needed[rig.roots.software] += one.installed_kib
            if one.toolkit and rig.toolkit.own_root is None:
                needed[rig.roots.software] += DISK_KIB
            for artefact in one.artefacts:
                path = f"{rig.roots.models}/{artefact.package_path}"
                needed[rig.roots.models] += max(0, artefact.size - facts.weight_bytes.get(path, 0)) // 1024
    largest = 0
    for artefact in loaded_weights(rig.instances):
        missing = max(0, artefact.size - facts.weight_bytes.get(rig.roots.weight_path(artefact), 0)) // 1024
        needed[rig.roots.models] += missing
        largest = max(largest, artefact.size // 1024 if missing else 0)
    needed[rig.roots.state] += expected_growth_kib(facts.monitoring, rig.monitoring)
    if rig.bundle:
        needed[rig.roots.state] += largest  # sent whole, and one at a time
        for path in (rig.roots.state, rig.roots.models):
            if facts.file_systems.get(path) == facts.file_systems.get(rig.roots.state):
                needed[path] = max(0, needed[path] - facts.sent_kib)
    return [
        f"{path} has {facts.disk_free_kib[path] / GIB:.1f} GiB free, {(kib + DISK_RESERVE) / GIB:.1f} GiB are "
        "required: free some space, or move the root to another disk"
        for path, kib in needed.items()
        if kib and facts.disk_free_kib[path] < kib + DISK_RESERVE
    ]
