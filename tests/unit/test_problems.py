"""Mistakes: all of them, each once, with the place and the nearest valid name."""

import pytest
from pydantic import ValidationError

from rigwright.problems import (
    FrozenModel,
    Invalid,
    Problem,
    describe_unknown,
    format_value,
    suggestion,
    translate_validation,
)
from rigwright.validated_types import Name


class Inner(FrozenModel):
    port: int
    colour: str = ""


class Outer(FrozenModel):
    inner: Inner | None = None
    many: dict[Name, Inner] | None = None
    row: tuple[Inner, ...] = ()


def collect_problems(data: object, prefix: str = "box") -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(data)
    return [str(problem) for problem in translate_validation(caught.value, Outer, "rig.py", prefix)]


@pytest.mark.parametrize(
    ("data", "start"),
    [
        ({"iner": {}}, 'rig.py: box.iner: unknown key; did you mean "inner"?'),
        ({"inner": {"prot": 1, "port": 1}}, 'rig.py: box.inner.prot: unknown key; did you mean "port"?'),
        ({"many": {"a": {"port": 1, "color": ""}}}, 'rig.py: box.many.a.color: unknown key; did you mean "colour"?'),
        ({"row": [{"port": 1}, {"port": 1, "prt": 2}]}, 'rig.py: box.row[1].prt: unknown key; did you mean "port"?'),
        ({"inner": {}}, "rig.py: box.inner.port: missing"),
        ({"inner": {"port": "x"}}, "rig.py: box.inner.port: 'x' is refused: must be a valid integer"),
        (
            {"many": {"A b": {"port": 1}}},
            "rig.py: box.many.A b: 'A b' is refused: must be at most 48 lowercase letters",
        ),
    ],
)
def test_a_mistake_names_file_key_value_and_the_nearest_valid_name(data: object, start: str) -> None:
    (line,) = collect_problems(data)
    assert line.startswith(start)


def test_all_mistakes_of_a_value_are_found_in_one_go() -> None:
    lines = collect_problems({"iner": 1, "inner": {"port": "x", "z": 1}, "row": [{}]})
    assert [line.split(": ")[1] for line in lines] == ["box.inner.port", "box.inner.z", "box.row[0].port", "box.iner"]


def test_without_a_prefix_the_key_stands_alone() -> None:
    assert collect_problems({"inner": {}}, prefix="") == ["rig.py: inner.port: missing"]


def test_a_long_value_is_shown_shortened() -> None:
    (line,) = collect_problems({"inner": {"port": "x" * 5000}})
    assert len(line) < 250
    assert "xxx... is refused" in line


def test_a_value_with_line_breaks_is_shown_on_one_line() -> None:
    (line,) = collect_problems({"inner": {"port": "a\nrig.py: all is well"}})
    assert "\n" not in line


def test_problems_are_reported_once_each_and_in_order() -> None:
    first, second = Problem("a.py", "k", "x"), Problem("b.py", "k", "x")
    assert str(Invalid([second, first, second])) == "a.py: k: x\nb.py: k: x"


@pytest.mark.parametrize(
    ("value", "names", "text"),
    [
        ("rtx-3091", ["rtx-3090", "rtx-5090"], '; did you mean "rtx-3090"?; allowed: rtx-3090, rtx-5090'),
        ("zzz", ["rtx-3090"], "; allowed: rtx-3090"),
        ("zzz", [], "; allowed: none"),
        ("name-7", [f"name-{n}" for n in range(100)], '; did you mean "name-7"?'),
        ("zzz", [f"name-{n}" for n in range(100)], ""),
        ("zzz", [f"n{n:02}" for n in range(40)], "; allowed: " + ", ".join(f"n{n:02}" for n in range(40))),
        ("n00", [f"n{n:02}" for n in range(40)], '; did you mean "n00"?'),
    ],
)
def test_the_nearest_name_is_offered_and_a_short_list_is_shown(value: str, names: list[str], text: str) -> None:
    assert suggestion(value, names) == text
    assert describe_unknown("card", value, names) == f'there is no card "{value}"{text}'


def test_read_values_cannot_be_changed() -> None:
    inner = Inner(port=1)
    with pytest.raises(ValidationError):
        inner.port = 2  # type: ignore[misc]


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\u2028", "\x85", "\u202e", "\ud800"], ids=ascii)
def test_control_sequences_are_shown_as_their_codes(text: str) -> None:
    line = str(Problem(f"{text}.py", f"box.{text}", f"{text} is refused"))
    assert line.isprintable()
    assert line.count(text.encode("unicode_escape", "surrogatepass").decode()) == 3


def test_letters_of_any_language_stay_as_they_are() -> None:
    assert str(Problem("größe.py", "box.é", "× 日本")) == "größe.py: box.é: × 日本"


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ({"inner": 5}, "box.inner: 5 is refused: must be a table of keys"),
        ({"many": []}, "box.many: [] is refused: must be a table of names"),
        ({"many": {5: {"port": 1}}}, "box.many[5]: 5 is refused: must be text"),
        ({"row": 5}, "box.row: 5 is refused: must be a list"),
        ({"inner": {"port": [], "colour": ""}}, "box.inner.port: [] is refused: must be a whole number"),
        ({"inner": {"port": 1, "colour": 5}}, "box.inner.colour: 5 is refused: must be text"),
        ({"inner": {"port": 1, 5: 1}}, "box.inner[5]: 5 is refused: must be text as key"),
    ],
)
def test_the_rule_is_reported_in_the_projects_words(data: object, rule: str) -> None:
    assert collect_problems(data) == [f"rig.py: {rule}"]


def test_keys_beside_the_models_are_offered_at_the_top_only() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"ssh_prt": 1, "inner": {"port": 1, "ssh_prt": 1}})
    also = frozenset({"ssh_port"})
    top, inner = sorted(str(p) for p in translate_validation(caught.value, Outer, "rig.py", "box", also=also))[::-1]
    assert 'box.ssh_prt: unknown key; did you mean "ssh_port"?' in top
    assert "box.inner.ssh_prt: unknown key" in inner
    assert "ssh_port" not in inner


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("x", "'x'"),
        ("x" * 78, "'" + "x" * 78 + "'"),
        ("x" * 79, "'" + "x" * 76 + "..."),
        (10**5000, "a number of too many digits"),
        ([1, -(10**5000)], "a number of too many digits"),
        ({"a": {"b": 10**5000}}, "a number of too many digits"),
    ],
    ids=["number", "text", "80 characters", "81 characters", "large", "large in a list", "large in a table"],
)
def test_a_value_is_shown_as_it_was_given(value: object, text: str) -> None:
    assert format_value(value) == text
