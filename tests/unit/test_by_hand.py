"""Instances that are started and stopped by hand: the script on a folder that stands in for a host, and the verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import lifecycle, main
from rigwright.serving import by_hand
from rigwright.serving.by_hand import Outcome
from tests.unit.samples import Box, entry
from tests.unit.scripts import stand_in
from tests.unit.weight_host import WeightHost

UNIT = "rigwright-chat.service"
# keeps the state of the one unit in a file beside it, and writes down what it is asked
SYSTEMCTL = """
echo "$*" >> "$0.asked"
case "$*" in
  *LoadState*) cat "$0.load" ;;
  *ActiveState*) cat "$0.state" ;;
  *SubState*) echo dead ;;
  stop*)
    if [ -e "$0.refuses" ]; then cat "$0.refuses" >&2; exit 1; fi
    echo inactive > "$0.state"
    ;;
  start* | restart*) cat "$0.becomes" > "$0.state" ;;
  list-units*) cat "$0.jobs" ;;
esac
"""


class Host(WeightHost):
    """A host with one instance."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.systemctl = stand_in(folder / "bin", "systemctl", SYSTEMCTL)
        stand_in(folder / "bin", "journalctl", "echo 'cudaMalloc failed: out of memory'")
        for name, text in (("load", "loaded"), ("state", "active"), ("becomes", "active"), ("jobs", "")):
            self.says(name, f"{text}\n" if text else "")

    @property
    def marker(self) -> Path:
        return self.config / "stopped" / "chat"

    @property
    def asked(self) -> list[str]:
        return [line.split()[0] for line in self.systemctl.with_name("systemctl.asked").read_text().splitlines()]

    def run(self, verb: by_hand.Verb) -> Outcome:
        holder = json.dumps({"who": "ana@desk", "pid": 7, "since": "now", "doing": verb})
        done = self.run_script(by_hand.script(self.rig, verb, ["chat"], holder))
        return by_hand.parse(done.stdout.splitlines())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_stopped_instance_is_marked_before_it_is_stopped_and_a_started_one_is_not_marked(host: Host) -> None:
    stopped = host.run("stop")
    assert stopped.told("stop") == ["chat: stopped until `start` or the next deploy"]
    assert host.marker.exists()
    started = host.run("start")
    assert (started.right("start"), started.told("start")) == (True, ["chat: serves"])
    assert not host.marker.exists()
    assert [verb for verb in host.asked if verb in ("stop", "start")] == ["stop", "start"]


def test_one_that_does_not_start_is_told_with_what_it_has_said(host: Host) -> None:
    host.says("becomes", "failed\n")
    found = host.run("restart")
    assert not found.right("restart")
    assert found.told("restart") == [
        "chat: failed (dead), last log lines:",
        "  cudaMalloc failed: out of memory",
    ]


@pytest.mark.parametrize("recompile", [False, True])
def test_what_is_compiled_is_removed_where_that_is_asked_for_once_it_is_stopped(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recompile: bool
) -> None:
    caches, warm, beyond = tmp_path / "instances", tmp_path / "warm", tmp_path / "beyond"
    monkeypatch.setattr(by_hand, "CACHES", str(caches))
    monkeypatch.setattr(by_hand, "WARM", str(warm))
    own, another, others = caches / "chat" / "vllm-8.6", caches / "code" / "vllm-8.6", warm / "vllm-9.0"
    for folder in (own, another, warm / own.name, others, beyond):
        folder.mkdir(parents=True)
        (folder / "kernel.so").touch()
    (own / "link").symlink_to(beyond)
    (caches / "chat" / "link").symlink_to(beyond)
    holder = json.dumps({"who": "ana@desk", "pid": 7, "since": "now", "doing": "restart"})
    host.run_script(by_hand.script(host.rig, "restart", ["chat"], holder, recompile=recompile))
    assert own.is_dir()
    assert list(own.iterdir()) == [] if recompile else (own / "kernel.so").exists()
    assert (warm / own.name).exists() != recompile
    for kept in (another, others, beyond):
        assert (kept / "kernel.so").exists()
    assert [verb for verb in host.asked if verb in ("stop", "restart")] == ["stop"] * recompile + ["restart"]


def test_nothing_compiled_is_removed_and_nothing_restarted_where_a_stop_fails(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches, warm = tmp_path / "instances", tmp_path / "warm"
    monkeypatch.setattr(by_hand, "CACHES", str(caches))
    monkeypatch.setattr(by_hand, "WARM", str(warm))
    folders = [caches / "chat" / "vllm-8.6", warm / "vllm-8.6"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "kernel.so").touch()
    host.marker.parent.mkdir(parents=True, exist_ok=True)
    host.marker.touch()
    host.says("refuses", f"Warning\nFailed to stop {UNIT}: Connection timed out\n")
    holder = json.dumps({"who": "ana@desk", "pid": 7, "since": "now", "doing": "restart"})
    done = host.run_script(by_hand.script(host.rig, "restart", ["chat"], holder, recompile=True))
    (line,) = by_hand.parse(done.stdout.splitlines()).told("restart")
    assert line.startswith(f"refused: systemctl stop failed (Failed to stop {UNIT}: Connection timed out)")
    assert all((folder / "kernel.so").exists() for folder in folders)
    assert "restart" not in host.asked
    assert host.marker.exists()


def test_what_is_not_deployed_is_refused_and_nothing_is_done(host: Host) -> None:
    host.says("load", "not-found\n")
    assert host.run("stop").told("stop") == ["refused: chat is not there yet: deploy first"]
    assert "stop" not in host.asked
    assert not host.marker.exists()


def test_a_job_at_work_is_waited_for_by_nobody(host: Host) -> None:
    host.says("jobs", "rw-job-weights.service loaded active running x\n")
    assert host.run("restart").told("restart") == ["refused: rw-job-weights.service is at work"]


def test_who_deploys_holds_the_host(host: Host, tmp_path: Path) -> None:
    import fcntl

    host.run("start")
    with (tmp_path / "run/locks/lease").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (line,) = host.run("stop").told("stop")
    assert line.startswith("refused: ana@desk (process 7) ")
    assert not host.marker.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name instances, or say --all"),
        (["chat", "--all"], "name instances, or say --all"),
        (["chta"], 'there is no instance "chta"; did you mean "chat"?'),
    ],
)
@pytest.mark.parametrize("verb", by_hand.DOING)
def test_what_is_meant_is_judged_before_a_host_is_reached(
    box: Box, verb: str, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checks import looking

    monkeypatch.setattr(looking, "reach", lambda *_: pytest.fail("a host was reached"))
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {entry()!r}}})\n")
    done = CliRunner().invoke(main, [verb, str(box.inventory), *words])
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_the_verb_says_it_of_each_host_and_ends_with_1_where_one_is_not_right(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "rig.py"
    inventory.write_text("")
    monkeypatch.setattr(lifecycle, "boxes", lambda *_: ([host.box("box1")], {}))
    monkeypatch.setattr(lifecycle.interrupts, "end_at_once", lambda *_: None)
    monkeypatch.setattr(lifecycle.root, "run", lambda _, script, **__: host.box("box1")._run(script))
    done = CliRunner().invoke(lifecycle.stop, [str(inventory), "--all"])
    assert (done.exit_code, done.stdout) == (0, "box1: chat: stopped until `start` or the next deploy\n")
    host.says("becomes", "failed\n")
    done = CliRunner().invoke(lifecycle.start, [str(inventory), "chat"])
    assert done.exit_code == 1
