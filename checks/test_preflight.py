"""The box is still one the rig can live on."""

import time

from checks import ItemText, check, expect
from checks.remedy import instruction
from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.preflight import find_refusals, find_signature_refusals


@check(
    "P01",
    "a deploy is possible",
    severity="high",
    why="a distribution upgrade, missing card, full disk or foreign listener breaks the next deploy or boot",
)
def test_nothing_stands_in_the_way(desired: TargetState) -> None:
    found = find_refusals(desired, time.time())
    expect(
        ItemText.from_items(found, "; "),
        "nothing",
        instruction("resolve each of these"),
        holds=not found,
        is_waivable=not find_signature_refusals(desired),
    )
