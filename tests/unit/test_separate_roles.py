"""Roles that run without the others: each with what it needs, in the order of a deploy."""

import pytest

from rigwright.plan.separate_roles import INSEPARABLE, NEEDS, describe_selection, select_roles
from rigwright.plan.stages import STAGES

ORDER = [stage.role for stage in STAGES]


def test_every_role_of_a_deploy_is_separable_or_has_a_reason_in_the_order_of_a_deploy() -> None:
    assert [role for role in ORDER if role in NEEDS] == [*NEEDS]
    assert {*ORDER} == {*NEEDS} | {*INSEPARABLE}


@pytest.mark.parametrize("role", NEEDS)
def test_needs_are_complete_and_come_first(role: str) -> None:
    selected = select_roles(role)
    assert selected[-1] == role
    assert all({*NEEDS[one]} <= {*selected} for one in selected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("serving", "serving cannot run separately: it activates a generation"),
        ("base,self_check", "self_check cannot run separately: it compares the host with the generation"),
        ("wieghts", 'there is no role "wieghts"; did you mean "weights"?'),
        ("", 'there is no role ""'),
    ],
)
def test_other_roles_are_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(LookupError) as refusal:
        select_roles(text)
    assert str(refusal.value).startswith(said)


def test_the_notice_names_the_roles_that_were_added() -> None:
    said = describe_selection("sharing", select_roles("sharing"))
    assert said.startswith("only base, sharing (base: needed by the others); no generation is activated")
    assert describe_selection("base", select_roles("base")).startswith("only base; ")
