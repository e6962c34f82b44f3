"""For pytest's `-p`: checks of the inventory `everything`, which is made in $FOLDER, run on a blank host.

Each section of its survey has the least that its shape allows: no rows, no text, zero.
"""

import json
import os
import time
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from checks import backend
from checks.survey import collection
from checks.survey.answers import SurveyAnswers
from checks.survey.sections import SECTIONS
from rigwright import inventory
from rigwright.plan import host_facts as host_facts
from tests.unit.golden_hosts import LOOKS, EmptyHost, rigs

((NAME, RIG),) = rigs("everything", Path(os.environ["FOLDER"])).items()


def least(shape: Any) -> Any:
    """The least that JSON has of a type."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return least(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else least(arguments[0])
    if is_dataclass(shape):
        hints = get_type_hints(shape, include_extras=True)
        needed = [one for one in fields(shape) if one.default is MISSING and one.default_factory is MISSING]
        return {one.name: least(hints[one.name]) for one in needed}
    kind = origin or shape
    if issubclass(kind, Mapping):
        return {}
    return kind() if kind in (str, int, float, bool) else [] if issubclass(kind, Iterable) else None


DATA = {"rig": {"name": NAME, "inventory": "rig.py", "entry": {}}}
ANSWERS = json.loads(json.dumps({section.name: {"told": least(section.shape)} for section in SECTIONS}))
backend.load_hosts = lambda _inventory, _limit: (None, {NAME: SimpleNamespace(name=NAME, data=DATA)})
backend.connect_targets = lambda _state, _targets: {}
backend.testinfra_host = lambda _target: SimpleNamespace(check_output=lambda *_: "", check="a host")
inventory.load_rig = lambda _data: RIG
host_facts.parse = lambda _lines: replace(LOOKS["read_facts"](EmptyHost(NAME, RIG)), clock=int(time.time()))
collection.take_survey = lambda *_, **__: SurveyAnswers(ANSWERS)
