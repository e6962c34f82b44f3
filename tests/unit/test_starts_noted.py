"""What instances were started from, and their keys, as the survey tells it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checks import Drift
from checks import test_serving as s
from checks.survey.serving import Key, Serving, Started
from checks.survey.taken import Survey
from tests.unit.test_processes_there import CHAT, RIG, WANTED


def started(**changed: object) -> Survey:
    """What root has noted of a start, with some of it changed."""
    digests = {unit_state.unit: [unit_state.started_from] for unit_state in WANTED.generation.unit_states}
    key = Key("600", 0, True, [])
    found = {unit: Started(lines, [], [], [], key) for unit, lines in digests.items()}
    weights = ["8:1 /srv/models/a"]
    found[CHAT] = replace(found[CHAT], lines=[*digests[CHAT], *weights], now=weights)
    found[CHAT] = replace(found[CHAT], **changed)  # type: ignore[arg-type]
    return Survey({}, _read={"serving": Serving(found, [], {CHAT: "0.4"})})


ONE = RIG.instances[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"lines": ["0" * 64, "8:1 /srv/models/a"]},
        {"lines": []},
        {"now": ["8:2 /srv/models/a"]},
        {"now": ["- /srv/models/a"]},
        {"key": Key("600", 0, False, [])},
    ],
)
def test_a_start_from_something_else_is_told(changed: dict[str, object]) -> None:
    s.test_process_is_current(started(), WANTED.generation, ONE)
    with pytest.raises(Drift):
        s.test_process_is_current(started(**changed), WANTED.generation, ONE)


@pytest.mark.parametrize(
    "key",
    [Key("644", 0, True, []), Key("600", 33, True, []), Key("", 0, True, []), Key("600", 0, True, ["/proc/7/environ"])],
)
def test_a_key_that_others_may_read_is_told(key: Key) -> None:
    s.test_key_is_secret(started(), ONE)
    with pytest.raises(Drift):
        s.test_key_is_secret(started(key=key), ONE)
