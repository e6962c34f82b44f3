"""Ends of a pull's jobs that are neither success nor failure: an unreadable state, a stop, and a wait for a peer."""

# ruff: noqa: F811 (fixtures of another file)

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigwright.host.generation_layout import JOB
from rigwright.pull.publication import PullPayload
from roles.pull.host import root_jobs, served_generation
from roles.weights.host import progress
from roles.weights.host.spec import TransferLimits
from tests.unit.published_boxes import PublishedWorld, keys, outcome, served_folder  # noqa: F401 (a fixture)
from tests.unit.test_pull_limits import (  # noqa: F401 (fixtures)
    BASE,
    FETCH,
    NEW_FILES,
    SERIAL,
    WEIGHTS,
    StandInUnits,
    WeightsHandler,
    assert_serves_as_before,
    publish,
    publish_weights,
    switch_script,
    units,
    world,
)

RESET = "Failed to get properties: Connection reset by peer\n"  # as systemctl says while systemd executes itself again


def publish_switch(world: PublishedWorld, serial: int = SERIAL, **changes: str) -> None:
    """Publish a generation without weights; the return to the earlier one always works."""
    activate, restore = {BASE: switch_script(world, **changes)}, {BASE: switch_script(world)}
    publish(world, PullPayload(NEW_FILES, {}, activate, restore), serial)


class UnreadableUnits:
    """Systemd that does not answer some questions."""

    def __init__(self, units: StandInUnits) -> None:
        self.units, self.control = units, units._control
        self.left = 0
        """Number of next answers without a state; negative for all."""

    def answer(self, verb: str, unit: str) -> str:
        """The answer of systemctl."""
        if verb != "show" or not self.left:
            return self.control(verb, unit)
        self.left -= 1
        return RESET


@pytest.fixture
def systemd(units: StandInUnits, monkeypatch: pytest.MonkeyPatch) -> UnreadableUnits:
    made = UnreadableUnits(units)
    monkeypatch.setattr(units, "_control", made.answer)
    monkeypatch.setattr(root_jobs, "STATE_S", 0.2, raising=False)
    return made


def test_a_state_that_is_unreadable_for_a_moment_is_read_again(
    world: PublishedWorld, units: StandInUnits, systemd: UnreadableUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_jobs, "STATE_S", 60.0, raising=False)
    publish_switch(world)
    systemd.left = 3
    assert outcome(world) == ("activated", "")
    assert units.started == [JOB]


def test_an_unreadable_state_starts_nothing_and_discards_no_generation(
    world: PublishedWorld, units: StandInUnits, systemd: UnreadableUnits
) -> None:
    publish_switch(world)
    systemd.left = -1
    assert outcome(world) == ("busy", "systemd")
    text = f"the state of rw-job-remove.service is unknown: {RESET.strip()}; the next pull continues"
    assert (world.record["text"], units.started) == (text, [])
    systemd.left = 0
    assert outcome(world) == ("activated", "")


@pytest.mark.parametrize("step", range(1, 8))
def test_a_state_that_is_unreadable_at_any_step_discards_no_generation(
    world: PublishedWorld, units: StandInUnits, systemd: UnreadableUnits, step: int
) -> None:
    publish_switch(world)
    counted = 0
    original = systemd.answer

    def answer(verb: str, unit: str) -> str:
        nonlocal counted
        counted += verb == "show"
        if verb == "show" and counted == step:
            systemd.left = -1
        return original(verb, unit)

    units._control = answer  # type: ignore[method-assign]
    assert outcome(world) in (("busy", "systemd"), ("activated", ""))
    units._control = original  # type: ignore[method-assign]
    systemd.left = 0
    found = [outcome(world)[0] for _ in range(3)]
    assert found[-1] == "current"
    assert "failed" not in world.record
    assert set(units.started) == {JOB}


def test_a_job_that_systemd_does_not_start_is_tried_again(
    world: PublishedWorld, units: StandInUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_program = units.run_program

    def refuse(*words: str, limit: float = 0) -> tuple[int, str]:
        return (1, "Failed to start transient service unit\n") if words[0] == "systemd-run" else run_program(*words)

    publish_switch(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root_jobs, "run_program", refuse)
        assert outcome(world) == ("busy", "systemd")
    assert_serves_as_before(world)
    assert outcome(world) == ("busy", "interrupted")
    assert outcome(world) == ("activated", "")


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_activation_that_was_stopped_is_no_success_and_no_failure(
    world: PublishedWorld, units: StandInUnits, place: str
) -> None:
    """systemd counts the end by SIGTERM as a success, as `systemctl stop` ends a job."""
    publish_switch(world, hangs=place, hang="kill $$")
    for _ in range(2):
        assert outcome(world) == ("failed", "interrupted")
        assert world.record["text"] == "its activation ended early: begun (generation 1 serves)"
        assert_serves_as_before(world)
        assert "failed" not in world.record
    publish_switch(world, SERIAL + 1)
    assert outcome(world) == ("activated", "")


class PeerHandler(WeightsHandler):
    """A stand-in peer: it verifies its file for some looks, writes its progress meanwhile, and then has the file."""

    looks = 0
    """Looks at its progress."""
    last = 60
    """The look at which it has the file."""

    def do_GET(self) -> None:
        """Send the progress, or the file."""
        is_busy = PeerHandler.looks < PeerHandler.last
        if not self.path.endswith(progress.NAME):
            self.send_body(404 if is_busy else 200, b"" if is_busy else WEIGHTS)
            return
        PeerHandler.looks += 1
        size = len(WEIGHTS)
        row = {"path": "chat.gguf", "size": size, "done": size, "state": progress.VERIFYING, "from": "", "behind": []}
        rows = [row] if is_busy else []
        table = {"updated": time.time(), "identity": "peer", "done": size, "total": size, "files": rows}
        self.send_body(200, json.dumps(table).encode())

    def send_body(self, status: int, body: bytes) -> None:
        """Answer once."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def peer_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A peer whose looks are the pull's clock: one is a minute, however busy this machine is."""
    monkeypatch.setattr(PeerHandler, "looks", 0)
    clock = SimpleNamespace(monotonic=lambda: PeerHandler.looks * 60.0, sleep=time.sleep)
    monkeypatch.setattr(root_jobs, "time", clock)
    with served_folder(tmp_path, PeerHandler) as url:
        yield url


@pytest.mark.parametrize(
    ("most", "ends"), [(86400.0, ("activated", "")), (600.0, ("failed", "slow"))], ids=["within the day", "after it"]
)
def test_a_wait_for_a_peer_is_progress_for_a_day(
    world: PublishedWorld,
    units: StandInUnits,
    peer_url: str,
    monkeypatch: pytest.MonkeyPatch,
    most: float,
    ends: tuple[str, str],
) -> None:
    monkeypatch.setattr(root_jobs, "PEER_S", most, raising=False)
    publish_weights(world, peer_url, kind="peer", pace={"pause": 0.1})
    assert outcome(world) == ends
    assert units.stopped == ([] if ends[0] == "activated" else [FETCH])


def test_a_pull_knows_the_weights_jobs_words() -> None:
    assert (progress.FOR_PEER, TransferLimits().peer) == (root_jobs.FOR_PEER, root_jobs.PEER_S)


@pytest.mark.parametrize(
    ("on_demand", "is_current", "states", "text"),
    [
        (False, True, "active", ""),
        (False, True, "failed inactive activating", "rigwright-chat.service is {}"),
        (False, False, "active", "rigwright-chat.service does not run from the current generation"),
        (True, True, "active", ""),
        (True, False, "inactive activating deactivating", ""),
        (True, True, "failed", "rigwright-chat.service is failed"),
        (True, False, "active", "rigwright-chat.service does not run from the current generation"),
    ],
)
def test_each_unit_has_to_run_from_the_current_generation(
    world: PublishedWorld, monkeypatch: pytest.MonkeyPatch, on_demand: bool, is_current: bool, states: str, text: str
) -> None:
    instance = {"units": {"rigwright-chat.service": "f" * 64}, **({"on_demand": True} if on_demand else {})}
    folder = world.box / "etc/rigwright/generations/1"
    (folder / "manifest.json").write_text(json.dumps({"listeners": [], "gateway": [], "instances": {"chat": instance}}))
    (world.box / "run/rigwright/rigwright-chat.service").write_text(("f" if is_current else "e") * 64 + "\n")
    for state in states.split():
        monkeypatch.setattr(served_generation, "run_program", lambda *words, state=state: (0, f"{state}\n"))
        assert served_generation.describe_unsettled(world.settings, str(folder)) == text.format(state)
