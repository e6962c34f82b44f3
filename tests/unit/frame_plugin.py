"""For pytest's `-p`: checks run on hosts that say little; $HOSTS names them, $GENERATION is theirs, $FINGERPRINT
their fingerprint, $WAIVERS their waivers, and $GONE those of them that are out of reach, before or while they are
asked, or later: unless another one was judged before that. A slow one answers once the terminal was to show that.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any

from checks import testinfra_backend
from checks.survey import collection
from checks.survey.answers import SurveyAnswers
from rigwright import inventory
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.plan import host_probe as host_probe
from roles import root_shell
from tests.unit.samples import sample_facts, sample_instance, sample_rig

GENERATION = int(os.environ["GENERATION"]) if os.environ["GENERATION"] else None
ABOUT = {"clock": "2026-02-03T04:05:06Z", "generation": GENERATION, "versions": {"kernel": "6.1"}}
WAIVERS = tuple(WaiverEntry.model_validate(one) for one in json.loads(os.environ.get("WAIVERS") or "[]"))
MADE = replace(sample_rig(sample_instance("chat"), sample_instance("code")), waivers=WAIVERS)
DATA = {"rig": {"name": "box", "inventory": "rig.py", "entry": {}}}


JUDGED, WAITED = Event(), Event()


def pytest_runtest_logreport() -> None:
    """A check has come to a verdict."""
    JUDGED.set()


def make_survey(
    target: Any, *_: object, deep: bool, wait: Callable[[list[str]], None], **_options: object
) -> SurveyAnswers:
    """A host's answers."""
    if f"{target.name} slow" in os.environ["GONE"]:
        wait(["requests", "weights"])
        assert WAITED.wait(60)
    if f"{target.name} meanwhile" in os.environ["GONE"]:
        raise root_shell.ConnectionGone("the connection was lost")
    if f"{target.name} later" in os.environ["GONE"] and not JUDGED.wait(20):
        raise root_shell.ConnectionGone("nothing was judged before")
    answers = {"host_summary": {"told": ABOUT}, "accounts": {"failed": "it died"}}
    if fingerprint := os.environ.get("FINGERPRINT"):
        answers["fingerprint"] = {"told": json.loads(fingerprint)}
    return SurveyAnswers(answers)


names = os.environ["HOSTS"].split()
testinfra_backend.load_hosts = lambda _inventory, _limit: (
    SimpleNamespace(inventory=names),
    {name: SimpleNamespace(name=name, data=DATA, disconnect=lambda: None) for name in names},
)
testinfra_backend.connect_targets = lambda _state, targets, *_: {
    name: "" for name in targets if f"{name} before" in os.environ["GONE"]
}
testinfra_backend.testinfra_host = lambda _target: SimpleNamespace(check_output=lambda *_: "", check="a host")
inventory.load_rig = lambda _data: MADE
host_probe.parse = lambda _lines: sample_facts()
collection.take_survey = make_survey

from checks.survey_run import SurveyRun  # noqa: E402 (it imports what has been replaced above)

is_known = SurveyRun._is_known


def has_answered(made: SurveyRun, name: str, _seconds: float) -> bool:
    """Whether a host has answered, without patience."""
    found = is_known(made, name, 0.1)
    if name in made.begun and not found:
        WAITED.set()
    return found


SurveyRun._is_known = has_answered  # type: ignore[method-assign] # this process is a test's
