"""For pytest's `-p`: checks run on a folder in place of a host; $FOLDER says which, and $CARDS whether it has any, or
has them and a driver that deploys bring."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks import backend, nvidia
from checks.survey import take
from rigwright import inventory
from rigwright.nvidia.driver import record
from rigwright.plan import facts
from tests.unit.nvidia_host import DRIVER_FACTS, FACTS, MANAGED, RECORD, RIG, STATE, NvidiaHost
from tests.unit.samples import rig


class Target:
    """What pyinfra has of a host."""

    def __init__(self) -> None:
        self.data: dict[str, object] = {"rig": {"name": "box", "inventory": "rig.py", "entry": {}}}


@dataclass
class Answer:
    """What testinfra returns of a command."""

    rc: int
    stdout: str
    stderr: str


class Host:
    """Answers nothing: what is asked of a host is in its survey."""

    def run(self, command: str, *arguments: Any) -> Answer:
        return Answer(0, "", "")

    def check_output(self, command: str, *arguments: Any) -> str:
        return ""


class Folder(NvidiaHost):
    """The one that there is."""

    def __init__(self) -> None:
        self.root = Path(os.environ["FOLDER"])


made = {"yes": RIG, "managed": MANAGED, "no": rig()}[os.environ["CARDS"]]
take.take = lambda *_, **__: Folder().survey(made)
backend.load = lambda _inventory, _limit: (None, {"box": Target()})
backend.reach = lambda _state, _targets: {}
backend.testinfra_host = lambda _target: Host()
inventory.load = lambda _data: made
facts.parse = lambda _lines: FACTS
nvidia.driver_facts = lambda _survey, _facts: DRIVER_FACTS
nvidia.state = nvidia.kernels = lambda _survey: STATE
nvidia.record = lambda _survey: record.parse(RECORD)
