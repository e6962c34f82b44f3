"""Parsers of other programs' output: a changed line makes no wrong value, no traceback and no silent failure."""

import random
import re

import pytest

from tests.unit.example_counts import example_count
from tests.unit.output_mutations import find_wrong_value, insert_noise, mutate_output
from tests.unit.parser_sites import CALLS, SCRIPTS, program_calls, reporting_scripts
from tests.unit.parser_table import DATA, KILLED, ParserRow
from tests.unit.parser_table import PARSERS as CALLED
from tests.unit.probe_parsers import PROBES

PARSERS = CALLED | PROBES
EACH = 400  # changed samples of a parser, a fifth of them in a quick run


def sample(one: ParserRow) -> str:
    return (DATA / one.sample).read_bytes().decode()


@pytest.mark.parametrize("name", PARSERS)
def test_a_sample_is_read(name: str) -> None:
    one = PARSERS[name]
    assert one.read(sample(one), 0)


@pytest.mark.parametrize("name", PARSERS)
def test_a_changed_sample_gives_no_wrong_value(name: str) -> None:
    one, pick = PARSERS[name], random.Random(name)
    text = sample(one)
    good = one.read(text, 0)
    for _ in range(example_count(EACH) // one.costs):
        changed = mutate_output(pick, text, one.end, one.moves, one.words, one.nul)
        try:
            found = one.read(changed, 0)
        except one.refuses:
            continue
        assert find_wrong_value(found, good) == "", changed
        assert not one.complete or find_wrong_value(good, found) == "", changed


@pytest.mark.parametrize("name", [name for name, one in PARSERS.items() if one.noisy])
def test_lines_of_other_programs_leave_all_values_as_they_are(name: str) -> None:
    one, pick = PARSERS[name], random.Random(name)
    text = sample(one)
    good = one.read(text, 0)
    lines = text.removesuffix(one.end).split(one.end)
    for _ in range(example_count(EACH) // one.costs):
        changed = one.end.join(insert_noise(pick, lines)) + one.end
        found = one.read(changed, 0)
        assert (find_wrong_value(found, good), find_wrong_value(good, found)) == ("", ""), changed


SLOW = pytest.mark.all_only  # a script each time


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[SLOW] * (name in PROBES)) for name, one in PARSERS.items() if one.cut]
)
def test_an_output_that_is_cut_off_gives_no_shorter_value(name: str) -> None:
    one, pick = PARSERS[name], random.Random(name)
    text = sample(one)
    good = one.read(text, 0)
    for _ in range(example_count(EACH) // one.costs):
        changed, status = text[: pick.randrange(len(text))], pick.choice(one.cut)
        try:
            found = one.read(changed, status)
        except one.refuses:
            continue
        assert find_wrong_value(found, good) == "", changed


@pytest.mark.parametrize("name", [name for name, one in PARSERS.items() if KILLED in one.cut])
@pytest.mark.parametrize("status", [124, *(pytest.param(status, marks=SLOW) for status in (1, 2, KILLED))])
def test_a_program_that_fails_is_not_read_as_one_that_has_nothing_to_tell(name: str, status: int) -> None:
    one = PARSERS[name]
    if status in one.allowed:
        pytest.skip("it ends so without a failure")
    with pytest.raises(one.refuses):
        one.read("", status)


@pytest.mark.parametrize(
    ("there", "listed"), [(program_calls(), CALLS), (reporting_scripts(), SCRIPTS)], ids=["Python", "shell"]
)
def test_each_place_where_programs_are_read_is_listed(there: set[str], listed: dict[str, str]) -> None:
    assert sorted(there - {*listed}) == [], "it needs a row in parser_table.py or probe_parsers.py, or a reason"
    assert sorted({*listed} - there) == [], "it is gone"


def test_rows_that_are_named_are_there() -> None:
    named = {why for why in (*CALLS.values(), *SCRIPTS.values()) if re.match(r"[a-z_]+( probe)?[.:] ?[a-z_-]+", why)}
    assert named <= {*PARSERS}
