"""`rigwright logs`, as a process, of a host that speaks SSH."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rigwright.engines.llama_cpp.log_patterns import REQUEST_LOG
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd

UNIT = "rigwright-chat.service"
LIMIT = 60  # seconds, for a machine with much else to do
# the effects that a line of a journal must not have on a terminal: colours and titles, in their 7-bit and 8-bit forms;
# move, ring
HOSTILE = r"\033[31mred \033]0;title\007 \302\233H\302\235 back\rover \b\177 bad \377 end"


@pytest.fixture
def host(box: OperatorFolder) -> Iterator[StandInSshd]:
    """A host without an instance; its journal repeats what it was asked for."""
    with run_sshd(box.folder / "host") as made:
        made.add_program("systemctl", "")
        made.add_program("journalctl", 'echo "journal: $*"')
        keys = sample_entry(cards=[], instances=chat_instances(), **made.connection)
        box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {keys!r}}})\n")
        yield made


def serving(host: StandInSshd, journal: str) -> None:
    """Have the instance run, as far as systemd and what root wrote down tell, and have it say something."""
    (host.folder / "run").mkdir()
    (host.folder / "run" / UNIT).write_text("a" * 64 + "\n")
    block = f"Id={UNIT}\\nActiveState=active\\nSubState=running\\nNRestarts=0\\nMainPID={host.pid}\\n"
    host.add_program("systemctl", f"case \"$*\" in *MainPID*) printf '{block}' ;; esac")
    host.add_program("journalctl", journal)


def command(box: OperatorFolder, *options: str) -> list[str]:
    return [sys.executable, "-m", "cli", "logs", str(box.inventory), *options]


def logs(box: OperatorFolder, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(box, *options), capture_output=True, timeout=LIMIT, check=False)


def test_it_ends_by_itself_after_its_output(box: OperatorFolder, host: StandInSshd) -> None:
    serving(host, 'printf "%s\\n" "$@"')
    done = logs(box, "--lines", "7")
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode().splitlines()
    assert {"box  --lines=7", f"box  --unit={UNIT}", "box  --no-hostname"} <= set(said)
    assert "box  --follow" not in said


@pytest.mark.parametrize("options", [(), ("--follow",), ("--instance", "chat")])
def test_before_there_is_an_instance_it_says_so_and_no_more(box, host, options):
    done = logs(box, *options)
    assert (done.returncode, done.stdout) == (0, b"")
    what = "instance chat is not" if "chat" in options else "no instance is"
    assert done.stderr.decode() == f"box: {what} there yet\n"


def test_no_control_character_of_a_host_reaches_the_terminal(box: OperatorFolder, host: StandInSshd) -> None:
    serving(host, f"printf '{HOSTILE}\\tx\\n'")
    assert logs(box).stdout.decode() == "box  [31mred ]0;title H backover  bad \ufffd end\tx\n"


@pytest.mark.parametrize(
    ("script", "signals", "status", "said"),
    [
        ("while echo line; do sleep 0.01; done", True, 130, b""),
        ("echo line; exec sleep 1000", True, 130, b""),
        ("echo line; exec sleep 1000", False, 3, b"box: lost the connection: the session ended\n"),
    ],
    ids=["an interrupt", "an interrupt in silence", "a connection that ends"],
)
def test_one_that_follows_ends_with(box, host, script, signals, status, said):
    serving(host, script)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(box, "--follow"), **pipes) as following:  # type: ignore[call-overload]
        assert following.stdout.readline() == b"box  line\n"
        following.send_signal(signal.SIGINT) if signals else os.kill(host.pid, signal.SIGKILL)
        _, errors = following.communicate(timeout=LIMIT)
    assert (following.returncode, errors) == (status, said)


def test_the_cause_in_a_line_is_reported_once_with_the_lines(box: OperatorFolder, host: StandInSshd) -> None:
    line = "error: invalid argument: --mlock"
    # newest first, as journalctl --reverse
    serving(host, f"printf '%s\\n' 'all slots are idle' '{line}' '{line}'")
    done = logs(box)
    assert done.stdout.decode().splitlines() == [f"box  {line}"] * 2 + ["box  all slots are idle"]
    said = (
        "box  ==> likely cause: this llama-server has no such option (another version, or a misspelling): "
        "remove or rename it\n"
    )
    assert done.stderr.decode() == said


STAMP = "2026-11-29T01:18:36+0000 llama-server[3102]: "
OF_REQUESTS = (
    "0.07.178.135 I slot print_timing: id  3 | task 3 |    graphs reused =          1",
    "slot      release: id  0 | task 12 | stop processing: n_tokens = 30, truncated = 0",
    "0.07.299.085 I slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = -1",
    "0.07.299.206 W slot   operator(): id  3 | task 6 | n_past was set to 29",
    "srv  update_slots: all slots are idle",
    "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
)
OF_NOTE = (
    "0.07.220.868 W srv    operator(): unauthorized: Invalid API Key",
    "0.00.245.164 I srv  llama_server: model loaded",
    "0.07.299.206 W slot   operator(): id  3 | task 6 | input is too large",
    "0.07.299.206 E slot   operator(): id  3 | task 6 | failed to decode",
    "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 500",
)


@pytest.mark.parametrize(
    ("options", "asked", "shown"),
    [
        ((), "--reverse", OF_NOTE),
        (("--all",), "", (*OF_NOTE, *OF_REQUESTS)),
        (("--follow",), "--follow", OF_NOTE),
    ],
)
def test_lines_of_each_request_are_left_out(box, host, options, asked, shown):
    script = " ".join(f"'{STAMP}{line}'" for line in (*OF_NOTE, *OF_REQUESTS))
    # a journal that ends: its end ends a reader that follows it
    serving(host, f'case "$*" in *"{asked}"*) printf "%s\\n" {script} ;; esac')
    done = logs(box, *options)
    lines = done.stdout.decode().splitlines()
    assert [*sorted(lines)] == sorted(f"box  {STAMP}{line}" for line in shown)


def test_journalctl_reads_the_pattern_as_python_does() -> None:
    if not shutil.which("grep"):
        pytest.skip("needs grep -P, which has PCRE2 as journalctl does")
    done = subprocess.run(
        ["grep", "-P", f"^(?!{REQUEST_LOG})"],
        input="\n".join((*OF_NOTE, *OF_REQUESTS)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [*OF_NOTE]


def test_a_refused_key_of_a_check_is_not_a_clients(box: OperatorFolder, host: StandInSshd) -> None:
    check = "2026-11-29T10:00:01+0000 rigwright-check[7]: a check sends 2 requests without a valid API key"
    refused = "2026-11-29T10:00:02+0000 llama-server[77]: W srv validate_api: Unauthorized: Invalid API Key"
    for refusals, blamed in ((2, 0), (3, 1)):
        lines = "\\n".join([check, *[refused] * refusals])
        serving(host, f"printf '{lines}\\n'")
        done = logs(box, "--follow")
        assert done.stdout.decode().count("Invalid API Key") == refusals
        assert done.stderr.decode().count("a client sends no API key or a wrong one") == blamed
        shutil.rmtree(host.folder / "run")
