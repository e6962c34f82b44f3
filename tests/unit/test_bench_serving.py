"""The bench of serving: what is compared is one command line, and figures are what their names say."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

from bench.contest import BARE_UNIT, GUARD_UNIT, LOAD_UNIT, Deployed, guard, start_bare
from bench.figures import Load, Machine, Report, Request, Row, parse, percentile
from cli import main
from cli.bench import _rows
from rigwright.engines.llama_cpp.command import command
from rigwright.host.locks import LEASE
from rigwright.serving.units import credential_path, unit
from tests.unit.samples import instance, rig

ENGINE = "llama.cpp-x"


def test_the_bare_command_is_the_units_but_for_port_and_key() -> None:
    one = instance()
    found = Deployed(rig(one), one, ENGINE)
    declared = command(found.rig, one, found.rig.installed(ENGINE))
    changed = {word: new for word, new in zip(declared, found.bare(40123), strict=True) if word != new}
    assert changed == {str(one.port): "40123", "${CREDENTIALS_DIRECTORY}/api-key": credential_path(found.rig, one)}
    assert found.environment_file == f"/etc/rigwright/current/env/{one.name}"
    assert found.started_from == unit(found.rig, one, ENGINE).slot.started_from


def test_the_bare_process_has_the_units_environment_and_none_of_its_limits() -> None:
    one = instance(flags={"alias-text": "a $HOME %n"})
    found = Deployed(rig(one), one, ENGINE)
    words = shlex.split(start_bare(found, 40123))
    properties = [word for word in words if word.startswith(("--property", "-p"))]
    assert properties == [f"--property=EnvironmentFile={found.environment_file}"]
    assert f"--unit={BARE_UNIT}" in words
    assert [word.replace("$$", "$") for word in words[words.index("--") + 1 :]] == found.bare(40123)
    assert "a $$HOME %n" in words


def test_the_host_itself_ends_everything_else_before_it_serves_again() -> None:
    words = shlex.split(guard("rigwright-chat.service"))
    assert f"--unit={GUARD_UNIT}" in words
    assert words[words.index("flock") :][:3] == ["flock", "--shared", LEASE]
    script = words[-1]
    start = script.index("systemctl start rigwright-chat.service")
    assert all(script.index(f"systemctl stop {name}") < start for name in (BARE_UNIT, LOAD_UNIT))


@pytest.mark.parametrize(
    ("percent", "found"), [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1), (0.5, 1), (50.5, 51), (99.5, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, found: float) -> None:
    assert percentile(reversed([float(number) for number in range(1, 101)]), percent) == found


def test_few_values_have_percentiles_too() -> None:
    assert percentile([3.0], 50) == percentile([3.0], 99) == 3
    assert (percentile([1.0, 2.0], 50), percentile([1.0, 2.0], 99)) == (1, 2)
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def said(**changes: object) -> str:
    request = {"first_s": 0.5, "gaps_s": [0.1, 0.3], "total_s": 1.0, "tokens": 3} | changes
    return json.dumps({"seconds": 2.0, "requests": [request, request]})


def test_tokens_a_second_are_all_streams() -> None:
    load = parse(said(), requests=2, tokens=3)
    assert load.tokens_a_second == 3
    assert load.requests[0].per_token_s == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (said(tokens=2), "an answer of 2 tokens where 3 were asked for"),
        (said(tokens=None), "the load program printed"),
        (said(gaps_s=None), "the load program printed"),
        ('{"seconds": 1, "requests": []}', "0 answers to 2 requests"),
        ("{}", "the load program printed '{}'"),
        ("", "the load program printed ''"),
        ("Welcome to box1\n{}", "the load program printed 'Welcome"),
    ],
)
def test_an_answer_that_is_short_or_none_is_no_figure(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text, requests=2, tokens=3)


def load(seconds: float, first_s: float = 0.5) -> Load:
    """One request of a hundred tokens."""
    return Load(seconds, (Request(first_s, (0.01,) * 99, seconds, 100),))


def report() -> Report:
    rows = [
        Row(1, "bare", [load(1.0), load(2.0), load(4.0)]),
        Row(1, "unit", [load(1.0, 0.6), load(2.5, 0.7), load(4.0, 0.8)]),
        Row(4, "bare", [load(1.0)]),
        Row(4, "unit", [load(2.0)]),
    ]
    return Report("2026-11-21", Machine("box", "chat", "llamacpp/x", 4, "", "llama.cpp 1", 2), 200, 100, 1, rows)


def test_a_ratio_is_the_middle_of_those_of_the_rounds() -> None:
    made = report()
    assert made.ratios(1) == pytest.approx([1.0, 0.8, 1.0])
    # not the ratio of the medians, which is 0.8
    assert made.ratio(1) == 1.0
    assert made.ratio(4) == 0.5
    assert made.rows[0].tokens_a_second == 50
    assert (made.rows[1].first_s(50), made.rows[1].first_s(99)) == (0.7, 0.8)


def test_the_table_has_the_ratio_beside_the_unit() -> None:
    assert _rows(report())[:2] == [
        ("1", "bare", "50.0", "500.00", "500.00", "10.00", "10.00", "", ""),
        ("1", "unit", "40.0", "700.00", "800.00", "10.00", "10.00", "1.000", "0.800-1.000"),
    ]


def test_programs_get_every_request() -> None:
    told = json.loads(report().as_json())
    assert told["unit_by_bare"]["4"] == {"median": 0.5, "rounds": [0.5]}
    assert told["machine"]["cpus"] == 2
    first = told["rows"][1]
    assert (first["streams"], first["way"], first["first_s"]) == (1, "unit", {"p50": 0.7, "p99": 0.8})
    assert [len(one["requests"]) for one in first["rounds"]] == [1, 1, 1]
    assert first["rounds"][0]["requests"][0]["total_s"] == 1.0


@pytest.mark.parametrize("streams", ["", "1,", "0", "1,1", "x", "257", "1, 4", "-1"])
def test_streams_are_different_numbers(streams: str) -> None:
    told = CliRunner().invoke(main, ["bench", "serving", __file__, f"--streams={streams}"])
    assert told.exit_code == 2
    assert "different numbers from 1 to 256" in told.output
