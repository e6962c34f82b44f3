"""Foreign processes on a host's cards: those that a reboot would end, and those on reserved cards."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rigwright.host.channel import Schema, free_text, number, parse_output, path, tolerant
from rigwright.model.entry import DriverEntry
from rigwright.nvidia.cards.topology import DEVICES
from rigwright.nvidia.values import address
from rigwright.render import render

# The driver's own daemon; it ends and starts by itself
PERSISTENCE = "nvidia-persistenced"
# Characters of a process's name that the kernel keeps (proc_pid_comm(5))
COMM_LENGTH = 15
SLICE = "/rigwright.slice/"
ENDS = "; the reboot ends it"
FILE = re.compile(r"/dev/nvidia([0-9]{1,4})")

# MiB of a card that belong to no compute process. Measured with driver 580.159.04 on an H200: 0 while idle, 9 next to
# one process of 1542. An X server without a desktop has some 4 (https://github.com/ollama/ollama/issues/5240), one
# program of a desktop more than 300 (https://github.com/ollama/ollama/issues/15179).
UNEXPLAINED_MIB = 256


HOLDERS_SCHEMA: Schema = {"card": (address, tolerant(number, None)), "holder": (number, free_text, free_text, path)}


@dataclass(frozen=True)
class ForeignProcesses:
    """Processes that are not Rigwright's, each with its pid and name."""

    strangers: tuple[str, ...] = ()
    """Processes with a card that is not reserved, and the files of their cards."""
    borrowers: tuple[str, ...] = ()
    """Processes with reserved cards only: CUDA opens no card that it may not see."""


def render_holders_query() -> str:
    """The script for a host; `parse_holders` parses its output."""
    return render("nvidia_driver/holders.sh.j2", devices=DEVICES)


def parse_holders(output: Iterable[str], reserved_gpus: Collection[int]) -> ForeignProcesses:
    """The processes that hold cards, from the output of the script.

    Args:
        output: Lines of the output.
        reserved_gpus: GPU indexes of the cards that are reserved.

    Raises:
        ValueError: the output has another form.
    """
    told = parse_output(output, HOLDERS_SCHEMA)
    # a file has the driver's own number of the card
    gpu_indexes = {
        minor: gpu_index
        for gpu_index, (_, minor) in enumerate(sorted(told.many("card"), key=_place_order))
        if minor is not None
    }
    found: dict[tuple[int, str, str], list[str]] = {}
    for pid, name, cgroup, device in told.many("holder"):
        if name.strip()[:COMM_LENGTH] != PERSISTENCE[:COMM_LENGTH] and not cgroup.startswith(SLICE):
            found.setdefault((pid, name.strip(), cgroup), []).append(device)
    strangers, borrowers = [], []
    for (pid, name, cgroup), devices in sorted(found.items()):
        who = f"pid {pid} ({name}{f', in {cgroup}' if cgroup not in ('', '/') else ''})"
        files = [FILE.fullmatch(device) for device in devices]
        used = {gpu_indexes.get(int(file[1])) if file else None for file in files}
        if (
            known := {gpu_index for gpu_index in used if gpu_index in reserved_gpus}
            if used <= set(reserved_gpus)
            else set()
        ):
            borrowers.append(
                f"{who} uses {format_card_list(known)}, which {'is' if len(known) == 1 else 'are'} reserved"
            )
        else:
            strangers.append(f"{who} holds {', '.join(devices)}")
    return ForeignProcesses(tuple(strangers), tuple(borrowers))


def format_card_list(gpu_indexes: Iterable[int | None]) -> str:
    """`card 4`, or `cards 4, 5 and 6`."""
    *some, last = [
        str(gpu_index) for gpu_index in sorted(gpu_index for gpu_index in gpu_indexes if gpu_index is not None)
    ]
    return f"cards {', '.join(some)} and {last}" if some else f"card {last}"


def describe_borrowers(
    reserved_gpus: tuple[int, ...], driver_entry: DriverEntry, borrowers: Sequence[str], ended: bool = False
) -> list[str]:
    """Lines of a plan about the reserved cards of a rig; empty if the rig reserves none.

    Args:
        reserved_gpus: GPU indexes.
        driver_entry: The declared driver.
        borrowers: Processes on these cards.
        ended: Whether a reboot ends these processes.
    """
    if not reserved_gpus:
        return []
    settings = (("driver.power_w", driver_entry.power_w), ("driver.clocks_mhz", driver_entry.clocks_mhz))
    kept = [name for name, value in settings if value is not None]
    one = len(reserved_gpus) == 1
    said = f"{format_card_list(reserved_gpus)}: no instance gets {'it' if one else 'one'}"
    if kept:
        said += f"; {' and '.join(kept)} {'holds' if len(kept) == 1 else 'hold'} for {'it' if one else 'them'} too"
    return [said, *(f"{one}{ENDS if ended else ''}" for one in borrowers)]


def _place_order(row: tuple[str, int | None]) -> str:
    return row[0]
