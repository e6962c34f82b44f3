"""`rigwright health` and what it says."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cli.health import HostHealth, _print_health, _token_rates, describe_card, describe_counters
from cli.tables import format_duration
from rigwright.engines.metrics import EngineMetrics
from rigwright.operate.instance_health import CardUse, InstanceHealth
from rigwright.operate.instance_state import InstanceState
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd

LIMIT = 60  # seconds, for a machine with much else to do
COUNTED = EngineMetrics(
    running=2,
    waiting=1,
    kv_used=0.5,
    prefix_queries=10,
    prefix_hits=4,
    preemptions=3,
    drafts=10,
    accepted=17,
    tokens=100,
)
WELL = InstanceHealth("chat", "ready", "", 60.0, 0, 1 << 30, COUNTED, None, ())


@pytest.fixture
def host(box: OperatorFolder) -> Iterator[StandInSshd]:
    """A host without an instance."""
    with run_sshd(box.folder / "h") as made:
        declared = sample_entry(cards=[], instances=chat_instances(), **made.connection)
        box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {declared!r}}})\n")
        yield made


def health(box: OperatorFolder, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "health", str(box.inventory), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, ""),
        (0.4, "0s"),
        (59, "59s"),
        (61, "1m 1s"),
        (3600, "1h"),
        (3660, "1h 1m"),
        (90061, "1d 1h"),
        (86460, "1d 1m"),
    ],
)
def test_a_time_has_two_parts(seconds: float | None, said: str) -> None:
    assert format_duration(seconds) == said


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("ready", "ready, up 1m"),
        ("silent", "silent, up 1m"),
        ("failed", "failed for 1m"),
        ("not deployed", "not deployed"),
    ],
)
def test_how_long_is_said_of_the_unit(state: InstanceState, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    _print_health(HostHealth("box", "as declared", instances=[replace(WELL, state=state)]), "rig.py", {}, {})
    first, *more = capsys.readouterr().out.splitlines()
    assert first == f"box  chat: {line}"
    assert ("    next: rigwright deploy rig.py --limit box" in more) == (state == "not deployed")


def test_what_is_counted_is_said_and_what_is_not_is_left_out() -> None:
    assert describe_counters(WELL, 131072, 71.25) == [
        "KV cache 50% of 131,072 tokens",
        "2 running, 1 waiting",
        "71.2 tokens/s",
        "accept length 2.70",
        "prefix hits 40%",
        "3 preemptions",
    ]
    assert describe_counters(replace(WELL, metrics=EngineMetrics()), None, None) == ["KV cache n/a"]
    assert describe_counters(replace(WELL, metrics=EngineMetrics(), state="wedged"), None, None) == []


def test_a_card_says_what_it_says() -> None:
    assert (
        describe_card(CardUse(0, 22528, 24576, 240.2, 250, 61, 99))
        == "GPU 0: 22.0 of 24.0 GiB, 240 of 250 W, 61 C, 99 % busy"
    )
    assert describe_card(CardUse(1, None, None, 30, None, None, None)) == "GPU 1: 30 W"


def test_a_rate_is_that_since_the_look_before() -> None:
    earlier: dict[tuple[str, str], tuple[float, float | None]] = {}
    first = HostHealth("box", "as declared", instances=[replace(WELL, tokens_a_second=9.0)])
    assert _token_rates([first], earlier, 10.0) == {("box", "chat"): 9.0}
    later = HostHealth("box", "as declared", instances=[replace(WELL, metrics=replace(COUNTED, tokens=150))])
    assert _token_rates([later], earlier, 15.0) == {("box", "chat"): 10.0}
    # an engine that began anew
    anew = HostHealth("box", "as declared", instances=[replace(WELL, metrics=replace(COUNTED, tokens=1))])
    assert _token_rates([anew], earlier, 20.0) == {}


def test_a_host_that_answers_nothing_that_was_asked_is_not_reached(box: OperatorFolder, host: StandInSshd) -> None:
    # its Python finds no systemd: the look fails as a whole
    done = health(box, "--json")
    assert done.returncode == 3, done.stderr
    (found,) = json.loads(done.stdout)
    assert (found["name"], found["verdict"], found["instances"]) == ("box", "not reached", [])
    assert found["why"]


def test_a_host_out_of_reach_is_in_json_too(box: OperatorFolder, host: StandInSshd) -> None:
    os.kill(host.pid, signal.SIGKILL)
    done = health(box, "--json")
    assert done.returncode == 3
    (found,) = json.loads(done.stdout)
    why = f"cannot be reached: Connection refused (port {host.port} of 127.0.0.1)"
    assert (found["name"], found["verdict"], found["why"]) == ("box", "not reached", why)


def test_an_instance_that_is_not_there_is_refused(box: OperatorFolder, host: StandInSshd) -> None:
    done = health(box, "--instance", "chta")
    assert (done.returncode, 'did you mean "chat"' in done.stderr) == (2, True)
