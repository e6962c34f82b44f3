"""The evidence of a variant: declared by kinds, judged while the catalogue loads, and reported by plan and deploy."""

import json
from pathlib import Path

import pytest

from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import describe_variant_evidence, find_warnings
from tests.unit.driver_samples import C3090, driverless_host
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import OperatorFolder, sample_facts, sample_instance, sample_rig
from tests.unit.test_catalog import load, refusal
from tests.unit.test_cli_plan import PlanBox, run_plan

BOOTED = {"kind": "booted", "card": "NVIDIA GeForce RTX 3090", "driver": "580.95.05", "date": "2026-11-20"}
PUBLISHED = {
    **{"kind": "published", "source": "example.org, a guide", "condition": "two cards, 230 W each"},
    "figures": "89 tokens a second",
}
DERIVED = {"kind": "derived", "origin": "example.org, a guide", "change": "half the context"}
PARSED = {"kind": "parsed"}


def with_evidence(given: str) -> str:
    return f'{CATALOG}\n[variants."llamacpp/two".evidence]\n{given}\n'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (BOOTED, "booted on NVIDIA GeForce RTX 3090, driver 580.95.05, 2026-11-20"),
        (
            PUBLISHED,
            "published by example.org, a guide (two cards, 230 W each): 89 tokens a second; not measured again",
        ),
        (DERIVED, "derived from example.org, a guide (half the context); never booted"),
    ],
)
def test_a_plan_and_a_deploy_say_it(given: dict[str, object], said: str) -> None:
    one = sample_rig(sample_instance(cards=(0,), evidence=given), cards=(C3090,))
    assert describe_variant_evidence(one.cards, one.instances) == [f"chat: llamacpp/sample: {said}"]
    assert find_warnings(one, sample_facts()) == []


def test_booted_on_another_card_is_reported_as_that() -> None:
    given = BOOTED | {"card": "NVIDIA H100 80GB HBM3"}
    box_rig = sample_rig(sample_instance(cards=(0,), evidence=given), cards=(C3090,))
    (line,) = describe_variant_evidence(box_rig.cards, box_rig.instances)
    assert line.endswith("driver 580.95.05, 2026-11-20; here it gets NVIDIA GeForce RTX 3090")


def test_variants_that_were_only_parsed_have_a_warning() -> None:
    one = sample_rig(sample_instance(evidence=PARSED))
    (warning,) = find_warnings(one, sample_facts())
    assert warning.startswith("chat: llamacpp/sample is parsed only: ")
    assert describe_variant_evidence(one.cards, one.instances) == []


def test_an_operators_own_variant_without_evidence_has_no_line() -> None:
    one = sample_rig(sample_instance())
    assert (describe_variant_evidence(one.cards, one.instances), find_warnings(one, sample_facts())) == ([], [])


def test_the_verb_prints_it_and_tells_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    box = PlanBox(sample_rig(sample_instance(evidence=DERIVED), cards=(C3090,)), driverless_host())
    assert "box: evidence: chat: llamacpp/sample: derived from" in run_plan(monkeypatch, box).output
    (row,) = json.loads(run_plan(monkeypatch, box, "--json").output)
    assert [line.partition(": ")[0] for line in row["evidence"]] == ["chat"]


def test_other_evidence_makes_no_other_generation() -> None:
    one, other = (
        build_target_state(sample_rig(sample_instance(**given)), sample_facts()).generation
        for given in ({}, {"evidence": PARSED})
    )
    assert one.digest == other.digest


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ('kind = "hearsay"', "evidence.kind: 'hearsay' is refused; allowed: "),
        ('kind = "published"\nsource = "a"', "evidence.published.condition: missing"),
        ('kind = "parsed"\nwhy = "a"', "evidence.parsed.why: unknown key"),
        ('kind = "booted"\ncard = "CPU"\ndate = 2026-11-20', "card = 'CPU' for a variant without cards"),
        ('kind = "booted"\ncard = "A"\ndate = 2026-11-20', "the card's driver"),
        ('kind = "booted"\ncard = "A"\ndriver = "580"\ndate = "soon"', "'soon' is refused: must be a day"),
        (
            'kind = "derived"\norigin = "llamacpp/tow"\nchange = "a"',
            'evidence.origin: there is no other variant "llamacpp/tow"; allowed: llamacpp/',
        ),
        (
            'kind = "derived"\norigin = "llamacpp/two"\nchange = "a"',
            'evidence.origin: there is no other variant "llamacpp/two"',
        ),
    ],
)
def test_it_is_judged_while_the_catalogue_loads(tmp_path: Path, given: str, wrong: str) -> None:
    said = refusal(tmp_path, with_evidence(given))
    assert "variants.llamacpp/two" in said
    assert wrong in said


def test_a_purpose_names_cards_of_the_catalogue(tmp_path: Path) -> None:
    purpose = '[variants."llamacpp/two".purpose]\nwhy = "a"\ncards = ["ampere", "turin"]\n'
    said = refusal(tmp_path, f"{CATALOG}\n{purpose}")
    assert 'purpose.cards[1]: there is no card "turin"; did you mean "turing"?' in said


def test_a_blocked_variant_is_read(tmp_path: Path) -> None:
    catalog = load(tmp_path, f'{CATALOG}\n[blocked."sglang/default"]\nwhy = "it is"\nalternative = ["llamacpp/two"]\n')
    assert catalog.blocked["sglang/default"].refusal == "is blocked: it is; instead: llamacpp/two"


def test_an_inventory_that_names_a_blocked_one_is_reported_why(box: OperatorFolder) -> None:
    blocked = '[blocked."sglang/default"]\nwhy = "it ends at its start"\nalternative = ["llamacpp/two"]\n'
    box.write("catalog/blocked.toml", blocked)
    (said,) = box.refusal_lines(instances={"chat": {"variant": "sglang/default", "port": 8020}})
    assert said.endswith("sglang/default is blocked: it ends at its start; instead: llamacpp/two")
