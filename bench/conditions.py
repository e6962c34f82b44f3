"""Under which conditions an instance is measured: what a run's fingerprint is made of, read from its host."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from checks.looking import Box
from rigwright.baseline.run import Fingerprint
from rigwright.host.systemd import STARTED_FROM
from rigwright.model.rig import Instance
from rigwright.nvidia.cards import enumeration, smi
from rigwright.nvidia.cards.smi import Gpu
from roles import root

TEMPERATURE = ("--query-gpu=pci.bus_id,temperature.gpu", smi.FORMAT)
INVOCATION = re.compile("[0-9a-f]{32}")


class Unfit(Exception):
    """The instance does not run as it is declared, or its cards do not say what they are."""


@dataclass(frozen=True)
class Conditions:
    """Those of one look."""

    fingerprint: Fingerprint
    boot: str
    """Of the start of the engine's process."""
    temperatures: tuple[float | None, ...]
    """Of the instance's cards, in degrees Celsius."""


def look(box: Box, instance: Instance) -> Conditions:
    """Look at a host.

    Raises:
        Unfit: the instance does not run as it is declared, or its cards do not answer.
        roles.root.Gone: the connection is gone.
    """
    wanted = next(one for one in box.desired().generation.unit_states if one.unit == instance.unit)
    boot = _boot(box, wanted.unit, wanted.started_from)
    mine = _cards(box, instance)
    try:
        fingerprint = Fingerprint.of(box.rig, instance, wanted.started_from, mine)
    except ValueError as error:
        raise Unfit(f"its cards say what none is: {error}") from None
    return Conditions(fingerprint, boot, temperatures(box, [gpu.address for gpu in mine]))


def _boot(box: Box, name: str, started_from: str) -> str:
    """What tells this start of an instance from others."""
    unit, note = shlex.quote(name), shlex.quote(f"{STARTED_FROM}/{name}")
    script = f"systemctl show --value --property=InvocationID {unit}; head -n 1 {note}"
    lines = [line.strip() for line in root.run(box.target, script).lines]
    if len(lines) != 2 or not INVOCATION.fullmatch(lines[0]):
        raise Unfit(f"{name} does not run: deploy it first")
    if lines[1] != started_from:
        raise Unfit(f"{name} was not started from what the inventory declares: deploy it first")
    return sha256(lines[0].encode()).hexdigest()[:12]


def _cards(box: Box, instance: Instance) -> Sequence[Gpu]:
    """Those that the instance has, in the order of its rig."""
    if not instance.cards:
        return ()
    said = _asked(box, smi.GPUS)
    try:
        seen = dict(enumeration.declared(box.rig, box.facts(), smi.gpus(said.status, *_text(said))))
    except ValueError as error:
        raise Unfit(str(error)) from None
    if missing := [number for number in instance.cards if number not in seen]:
        raise Unfit(f"card {missing[0]} does not answer: `rigwright check --only N01` says more")
    return [seen[number] for number in instance.cards]


def temperatures(box: Box, addresses: Sequence[str]) -> tuple[float | None, ...]:
    """Of cards, by their addresses on the bus; None of those that do not say it.

    Raises:
        roles.root.Gone: the connection is gone.
    """
    if not addresses:
        return ()
    said = _asked(box, TEMPERATURE)
    try:
        rows = [smi.fields(line, 2) for line in smi.answer(said.status, *_text(said))]
    except ValueError:
        rows = []
    found = {smi.bus_address(bus): smi.number(degrees) for bus, degrees in rows}
    return tuple(found.get(address) for address in addresses)


def _asked(box: Box, words: Sequence[str]) -> root.Answer:
    return root.run(box.target, shlex.join(("timeout", str(smi.TIMEOUT), "nvidia-smi", *words)))


def _text(said: root.Answer) -> tuple[str, str]:
    return said.out.decode(errors="replace"), said.err.decode(errors="replace")
