"""Under which conditions an instance is measured: what a run's fingerprint is made of, read from its host."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from checks.connections import ConnectedHost
from rigwright.baseline.run import Fingerprint
from rigwright.host.systemd_syntax import STARTED_FROM_FOLDER
from rigwright.model.instance import Instance
from rigwright.nvidia.cards import declared_cards_on_bus, smi
from rigwright.nvidia.cards.smi import Gpu
from roles import root_shell

TEMPERATURE = ("--query-gpu=pci.bus_id,temperature.gpu", smi.FORMAT)
INVOCATION = re.compile("[0-9a-f]{32}")


class InvalidConditions(Exception):
    """The instance does not run as it is declared, or its cards do not say what they are."""


@dataclass(frozen=True)
class MeasurementConditions:
    """Those of one look."""

    fingerprint: Fingerprint
    boot: str
    """Of the start of the engine's process."""
    temperatures: tuple[float | None, ...]
    """Of the instance's cards, in degrees Celsius."""


def read_conditions(box: ConnectedHost, instance: Instance) -> MeasurementConditions:
    """Look at a host.

    Raises:
        InvalidConditions: the instance does not run as it is declared, or its cards do not answer.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    wanted = next(one for one in box.resolve_desired().generation.unit_states if one.unit == instance.unit)
    boot = _start_identity(box, wanted.unit, wanted.started_from)
    mine = _instance_cards(box, instance)
    try:
        fingerprint = Fingerprint.of_instance(box.rig.digest, instance, wanted.started_from, mine)
    except ValueError as error:
        raise InvalidConditions(f"its cards say what none is: {error}") from None
    return MeasurementConditions(fingerprint, boot, read_temperatures(box, [gpu.address for gpu in mine]))


def _start_identity(box: ConnectedHost, name: str, started_from: str) -> str:
    """What tells this start of an instance from others."""
    unit, note = shlex.quote(name), shlex.quote(f"{STARTED_FROM_FOLDER}/{name}")
    script = f"systemctl show --value --property=InvocationID {unit}; head -n 1 {note}"
    lines = [line.strip() for line in root_shell.run_command(box.target, script).lines]
    if len(lines) != 2 or not INVOCATION.fullmatch(lines[0]):
        raise InvalidConditions(f"{name} does not run: deploy it first")
    if lines[1] != started_from:
        raise InvalidConditions(f"{name} was not started from what the inventory declares: deploy it first")
    return sha256(lines[0].encode()).hexdigest()[:12]


def _instance_cards(box: ConnectedHost, instance: Instance) -> Sequence[Gpu]:
    """Those that the instance has, in the order of its rig."""
    if not instance.cards:
        return ()
    said = _query_smi(box, smi.GPUS)
    try:
        seen = dict(
            declared_cards_on_bus.answering_cards(
                box.rig.cards, box.read_facts(), smi.gpus(said.status, *_answer_text(said))
            )
        )
    except ValueError as error:
        raise InvalidConditions(str(error)) from None
    if missing := [number for number in instance.cards if number not in seen]:
        raise InvalidConditions(f"card {missing[0]} does not answer: `rigwright check --only N01` says more")
    return [seen[number] for number in instance.cards]


def read_temperatures(box: ConnectedHost, addresses: Sequence[str]) -> tuple[float | None, ...]:
    """Of cards, by their addresses on the bus; None of those that do not say it.

    Raises:
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    if not addresses:
        return ()
    said = _query_smi(box, TEMPERATURE)
    try:
        rows = [smi.fields(line, 2) for line in smi.answer(said.status, *_answer_text(said))]
    except ValueError:
        rows = []
    found = {smi.bus_address(bus): smi.number(degrees) for bus, degrees in rows}
    return tuple(found.get(address) for address in addresses)


def _query_smi(box: ConnectedHost, words: Sequence[str]) -> root_shell.RootCommandResult:
    return root_shell.run_command(box.target, shlex.join(("timeout", str(smi.TIMEOUT), "nvidia-smi", *words)))


def _answer_text(said: root_shell.RootCommandResult) -> tuple[str, str]:
    return said.out.decode(errors="replace"), said.err.decode(errors="replace")
