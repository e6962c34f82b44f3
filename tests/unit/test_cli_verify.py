"""`rigwright check --serving`, as a process, of a host that speaks SSH and has an engine of ours."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.client_host import SYSTEMD_RUN
from tests.unit.model_server import KEY, Fault, ScriptedModel, run_model_server
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd

LIMIT = 60  # seconds, for a machine with much else to do


@pytest.fixture
def host(box: OperatorFolder) -> Iterator[StandInSshd]:
    """A host that has a key for its only instance, and no engine yet."""
    with run_sshd(box.folder / "h") as made:
        (made.folder / "run" / "instances" / "chat").mkdir(parents=True)
        keys = made.folder / "etc" / "rigwright" / "credentials"
        keys.mkdir(parents=True)
        (keys / "chat.api-key").write_text(f"{KEY}\n")
        made.add_program("systemctl", "")
        made.add_program("systemd-run", SYSTEMD_RUN.format(folder=made.folder))
        declared = sample_entry(cards=[], instances=chat_instances(), **made.connection)
        box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {declared!r}}})\n")
        yield made


def socket(host: StandInSshd) -> Path:
    return host.folder / "run" / "instances" / "chat" / "api.sock"


def command(box: OperatorFolder, *options: str) -> list[str]:
    return [sys.executable, "-m", "tests.unit.ready_instances", "check", "--serving", str(box.inventory), *options]


def verify(box: OperatorFolder, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(box, *options), capture_output=True, text=True, timeout=LIMIT, check=False)


def answering(box: OperatorFolder, host: StandInSshd, fault: Fault, *options: str) -> tuple[int, Any]:
    model = ScriptedModel(fault)
    with run_model_server(model, socket(host)):
        done = verify(box, "--json", *options)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_an_instance_that_works_is_verified(box: OperatorFolder, host: StandInSshd) -> None:
    with run_model_server(ScriptedModel(name="small"), socket(host)):
        done = verify(box, "--junit", str(box.folder / "r.xml"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "  ok    box  chat: it names its model (serves small)" in lines
    assert "  n/a   box  chat: it calls a tool" in lines
    assert lines[-1] == "box: verified (5 ok, 0 failed, 0 skipped)"
    assert KEY not in done.stdout + done.stderr + "".join(host.run_commands)
    suite = ElementTree.parse(box.folder / "r.xml").getroot()[0]
    assert (suite.get("name"), suite.get("failures"), suite.get("tests")) == ("box", "0", "5")


@pytest.mark.parametrize(
    ("fault", "status", "verdict"), [("wrong city", 1, "not as declared"), ("other model", 1, "not as declared")]
)
def test_one_that_does_not_is_not(box, host, fault, status, verdict):
    found, report = answering(box, host, fault)
    assert (found, report["verdict"], report["interrupted"]) == (status, verdict, False)
    assert any(one["verdict"] in ("fail", "skip") for one in report["hosts"][0]["instances"][0]["checks"])


def test_one_that_is_not_ready_is_named_and_not_asked(
    box: OperatorFolder, host: StandInSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLANK_HOST", "1")
    with run_model_server(ScriptedModel(name="small"), socket(host)) as model:
        done = verify(box, "--junit", str(box.folder / "r.xml"))
    assert done.returncode == 1, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("box: chat is not deployed: the host has no generation; next: `rigwright deploy ")
    assert (last, model.asked) == ("box: not verified (0 ok, 0 failed, 0 skipped)", [])
    assert ElementTree.parse(box.folder / "r.xml").getroot()[0].get("failures") == "1"


def verify_until(box: OperatorFolder, host: StandInSshd, end: Callable[[subprocess.Popen[str]], None]) -> Any:
    """Status, output and errors of a run that is ended while the model has not answered."""
    model = ScriptedModel("wedged", name="small")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with run_model_server(model, socket(host)), subprocess.Popen(command(box, "--json"), **pipes) as verifying:
        while not model.asked:
            time.sleep(0.05)
        end(verifying)
        said, errors = verifying.communicate(timeout=LIMIT)
    return verifying.returncode, said, errors


def test_results_before_an_interrupt_are_kept_and_marked(box: OperatorFolder, host: StandInSshd) -> None:
    status, said, errors = verify_until(box, host, lambda verifying: verifying.send_signal(signal.SIGINT))
    assert (status, "Interrupted, partial results kept" in errors) == (130, True), errors
    report = json.loads(said)
    (one,) = report["hosts"][0]["instances"]
    assert (report["interrupted"], one["ended"]) == (True, "interrupted")
    assert [check["check"] for check in one["checks"]] == ["server", "patches"]
    assert any("systemctl stop rw-client-chat-" in command for command in host.run_commands)


def test_a_box_that_is_lost_midway_is_marked(box: OperatorFolder, host: StandInSshd) -> None:
    status, said, _ = verify_until(box, host, lambda _: os.kill(host.pid, signal.SIGKILL))
    assert status == 3
    (one,) = json.loads(said)["hosts"][0]["instances"]
    assert one["ended"].startswith("the client on the box is lost: ")
    assert [check["verdict"] for check in one["checks"]] == ["ok", "n/a"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--instance", "chta"], 'there is no instance "chta"; did you mean "chat"'),
        (["--gateway"], "instance chat is behind no gateway"),
        (["--listener", "office"], "--listener needs --gateway"),
        (["--limit", "bix"], "there is no host or group"),
    ],
)
def test_an_impossible_request_is_refused_before_any_other(box, host, options, words):
    done = verify(box, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert not any("systemd-run" in told for told in host.run_commands)


def test_a_host_out_of_reach_is_in_all_reports(box: OperatorFolder, host: StandInSshd) -> None:
    os.kill(host.pid, signal.SIGKILL)
    done = verify(box, "--json", "--junit", str(box.folder / "r.xml"))
    assert done.returncode == 3, done.stderr
    cause = f"Connection refused (port {host.port} of 127.0.0.1)"
    why = f"cannot be reached: {cause}: check the port (inventory: ssh_port; init: HOST:PORT), and that sshd runs there"
    (found,) = json.loads(done.stdout)["hosts"]
    assert found == {"name": "box", "verdict": "not reached", "why": why, "instances": []}
    assert ElementTree.parse(box.folder / "r.xml").getroot()[0].get("failures") == "1"


def stress(box: OperatorFolder, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "cli", "bench", "stress", str(box.inventory), *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_an_instance_under_stress_is_reported_with_its_figures(box: OperatorFolder, host: StandInSshd) -> None:
    with run_model_server(ScriptedModel(name="small"), socket(host)):
        done = stress(box, "--up-to", "3000")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("  ok    box  chat: a word in ") and " tokens read in " in line for line in lines), lines
    assert lines[-1].startswith("box: passed (")
    assert any("flock" in told and "lease" in told for told in host.run_commands)


def test_a_box_during_a_deploy_is_not_loaded(box: OperatorFolder, host: StandInSshd) -> None:
    locks = host.folder / "run" / "locks"
    locks.mkdir(mode=0o700)
    locks.chmod(0o700)
    with (locks / "lease").open("w") as held, run_model_server(ScriptedModel(name="small"), socket(host)) as model:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = stress(box, "--json")
    (one,) = json.loads(done.stdout)["hosts"][0]["instances"]
    assert (done.returncode, one["refused"], model.asked) == (2, True, [])
    assert "refused: " in one["ended"]


def test_growing_is_for_a_soak(box: OperatorFolder, host: StandInSshd) -> None:
    done = stress(box, "--grow")
    assert (done.returncode, "--grow needs --soak" in done.stderr, host.run_commands) == (2, True, [])


@pytest.mark.parametrize(("how", "status", "ended"), [("interrupt", 130, "interrupted"), ("loss", 3, "the client on")])
def test_results_until_the_end_of_a_stress_are_kept(box, host, how, status, ended):
    model = ScriptedModel(name="small", wedges_after=3)
    words = [sys.executable, "-m", "cli", "bench", "stress", str(box.inventory), "--json", "--up-to", "3000"]
    with (
        run_model_server(model, socket(host)),
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stressing,
    ):
        while len(model.asked) < 4:
            time.sleep(0.05)
        if how == "interrupt":
            stressing.send_signal(signal.SIGINT)
        else:
            os.kill(host.pid, signal.SIGKILL)
        said, errors = stressing.communicate(timeout=LIMIT)
    assert stressing.returncode == status, errors
    (one,) = json.loads(said)["hosts"][0]["instances"]
    assert one["ended"].startswith(ended)
    assert [check["verdict"] for check in one["checks"]].count("ok") == 2


def test_a_key_that_is_revoked_midway_is_reported(box: OperatorFolder, host: StandInSshd) -> None:
    with run_model_server(ScriptedModel(name="small", revoked_after=1), socket(host)):
        done = verify(box, "--json")
    (one,) = json.loads(done.stdout)["hosts"][0]["instances"]
    found = {check["check"]: (check["verdict"], check["detail"]) for check in one["checks"]}
    assert (done.returncode, found["server"][0], found["completion"][0]) == (1, "ok", "fail")
    assert "401" in found["completion"][1]


def test_a_foreign_server_is_not_asked_for_more_than_its_name(box: OperatorFolder, host: StandInSshd) -> None:
    with run_model_server(ScriptedModel("other model"), socket(host)) as model:
        done = stress(box, "--json")
    (one,) = json.loads(done.stdout)["hosts"][0]["instances"]
    assert (done.returncode, one["refused"], model.asked) == (2, True, [])
    assert "somebody-else" in one["ended"]
