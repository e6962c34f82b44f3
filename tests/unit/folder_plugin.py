"""For pytest's `-p`: checks run on a folder in place of a host; $FOLDER says which, and $CARDS whether it has any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from checks import backend
from rigwright import facts, inventory
from tests.unit.nvidia_host import FACTS, RIG, Answer, NvidiaHost
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
        return Answer(0, "", "") if arguments else super().run(command)

    def check_output(self, command: str, *arguments: Any) -> str:
        return self.run(command, *arguments).stdout


made = RIG if os.environ["CARDS"] == "yes" else rig()
backend.connect = lambda _inventory, _limit: ({"box": Target()}, [])
backend.testinfra_host = lambda _target: Host()
inventory.load = lambda _data: made
facts.parse = lambda _lines: FACTS
