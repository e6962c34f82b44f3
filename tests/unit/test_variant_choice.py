"""Which variant to take: `rigwright show variants` answers a need by what catalogues say."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli import main
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.declaration.variant_selection import (
    ANY,
    VariantQuery,
    choose_variants,
    find_missing_mirrors,
    select_addressed_variants,
)
from rigwright.model.engine_schema import NEEDS, Need, Workload
from rigwright.project_root import ROOT
from tests.unit.samples import OperatorFolder, sample_entry

CATALOG = load_catalog([ROOT / "catalog"])
Cards = tuple[frozenset[str], ...]


def cards(count: int, name: str = "rtx-3090") -> Cards:
    return (frozenset({name}),) * count


ONE, TWO = cards(1), cards(2)


@pytest.mark.parametrize(
    ("need", "there", "first"),
    [
        ("throughput", TWO, "vllm/dual"),
        ("throughput", ONE, "vllm/default"),
        ("context", TWO, "llamacpp/default"),
        ("context", ONE, "llamacpp/default"),
        ("streams", TWO, "vllm/turbo"),
        ("one-card", ONE, "vllm/default"),
        ("throughput", cards(4, "rtx-5090"), "vllm/qwen3.6-27b"),
        ("one-card", cards(1, "rtx-5090"), "llamacpp/qwen3.5-35b-a3b"),
        ("throughput", cards(2, "rtx-2080-ti-22g"), "vllm/2080ti-two-mtp"),
        ("context", cards(2, "rtx-2080-ti-22g"), "vllm/2080ti-two"),
        ("context", cards(1, "rtx-5090"), "llamacpp/qwen3.5-35b-a3b-long"),
        ("one-card", cards(1, "rtx-pro-6000"), "vllm/qwen3-30b-a3b-awq"),
    ],
)
def test_a_need_on_cards_has_an_answer(need: Need, there: Cards, first: str) -> None:
    assert choose_variants(CATALOG, VariantQuery(need=need, cards=there))[0] == first


def test_demonstrations_come_after_variants_with_a_purpose() -> None:
    for there in ((), ONE, TWO):
        found = choose_variants(CATALOG, VariantQuery(cards=there))
        last = [name for name in found if name in ("llamacpp/demo", "llamacpp/demo-wheel", "llamacpp/metal")]
        assert list(found[-len(last) :]) == last


@pytest.mark.parametrize(
    ("workload", "there", "first"),
    [
        ("vision", TWO, "vllm/dual"),
        ("translation", (), "llamacpp/qwen2.5-1.5b-cpu"),
        ("chat", (), "llamacpp/cpu"),
        ("documents", ONE, "llamacpp/default"),
    ],
)
def test_a_workload_has_an_answer(workload: Workload, there: Cards, first: str) -> None:
    assert choose_variants(CATALOG, VariantQuery(workload=workload, cards=there))[0] == first


def test_need_and_workload_are_both_met() -> None:
    found = choose_variants(CATALOG, VariantQuery("context", "vision", TWO))
    assert found[0] == "llamacpp/dual"
    assert "llamacpp/default" not in found


def test_variants_for_more_or_other_cards_are_no_answer() -> None:
    assert "vllm/dual" not in choose_variants(CATALOG, VariantQuery(cards=ONE))
    assert "vllm/dual" not in choose_variants(CATALOG, VariantQuery(cards=cards(2, "rtx-5090")))
    assert "vllm/dual" not in choose_variants(CATALOG, VariantQuery(cards=(*ONE, *cards(1, "rtx-5090"))))
    assert "vllm/dual" in choose_variants(CATALOG, VariantQuery(cards=(ANY, ANY)))


def test_without_a_question_all_are_there() -> None:
    assert set(choose_variants(CATALOG, VariantQuery())) == CATALOG.variants.keys()


# Their weights lie on the demo's own server alone.
UNADDRESSED = {"llamacpp/demo", "llamacpp/demo-wheel", "llamacpp/metal"}
OWN = """
[variants."llamacpp/own".evidence]
kind = "parsed"

[variants."llamacpp/own"]
engine = "plain"
model = "small"
cards = 1
context = 4096

[variants."llamacpp/own".purpose]
cards = ["turing"]
needs = ["streams"]
why = "Mine."
"""


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["show", "variants", *map(str, words)])


def test_the_verb_says_which_one_why_and_what_is_known_of_it() -> None:
    done = run("--need", "throughput", "--cards", "2", "--card", "rtx-3090")
    assert done.exit_code == 0, done.output
    first, second, *_ = done.stdout.splitlines()
    assert first == f"take vllm/dual: {CATALOG.variants['vllm/dual'].purpose.why}"  # type: ignore[union-attr]
    assert second.startswith("evidence: published by club-3090")
    assert "is blocked" not in done.stdout


def test_the_list_names_what_is_blocked() -> None:
    done = run()
    assert done.exit_code == 0
    assert all(f"{name} is blocked: {one.why}" in done.stdout for name, one in CATALOG.blocked.items())
    assert all(name in done.stdout for name in CATALOG.variants)


def test_programs_get_all_of_it() -> None:
    told: Any = json.loads(run("--json").stdout)
    by_name = {row["variant"]: row for row in told["variants"]}
    assert by_name.keys() == CATALOG.variants.keys() - UNADDRESSED
    assert told["unlisted"] == [{"variant": name, "mirrors": ["shelf"]} for name in sorted(UNADDRESSED)]
    assert by_name["vllm/dual"]["evidence"]["kind"] == "published"
    assert {row["variant"] for row in told["blocked"]} == CATALOG.blocked.keys()


def test_an_inventory_has_its_own_catalogue_and_cards(box: OperatorFolder) -> None:
    box.write("catalog/own.toml", OWN)
    text = (
        "from rigwright.inventory import hosts\n\n"
        "rigs = hosts({'two': {'ssh_hostname': '192.0.2.1', 'cards': ['turing', 'ampere'], 'reserved_gpus': [1]},\n"
        "    'none': {'ssh_hostname': '192.0.2.2'}}, mirrors={'store': ['http://127.0.0.1:9']})\n"
    )
    box.write("rig.py", text)
    done = run(box.inventory, "--need", "streams")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "two: take llamacpp/own: Mine."
    assert "none:" not in done.stdout
    assert done.stderr.startswith("none: no variant of the catalogue matches; ")
    assert run(box.inventory, "--need", "streams", "--limit", "none").exit_code == 1


def test_weights_need_not_be_locked() -> None:
    done = run(ROOT / "inventory" / "rig3090.py", "--need", "one-card", "--limit", "rig3090")
    assert done.stdout.startswith("rig3090: take vllm/default: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--card", "rtx-3091"), 'there is no card "rtx-3091"; did you mean "rtx-3090"?'),
        (("--need", "speed"), 'there is no need "speed"; '),
        (("--limit", "a"), "--limit names a host of INVENTORY"),
        ((ROOT / "inventory" / "rig3090.py", "--cards", "1"), "--cards and --card conflict with INVENTORY"),
    ],
)
def test_an_impossible_request_is_reported(words: tuple[str | Path, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code != 0
    assert said in done.output


def test_nothing_that_answers_is_status_1_and_says_what_there_is() -> None:
    done = run("--need", "streams", "--cards", "2", "--card", "rtx-2080-ti-22g")
    assert (done.exit_code, done.stdout) == (1, "")
    said = "no variant of the catalogue matches; for these cards: vllm/2080ti-two, vllm/2080ti-two-mtp"
    assert done.stderr.splitlines() == [said]
    done = run("--need", "throughput", "--cards", "0")
    assert (done.exit_code, done.stderr.splitlines()) == (
        1,
        ["no variant of the catalogue matches; for these cards: llamacpp/qwen2.5-1.5b-cpu, llamacpp/cpu"],
    )


def test_a_variant_whose_files_only_an_undeclared_mirror_has_is_named_in_one_line(box: OperatorFolder) -> None:
    assert find_missing_mirrors(CATALOG, ()) == dict.fromkeys(UNADDRESSED, ("shelf",))
    assert find_missing_mirrors(CATALOG, ("shelf",)) == {}
    assert CATALOG.variants.keys() - select_addressed_variants(CATALOG, ()).variants.keys() == UNADDRESSED
    last = run("--cards", "0").stdout.splitlines()[-1]
    assert last == (
        "not listed, for lack of a mirror that has their files: llamacpp/demo (shelf), llamacpp/demo-wheel (shelf)"
    )
    text = "from rigwright.inventory import hosts\n\nrigs = hosts({'a': {'ssh_hostname': '192.0.2.2'}}%s)\n"
    box.inventory.write_text(text % "")
    (box.folder / "catalog").joinpath("box.toml").unlink(missing_ok=True)
    assert "llamacpp/demo (shelf)" in run(box.inventory).stdout.splitlines()[-1]
    box.inventory.write_text(text % ", mirrors={'shelf': ['http://127.0.0.1:9']}")
    done = run(box.inventory)
    assert "not listed" not in done.stdout
    assert "llamacpp/demo " in done.stdout


def test_each_need_is_met_by_something() -> None:
    assert all(choose_variants(CATALOG, VariantQuery(need=need)) for need in NEEDS)


def test_with_an_inventory_only_variants_blocked_in_favour_of_its_own_are_listed(box: OperatorFolder) -> None:
    entry = sample_entry(cards=["rtx-3090"], instances={})
    box.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {entry!r}}})\n")
    done = run(box.inventory)
    assert done.exit_code == 0, done.output
    assert "sglang/default is blocked" in done.output
    assert "vllm/2080ti-auto is blocked" not in done.output
