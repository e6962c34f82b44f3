"""The steps of a pull on a box: a kill at each of them, failures, and the exclusion of a deploy.

systemd is a stand-in: its job moves the link as the script of an activation does.
"""

# ruff: noqa: F811 (a fixture of another file)

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.host.generation_layout import ACTIVATING, PROVEN, digest_generation
from rigwright.pull.publication import PullPayload, RootJob
from roles.pull.host import root_jobs, run, served_generation
from roles.pull.host.settings import PullRecord, PullSettings, RecordUnreadable
from tests.unit.published_boxes import (  # noqa: F401 (a fixture)
    DAY,
    NOW,
    Killed,
    PublishedWorld,
    PublisherKeys,
    keys,
    outcome,
    verify_until_killed,
)

SERIAL = 20261129100000
STEPS = 13  # of a pull that activates: writes, renames and the ends of its job
MANIFEST = {"instances": {}, "listeners": [], "gateway": []}
BASE_FILES = {"manifest.json": json.dumps(MANIFEST), "units/rigwright.target": "[Unit]\n"}
BASE = digest_generation(BASE_FILES, {})
NEW = PullPayload({**BASE_FILES, "env/chat": "A=1\n"}, {}, {BASE: "activate"}, {BASE: "restore"})


class StandInSystemd:
    """The jobs of a box, and an instance that may not serve."""

    def __init__(self, root: Path) -> None:
        self.config = root / "etc/rigwright"
        self.serves = True
        self.faults: list[str] = []
        self.jobs: list[str] = []
        self.ends = 0
        """Ends the program at this of its writes and jobs."""
        self.count = 0

    def step(self) -> None:
        """A step at which the program may be ended."""
        self.count += 1
        if self.count == self.ends:
            raise Killed

    def run_root_job(
        self, settings: PullSettings, unit: str, script: str, argument: str = "", **limits: object
    ) -> tuple[bool, str]:
        """Run a script, as far as it moves the link."""
        self.jobs.append(script)
        self.step()
        if script == "activate" and not self.serves:
            return False, "generation 2 does not serve; generation 1 is back"
        if not argument:
            return self.serves, "no answer"
        link = self.config / "current.new"
        link.unlink(missing_ok=True)
        link.symlink_to(f"generations/{argument}")
        link.rename(self.config / "current")
        (self.config / "generations" / argument / PROVEN).touch()
        self.step()
        return True, ""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInSystemd:
    made = StandInSystemd(tmp_path / "box")
    monkeypatch.setattr(run, "run_root_job", made.run_root_job)
    for module in (run, root_jobs, served_generation):
        monkeypatch.setattr(module, "run_program", lambda *words: (3, "inactive"))
    monkeypatch.setattr(run, "list_findings", lambda settings: [])
    monkeypatch.setattr(run, "find_new_faults", lambda settings, before: made.faults)
    monkeypatch.setattr(run, "wait_for_job", lambda settings, unit, limits: None)
    for name in ("replace", "rename"):
        monkeypatch.setattr(f"os.{name}", _with_step(getattr(os, name), made))
    return made


def _with_step(function: Callable[..., None], systemd: StandInSystemd) -> Callable[..., None]:
    def call(*words: str) -> None:
        if "box" in str(words[0]) and "published" not in str(words[0]):
            systemd.step()
        function(*words)

    return call


@pytest.fixture
def world(tmp_path: Path, keys: PublisherKeys, systemd: StandInSystemd) -> Iterator[PublishedWorld]:
    """A box that serves generation 1, and a published generation that begins from there."""
    made = PublishedWorld(tmp_path, keys)
    made.serve(BASE_FILES)
    made.offer(SERIAL, NEW)
    systemd.count = 0
    yield made


def current(world: PublishedWorld) -> str:
    return str((world.box / "etc/rigwright/current").readlink())


def test_a_generation_is_activated_once(world: PublishedWorld, systemd: StandInSystemd) -> None:
    assert outcome(world) == ("activated", "")
    assert systemd.count == STEPS
    assert (current(world), world.record["serial"]) == ("generations/2", SERIAL)
    assert served_generation.GenerationFolders(world.settings).read_digest(2) == NEW.digest
    assert outcome(world) == ("current", "")
    assert systemd.jobs == ["activate"]
    shown = run.render_pull_metrics(world.record)
    assert f"rigwright_pull_serial {SERIAL}\n" in shown
    assert 'rigwright_pull_outcome{outcome="current",reason=""} 1\n' in shown


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_kill_at_each_step_leaves_a_box_that_the_next_runs_complete(
    world: PublishedWorld, systemd: StandInSystemd, step: int
) -> None:
    systemd.ends = step
    try:
        world.verify()
    except Killed:
        generation = current(world)
        assert (world.box / "etc/rigwright" / generation / PROVEN).exists()
    else:
        assert systemd.count < step
    systemd.ends = 0
    # an activation that was interrupted before its link moved is repeated by the run after the next
    found = [outcome(world)[0] for _ in range(3)]
    assert found[-1] == "current"
    assert (current(world), world.record["serial"], world.record["attempt"]) == ("generations/2", SERIAL, None)
    assert systemd.jobs.count("activate") <= 2
    assert "failed" not in world.record


def test_weights_come_before_an_activation_and_records_after_it(
    world: PublishedWorld, systemd: StandInSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, record = (RootJob(f"rw-job-{name}", name, f"test {name}") for name in ("fetch", "record"))
    world.offer(SERIAL, replace(NEW, fetch=fetch, record=record))
    systemd.serves = False
    assert outcome(world) == ("unreachable", "weights")
    assert (world.record["text"], systemd.jobs) == ("weights are not fetched: no answer", ["fetch"])
    systemd.serves = True
    done = [(1, ""), (0, ""), (1, "")]
    monkeypatch.setattr(run, "run_program", lambda *words: done.pop(0) if "-c" in words else (3, "inactive"))
    assert outcome(world) == ("activated", "")
    assert (systemd.jobs, done) == (["fetch", "fetch", "activate", "record"], [])


def test_a_deploy_replaces_a_pulled_generation_until_the_next_publication(
    world: PublishedWorld, systemd: StandInSystemd
) -> None:
    assert outcome(world) == ("activated", "")
    systemd.run_root_job(world.settings, "", "deploy", "1")
    assert outcome(world) == ("current", "replaced")
    assert world.record["text"] == "generation 1 serves, by a deploy or a rollback, until the next publication"
    world.offer(SERIAL + 1, NEW)
    assert outcome(world) == ("activated", "")
    assert current(world) == "generations/2"


def test_a_generation_that_does_not_serve_is_not_tried_again(world: PublishedWorld, systemd: StandInSystemd) -> None:
    systemd.serves = False
    assert outcome(world) == ("failed", "gate")
    assert "generation 2 does not serve; generation 1 is back (generation 1 serves)" in str(world.record["text"])
    assert outcome(world) == ("failed", "failed_before")
    assert (systemd.jobs, current(world)) == (["activate"], "generations/1")
    # the next one is
    systemd.serves = True
    world.offer(SERIAL + 1, NEW)
    assert outcome(world) == ("activated", "")


def test_a_finding_of_the_self_check_restores_the_earlier_generation(
    world: PublishedWorld, systemd: StandInSystemd
) -> None:
    systemd.faults = ["U02 chat has a drop-in"]
    assert outcome(world) == ("failed", "gate")
    assert world.record["text"] == "U02 chat has a drop-in (generation 1 serves)"
    assert (systemd.jobs, current(world)) == (["activate", "restore"], "generations/1")


def test_an_interrupted_activation_is_given_up_after_two_tries(world: PublishedWorld, systemd: StandInSystemd) -> None:
    for _ in range(2):
        verify_until_killed(world, "run.run_root_job")
        assert outcome(world) == ("busy", "interrupted")
    assert outcome(world) == ("failed", "interrupted")
    assert outcome(world) == ("failed", "failed_before")
    assert current(world) == "generations/1"


def test_an_activation_that_is_cut_off_before_its_proof_is_tried_again(
    world: PublishedWorld, systemd: StandInSystemd
) -> None:
    systemd.ends = STEPS - 1
    verify_until_killed(world)
    systemd.ends = 0
    (systemd.config / "generations/2" / PROVEN).unlink()
    assert outcome(world) == ("failed", "interrupted")
    assert current(world) == "generations/1"
    assert outcome(world) == ("activated", "")


def test_a_rollback_after_an_interrupted_pull_stays(world: PublishedWorld, systemd: StandInSystemd) -> None:
    # the job ends, and the pull is killed before it records that
    systemd.ends = STEPS - 1
    verify_until_killed(world)
    assert current(world) == "generations/2"
    systemd.ends = 0
    systemd.run_root_job(world.settings, "", "rollback", "1")
    assert outcome(world) == ("current", "replaced")
    assert outcome(world) == ("current", "replaced")
    assert (systemd.jobs, current(world)) == (["activate", "rollback"], "generations/1")


def test_an_earlier_proof_of_a_generation_is_none_of_an_interrupted_activation(
    world: PublishedWorld, systemd: StandInSystemd
) -> None:
    assert outcome(world) == ("activated", "")
    systemd.run_root_job(world.settings, "", "rollback", "1")
    world.offer(SERIAL + 1, NEW)
    verify_until_killed(world, "run.run_root_job")
    assert outcome(world) == ("busy", "interrupted")
    assert outcome(world) == ("activated", "")


@pytest.mark.parametrize("moved", [False, True])
def test_a_failed_generation_stays_failed_after_a_kill_in_its_return(
    world: PublishedWorld, systemd: StandInSystemd, moved: bool
) -> None:
    def die_in_return(settings: PullSettings, unit: str, script: str, *words: str, **limits: object) -> object:
        if script == "activate" or moved:
            done = systemd.run_root_job(settings, unit, script, *words)
        if script == "restore":
            raise Killed
        return done

    systemd.faults = ["U02 chat has a drop-in"]
    verify_until_killed(world, "run.run_root_job", die_in_return)
    systemd.faults = []
    assert outcome(world) == ("failed", "gate")
    assert world.record["text"] == "U02 chat has a drop-in (generation 1 serves)"
    assert outcome(world) == ("failed", "failed_before")
    assert current(world) == "generations/1"
    assert systemd.jobs == ["activate", "restore"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b'{"seen": 1}', b'{"failed": ["x"]}', b'{"attempt": {}}']
)
def test_an_unreadable_record_resets_no_serial(
    world: PublishedWorld, systemd: StandInSystemd, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(PullRecord.path_of(world.settings))
    path.write_bytes(content)
    assert run.pull_once(world.settings, NOW) == ("refused", "record")
    assert path.read_bytes() == content
    assert (systemd.jobs, current(world)) == ([], "generations/1")
    assert "refused: record: " in capsys.readouterr().out
    with pytest.raises(RecordUnreadable):
        world.fetch()
    # an operator decides that the serials count from the beginning
    path.unlink()
    assert outcome(world) == ("activated", "")


def test_a_large_script_is_in_no_record(world: PublishedWorld, systemd: StandInSystemd) -> None:
    """The record is read by `status` and the checks: in part, its end is lost."""
    script = f"restore{' ' * (1 << 20)}"
    world.offer(SERIAL, replace(NEW, restore={BASE: script}))
    systemd.faults = ["U02 chat has a drop-in"]
    verify_until_killed(world, "run.find_new_faults")
    assert Path(PullRecord.path_of(world.settings)).stat().st_size < 16384
    assert outcome(world) == ("failed", "gate")
    assert (systemd.jobs, current(world)) == (["activate", script], "generations/1")


@pytest.mark.parametrize("state", ["active", "activating", "reloading", "deactivating"])
def test_a_removal_that_begins_excludes_a_pull(
    world: PublishedWorld, systemd: StandInSystemd, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(root_jobs, "run_program", lambda *words: (3, f"{state}\n"))
    assert outcome(world) == ("busy", "busy")
    assert (world.record["text"], systemd.jobs) == ("a removal is running", [])


def test_a_box_that_loads_is_busy_and_one_that_is_busy_for_long_is_reported(
    world: PublishedWorld, systemd: StandInSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = "rigwright-chat.service is activating"
    monkeypatch.setattr(run, "describe_unsettled", lambda settings, folder: loading)
    assert outcome(world) == ("busy", "loading")
    since = world.record["busy"]
    assert outcome(world) == ("busy", "loading")
    assert world.record["busy"] == since
    monkeypatch.setattr(run, "describe_unsettled", lambda settings, folder: "")
    assert outcome(world) == ("activated", "")
    assert "busy" not in world.record


def test_a_deploy_excludes_a_pull(world: PublishedWorld, systemd: StandInSystemd) -> None:
    path = Path(world.settings.deploy_lock)
    path.parent.mkdir(mode=0o700)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert outcome(world) == ("busy", "busy")
    assert outcome(world) == ("activated", "")
    assert json.loads(path.read_text())["doing"] == f"pull of generation {SERIAL}"
    path.parent.chmod(0o755)
    world.offer(SERIAL + 1, NEW)
    assert outcome(world) == ("refused", "lock")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda w: (w.box / "etc/rigwright/self_check/declaration.json").write_text("{}"), "outside of the generation"),
        (lambda w: w.publish(SERIAL, replace(NEW, paths=("/opt/rigwright/engines/x/.complete",))), "/.complete is not"),
        (lambda w: w.publish(SERIAL, replace(NEW, users=("no-such-user",))), "the user no-such-user is not there"),
        (lambda w: w.publish(SERIAL, replace(NEW, activate={"a" * 64: "x"})), "no way from generation 1"),
        (lambda w: (w.box / "etc/rigwright/generations/1/extra").write_text("x"), "no way from generation 1"),
    ],
)
def test_a_pull_brings_a_generation_and_nothing_else(
    world: PublishedWorld, systemd: StandInSystemd, change: Callable[[PublishedWorld], object], text: str
) -> None:
    change(world)
    world.place()
    assert outcome(world) == ("refused", "needs_deploy")
    assert str(world.record["text"]).startswith("needs a deploy: ")
    assert text in str(world.record["text"])
    assert (systemd.jobs, current(world)) == ([], "generations/1")
    assert "failed" not in world.record


def test_a_box_that_does_not_serve_its_generation_is_left_alone(world: PublishedWorld, systemd: StandInSystemd) -> None:
    marker = world.box / "etc/rigwright" / ACTIVATING
    marker.touch()
    assert outcome(world) == ("refused", "unsettled")
    marker.unlink()
    (world.box / "etc/rigwright/generations/1" / PROVEN).unlink()
    assert outcome(world) == ("refused", "unsettled")
    assert systemd.jobs == []


def test_a_report_of_an_earlier_run_is_one_of_no_success(world: PublishedWorld, systemd: StandInSystemd) -> None:
    assert outcome(world) == ("activated", "")
    verified = world.record.pop("verified")
    world.verify(NOW + DAY / 24, touch=False)
    assert (world.record["outcome"], world.record["reason"]) == ("unreachable", "unreachable")
    assert world.record["text"] == "the service that fetches has not run"
    assert world.record["verified"] == verified
    assert outcome(world) == ("current", "")


@pytest.mark.parametrize(
    "report",
    [
        "",
        "[]",
        "{}",
        "[" * 5000,
        "\x00",
        *(f'{{"reason": {one}, "text": ""}}' for one in ('"\\u001b[2J"', f'"{41 * "a"}"', 1)),
    ],
)
def test_a_report_of_any_text_is_one_of_no_success(world: PublishedWorld, report: str) -> None:
    Path(world.settings.fetched, "report.json").write_text(report)
    assert outcome(world) == ("unreachable", "unreachable")


def test_a_web_server_that_is_away_is_no_refusal(world: PublishedWorld) -> None:
    fetched = Path(world.settings.fetched)
    (fetched / "report.json").write_text('{"reason": "unreachable", "text": "timestamp.json: refused\\u001b"}')
    assert outcome(world) == ("unreachable", "unreachable")
    assert world.record["text"] == "timestamp.json: refused\\x1b"
    # the timestamp of an earlier run is no new one
    assert "verified" not in world.record
    (fetched / "report.json").write_text('{"reason": "", "text": ""}')
    assert outcome(world) == ("activated", "")
    assert NOW.timestamp() == world.record["verified"]
