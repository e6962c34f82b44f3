"""For pytest's `-p`: checks run on this machine itself, as a rig whose cards are those that nvidia-smi names."""

import subprocess
from collections.abc import Callable
from types import SimpleNamespace

import testinfra

from checks import testinfra_backend
from checks.survey import collection
from checks.survey.answers import SurveyAnswers
from checks.survey.section import SurveyScope
from checks.survey.sections import list_sections
from checks.survey.survey_program import COMMAND, collect_questions, parse_answers, render_survey_program
from rigwright.inventory import HostGroup, hosts
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.smi import bus_address
from rigwright.plan.plan_inputs import TargetState

Desire = Callable[[list[str]], TargetState]
FIELDS = "--query-gpu=pci.bus_id,pci.device_id,compute_cap,memory.total,name"


class ThisMachineTarget:
    """This machine as one of pyinfra's hosts, for checks that read its data alone."""

    name = "this machine"

    def __init__(self, data: dict[str, object]) -> None:
        self.data = data


def declare_this_machine() -> HostGroup:
    """An inventory's group: this machine with the cards that nvidia-smi lists.

    Raises:
        subprocess.CalledProcessError: nvidia-smi fails.
        SystemExit: the declaration is refused.
    """
    command = ["timeout", "20", "nvidia-smi", FIELDS, "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = sorted(([field.strip() for field in line.split(",", 4)] for line in said.splitlines()), key=_bus_address)
    cards = [
        # device and vendor: 0x233510DE
        {
            "name": name,
            "pci_ids": [f"{number[6:]}:{number[2:6]}".lower()],
            "capability": capability,
            "vram_mib": int(mib),
        }
        for _, number, capability, mib, name in rows
    ]
    return hosts({"local": {"ssh_hostname": "localhost", "driver": {"managed": False}, "cards": cards}})


def _bus_address(row: list[str]) -> str:
    return bus_address(row[0])


def run_local_survey(
    _target: object, own: Rig, probe: str, desired: Desire, *, deep: bool, **_: object
) -> SurveyAnswers:
    """This machine's survey, by the program that hosts are sent."""
    found = subprocess.run(["sh", "-c", probe], capture_output=True, text=True, check=True).stdout
    questions = render_survey_program(
        collect_questions(SurveyScope(own, desired(found.splitlines()), deep), list_sections())
    ).encode()
    done = subprocess.run(["sh", "-c", COMMAND], input=questions, capture_output=True, check=True, timeout=300)
    return SurveyAnswers(parse_answers(done.stdout))


((_name, _data),) = declare_this_machine()
collection.take_survey = run_local_survey
_targets = {_name: ThisMachineTarget(_data)}
testinfra_backend.load_hosts = lambda _inventory, _limit: (SimpleNamespace(inventory=_targets), _targets)
testinfra_backend.connect_targets = lambda _state, _targets, *_: {}
testinfra_backend.testinfra_host = lambda _target: testinfra.get_host("local://")
