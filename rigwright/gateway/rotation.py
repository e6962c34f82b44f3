"""The service and the timer that keep instances out of the gateway's rotation while their box cannot serve with them.

It is no part of a generation: its reasons outlive a rollback, and it reads the results of the box's check of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.accounts import ServiceAccounts
from rigwright.project_root import ROOT
from rigwright.render import render

ROTATION = "rigwright_rotation"
ROTATION_SERVICE, ROTATION_TIMER = f"{ROTATION}.service", f"{ROTATION}.timer"
ROTATION_SECONDS = 10  # between two runs
# A file for each instance that is out; the gateway and its router read it, root alone writes there.
ROTATION_FOLDER = "/run/rigwright/rotation"
# Ends the name of a file for an instance that still gets the requests that no other instance can have.
LAST_RESORT = ".last"
PROGRAM = ("card_faults.py", "run.py")


@lru_cache(64)
def render_rotation_program(folder: str, owned: str) -> Mapping[str, str]:
    """Path -> text of the program's files.

    Args:
        folder: The folder that a host's Python runs.
        owned: First line of files of ours.
    """
    start = f"{owned}\nimport sys\n\nfrom {ROTATION}.run import main\n\nsys.exit(main(sys.argv[1:]))\n"
    source = ROOT / "roles/gateway/host/rotation"
    return {
        f"{folder}/__main__.py": start,
        **{f"{folder}/{ROTATION}/{name}": (source / name).read_text() for name in PROGRAM},
    }


def render_rotation_units(
    folder: str, declaration: str, metrics: str, accounts: ServiceAccounts, owned: str, *, cards: bool
) -> dict[str, str]:
    """Path -> text of its units.

    Args:
        folder: The program's folder.
        declaration: The file that a deploy declares the box in.
        metrics: The folder for node exporter; empty without monitoring.
        accounts: System users of the services.
        owned: First line of files of ours.
        cards: Whether the box has cards.
    """
    values = {
        "owned": owned,
        "program": folder,
        "declaration": declaration,
        "metrics": metrics,
        "accounts": accounts,
        "cards": cards,
        "runtime": ROTATION_FOLDER.removeprefix("/run/"),
        "seconds": ROTATION_SECONDS,
        "service": ROTATION_SERVICE,
    }
    return {
        f"{UNIT_FOLDER}/{ROTATION}.{kind}": render(f"gateway/rotation.{kind}.j2", **values)
        for kind in ("service", "timer")
    }
