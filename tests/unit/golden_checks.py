"""For pytest's `-p`: checks of the inventory `everything`, which is made in $FOLDER, run on a blank host.

Each section of its survey has the least that its shape allows: no rows, no text, zero.
"""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from checks import testinfra_backend
from checks.survey import collection
from checks.survey.answers import SurveyAnswers
from checks.survey.sections import list_sections
from rigwright import inventory
from rigwright.plan import host_probe as host_probe
from tests.unit.golden_hosts import LOOKS, EmptyHost, rigs
from tests.unit.survey_samples import empty_answer

((NAME, RIG),) = rigs("everything", Path(os.environ["FOLDER"])).items()


DATA = {"rig": {"name": NAME, "inventory": "rig.py", "entry": {}}}
ANSWERS = json.loads(json.dumps({section.name: {"told": empty_answer(section.shape)} for section in list_sections()}))
testinfra_backend.load_hosts = lambda _inventory, _limit: (
    SimpleNamespace(inventory=[NAME]),
    {NAME: SimpleNamespace(name=NAME, data=DATA)},
)
testinfra_backend.connect_targets = lambda _state, _targets, *_: {}
testinfra_backend.testinfra_host = lambda _target: SimpleNamespace(check_output=lambda *_: "", check="a host")
inventory.load_rig = lambda _data: RIG
host_probe.parse = lambda _lines: replace(LOOKS["read_facts"](EmptyHost(NAME, RIG)), clock=int(time.time()))
collection.take_survey = lambda *_, **__: SurveyAnswers(ANSWERS)
