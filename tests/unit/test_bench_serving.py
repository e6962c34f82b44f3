"""The bench of serving: one command line is compared, and figures are what their names say."""

import json
import shlex
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from bench import sandbox_overhead
from bench.alternating_runs import (
    BARE_SOCKET,
    BARE_UNIT,
    GUARD_UNIT,
    LOAD_UNIT,
    Deployed,
    MeasurementFailed,
    guard,
    start_bare,
)
from bench.load_statistics import (
    ConfidenceInterval,
    LoadTimes,
    MeasuredMachine,
    RequestTimes,
    ServingReport,
    ServingRow,
    confidence_interval,
    parse_load,
    percentile,
)
from cli import main
from cli.bench_serving import _port, _rows
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import Sandbox, ServiceSpec
from rigwright.engines.llama_cpp.command import server_command
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.model.instance import COMPILED
from rigwright.serving.instance_units import credential_path
from tests.unit.samples import sample_installation, sample_instance, sample_rig

ENGINE = sample_installation()


def test_the_bare_command_is_the_units_but_for_socket_and_key() -> None:
    one = sample_instance()
    found = Deployed(sample_rig(one), one, ENGINE)
    declared = server_command(
        found.rig.roots, found.rig.gateway, found.rig.monitoring, one, found.rig.roots.installation_path(ENGINE.folder)
    )
    changed = {word: new for word, new in zip(declared, found.bare, strict=True) if word != new}
    assert changed == {
        one.socket: BARE_SOCKET,
        "${CREDENTIALS_DIRECTORY}/api-key": credential_path(found.rig.roots, one),
    }
    assert found.environment_file == f"/etc/rigwright/current/env/{one.name}"
    assert found.program == declared[0]


def test_a_command_that_would_take_the_units_socket_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample_instance()
    found = Deployed(sample_rig(one), one, ENGINE)
    made = ServiceSpec((found.program, f"--listen=unix:{one.socket}"), {}, Sandbox(0, 0))
    monkeypatch.setattr(type(kind_of(one)), "service", lambda *_: made)
    with pytest.raises(MeasurementFailed, match=f"its command line does not name its socket {one.socket}"):
        start_bare(found)


def test_an_instance_without_a_bare_process_keeps_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample_instance()
    made = ServiceSpec(("/usr/bin/launcher", "/etc/spec.json"), {}, Sandbox(0, 0))
    monkeypatch.setattr(type(kind_of(one)), "service", lambda *_: made)
    desired = SimpleNamespace(installations={one.installed_as: ENGINE})
    # a box without a target: whatever asks it for more fails otherwise
    box: Any = SimpleNamespace(rig=sample_rig(one), resolve_desired=lambda: desired)
    with pytest.raises(MeasurementFailed, match=f"{one.name} cannot run outside its unit"):
        sandbox_overhead.measure(box, one, [1], 1, 8, 1, 1, print)


def test_the_bare_process_has_the_units_environment_and_none_of_its_limits() -> None:
    one = sample_instance(flags={"alias-text": "a $HOME %n"})
    found = Deployed(sample_rig(one), one, ENGINE)
    words = shlex.split(start_bare(found))
    properties = [word.partition("=")[2] for word in words if word.startswith(("--property", "-p"))]
    # its socket lies where only root comes to
    folder = str(PurePosixPath(BARE_SOCKET).parent.relative_to("/run"))
    expected = {f"EnvironmentFile={found.environment_file}", f"RuntimeDirectory={folder}", "RuntimeDirectoryMode=0700"}
    assert set(properties) == expected
    assert f"--unit={BARE_UNIT}" in words
    assert [word.replace("$$", "$") for word in words[words.index("--") + 1 :]] == found.bare
    assert "a $$HOME %n" in words


def test_a_socket_may_be_an_options_value(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample_instance()
    found = Deployed(sample_rig(one), one, ENGINE)
    made = ServiceSpec((found.program, f"--uds={one.socket}"), {}, Sandbox(0, 0))
    monkeypatch.setattr(type(kind_of(one)), "service", lambda *_: made)
    assert found.bare == [found.program, f"--uds={BARE_SOCKET}"]


def test_compiled_code_of_the_bare_process_stays_the_units(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sample_instance()
    found = Deployed(sample_rig(one), one, ENGINE)
    cache = one.cache_folder
    made = ServiceSpec((found.program, one.socket), {}, Sandbox(0, 0), cache=f"{cache}/some")
    monkeypatch.setattr(type(kind_of(one)), "service", lambda *_: made)
    words = shlex.split(start_bare(found))
    # systemd makes the instance's folder root's, and the one below it the instance's
    user = found.rig.accounts.of_instance(one)
    assert f"--property=ExecStopPost=/bin/chown -Rh {user}:{user} {cache}/some" in words
    # its environment leads there, as in the unit: elsewhere it would compile anew, and leave that behind
    assert f"--property=BindPaths={cache}/some:{COMPILED}" in words


def test_the_host_itself_ends_everything_else_before_it_serves_again() -> None:
    words = shlex.split(guard("rigwright-chat.service"))
    assert f"--unit={GUARD_UNIT}" in words
    assert words[words.index("flock") :][:3] == ["flock", "--shared", DEPLOY_LOCK]
    script = words[-1]
    start = script.index("systemctl start rigwright-chat.service")
    assert all(script.index(f"systemctl stop {name}") < start for name in (BARE_UNIT, LOAD_UNIT))


@pytest.mark.parametrize(
    ("percent", "found"), [(50, 50), (99, 99), (100, 100), (1, 1), (0, 1), (0.5, 1), (50.5, 51), (99.5, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, found: float) -> None:
    assert percentile(reversed([float(number) for number in range(1, 101)]), percent) == found


def bench_output(**changes: object) -> str:
    request = {"first_s": 0.5, "gaps_s": [0.1, 0.3], "total_s": 1.0, "tokens": 3} | changes
    return json.dumps({"seconds": 2.0, "requests": [request, request]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bench_output(tokens=2), "an answer of 2 tokens where 3 were asked for"),
        (bench_output(tokens=None), "the load program printed"),
        (bench_output(gaps_s=None), "the load program printed"),
        ('{"seconds": 1, "requests": []}', "0 answers to 2 requests"),
        ("{}", "the load program printed '{}'"),
        ("", "the load program printed ''"),
        ("Welcome to box1\n{}", "the load program printed 'Welcome"),
    ],
)
def test_an_answer_that_is_short_or_none_is_no_figure(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_load(text, requests=2, tokens=3)


def load(seconds: float, first_s: float = 0.5) -> LoadTimes:
    """One request of a hundred tokens."""
    return LoadTimes(seconds, (RequestTimes(first_s, (0.01,) * 99, seconds, 100),))


def report() -> ServingReport:
    rows = [
        ServingRow(1, "bare", [load(1.0), load(2.0), load(4.0)]),
        ServingRow(1, "unit", [load(1.0, 0.6), load(2.5, 0.7), load(4.0, 0.8)]),
        ServingRow(1, "port", [load(1.0, 0.601), load(2.5, 0.7004), load(5.0, 0.8002)]),
        ServingRow(4, "bare", [load(1.0)]),
        ServingRow(4, "unit", [load(2.0)]),
        ServingRow(4, "port", [load(2.5, 0.499)]),
    ]
    return ServingReport(
        "2026-11-21", MeasuredMachine("box", "chat", "llamacpp/x", 4, "", "llama.cpp 1", 2), 200, 100, 1, rows
    )


def test_common_parts_of_two_ways_are_on_both_sides_of_each_pair() -> None:
    made = report()
    unit, port = made.pairs(1, "unit"), made.pairs(1, "port")
    assert unit.ratios == pytest.approx([1.0, 0.8, 1.0])
    # not the ratio of the medians, which is 0.8
    assert unit.median_ratio == 1.0
    assert unit.later_s == pytest.approx([0.1, 0.2, 0.3])
    assert port.ratios == pytest.approx([1.0, 1.0, 0.8])
    assert (port.median_ratio, port.median_later_s) == (1.0, pytest.approx(0.0004))
    assert (made.pairs(4, "unit").median_ratio, made.pairs(4, "port").median_ratio) == (0.5, 0.8)
    assert made.rows[0].tokens_a_second == 50
    assert (made.rows[1].first_s(50), made.rows[1].first_s(99)) == (0.7, 0.8)


def test_the_table_has_each_way_beside_another() -> None:
    assert _rows(report())[:3] == [
        ("1", "bare", "50.0", "500.00", "500.00", "10.00", "10.00", "", "", "", "", ""),
        (
            *("1", "unit", "40.0", "700.00", "800.00", "10.00", "10.00"),
            *("bare", "1.000", "0.800-1.000", "+200.00", "+100.00 to +300.00"),
        ),
        (
            *("1", "port", "40.0", "700.40", "800.20", "10.00", "10.00"),
            *("unit", "1.000", "0.800-1.000", "+0.40", "+0.20 to +1.00"),
        ),
    ]


def test_the_cost_of_the_port_is_reported_of_the_worst_number_of_streams() -> None:
    # later with one stream, slower with four
    assert "at worst: TTFT +0.40 ms, tokens/s -20.0 %; goal" in _port(report())


@pytest.mark.parametrize("streams", ["", "1,", "0", "1,1", "x", "257", "1, 4", "-1"])
def test_streams_are_different_numbers(streams: str) -> None:
    told = CliRunner().invoke(main, ["bench", "serving", __file__, f"--streams={streams}"])
    assert told.exit_code == 2
    assert "distinct numbers from 1 to 256" in told.output


def test_a_ratio_is_as_sure_as_rounds_agree_and_not_as_loads_do() -> None:
    loads = confidence_interval([[1.0] * 50, [0.9] * 50, [1.1] * 50])
    assert loads is not None
    # Student's t of two degrees of freedom: 4.303 times the deviation of the three over the root of three
    assert (loads.ratio, loads.groups) == (pytest.approx(0.9967, abs=1e-4), 3)
    assert (loads.low, loads.high) == (pytest.approx(0.777, abs=1e-3), pytest.approx(1.279, abs=1e-3))
    assert confidence_interval([[1.0, 0.9]]) is None
    many = confidence_interval([[1.0], [0.99]] * 40)
    assert many is not None
    assert many.high - many.low < 0.003


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.991, 1.01, "at least 0.99"),
        (0.95, 0.98, "below 0.99"),
        (0.93, 1.07, "cannot tell whether at least 0.99: 7.0 % either way; 147 such would, if it is 1"),
    ],
)
def test_unknown_facts_are_reported_as_unknown(low: float, high: float, said: str) -> None:
    assert ConfidenceInterval(1.0, low, high, 3).describe_against_goal(0.99) == said
