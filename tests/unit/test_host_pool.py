"""Many hosts at the same time: those that hang delay no others."""

import resource
from threading import Event
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from checks import survey_run
from checks.connections import map_hosts
from checks.survey_run import SurveyRun
from rigwright.host_selection import format_hosts
from roles import host_pool
from roles.host_pool import HandshakeEnds, PacedPool, TimedPlaces, TooManyHosts, pace_hosts, raise_file_limit

HOSTS = [f"n{number:03}" for number in range(200)]
HANGING = HOSTS[:100]


def test_hosts_that_hang_hold_no_place_of_others() -> None:
    others = len(HOSTS) - len(HANGING)
    answered, all_answered = [], Event()

    def ask(name: str) -> str:
        if name in HANGING:
            # ends as soon as all others have answered
            assert all_answered.wait(20), f"{len(answered)} of {others} others answered"
            return "hung"
        answered.append(name)
        if len(answered) == others:
            all_answered.set()
        return "answered"

    assert map_hosts(HOSTS, ask) == ["hung"] * len(HANGING) + ["answered"] * others
    assert map_hosts([], ask) == []


def test_pyinfra_works_on_hosts_while_others_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_pool, "HANDSHAKE_S", 0.2)
    pool, end, done = PacedPool(), gevent.event.Event(), []
    hanging = [pool.spawn(end.wait, 20) for _ in HANGING]
    others = [pool.spawn(done.append, name) for name in HOSTS]
    gevent.joinall(others, timeout=20)
    assert (done, any(one.ready() for one in hanging)) == (HOSTS, False)
    end.set()
    gevent.joinall(hanging, timeout=20)


@pytest.mark.parametrize("reached", [True, False])
def test_few_hosts_connect_at_the_same_time(monkeypatch: pytest.MonkeyPatch, reached: bool) -> None:
    monkeypatch.setattr(host_pool, "HANDSHAKES", 4)
    monkeypatch.setattr(host_pool, "HANDSHAKE_S", 60.0)
    state: Any = SimpleNamespace(callback_handlers=[])
    pace_hosts(state)
    (ends,) = state.callback_handlers
    assert isinstance(ends, HandshakeEnds)
    connecting, most, end = set(), [], gevent.event.Event()

    def work(name: str) -> None:
        connecting.add(name)
        most.append(len(connecting))
        gevent.sleep(0)
        connecting.remove(name)
        if reached:
            ends.host_connect(state, name)
        else:
            ends.host_connect_error(state, name, OSError())
        end.wait(20)  # its work goes on, and holds no place of a handshake

    hosts = [state.pool.spawn(work, name) for name in HOSTS]
    end.set()
    gevent.joinall(hosts, timeout=20, raise_error=True)
    assert (len(most), max(most), state.pool.handshakes.holders) == (len(HOSTS), 4, {})


def test_a_holder_that_hangs_loses_its_place() -> None:
    places = TimedPlaces(2, 0.05)
    for name in HOSTS[:6]:
        places.take(name)
        assert len(places.holders) <= 2
    assert [*places.holders] == HOSTS[4:6]
    places.give_back(HOSTS[0])  # it has lost its place, and frees none of another
    assert [*places.holders] == HOSTS[4:6]


def test_a_freed_place_is_taken_at_once() -> None:
    places = TimedPlaces(1, 60.0)
    places.take("a")
    waiting = gevent.spawn(places.take, "b")
    gevent.idle()
    assert [*places.holders] == ["a"]
    places.give_back("a")
    waiting.get(timeout=20)
    assert [*places.holders] == ["b"]
    further = gevent.spawn(places.take, "c")
    gevent.idle()
    places.open()
    further.get(timeout=20)


def test_a_host_begins_while_the_controller_is_busy() -> None:
    pool, end = PacedPool(), gevent.event.Event()

    def work() -> None:
        while not end.is_set():
            gevent.sleep(0)

    busy = [pool.spawn(work) for _ in range(host_pool.STARTED_AT_ONCE)]
    assert pool.spawn(lambda: "begun").get(timeout=20) == "begun"
    end.set()
    gevent.joinall(busy, timeout=20)


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 4096, 1064), (4096, 4096, 4096), (256, 512, 0)])
def test_a_run_may_open_a_connection_to_each_host(monkeypatch, soft: int, hard: int, then: int) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    if then:
        raise_file_limit(1000)
        assert limits[-1] == (then, hard)
    else:
        with pytest.raises(TooManyHosts, match=r"1000 hosts need 1064 open files, and the hard limit .* is 512"):
            raise_file_limit(1000)


def make_survey_run(
    monkeypatch: pytest.MonkeyPatch, *, slow_connection: str, slow_answer: str, end: Event
) -> SurveyRun:
    """A run over stand-in hosts, one of which connects, and one answers, only once a test says so."""
    names = ["a", "b", "c"]
    targets = {name: SimpleNamespace(name=name, data={}) for name in names}

    def connect(_state, chosen, connected):
        for name in chosen:
            if name != slow_connection:
                connected(name)
        assert end.wait(20)
        return {}

    def answer(seen):
        assert seen.target.name != slow_answer or end.wait(20)
        return "an answer"

    monkeypatch.setattr(survey_run, "load_hosts", lambda *_: (SimpleNamespace(inventory=names), targets))
    monkeypatch.setattr(survey_run, "find_foreign_data", lambda _: "")
    monkeypatch.setattr(survey_run, "load_rig", lambda _: None)
    monkeypatch.setattr(survey_run, "load_accepted", lambda *_: None)
    monkeypatch.setattr(survey_run, "connect_targets", connect)
    monkeypatch.setattr(survey_run, "PATIENCE", 0.2)
    monkeypatch.setattr(survey_run.SurveyedHost, "survey", property(answer))
    return SurveyRun("rig.py", None, False)


def test_further_hosts_are_asked_once_earlier_ones_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Event()
    monkeypatch.setattr(survey_run, "BACKLOG", 1)
    run = make_survey_run(monkeypatch, slow_connection="b", slow_answer="", end=end)
    assert run.choose_next_host(["a", "b", "c"]) == "a"
    assert not run.room.is_set()
    run._note_connection("b")
    assert "b" not in run.begun
    run.end_host("a")
    assert run.choose_next_host(["b"]) == "b"
    # a host without checks has answered: the others are asked nevertheless
    assert run.choose_next_host(["c"]) == "c"
    run.end()
    end.set()
    assert run.begun == {"a", "b", "c"}


@pytest.mark.parametrize("silent", [False, True])
def test_few_hosts_are_asked_and_not_decided(monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    end = Event()
    monkeypatch.setattr(survey_run, "ASKED", 1)
    monkeypatch.setattr(survey_run, "SLOW", 0.0 if silent else 60.0)
    run = make_survey_run(monkeypatch, slow_connection="", slow_answer="a", end=end)
    gevent.idle()
    assert run.begun == ({"a", "b", "c"} if silent else {"a"})
    end.set()
    left = ["a", "b", "c"]
    while left:
        name = run.choose_next_host(left)
        assert not run.is_out_of_reach(name)
        left.remove(name)
        run.end_host(name)
    run.end()
    assert run.begun == {"a", "b", "c"}


@pytest.mark.parametrize(
    "slow", [{"slow_connection": "a", "slow_answer": ""}, {"slow_connection": "", "slow_answer": "a"}]
)
def test_checks_begin_with_hosts_that_have_answered(monkeypatch, slow: dict[str, str]) -> None:
    end = Event()
    run = make_survey_run(monkeypatch, **slow, end=end)
    left = ["a", "b", "c"]
    for name in ("b", "c"):
        assert run.choose_next_host(left) == name
        assert not run.is_out_of_reach(name)
        left.remove(name)
    end.set()
    assert run.choose_next_host(left) == "a"
    assert not run.is_out_of_reach("a")


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["b", "a"], "a, b"),
        (HOSTS[:3], "n000, n001, n002"),
        (HOSTS, "n000 to n199 (200 hosts)"),
        ([*HOSTS[:9], "n011", "gate"], "gate, n000 to n008, n011 (11 hosts)"),
        ([f"h{number}" for number in range(8, 18)], "h8 to h17 (10 hosts)"),
        (
            [f"h{2 * number}" for number in range(20)],
            ", ".join(f"h{2 * one}" for one in range(12)) + ", ... (20 hosts)",
        ),
    ],
)
def test_many_hosts_are_listed_as_ranges(names: list[str], text: str) -> None:
    assert format_hosts(names) == text
