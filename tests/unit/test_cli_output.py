"""The output of a run over hosts: a line a step that changes something, and one last line of a failure."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.unit.pseudo_terminal import run_on_terminal
from tests.unit.ssh_server import StandInSshd, run_sshd

# the command with another deploy.py
PROGRAM = """
import sys
from pathlib import Path
from cli import main, import_speedups
import_speedups.speed_up_imports()
import pyinfra_cli
from cli import deploy_run
deploy_run.DEPLOY = Path(sys.argv[1])
main(sys.argv[2:], prog_name="rigwright")
"""
DEPLOY = """
import gevent
from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand, StringCommand, deploy, operation
from roles.progress import progress

@operation()
def there():
    host.noop("there")
    return
    yield

@operation()
def made(words="true"):
    yield StringCommand(words)

def _called(state, host):
    with progress.task(host.name, "rw-job-x", detached=True) as task:
        task.start_step("compiling")
        task.report_done(1, 2, "steps")
        gevent.sleep({sleep})
    logger.info(f"{{host.print_prefix}}past the job")
    {called}

@operation()
def called():
    yield FunctionCommand(_called, (), {{}})

@deploy("Role")
def role():
    there(name="One")
    {steps}

{before}
role()
"""
ESCAPE = re.compile(r"\x1b")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInSshd]:
    with run_sshd(tmp_path_factory.mktemp("ssh") / "server") as server:
        yield server


class LocalDeployFolder:
    """An inventory of hosts that are this machine, and a deploy.py of a test's."""

    def __init__(self, folder: Path, server: StandInSshd) -> None:
        self.folder, self.server = folder, server
        self.hosts = {"box1": {**server.connection}}

    def command(
        self, *words: str, steps: str = "pass", before: str = "", called: str = "", sleep: str = "0.3"
    ) -> list[str]:
        """The command line of a verb over all of them."""
        inventory, deploy = self.folder / "rig.py", self.folder / "deploy.py"
        inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({self.hosts!r})\n")
        deploy.write_text(DEPLOY.format(steps=steps, before=before, called=called or "return True", sleep=sleep))
        return [sys.executable, "-c", PROGRAM, str(deploy), words[0], str(inventory), *words[1:]]

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "HOME": str(self.folder), "PYTHONPATH": str(ROOT)}

    def run(self, *words: str, **parts: str) -> subprocess.CompletedProcess[str]:
        """Run a verb into pipes."""
        command = self.command(*(words or ("deploy",)), **parts)
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def ground(tmp_path: Path, boxes: StandInSshd) -> LocalDeployFolder:
    return LocalDeployFolder(tmp_path, boxes)


TIME = r"[0-9]+\.[0-9] s"


def matches(said: str, *lines: str) -> bool:
    return re.fullmatch("".join(f"{line}\n" for line in lines), said) is not None


def test_where_nothing_changes_there_is_one_line(ground: LocalDeployFolder) -> None:
    done = ground.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert matches(done.stdout, rf"box1: nothing to do \(1 step, {TIME}\)"), done.stdout


def test_a_step_that_changes_something_has_a_line_and_so_has_what_it_says(ground: LocalDeployFolder) -> None:
    steps = "made(name='Two'); logger.warning(host.print_prefix + 'beware'); called(name='Three')"
    done = ground.run(steps=steps)
    assert (done.returncode, done.stderr) == (0, "")
    assert matches(
        done.stdout,
        "box1: beware",
        rf"box1: Role: Two \({TIME}\)",
        "box1: compiling",
        "box1: past the job",
        rf"box1: Role: Three \({TIME}\)",
        rf"box1: 2 of 3 steps changed something \({TIME}\)",
    ), done.stdout


def test_a_plan_says_what_would_change(ground: LocalDeployFolder) -> None:
    done = ground.run("deploy", "--dry", steps="made(name='Two', words='touch /nonexistent/x')")
    assert (done.returncode, done.stderr) == (0, "")
    assert matches(
        done.stdout, "box1: would change: Role: Two", rf"box1: 1 of 2 steps would change something \({TIME}\)"
    ), done.stdout


def test_a_step_that_fails_is_named_with_its_reason_and_what_to_do(ground: LocalDeployFolder) -> None:
    done = ground.run(steps="made(name='Two', words='echo the disk is full. >&2; false'); made(name='Three')")
    assert done.returncode == 1
    assert matches(done.stdout, r"box1: the disk is full\.", rf"box1: Role: Two: failed \({TIME}\)"), done.stdout
    assert done.stderr.splitlines()[-1].startswith("Error: deploy failed on box1: Role: Two: the disk is full. ")
    assert done.stderr.endswith("Fix that, then run the same command again: it continues from there\n")
    assert "No hosts remaining" not in done.stdout + done.stderr


def test_a_mistake_of_ours_in_a_step_fails_its_host(ground: LocalDeployFolder) -> None:
    done = ground.run(steps="called(name='Two')", called="raise ValueError('odd')")
    assert done.returncode == 1
    assert "deploy failed on box1: Role: Two: Unexpected error in Python callback: ValueError" in done.stderr


REFUSE = "logger.error(host.print_prefix + 'refused: no room'); state.fail_hosts({host})"


def test_a_refusal_says_that_nothing_was_changed(ground: LocalDeployFolder) -> None:
    done = ground.run(before=REFUSE)
    assert done.returncode == 1
    assert matches(done.stdout, "box1: refused: no room"), done.stdout
    assert re.fullmatch(
        r"Error: deploy failed on box1: refused: no room\. Nothing was changed there\..* "
        r"Fix that, then run the same command again\n",
        done.stderr,
    ), done.stderr


def test_of_several_hosts_each_that_failed_is_reported_and_the_others_are_done(ground: LocalDeployFolder) -> None:
    # a configuration of its own has it another machine than the first, by the same address
    (ground.folder / "ssh_config").touch()
    ground.hosts["box2"] = {**ground.server.connection, "ssh_config_file": str(ground.folder / "ssh_config")}
    ground.hosts["box3"] = {**ground.server.connection, "ssh_hostname": "127.0.0.3", "ssh_port": 1}
    done = ground.run(before=f"if host.name == 'box2':\n    {REFUSE}\n", steps="made(name='Two', words='true')")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert lines[0] == "Error: deploy failed on 2 of 3 hosts"
    assert lines[1].startswith("  box2: refused: no room. Nothing was changed there")
    assert lines[2].startswith("  box3: cannot be reached. Nothing was done there")
    assert lines[3] == f"  To continue: `rigwright deploy {ground.folder / 'rig.py'} --limit box2,box3`"
    assert done.stdout.splitlines()[-2:] == ["box2: failed before its first step", "box3: not reached"]
    assert "box3: cannot be reached: Connection refused" in done.stdout
    assert re.search(rf"^box1: 1 of 2 steps changed something \({TIME}\)$", done.stdout, re.MULTILINE)


def test_a_host_that_is_not_reached_has_not_failed(ground: LocalDeployFolder) -> None:
    ground.hosts["box1"] = {**ground.server.connection, "ssh_hostname": "127.0.0.3", "ssh_port": 1}
    done = ground.run(steps="made(name='Two', words='true')")
    assert done.returncode == 3
    assert (
        "Error: deploy: box1: cannot be reached: Connection refused (port 1 of 127.0.0.3): check the port "
        "(inventory: ssh_port; init: HOST:PORT), and that sshd runs there. Nothing was done there. Fix that"
        in done.stderr
    )
    assert "failed" not in done.stderr


def test_an_exception_on_one_host_is_reported_in_one_line(ground: LocalDeployFolder) -> None:
    done = ground.run(before="raise KeyError('odd')")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: deploy failed on box1: KeyError: 'odd'; with -v")


@pytest.mark.parametrize("words", [["--limit", "box9"], ["--expect", "0" * 64], ["--expect", "x"], ["--nope"]])
def test_refused_requests_reach_no_host(ground: LocalDeployFolder, words: list[str]) -> None:
    logins = ground.server.login_count
    done = ground.run("deploy", *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert ground.server.login_count == logins


def test_pyinfras_own_output_is_kept_and_ends_the_same(ground: LocalDeployFolder) -> None:
    ground.hosts["box1"] |= {"ssh_port": 1}
    done = ground.run("deploy", "-v", "--limit", "box1", "--dry")
    assert "--> Connecting to hosts..." in done.stderr
    assert done.stderr.endswith("Error: deploy failed (see above)\n")
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("parts", "mark", "said"),
    [
        (
            {"steps": "called(name='Two')", "called": "gevent.sleep(60)"},
            "",
            "Stopped in the middle; the same command continues from there.",
        ),
        (
            {"steps": "called(name='Two')", "sleep": "60"},
            "box1: compiling",
            "Stopped watching; the job on box1 continues (compiling). The same command watches again.",
        ),
        ({"before": "print('here', flush=True); gevent.sleep(60)"}, "here", "Stopped; nothing was changed."),
    ],
)
def test_an_interrupt_says_what_goes_on(ground: LocalDeployFolder, parts: dict[str, str], mark: str, said: str) -> None:
    command = ground.command("deploy", **parts)
    with subprocess.Popen(
        command, env=ground.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        for line in process.stdout:
            if line.startswith(mark or "box1: past the job"):
                break
        process.send_signal(signal.SIGINT)
        assert (process.wait(60), process.stderr.read().strip()) == (130, said)


REAL = [sys.executable, "-m", "cli"]


@pytest.mark.parametrize(("verb", "status"), [("deploy", 3), ("plan", 3), ("check", 3)])
def test_a_refusal_of_sudo_is_the_only_message(ground: LocalDeployFolder, verb: str, status: int) -> None:
    ground.hosts["box1"]["_sudo"] = True
    ground.server.add_program("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    ground.command(verb)
    done = subprocess.run(
        [*REAL, verb, str(ground.folder / "rig.py")],
        env=ground.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert "cannot become root (sudo: a password is required)" in said
    assert len(said) < 800, said


def test_a_terminal_has_one_row_for_a_job_and_colours(ground: LocalDeployFolder) -> None:
    command = ground.command("deploy", steps="called(name='Two')", sleep="1.5")
    status, said = run_on_terminal(command, ground.environment)
    assert status == 0, said
    assert "\x1b[32mbox1: Role: Two (" in said
    assert "compiling" in said and "1/2 steps" in said
    assert "\x1b[?25l" not in said  # an interrupt has no cursor to show again


def test_a_terminal_has_one_row_for_each_of_several_hosts_and_a_table(ground: LocalDeployFolder) -> None:
    (ground.folder / "ssh_config").touch()
    ground.hosts["box2"] = {**ground.server.connection, "ssh_config_file": str(ground.folder / "ssh_config")}
    command = ground.command("deploy", steps="called(name='Two')", sleep="1.5")
    status, said = run_on_terminal(command, ground.environment)
    assert status == 0, said
    assert "box1: Role: Two" not in said
    rows, _, recap = ESCAPES.sub("", said).replace("\r", "").rpartition("host  result")
    assert re.search(r"^box1  compiling .*\[[#-]{8}\] .* 0:0[0-9]$", rows, re.MULTILINE), rows
    assert re.findall(r"^(box[12])  changed  1/2", recap, re.MULTILINE) == ["box1", "box2"]


def test_a_run_of_some_roles_says_so_and_makes_no_checks(ground: LocalDeployFolder) -> None:
    done = ground.run("deploy", "--only", "weights", steps="made(name='Two')")
    assert done.returncode == 0, done.stderr
    notice, *lines = done.stdout.splitlines()
    assert notice == (
        "only base, network, tools, weights (base, network, tools: needed by the others); no generation is activated, "
        "and the checks of a deploy do not run"
    )
    assert "checks" not in "".join(lines)


def test_a_terminal_without_colours_has_none(ground: LocalDeployFolder) -> None:
    status, said = run_on_terminal(
        ["env", "NO_COLOR=1", *ground.command("deploy", steps="made(name='Two')")], ground.environment
    )
    assert status == 0, said
    assert not ESCAPE.search(said)


def test_pipes_have_no_escapes_whatever_a_host_says(ground: LocalDeployFolder) -> None:
    done = ground.run(steps=r"made(name='Two', words='printf \"\\033[2Jx\\n\" >&2; false')")
    assert done.returncode == 1
    assert not ESCAPE.search(done.stdout + done.stderr)
