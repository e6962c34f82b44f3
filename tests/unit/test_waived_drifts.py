"""Observed values of drifts: waivers cover nothing that they do not name."""

import ast
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from checks import Drift, ItemText, continue_past_waived, expect, list_items, report_drift, test_preflight
from checks.drift_text import expect_none
from checks.effective_units import PropertyDifference, describe_difference
from checks.host_checks import HostCheck
from checks.post_deploy_checks import _run
from checks.pytest_frame import ChecksPlugin
from checks.remedy import instruction
from checks.result_waivers import cover_items
from checks.survey.trees import InstalledTree, TreeChange
from checks.survey_run import SurveyedHost
from checks.test_generation import _describe_change
from checks.test_trees import test_python_starts_with_its_own as judge_startup_code
from checks.tree_expectations import expect_as_recorded, expect_no_changes
from rigwright.check_waivers import describe_observed
from rigwright.model.waiver_schema import LONGEST, WaiverEntry
from rigwright.plan.plan_inputs import TargetState
from rigwright.project_root import ROOT
from tests.unit.test_check_framework import OWN, CheckRunFolder
from tests.unit.test_check_waivers import DISK, SHELL, run
from tests.unit.test_check_waivers import box as box


@pytest.mark.parametrize(
    ("waived", "end"),
    [
        ([], ["a"]),
        (["a"], ["a", "b", "c"]),
        (["a", "b", "c"], ["a", "b", "c", "d"]),
        (["b", "c", "d"], ["a"]),
        (["a", "b", "c", "d"], ["a", "b", "c", "d"]),
    ],
)
def test_a_waived_drift_hides_no_later_one(waived: list[str], end: list[str]) -> None:
    waivers = [WaiverEntry.model_validate(SHELL | {"observed": f"{name} (expected none)"}) for name in waived]
    is_waived = cover_items(waivers, "B01", "", "2027-01-01")
    with pytest.raises(Drift) as error, continue_past_waived(is_waived):
        expect("a", "none", instruction("remove it"))
        expect_none(["b", "c"], "none", instruction("remove them"))
        report_drift(Drift("none", "d", instruction("remove it")))
        pytest.skip("the rest is left out")
    assert [found for _, found in error.value.items] == end
    assert is_waived(error.value.waivable_items) == (set(end) <= set(waived))


def test_a_check_of_the_operator_goes_on_past_a_waived_drift(
    box: CheckRunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box.write_own_checks(
        OWN.replace('raise Drift("two disks of 4 TB", "one\\x1b[2J", "`mount /data`", "2026-02-01")', TWO_DISKS)
    )
    first, second = "one (expected two disks)", "full (expected space)"
    done = run(box, monkeypatch, "--json", observed=first)
    assert (done.status, done.results["Z03"]["observed"]) == (1, [first, second])
    both = [DISK | {"observed": one} for one in (first, second)]
    monkeypatch.setenv("WAIVERS", json.dumps(both))
    assert box.check("--only=Z03", "--json").results["Z03"]["verdict"] == "waived"


def test_a_shipped_check_goes_on_past_a_waived_drift() -> None:
    def two_faults(_: object) -> bool:
        expect("a", "none", instruction("remove it"))
        expect("b", "none", instruction("remove it"))
        return True

    plugin: Any = object.__new__(ChecksPlugin)
    waiver = WaiverEntry.model_validate(SHELL | {"observed": "a (expected none)"})
    plugin.look = SimpleNamespace(hosts={"box": SimpleNamespace(rig=SimpleNamespace(waivers=(waiver,)), survey=None)})
    plugin.calls, plugin.today = SimpleNamespace(run=two_faults), "2027-01-01"
    function: Any = SimpleNamespace(about="", mark={"identifier": "B01"})
    with pytest.raises(Drift) as error:
        plugin._call_check(HostCheck(function, "box", {"target_name": "box"}))
    assert error.value.items == (("none", "a"), ("none", "b"))


def test_checks_after_a_deploy_go_on_past_a_waived_drift() -> None:
    def two_faults() -> None:
        expect("a", "none", instruction("remove it"))
        expect("b", "none", instruction("remove it"))

    waiver = WaiverEntry.model_validate(SHELL | {"observed": "a (expected none)"})
    seen, is_waived = cast("SurveyedHost", None), cover_items([waiver], "B01", "", "2027-01-01")
    drift = _run(seen, ModuleType("checks_of_a_test"), two_faults, None, is_waived)
    assert drift is not None
    assert drift.items == (("none", "a"), ("none", "b"))
    assert not is_waived(drift.waivable_items)


TWO_DISKS = """expect("one", "two disks", "`mount /data`")
    expect("full", "space", "`rm -r /data/old`")"""


def test_a_drift_without_its_value_and_one_with_many_items_are_never_waived() -> None:
    cure = instruction("restart it")
    nameless = Drift("the same", ItemText.from_items(["a", ItemText.without_value("another program")]), cure)
    assert (nameless.items, nameless.waivable_items) == (
        (("the same", "a"), ("the same", "another program")),
        (),
    )
    assert Drift.combine([Drift("b", "a", cure), nameless]).waivable_items == ()
    assert Drift("none", ItemText.from_items(list("abcdefghijklmnopqrst")), cure).waivable_items == ()
    assert len(Drift("none", ItemText.from_items(list("abcdefghijklmnopqrs")), cure).waivable_items) == 19


def test_texts_that_look_alike_have_different_values() -> None:
    texts = ["a\x01", "a\u202e", "a\\x01", "a\\\\x01", "a\n", "a\\n", "a\ufffd", "dev-x\\x2dy.device"]
    items = [Drift("none", one, instruction("look")).items[0][1] for one in texts]
    assert len(set(items)) == len(texts)
    assert all(one.isprintable() for one in items)
    assert items[-2:] == texts[-2:]


def test_values_that_are_shown_in_part_differ_in_their_rest() -> None:
    first, second = (Drift("none", ItemText.shorten(f"{'a' * 80}{end}", 80), instruction("look")) for end in "bc")
    assert first.found == second.found == "a" * 80
    assert first.items != second.items
    found = [ItemText.shorten(f"{'a' * 80}{end}", 80) for end in "bc"]
    with pytest.raises(Drift) as error:
        expect_none(found, "none", instruction("remove them"))
    assert error.value.items == (*first.items, *second.items)


def test_added_capabilities_beyond_the_shown_ones_are_another_value() -> None:
    caps = "a b c d e cap_a cap_b cap_c cap_d"
    first, second = (
        describe_difference(PropertyDifference("u.service", "CapabilityBoundingSet", "a b c d e", found))
        for found in (caps, f"{caps} cap_sys_admin")
    )
    assert first == second == "u.service has CapabilityBoundingSet +cap_a +cap_b +cap_c +cap_d"
    assert list_items(first) != list_items(second)


def test_long_values_end_with_a_digest() -> None:
    first, second = (describe_observed("none", f"{'a' * 5000}{end}") for end in "bc")
    assert first != second
    assert len(first) < LONGEST


def test_a_startup_file_beyond_the_shown_ones_and_foreign_bytecode_are_not_waived() -> None:
    names = [f"/usr/lib/python3/dist-packages/{name}.pth" for name in "abc"]
    waivers = [
        WaiverEntry.model_validate(SHELL | {"check": "F12", "observed": f"{name} (expected only packaged files)"})
        for name in names
    ]

    def judge(foreign: list[str], other: list[str]) -> bool:
        is_waived = cover_items(waivers, "F12", "", "2027-01-01")
        survey: Any = SimpleNamespace(read=lambda _: SimpleNamespace(foreign=foreign, other=other))
        with pytest.raises(Drift) as error, continue_past_waived(is_waived):
            judge_startup_code(survey)
        return is_waived(error.value.waivable_items)

    assert judge(names, [])
    assert not judge([*names, "/usr/lib/python3/dist-packages/z.pth"], [])
    assert not judge(names, ["/usr/lib/python3/dist-packages/x.pyc"])


def test_a_tree_of_which_a_survey_lists_some_changes_is_never_waived() -> None:
    def judge(count: int) -> bool:
        change = TreeChange("added", "x", "nothing", "a file", "2027-01-01")
        tree = InstalledTree("/opt/x", True, "", [change], count, "")
        with pytest.raises(Drift) as error:
            expect_no_changes([(tree, change)], instruction("look"))
        return bool(error.value.waivable_items)

    assert (judge(1), judge(2)) == (True, False)


def test_a_waived_missing_record_hides_no_change_of_its_tree() -> None:
    change = TreeChange("other", "x", "a", "b", "2027-01-01")
    waivers = [WaiverEntry.model_validate(SHELL | {"observed": "it is gone (expected root's record of /opt/x)"})]
    with pytest.raises(Drift) as error, continue_past_waived(cover_items(waivers, "B01", "", "2027-01-01")):
        expect_as_recorded(InstalledTree("/opt/x", True, "it is gone", [change], 1, ""), instruction("look"))
    assert [found for _, found in error.value.items] == ["it is gone", "b"]


def test_a_refused_signature_is_never_waived(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = ["the bundle is not signed", "the disk is full"]
    monkeypatch.setattr(test_preflight, "find_refusals", lambda *_: refusals)
    for refused, waivable in (([], 2), (refusals[:1], 0)):
        monkeypatch.setattr(test_preflight, "find_signature_refusals", lambda _, refused=refused: refused)
        with pytest.raises(Drift) as error:
            test_preflight.test_nothing_stands_in_the_way(cast("TargetState", None))
        assert len(error.value.waivable_items) == waivable


def test_another_text_of_a_generation_is_another_value() -> None:
    first, second = (_describe_change("units/x", "a 644", found) for found in ("b 644", "c 644"))
    assert first == second == "units/x changed"
    assert list_items(first) != list_items(second)


CUT = {
    "cause_facts.py": "digits of a number, and the first letter of a state",
    "cause_occurrences.py": "sentences of causes",
    "change_authors.py": "questions about authors",
    "drift_text.py": "the shown part of an ItemText",
    "effective_units.py:_format_signed": "the shown part of an ItemText",
    "report.py": "lines of a report",
    "sandbox_breakout.py": "the numbers of the others follow",
    "stored_packages.py": "columns of a list",
    "test_accounts.py:test_numbers": "one text for equal ones",
    "test_gateway.py:test_keys_at_rest": "the shown part of an ItemText",
    "test_gateway.py:_declared_keys": "an expected value, of the inventory",
    "test_fleet.py:_describe_shown": "a CA's key identifier",
    "test_answers.py:test_serves_its_model_streamed": "the last event of a stream",
    "test_engines.py:_end": "the shown part of an ItemText",
    "test_nvidia_files.py:describe_reinstall": "a remedy",
    "test_serving.py": "lines of a record",
    "tree_expectations.py": "the time of the last change that is shown",
    "undeployed_edit.py": "sentences of causes",
    "unit_settings.py": "the first letter of a setting",
    "verdict_verifier.py": "errors about a verdict",
    "tpm_quote.py:_verify_content": "fields of a quote",
}
"""File, or file and function, of checks that cut a text or a list -> why no observed value lacks the rest."""


def test_checks_cut_observed_values_only_in_item_texts() -> None:
    found = set()
    for path in [*(ROOT / "checks").glob("*.py"), *(ROOT / "checks/nvidia").glob("*.py")]:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and path.name != "__init__.py" and path.name not in CUT:
                found |= {f"{path.name}:{function.name}" for node in ast.walk(function) if is_cut(node)}
    assert found == {one for one in CUT if ":" in one}, "use ItemText.from_items, ItemText.shorten or ItemText"


def is_cut(node: ast.AST) -> bool:
    """Whether an expression takes the first or the last of a text or list."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
        return False
    begins, ends = node.slice.lower, node.slice.upper
    return (begins is None and isinstance(ends, (ast.Constant, ast.Name))) or isinstance(begins, ast.UnaryOp)


def test_no_loop_of_a_check_ends_at_its_first_drift() -> None:
    """A waived drift would hide those of the later rounds: `report_drift` goes on."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "checks").glob("**/test_*.py")
        for loop in ast.walk(ast.parse(path.read_text()))
        if isinstance(loop, (ast.For, ast.While))
        for node in ast.walk(loop)
        if isinstance(node, ast.Raise) and "Drift" in ast.unparse(node)
    ]
    assert found == []


def test_causes_match_the_text_that_people_read_and_waivers_the_whole_value() -> None:
    lines = [ItemText("/a has different contents", "/a has different contents: 00ff"), "/b is not there"]
    drift = Drift("none", ItemText.from_items(lines, shown=1), instruction("look"))
    assert drift.shown_items == (("none", "/a has different contents"), ("none", "/b is not there"))
    assert drift.items == (("none", "/a has different contents: 00ff"), ("none", "/b is not there"))
