"""For pytest's `-p`: the checks of weights run on a folder in place of a host; $FOLDER says which."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from checks import backend
from rigwright import inventory
from roles.weights.host.records import File
from tests.unit.samples import instance, parts
from tests.unit.weight_host import WeightHost


class Target:
    """What pyinfra has of a host."""

    def __init__(self) -> None:
        self.data: dict[str, object] = {}


class Host(WeightHost):
    """Runs commands as testinfra's hosts do, and counts them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.records = folder, folder / "models", folder / "weights"
        self.config = folder / "etc"

    def run(self, command: str, *arguments: Any) -> Any:
        with (self.folder / "asked").open("a") as asked:
            asked.write("x")
        done = self.run_script(command % tuple(shlex.quote(str(word)) for word in arguments))
        return SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def check_output(self, command: str, *arguments: Any) -> str:
        return str(self.run(command, *arguments).stdout)


host = Host(Path(os.environ["FOLDER"]))
rows = [host.locked(File(**one)) for one in json.loads(os.environ["FILES"])]
made = host.rig_with(*(instance(f"i{n}", parts=parts(row)) for n, row in enumerate(rows)))
backend.load = lambda _inventory, _limit: (None, {"box": Target()})
backend.reach = lambda _state, _targets: []
backend.testinfra_host = lambda _target: host
inventory.load = lambda _data: made
