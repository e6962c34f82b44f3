"""The files that instances were started from, and their keys, in the survey."""

from dataclasses import replace

import pytest

from checks import Drift, test_serving
from checks.survey.answers import SurveyAnswers
from checks.survey.serving import InstanceKeyFile, ServingSurvey, StartRecord
from tests.unit.test_process_checks import CHAT, RIG, WANTED


def started(**changed: object) -> SurveyAnswers:
    """Root's record of a start, with some of it changed."""
    digests = {unit_state.unit: [unit_state.started_from] for unit_state in WANTED.generation.unit_states}
    key = InstanceKeyFile("600", 0, True, [])
    found = {unit: StartRecord(lines, [], [], [], key) for unit, lines in digests.items()}
    weights = ["8:1 /srv/models/a"]
    found[CHAT] = replace(found[CHAT], lines=[*digests[CHAT], *weights], now=weights)
    found[CHAT] = replace(found[CHAT], **changed)  # type: ignore[arg-type]
    return SurveyAnswers({}, _read={"serving": ServingSurvey(found, [], {CHAT: "0.4"})})


ONE = RIG.instances[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"lines": ["0" * 64, "8:1 /srv/models/a"]},
        {"lines": []},
        {"now": ["8:2 /srv/models/a"]},
        {"now": ["- /srv/models/a"]},
        {"key": InstanceKeyFile("600", 0, False, [])},
    ],
)
def test_a_start_from_something_else_is_reported(changed: dict[str, object]) -> None:
    test_serving.test_process_is_current(started(), WANTED.generation, ONE)
    with pytest.raises(Drift):
        test_serving.test_process_is_current(started(**changed), WANTED.generation, ONE)


@pytest.mark.parametrize(
    "key",
    [
        InstanceKeyFile("644", 0, True, []),
        InstanceKeyFile("600", 33, True, []),
        InstanceKeyFile("", 0, True, []),
        InstanceKeyFile("600", 0, True, ["/proc/7/environ"]),
    ],
)
def test_a_key_that_others_may_read_is_reported(key: InstanceKeyFile) -> None:
    test_serving.test_key_is_secret(started(), ONE)
    with pytest.raises(Drift):
        test_serving.test_key_is_secret(started(key=key), ONE)
