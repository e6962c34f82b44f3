"""Set the power limits and clocks that are declared for cards, or take them back: `python3 FOLDER set | reset`.

On the host it is the program of a folder, with declared.json and the modules that it imports beside it. Exit status 1
where a card is away, does not answer or does not take what is declared for it; 2 for another word.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rigwright.nvidia.cards.power import Box, Order, placed, resetting, setting
from rigwright.nvidia.cards.smi import GPUS, TIMED_OUT, those_that_answer

ADAPTER = ("0x10de", "0x03")  # NVIDIA's, and the PCI class of display adapters


class Failed(Exception):
    """Nothing more can be told to any card; the text is one line."""


def main(folder: Path, words: list[str]) -> int:
    """Do what the one word says."""
    if words not in (["set"], ["reset"]):
        print("power set | power reset")
        return 2
    declared = json.loads((folder / "declared.json").read_text())
    patience = int(declared["timeout"])
    try:
        status, said = _smi(GPUS, patience)
        gpus, lost = those_that_answer(status, said)
    except (Failed, ValueError) as error:
        print(f"{error}: nothing is changed")
        return 1
    limits, clocks = declared["limits"], declared["clocks"]
    box = Box(
        len(limits), _places(Path(declared["devices"])), gpus, _load_record(Path(declared["record"]), len(limits))
    )
    applied = Path(declared["applied"])
    applied.unlink(missing_ok=True)
    orders = setting(box, limits, tuple(clocks) if clocks else None) if words == ["set"] else resetting(box)
    for line in orders.refused:
        print(line)
    if orders.refused:
        return 1
    try:
        # where one fails the others still get theirs: a limit is there for the power supply's sake
        done = [_gives(order, patience) for order in orders.given]
    except Failed as error:
        print(error)
        return 1
    if words == ["set"] and all(done) and not orders.away:
        applied.write_text(f"{declared['digest']}\n")
    # last, where a unit's status shows it
    for line in (*orders.away, *([lost] if lost else [])):
        print(line)
    return 0 if all(done) and not orders.away and not lost else 1


def _smi(words: tuple[str, ...], patience: int) -> tuple[int, str]:
    command = ["timeout", "-k", "5", str(patience), "nvidia-smi", *words]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    done = subprocess.run(command, **streams, check=False)
    if done.returncode in (*TIMED_OUT, -9):
        raise Failed(f"nvidia-smi did not answer within {patience} s")
    return done.returncode, done.stdout.decode(errors="replace")


def _gives(order: Order, patience: int) -> bool:
    """Tell a card one thing; a second one is not tried where the driver hangs."""
    try:
        status, said = _smi(order.words, patience)
    except Failed as error:
        raise Failed(f"{order.what}: {error}") from None
    # what a card cannot do is a warning to nvidia-smi, and no failure
    if status == 0 and "Treating as warning" not in said:
        print(order.what)
        return True
    print(f"{order.what} is refused: {(said.splitlines() or [''])[0]}")
    return False


def _places(devices: Path) -> list[str]:
    found = []
    for device in sorted(devices.iterdir()):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        if vendor.strip() == ADAPTER[0] and kind.startswith(ADAPTER[1]):
            found.append(device.name)
    return found


def _load_record(path: Path, declared: int) -> dict[int, tuple[str, str]]:
    try:
        return placed(json.loads(path.read_text()), declared)
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]), sys.argv[1:]))
