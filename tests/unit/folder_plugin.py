"""For pytest's `-p`: checks run on a folder in place of a host; $FOLDER says which, and $CARDS whether it has any, or
has them and a driver that deploys bring."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from checks import nvidia, testinfra_backend
from checks.survey import collection
from rigwright import inventory
from rigwright.nvidia.driver import driver_files
from rigwright.plan import host_probe
from tests.unit.nvidia_host import DRIVER_FACTS, FACTS, MANAGED, RECORD, RIG, STATE, NvidiaFolderHost
from tests.unit.samples import sample_rig


class FolderTarget:
    """pyinfra's view of a host."""

    name = "box"

    def __init__(self) -> None:
        self.data: dict[str, object] = {"rig": {"name": "box", "inventory": "rig.py", "entry": {}}}


@dataclass
class FolderCommandResult:
    """testinfra's result of a command."""

    rc: int
    stdout: str
    stderr: str


class FolderTestinfraHost:
    """Answers nothing: the answers of a host are in its survey."""

    def run(self, command: str, *arguments: Any) -> FolderCommandResult:
        return FolderCommandResult(0, "", "")

    def check_output(self, command: str, *arguments: Any) -> str:
        return ""


class PluginNvidiaHost(NvidiaFolderHost):
    """The one that there is."""

    def __init__(self) -> None:
        self.root = Path(os.environ["FOLDER"])


made = {"yes": RIG, "managed": MANAGED, "no": sample_rig()}[os.environ["CARDS"]]
collection.take_survey = lambda *_, **__: PluginNvidiaHost().run_survey(made)
testinfra_backend.load_hosts = lambda _inventory, _limit: (SimpleNamespace(inventory=["box"]), {"box": FolderTarget()})
testinfra_backend.connect_targets = lambda _state, _targets, *_: {}
testinfra_backend.testinfra_host = lambda _target: FolderTestinfraHost()
inventory.load_rig = lambda _data: made
host_probe.parse = lambda _lines: FACTS
nvidia.collect_driver_facts = lambda _survey, _facts: DRIVER_FACTS
nvidia.driver_state = nvidia.kernel_state = lambda _survey: STATE
nvidia.read_driver_record = lambda _survey: driver_files.parse_driver_record(RECORD)
