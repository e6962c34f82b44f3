"""What a plan says of a rig on a host although nothing stands in its way."""

from __future__ import annotations

from rigwright.engines import kind_of
from rigwright.model.catalog import Card
from rigwright.model.facts import HostFacts
from rigwright.model.instance import EnvSpec, Instance
from rigwright.supply.machine_code import find_unrunnable_files
from rigwright.types import memory_bytes

GIB = 1 << 20  # in KiB
# Files without code for a card that are named: the lock has the others.
LISTED = 3


def describe_shared_memory(instances: tuple[Instance, ...], facts: HostFacts) -> list[str]:
    """What instances may keep in /dev/shm is memory: where there is less, they are killed in place of being refused."""
    given = {one.name: size for one in instances if (size := kind_of(one).shared_memory(one))}
    kib = sum(memory_bytes(size, facts.memory_kib) for size in given.values()) // 1024
    if kib <= facts.memory_kib:
        return []
    have = facts.memory_kib / GIB
    said = f"{', '.join(given)}: /dev/shm may take {kib / GIB:.1f} GiB, and the host has {have:.1f} GiB of memory"
    return [f"{said}: lower shm_size"]


def describe_other_cards(cards: tuple[Card, ...], envs: tuple[EnvSpec, ...]) -> list[str]:
    """Files of environments that none of a rig's cards can run, and that are known to be for others: what needs them
    fails there.
    """
    found = []
    for env in envs:
        for capability in sorted({card.capability for card in cards}):
            paths = sorted({path for path, _ in find_unrunnable_files(env.packages, capability)})
            if paths:
                shown = ", ".join(paths[:LISTED]) + (f" and {len(paths) - LISTED} more" if paths[LISTED:] else "")
                found.append(f"{env.name}: no code for compute capability {capability}, so not used: {shown}")
    return found
