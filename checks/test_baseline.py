"""How fast instances were in the last measurement, compared with the accepted one."""

import time
from calendar import timegm
from collections.abc import Callable

import pytest

from checks import Drift, check
from checks.nvidia_smi import parse_smi_answer
from checks.remedy import instruction
from checks.survey.answers import SurveyAnswers
from rigwright import speed_baselines
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import Instance
from rigwright.nvidia.cards import smi, topology
from rigwright.plan.plan_inputs import TargetState
from rigwright.speed_baselines import BaselineRun, Fingerprint, compare_rates

MEASURE = "`rigwright bench speed` measures it"


def age(run: BaselineRun, now: float) -> str:
    """How long ago it was, for people."""
    hours = max(0.0, now - timegm(time.strptime(run.date, "%Y-%m-%dT%H:%M:%SZ"))) / 3600
    return f"{hours / 24:.0f} days ago" if hours >= 48 else f"{hours:.0f} hours ago"


def now_there(
    survey: SurveyAnswers,
    declared_cards: tuple[Card, ...],
    lock_digest: str,
    desired: TargetState,
    facts: HostFacts,
    instance: Instance,
) -> Fingerprint:
    """The fingerprint of a run of now.

    Raises:
        Drift: the cards do not say it.
    """
    gpus = parse_smi_answer(survey, "gpus", smi.gpus) if instance.cards else ()
    seen = dict(topology.answering_cards(declared_cards, facts, gpus))
    if missing := [number for number in instance.cards if number not in seen]:
        raise Drift(
            "cards that answer", f"none from card {missing[0]}", instruction("N01 names the card that does not answer")
        )
    started_from = next(one.started_from for one in desired.generation.unit_states if one.unit == instance.unit)
    return Fingerprint.of_instance(lock_digest, instance, started_from, [seen[number] for number in instance.cards])


@check(
    "J01",
    "the last measurement was not slower than the accepted baseline",
    severity="low",
    why="a slower box has lost lanes, power, cooling or a setting without an error",
    blind="the present speed: it reads the runs that `rigwright bench speed` stored next to the inventory, and "
    "causes no load",
)
def test_speed(
    survey: SurveyAnswers,
    box_name: str,
    inventory_file: str,
    declared_cards: tuple[Card, ...],
    lock_digest: str,
    desired: TargetState,
    facts: HostFacts,
    instance: Instance,
    record_property: Callable[[str, object], None],
) -> None:
    try:
        page = speed_baselines.load_history(speed_baselines.history_path(inventory_file, box_name)).for_instance(
            instance.name
        )
    except speed_baselines.UnreadableHistory as error:
        raise Drift("a readable file of runs", error, instruction("restore that file, or remove it")) from None
    last = page.last_run
    if last is None:
        pytest.skip(f"no speed was measured: {MEASURE}")
    told = f"measured {age(last, time.time())}"
    before, changes = speed_baselines.find_reference(page, last)
    if before is None:
        pytest.skip(f"{told}, and no baseline is accepted: `rigwright bench speed --accept`")
    if since := list(
        now_there(survey, declared_cards, lock_digest, desired, facts, instance).describe_changes(last.fingerprint)
    ):
        pytest.skip(f"{told}, before this changed: {'; '.join(since)}; {MEASURE} again")
    rows = compare_rates(last, before.runs)
    slower = [row.description for row in rows if row.verdict == "slower"]
    named = f"; changed since the accepted baseline: {'; '.join(changes)}" if changes else ""
    if slower:
        raise Drift(
            "rates at most 5 %, or the deviation of starts, below the accepted baseline",
            f"{'; '.join(slower)}; {told}{named}",
            instruction(
                "compare power, temperatures and lanes (N07, N21, N27), then measure again; --accept makes it the "
                "baseline"
            ),
        )
    unjudged = [row for row in rows if row.verdict == "unjudged"]
    if unjudged or not rows:
        pytest.skip(f"{told}; the accepted baseline has one start of the engine: accept a run of another start, too")
    record_property("how", f"{told}{named}")
