"""Instances that are started and stopped by hand: the script on a folder that stands in for a host, and the verbs."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main, start_stop_restart
from rigwright.gateway.gateway_units import WAKE_STATES
from rigwright.serving import start_stop_by_hand
from rigwright.serving.start_stop_by_hand import LifecycleOutcome
from tests.unit.mapped_hosts import map_given_hosts
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_entry
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


class LifecycleHost(WeightHost):
    """A host with one instance."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.systemctl = write_stand_in(folder / "bin", "systemctl", SYSTEMCTL)
        write_stand_in(folder / "bin", "journalctl", "echo 'cudaMalloc failed: out of memory'")
        for name, text in (("load", "loaded"), ("state", "active"), ("becomes", "active"), ("jobs", "")):
            self.set_systemctl_answer(name, f"{text}\n" if text else "")

    @property
    def marker(self) -> Path:
        return self.config / "stopped" / "chat"

    @property
    def systemctl_commands(self) -> list[str]:
        return [line.split()[0] for line in self.systemctl.with_name("systemctl.asked").read_text().splitlines()]

    def run_rehash(self, verb: start_stop_by_hand.LifecycleVerb) -> LifecycleOutcome:
        holder = json.dumps({"who": "ana@desk", "pid": 7, "since": "now", "doing": verb})
        done = self.run_script(
            start_stop_by_hand.render_lifecycle_script(self.rig.roots, self.rig.instances, verb, ["chat"], holder)
        )
        return start_stop_by_hand.parse_outcome(done.stdout.splitlines())


@pytest.fixture
def host(tmp_path: Path) -> LifecycleHost:
    return LifecycleHost(tmp_path)


def test_a_stopped_instance_is_marked_before_it_is_stopped_and_a_started_one_is_not_marked(host: LifecycleHost) -> None:
    stopped = host.run_rehash("stop")
    assert stopped.describe_outcome("stop") == ["chat: stopped until `start` or the next deploy"]
    assert host.marker.exists()
    started = host.run_rehash("start")
    assert (started.is_right("start"), started.describe_outcome("start")) == (True, ["chat: serves"])
    assert not host.marker.exists()
    assert [verb for verb in host.systemctl_commands if verb in ("stop", "start")] == ["stop", "start"]


def test_one_that_does_not_start_is_reported_with_its_output(host: LifecycleHost) -> None:
    host.set_systemctl_answer("becomes", "failed\n")
    found = host.run_rehash("restart")
    assert not found.is_right("restart")
    assert found.describe_outcome("restart") == [
        "chat: failed (dead); last log lines:",
        "  cudaMalloc failed: out of memory",
    ]


@pytest.mark.parametrize(
    ("answer", "right", "lines"),
    [
        ("", True, ["chat: has answered, and is asleep again: another instance needed its memory"]),
        ("chat: it needs 9 MiB of the host", False, ["chat: inactive (dead): it needs 9 MiB of the host"]),
        ("Traceback\nno socket", False, ["chat: inactive (dead): no socket"]),
    ],
)
def test_one_on_demand_may_sleep_again_once_it_has_answered(
    host: LifecycleHost, monkeypatch: pytest.MonkeyPatch, answer: str, right: bool, lines: list[str]
) -> None:
    instance = replace(host.rig.instances[0], start="on-demand")
    ask = f"if printf {shlex.quote(answer)} | grep .; then false; fi"  # the residency service's client
    script = start_stop_by_hand.render_lifecycle_script(host.rig.roots, (instance,), "start", ["chat"], "{}")
    command = next(line for line in script.splitlines() if "residency.json start chat" in line)
    host.set_systemctl_answer("state", "inactive\n")
    write_stand_in(host.systemctl.parent, "journalctl", "true")
    done = host.run_script(script.replace(command, f"if text=$({ask}); then"))
    found = start_stop_by_hand.parse_outcome(done.stdout.splitlines())
    assert (found.is_right("start"), found.describe_outcome("start")) == (right, lines)


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        ("code failed 1\nchat failed 0\n", ["chat: inactive (dead): its engine\\x1b[2J has ended"]),
        (
            "a.chat failed 0\nchat stopped 0\n",
            ["chat: has answered, and is asleep again: another instance needed its memory"],
        ),
    ],
)
def test_one_on_demand_that_crashes_after_its_answer_has_failed(
    host: LifecycleHost, tmp_path: Path, states: str, lines: list[str]
) -> None:
    instance = replace(host.rig.instances[0], start="on-demand")
    script = start_stop_by_hand.render_lifecycle_script(host.rig.roots, (instance,), "start", ["chat"], "{}")
    command = next(line for line in script.splitlines() if "residency.json start chat" in line)
    host.set_systemctl_answer("state", "inactive\n")
    write_stand_in(host.systemctl.parent, "journalctl", "true")
    (tmp_path / "states").write_text(states)
    ledger = {"instances": {"chat": {"phase": "asleep", "reason": "its engine\x1b[2J has ended"}}}
    (tmp_path / "ledger.json").write_text(json.dumps(ledger))
    for path, name in ((WAKE_STATES, "states"), (f"{host.rig.roots.residency}/ledger.json", "ledger.json")):
        script = script.replace(path, str(tmp_path / name))
    done = host.run_script(script.replace(command, "if true; then"))
    found = start_stop_by_hand.parse_outcome(done.stdout.splitlines())
    assert found.describe_outcome("start") == lines
    assert found.is_right("start") == ("asleep again" in lines[0])


@pytest.mark.parametrize("recompile", [False, True])
def test_compiled_code_is_removed_on_request_after_the_stop(host, tmp_path, monkeypatch, recompile):
    caches, warm, beyond = tmp_path / "instances", tmp_path / "warm", tmp_path / "beyond"
    monkeypatch.setattr(start_stop_by_hand, "CACHES", str(caches))
    monkeypatch.setattr(start_stop_by_hand, "WARM", str(warm))
    own, another, others = caches / "chat" / "vllm-8.6", caches / "code" / "vllm-8.6", warm / "vllm-9.0"
    for folder in (own, another, warm / own.name, others, beyond):
        folder.mkdir(parents=True)
        (folder / "kernel.so").touch()
    (own / "link").symlink_to(beyond)
    (caches / "chat" / "link").symlink_to(beyond)
    holder = json.dumps({"who": "ana@desk", "pid": 7, "since": "now", "doing": "restart"})
    host.run_script(
        start_stop_by_hand.render_lifecycle_script(
            host.rig.roots, host.rig.instances, "restart", ["chat"], holder, recompile=recompile
        )
    )
    assert own.is_dir()
    assert list(own.iterdir()) == [] if recompile else (own / "kernel.so").exists()
    assert (warm / own.name).exists() != recompile
    for kept in (another, others, beyond):
        assert (kept / "kernel.so").exists()
    assert [verb for verb in host.systemctl_commands if verb in ("stop", "restart")] == ["stop"] * recompile + [
        "restart"
    ]


def test_nothing_compiled_is_removed_and_nothing_restarted_where_a_stop_fails(host, tmp_path, monkeypatch):
    caches, warm = tmp_path / "instances", tmp_path / "warm"
    monkeypatch.setattr(start_stop_by_hand, "CACHES", str(caches))
    monkeypatch.setattr(start_stop_by_hand, "WARM", str(warm))
    folders = [caches / "chat" / "vllm-8.6", warm / "vllm-8.6"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "kernel.so").touch()
    host.marker.parent.mkdir(parents=True, exist_ok=True)
    host.marker.touch()
    host.set_systemctl_answer("refuses", f"Warning\nFailed to stop {UNIT}: Connection timed out\n")
    holder = json.dumps({"who": "ana@desk", "pid": 7, "since": "now", "doing": "restart"})
    done = host.run_script(
        start_stop_by_hand.render_lifecycle_script(
            host.rig.roots, host.rig.instances, "restart", ["chat"], holder, recompile=True
        )
    )
    (line,) = start_stop_by_hand.parse_outcome(done.stdout.splitlines()).describe_outcome("restart")
    assert line.startswith(f"refused: systemctl stop failed (Failed to stop {UNIT}: Connection timed out)")
    assert all((folder / "kernel.so").exists() for folder in folders)
    assert "restart" not in host.systemctl_commands
    assert host.marker.exists()


def test_undeployed_instances_are_refused_and_nothing_is_done(host: LifecycleHost) -> None:
    host.set_systemctl_answer("load", "not-found\n")
    assert host.run_rehash("stop").describe_outcome("stop") == ["refused: chat is not there yet: deploy first"]
    assert "stop" not in host.systemctl_commands
    assert not host.marker.exists()


def test_no_process_waits_for_a_job_at_work(host: LifecycleHost) -> None:
    host.set_systemctl_answer("jobs", "rw-job-weights.service loaded active running x\n")
    assert host.run_rehash("restart").describe_outcome("restart") == ["refused: rw-job-weights.service is at work"]


def test_a_deploy_holds_the_host(host: LifecycleHost, tmp_path: Path) -> None:
    import fcntl

    host.run_rehash("start")
    with (tmp_path / "run/locks/lease").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (line,) = host.run_rehash("stop").describe_outcome("stop")
    assert line.startswith("refused: ana@desk (process 7) ")
    assert not host.marker.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name instances, or use --all"),
        (["chat", "--all"], "name instances, or use --all"),
        (["chta"], 'there is no instance "chta"; did you mean "chat"?'),
    ],
)
@pytest.mark.parametrize("verb", start_stop_by_hand.DOING)
def test_hosts_and_instances_are_validated_before_a_host_is_reached(box, verb, words, said, monkeypatch):
    from checks import connections

    monkeypatch.setattr(connections, "connect_targets", lambda *_: pytest.fail("a host was reached"))
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {sample_entry()!r}}})\n")
    done = CliRunner().invoke(main, [verb, str(box.inventory), *words])
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_the_verb_says_it_of_each_host_and_ends_with_1_where_one_is_not_right(host, tmp_path, monkeypatch):
    inventory = tmp_path / "rig.py"
    inventory.write_text("")
    monkeypatch.setattr(start_stop_restart, "map_inventory", map_given_hosts([host.box("box1")]))
    monkeypatch.setattr(start_stop_restart.exit_codes, "exit_on_interrupt", lambda *_: None)
    monkeypatch.setattr(
        start_stop_restart.root_shell, "run_command", lambda _, script, **__: host.box("box1")._run(script)
    )
    done = CliRunner().invoke(start_stop_restart.stop, [str(inventory), "--all"])
    assert (done.exit_code, done.stdout) == (0, "box1: chat: stopped until `start` or the next deploy\n")
    host.set_systemctl_answer("becomes", "failed\n")
    done = CliRunner().invoke(start_stop_restart.start, [str(inventory), "chat"])
    assert done.exit_code == 1
