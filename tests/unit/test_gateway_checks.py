"""The gateway's checks of what its host says about itself."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from checks import Drift
from checks.survey.gates import Gate, Gates, Sharing
from checks.survey.taken import Survey
from checks.test_gateway import test_log_is_rotated as d10
from rigwright.declaration.rig import Rig
from rigwright.gateway.entry import Gateway
from rigwright.gateway.service import ROTATION, rotation
from rigwright.serving.units import OWNED
from tests.unit.samples import instance, rig

TIMER = Gate("active", "enabled", "", "", False, 0, "", 0)


@pytest.fixture
def box() -> Rig:
    """A rig with a gateway."""
    listeners = {"listeners": {"office": {"address": "192.0.2.7", "port": 443}}}
    return replace(rig(instance()), gateway=Gateway.model_validate(listeners))


def told(box: Rig, rotated: int) -> Survey:
    """What a host says whose log was rotated then."""
    files = {ROTATION: rotation(box, OWNED)}
    gates = Gates({"logrotate.timer": TIMER}, files, rotated, {}, [], [], Sharing(0, False, []))
    answers: dict[str, Any] = {"gates": {"told": asdict(gates)}}
    return Survey(answers)


@pytest.mark.parametrize("rotated", [0, 1_800_000_000 - 10**9, -(10**18)])
def test_a_log_that_was_rotated_on_a_day_that_has_been_is_green(box: Rig, rotated: int) -> None:
    assert box.gateway
    d10(told(box, rotated), box, ("rigwright-gateway", box.gateway))


@pytest.mark.parametrize(
    ("rotated", "said"),
    [
        (4_000_000_000, "2096-10-02"),
        (10**12, "an invalid date"),
        (10**18, "an invalid date"),
        (10**40, "an invalid date"),
    ],
)
def test_a_day_that_is_still_to_come_is_red_however_far_away_it_is(box: Rig, rotated: int, said: str) -> None:
    assert box.gateway
    with pytest.raises(Drift, match=said):
        d10(told(box, rotated), box, ("rigwright-gateway", box.gateway))
