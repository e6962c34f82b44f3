"""The benchmark tells a run that changed nothing from any other, and counts in ratios."""

import json
import re

import pytest

from benchmarks import BenchmarkFailed, ansible_core, noop_deploy
from benchmarks.__main__ import main
from benchmarks.check_states import StatesReport
from benchmarks.noop_deploy import PeerReport
from benchmarks.timed_verbs import Row, Verb
from rigwright.inventory import ROOT
from rigwright.model.rig import account_names
from rigwright.weights.verification import render_rehash_units, weights_program_folder
from tests.unit.samples import sample_facts, sample_instance, sample_rig

RECAP = """
TASK [What is there] ***********************************************************
ok: [h1]

PLAY RECAP *********************************************************************
h1                         : ok=17   changed={}    unreachable=0    failed={}    skipped=2    rescued=0    ignored=0
h2                         : ok=16   changed=0    unreachable={}    failed=0    skipped=2    rescued=0    ignored=0
"""


DONE = """\
h1: nothing to do (44 steps, 0.6 s)
h2: {}
"""


@pytest.mark.parametrize(
    ("output", "unchanged"),
    [
        (DONE.format("nothing to do (44 steps, 0.7 s)"), True),
        (DONE.format("done: 1 of 44 steps changed something (0.9 s)"), False),
        (DONE.format("looked at"), False),
        ("", False),
    ],
)
def test_a_run_that_changed_nothing(output: str, unchanged: bool) -> None:
    assert noop_deploy.no_step_changed(2, output) is unchanged


def test_ansible_is_taken_at_its_word() -> None:
    assert [ansible_core.changed_tasks(RECAP.format(count, 0, 0)) for count in (0, 3)] == [0, 3]


@pytest.mark.parametrize("said", [RECAP.format(0, 1, 0), RECAP.format(0, 0, 1), "ERROR! no such playbook", ""])
def test_a_playbook_that_fails_ends_the_bench(said: str) -> None:
    with pytest.raises(RuntimeError, match="the playbook failed"):
        ansible_core.changed_tasks(said)


@pytest.mark.parametrize(("command", "unchanged"), [("false", True), ("true", False)])
def test_a_run_that_fails_or_changes_something_is_not_timed(command: str, unchanged: bool) -> None:
    verb = Verb(Row("it", 4), [command], [], environment={"PATH": "/usr/bin:/bin"}, unchanged=lambda said: unchanged)
    with pytest.raises(BenchmarkFailed, match=command):
        verb.run()


def test_ratios_are_of_medians_on_as_many_hosts() -> None:
    rows = [
        Row(noop_deploy.PEER, 1, seconds=[9.0, 10.0, 30.0]),
        Row(noop_deploy.PEER, 4, seconds=[40.0]),
        Row("rig deploy", 1, seconds=[0.4, 0.5, 0.6]),
        Row("rig deploy", 4, seconds=[1.0]),
    ]
    report = PeerReport("2026-11-21 13:00 UTC", "debian-12", 2, (0.1, 0.2), rows, {})
    assert [report.ratio(row) for row in rows] == [1, 1, 20, 40]
    said = json.loads(report.as_json())
    assert [row["ratio"] for row in said["rows"]] == [1, 1, 20, 40]
    assert said["rows"][2]["median"] == 0.5


def test_the_peer_leaves_and_looks_at_what_a_deploy_brings_for_weights() -> None:
    """It takes away what it is not told of, which the next deploy would bring again."""
    made = sample_rig(sample_instance())
    told = ansible_core.variables(made, sample_facts(), 1)
    brought = render_rehash_units(made.roots)
    assert {weights_program_folder(made.roots), *brought} <= set(told["declared"])
    assert brought.items() <= {one["path"]: one["text"] for one in told["texts"]}.items()


def test_the_peer_makes_the_users_and_ports_that_a_deploy_makes() -> None:
    made = sample_rig(sample_instance("a", port=8020), sample_instance("b", port=8021))
    told = ansible_core.variables(made, sample_facts(), 1)
    assert told["users"] == list(account_names(made))
    assert [(one["socket"], one["unit"]) for one in told["ports"]] == [
        (f"rigwright_listener-{port}.socket", f"rigwright_listener-{port}.service") for port in (8020, 8021)
    ]
    # a unit that it is not told of would be taken away
    assert {f"/etc/systemd/system/{name}" for one in told["ports"] for name in (one["socket"], one["unit"])} <= {
        *told["declared"]
    }


def test_each_benchmark_is_run_by_a_test() -> None:
    text = (ROOT / "tests" / "hosts" / "test_benchmarks.py").read_text()
    assert {*re.findall(r'benchmark\("([a-z-]+)"', text)} == {*main.commands}


def test_each_state_is_compared_with_its_own_figures_of_one_host() -> None:
    rows = [
        Row("check, healthy", 1, seconds=[1.0], processor=[0.9]),
        Row("check, healthy", 8, seconds=[1.8], processor=[1.6]),
        Row("check, failed", 1, seconds=[2.0], processor=[1.0]),
    ]
    report = StatesReport("", "debian-13", 2, (0.0, 0.0), rows, {})
    assert [round(report.ratio(row), 2) for row in rows] == [1.0, 1.8, 1.0]
    assert [report.further(row) and round(report.further(row) or 0, 2) for row in rows] == [None, 0.1, None]
