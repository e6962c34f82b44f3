"""Results that rigs with equal declarations share depend on no rig's name."""

from dataclasses import replace

from rigwright.model.rig import Rig
from rigwright.model.shared_results import NAMELESS, share_results
from tests.unit.samples import sample_rig


def test_a_result_of_equal_rigs_is_made_once_and_has_no_name() -> None:
    calls: list[str] = []

    @share_results
    def name_of(rig: Rig, suffix: str = "") -> str:
        calls.append(rig.name)
        return rig.name + suffix

    first = sample_rig()
    second = replace(first, name="second")
    assert [name_of(first, "!"), name_of(second, "!")] == [f"{NAMELESS}!"] * 2
    assert [name_of(rig=first), name_of(rig=second), name_of(suffix="?", rig=second)] == [*NAMELESS * 2, f"{NAMELESS}?"]
    assert calls == [NAMELESS] * 3
    assert name_of(rig=replace(first, keep_generations=first.keep_generations + 1)) == NAMELESS
    assert len(calls) == 4
