"""For pytest's `-p`: checks run on a folder in place of a host; $FOLDER says which, and $CARDS whether it has any, or
has them and a driver that deploys bring."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from checks import backend
from checks.survey import take
from checks.survey.taken import Survey
from rigwright import inventory
from rigwright.host import facts
from rigwright.nvidia.driver import found as driver_facts
from rigwright.nvidia.driver import state as nvidia_state
from tests.unit.nvidia_host import DRIVER_FACTS, FACTS, MANAGED, RIG, STATE, Answer, NvidiaHost
from tests.unit.samples import rig


class Target:
    """What pyinfra has of a host."""

    def __init__(self) -> None:
        self.data: dict[str, object] = {}


class Host(NvidiaHost):
    """Answers nothing to what it is not made for."""

    def __init__(self) -> None:
        self.root = Path(os.environ["FOLDER"])

    def run(self, command: str, *arguments: Any) -> Answer:
        scripts = ("driver_files", "fact device", "fact process", "fact way", "fact library", "fact xid")
        asked = str(arguments[0]) if arguments else ""
        made_for = not arguments or command.startswith("cat ") or any(one in asked for one in scripts)
        return super().run(command, *arguments) if made_for else Answer(0, "", "")

    def check_output(self, command: str, *arguments: Any) -> str:
        return self.run(command, *arguments).stdout


take.take = lambda _target, _scene: Survey({}, "a folder is not surveyed")
made = {"yes": RIG, "managed": MANAGED, "no": rig()}[os.environ["CARDS"]]
backend.load = lambda _inventory, _limit: (None, {"box": Target()})
backend.reach = lambda _state, _targets: []
backend.testinfra_host = lambda _target: Host()
inventory.load = lambda _data: made
facts.parse = lambda _lines: FACTS
driver_facts.parse = lambda _lines: DRIVER_FACTS
nvidia_state.parse = lambda _lines: STATE
