"""Limits of time of a pull's jobs: a pull ends at them, gives the deploy lock back, and the box serves as before.

systemd is a stand-in that starts real processes. The program that fetches weights is the real one.
"""

# ruff: noqa: F811 (a fixture of another file)

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigwright.host.generation_layout import ACTIVATING, JOB, PROVEN, digest_generation
from rigwright.project_root import ROOT
from rigwright.pull.publication import PullPayload, RootJob
from roles.pull.host import root_jobs, run, served_generation
from roles.pull.host.root_jobs import JobLimits
from tests.unit.published_boxes import (  # noqa: F401 (a fixture)
    PublishedWorld,
    PublisherKeys,
    keys,
    outcome,
    served_folder,
    verify_until_killed,
)

SERIAL = 20261129100000
FETCH = "rw-job-weights-0123456789ab"
WEIGHTS = bytes(range(256)) * 128
PIECE = 4096  # bytes of curl's buffer: the file grows by as many at once
BASE_FILES = {
    "manifest.json": '{"instances": {}, "listeners": [], "gateway": []}',
    "units/rigwright.target": "[Unit]\n",
    "units/rigwright-chat.service": "[Service]\nTimeoutStartSec=600\nTimeoutStopSec=30\n",
    "units/rigwright-chat-listener.service": "[Service]\n",
}
BASE = digest_generation(BASE_FILES, {})
NEW_FILES = {**BASE_FILES, "env/chat": "A=1\n"}


class StandInUnits:
    """Transient units, each a process of this machine."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.started: list[str] = []
        self.stopped: list[str] = []

    def run_program(self, *words: str, limit: float = 0) -> tuple[int, str]:
        """Do as systemd-run, systemctl and sh do."""
        if words[0] == "systemd-run":
            unit = next(word.partition("=")[2] for word in words if word.startswith("--unit="))
            log = next(word.rpartition("append:")[2] for word in words if "StandardOutput=" in word)
            with open(log, "ab") as file:
                command = words[words.index("/bin/sh") :]
                self.processes[unit] = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
            self.started.append(unit)
            return 0, ""
        if words[0] == "systemctl":
            return 0, self._control(words[1], words[-1].removesuffix(".service"))
        return subprocess.run(words, check=False).returncode, ""

    def _control(self, verb: str, unit: str) -> str:
        process = self.processes.get(unit)
        if verb == "stop":
            self.stopped.append(unit)
            self.end(unit)
        if verb == "reset-failed" or process is None:
            return "inactive\n"
        status = process.poll()
        return "active\n" if status is None else "failed\n" if status > 0 else "inactive\n"

    def end(self, unit: str) -> None:
        """End a unit's processes."""
        process = self.processes[unit]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


class WeightsHandler(SimpleHTTPRequestHandler):
    """Sends the weights, some bytes at a time with a pause after each; without a number of bytes, none."""

    step: int | None = 1
    pause = 1.0
    sent = 0
    """Parts that were sent."""
    ended = threading.Event()

    def do_GET(self) -> None:
        """Send them as long as the client is there."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(WEIGHTS)))
        self.end_headers()
        try:
            for at in range(0, len(WEIGHTS), WeightsHandler.step or len(WEIGHTS)):
                if WeightsHandler.step:
                    self.wfile.write(WEIGHTS[at : at + WeightsHandler.step])
                    self.wfile.flush()
                    WeightsHandler.sent += 1
                if WeightsHandler.ended.wait(WeightsHandler.pause):
                    return
        except OSError:
            pass

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInUnits]:
    made = StandInUnits()
    for module in (root_jobs, run):
        monkeypatch.setattr(module, "run_program", made.run_program)
    monkeypatch.setattr(run, "describe_unsettled", lambda settings, folder: "")
    monkeypatch.setattr(run, "list_findings", lambda settings: [])
    monkeypatch.setattr(run, "find_new_faults", lambda settings, before: [])
    monkeypatch.setattr(root_jobs, "POLL_S", 0.05)
    yield made
    for unit in made.processes:
        made.end(unit)


@pytest.fixture
def world(tmp_path: Path, keys: PublisherKeys, units: StandInUnits) -> PublishedWorld:
    """A box that serves generation 1."""
    made = PublishedWorld(tmp_path, keys)
    made.serve(BASE_FILES)
    return made


@pytest.fixture
def weights_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A stand-in web server with weights; it sends one byte per second."""
    monkeypatch.setattr(WeightsHandler, "step", 1)
    monkeypatch.setattr(WeightsHandler, "pause", 1.0)
    WeightsHandler.ended.clear()
    with served_folder(tmp_path, WeightsHandler) as url:
        yield f"{url}/weights.gguf"
        WeightsHandler.ended.set()


def switch_script(world: PublishedWorld, *, hangs: str = "", hang: str = "sleep 600") -> str:
    """A script that activates the generation of its argument, as far as the link; it may hang at a place."""
    config = world.box / "etc/rigwright"
    return "\n".join(
        [
            f"cd {shlex.quote(str(config))} && touch {ACTIVATING} && echo begun",
            hang if hangs == "before" else "",
            "ln -sn generations/$1 new && mv -T new current && touch generations/$1/" + PROVEN,
            hang if hangs == "after" else "",
            f"rm {ACTIVATING}",
        ]
    )


def publish(world: PublishedWorld, payload: PullPayload, serial: int = SERIAL) -> None:
    world.publish(serial, payload)
    world.place()


def publish_weights(world: PublishedWorld, url: str, kind: str = "http", **pace: object) -> None:
    """Publish a generation that needs weights, from a source of a kind."""
    models, place = world.box / "srv/models", world.box / "weights"
    spec = world.box / "spec.json"
    row = {"path": "chat.gguf", "sha256": hashlib.sha256(WEIGHTS).hexdigest(), "size": len(WEIGHTS)}
    settings = {"root": models, "records": place / "records", "ledger": place / "owned", "locks": place / "locks"}
    table = {
        **{key: str(value) for key, value in settings.items()},
        **{"hub_python": "", "package_python": "", "reserve": 0},
        "files": [{**row, "sources": [{"kind": kind, "base" if kind == "peer" else "url": url}]}],
        **pace,
    }
    place.mkdir(exist_ok=True)
    spec.write_text(json.dumps(table))
    python = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)}"
    script = f"{python} -m roles.weights.host.fetch {shlex.quote(str(spec))}"
    fetch = RootJob(FETCH, script, f"[ -e {shlex.quote(str(models / 'chat.gguf'))} ]")
    switch = {BASE: switch_script(world)}
    publish(world, PullPayload(NEW_FILES, {}, switch, switch, fetch=fetch))


def assert_serves_as_before(world: PublishedWorld) -> None:
    """The box serves generation 1, and other runs get the deploy lock."""
    assert str((world.box / "etc/rigwright/current").readlink()) == "generations/1"
    assert not (world.box / "etc/rigwright" / ACTIVATING).exists()
    with open(world.settings.deploy_lock) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("step", "silence", "text"),
    [
        (1, 60.0, "not complete within [45] s"),
        (None, 2.0, "no byte came within 2 s"),
    ],
    ids=["one byte per second", "silent"],
)
def test_a_download_that_does_not_end_ends_the_pull_and_the_next_one_continues(
    world: PublishedWorld,
    units: StandInUnits,
    weights_url: str,
    monkeypatch: pytest.MonkeyPatch,
    step: int | None,
    silence: float,
    text: str,
) -> None:
    monkeypatch.setattr(root_jobs, "SILENCE_S", silence)
    # a minimum rate, by which the size gives one more second
    monkeypatch.setattr(root_jobs, "LEAST_RATE", len(WEIGHTS))
    monkeypatch.setattr(root_jobs, "SLACK_S", 4.0 if step else 600.0)
    monkeypatch.setattr(WeightsHandler, "step", step)
    publish_weights(world, weights_url)
    assert outcome(world) == ("failed", "slow")
    # the job may not have begun its download on a busy machine
    form = rf"weights are not fetched: {text}( \(0 of {len(WEIGHTS)} bytes\))?; the next pull continues"
    assert re.fullmatch(form, str(world.record["text"]))
    assert 'rigwright_pull_outcome{outcome="failed",reason="slow"} 1\n' in run.render_pull_metrics(world.record)
    assert (units.started, units.stopped) == ([FETCH], [FETCH])
    assert_serves_as_before(world)
    monkeypatch.setattr(WeightsHandler, "step", len(WEIGHTS))
    monkeypatch.setattr(WeightsHandler, "pause", 0.0)
    monkeypatch.setattr(root_jobs, "SLACK_S", 600.0)
    monkeypatch.setattr(root_jobs, "SILENCE_S", 600.0)
    assert outcome(world) == ("activated", "")
    assert units.started == [FETCH, FETCH, JOB]


def test_each_byte_of_a_download_counts_as_progress(
    world: PublishedWorld, units: StandInUnits, weights_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ten minutes pass with each part, however busy this machine is
    monkeypatch.setattr(WeightsHandler, "sent", 0)
    clock = SimpleNamespace(monotonic=lambda: WeightsHandler.sent * 600.0, sleep=time.sleep)
    monkeypatch.setattr(root_jobs, "time", clock)
    monkeypatch.setattr(root_jobs, "SLACK_S", 86400.0)
    monkeypatch.setattr(WeightsHandler, "step", PIECE)
    monkeypatch.setattr(WeightsHandler, "pause", 0.6)
    assert len(WEIGHTS) / PIECE * 600 > 2 * root_jobs.SILENCE_S
    publish_weights(world, weights_url)
    assert outcome(world) == ("activated", "")
    assert units.stopped == []


def test_a_download_of_a_pull_that_was_killed_is_watched(
    world: PublishedWorld, units: StandInUnits, weights_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_jobs, "SILENCE_S", 2.0)
    publish_weights(world, weights_url)
    verify_until_killed(world, "root_jobs.wait_for_job")
    assert outcome(world) == ("failed", "slow")
    assert (units.started, units.stopped) == ([FETCH], [FETCH])
    assert_serves_as_before(world)


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_activation_that_does_not_end_returns_and_is_tried_twice(
    world: PublishedWorld, units: StandInUnits, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It may have stopped units before it moved the link."""
    monkeypatch.setattr(served_generation.GenerationFolders, "activation_limits", lambda *numbers: JobLimits(1.0, 600))
    ways = {BASE: switch_script(world, hangs=place)}, {BASE: switch_script(world)}
    publish(world, PullPayload(NEW_FILES, {}, *ways))
    for _ in range(2):
        assert outcome(world) == ("failed", "slow")
        assert world.record["text"] == "its activation: no line was written within 1 s (generation 1 serves)"
        assert_serves_as_before(world)
    assert outcome(world) == ("failed", "interrupted")
    assert (units.started, units.stopped) == ([JOB, JOB] * 2, [JOB, JOB])
    publish(world, replace(PullPayload(NEW_FILES, {}, *ways), activate=ways[1]), SERIAL + 1)
    assert outcome(world) == ("activated", "")


def test_a_return_that_does_not_end_is_reported(
    world: PublishedWorld, units: StandInUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_generation.GenerationFolders, "activation_limits", lambda *numbers: JobLimits(600, 1.0))
    hanging = {BASE: switch_script(world, hangs="after")}
    publish(world, PullPayload(NEW_FILES, {}, hanging, hanging))
    assert outcome(world) == ("failed", "slow")
    text = "its activation: not complete within 1 s (the earlier generation did not come back: not complete within 1 s)"
    assert world.record["text"] == text
    assert outcome(world) == ("refused", "unsettled")


def test_an_activation_of_a_pull_that_was_killed_ends_at_its_limits(
    world: PublishedWorld, units: StandInUnits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_generation.GenerationFolders, "activation_limits", lambda *numbers: JobLimits(1.0, 600))
    ways = {BASE: switch_script(world, hangs="after")}, {BASE: switch_script(world)}
    publish(world, PullPayload(NEW_FILES, {}, *ways))
    verify_until_killed(world, "root_jobs.wait_for_job")
    assert outcome(world) == ("failed", "slow")
    assert_serves_as_before(world)


def test_the_limits_of_an_activation_are_those_of_its_units(world: PublishedWorld, units: StandInUnits) -> None:
    found = served_generation.GenerationFolders(world.settings).activation_limits(1, 2)
    # systemd's own 90 s for a start and a stop without a line
    assert (found.silence, found.whole) == (4500 + 630, 4500 + 630 + 180)


@pytest.mark.parametrize("document", ["", "{", "[]", '{"done": "x", "total": 1}', '{"done": 1}', "[" * 5000])
def test_a_malformed_progress_is_none(
    world: PublishedWorld, units: StandInUnits, monkeypatch: pytest.MonkeyPatch, document: str
) -> None:
    monkeypatch.setattr(root_jobs, "SILENCE_S", 0.3)
    publish_weights(world, "http://127.0.0.1:1/")
    fetch = RootJob(FETCH, "sleep 600", "[ -e /no/such/file ]")
    publish(world, PullPayload(NEW_FILES, {}, {BASE: "x"}, {BASE: "x"}, fetch=fetch), SERIAL + 1)
    path = Path(world.settings.download_progress)
    path.parent.mkdir(parents=True)
    path.write_text(document)
    assert outcome(world) == ("failed", "slow")
    assert_serves_as_before(world)


def test_a_program_that_does_not_end_is_ended() -> None:
    status, text = root_jobs.run_program("sleep", "600", limit=0.1)
    assert (status, text) == (root_jobs.ENDED, "sleep has not ended within 0 s")
