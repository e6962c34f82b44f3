"""Commands pass every login shell, and what they read comes to them whole."""

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigwright.render import render
from roles.login_shell import END, LONGEST, render_line, render_terminal_line, wrap_channel

SHELLS = [one for one in ("sh", "bash", "dash", "tcsh", "csh", "fish", "zsh") if shutil.which(one)]
SCRIPTS = [
    "echo one; cat",
    "if true; then\n  echo 'a!b' \"c\\d\"\nelse\n  echo no\nfi\ncat",
    "x='it'\\''s'\necho \"$x\" `echo y` $((1 + 2)); cat",
    "# é and \\\\ and ! and *\n" + "echo x\n" * 2000 + "cat",
]
DATA = b"what the command reads\nto its end \x00\xff"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_a_script_and_its_input_pass_the_shell(shell: str, script: str) -> None:
    line, first = render_line(shlex.join(["sh", "-c", script]))
    expected = subprocess.run(["sh", "-c", script], input=DATA, capture_output=True, check=True).stdout
    done = subprocess.run([shell, "-c", line], input=first + DATA, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (expected, b"")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_with_a_terminal_leaves_the_input_alone(shell: str) -> None:
    line = render_terminal_line(shlex.join(["sh", "-c", SCRIPTS[1]]))
    done = subprocess.run([shell, "-c", line], input=DATA, capture_output=True, check=False)
    assert done.stdout == b"a!b c\\d\n" + DATA


class RecordedChannel:
    """A stand-in for a session of paramiko's: keeps what the host would get."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sent = b""

    def exec_command(self, line: str) -> None:
        self.lines.append(line)

    def get_pty(self, *size: object) -> None:
        self.lines.append("terminal")

    def sendall(self, script: bytes) -> None:
        self.sent += script


@pytest.mark.parametrize("command", ["echo a; echo 'b'", "#" * (2 * LONGEST) + "\necho a"])
def test_a_command_with_a_terminal_gets_no_script_through_its_input(command: str) -> None:
    channel = wrap_channel(RecordedChannel())
    channel.get_pty("xterm", 80, 24)
    channel.exec_command(command)
    assert channel.lines == ["terminal", render_terminal_line(command)]
    assert channel.sent == b""


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=300))
def test_no_line_has_what_login_shells_read_in_different_ways(script: str) -> None:
    line, first = render_line(f"sh -c {shlex.quote(script)}")
    assert "\n" not in line
    assert "!" not in line
    assert "\\" not in line
    assert len(line) <= LONGEST
    assert line.count("'") in (0, 2)
    assert first in (b"", f"sh -c {shlex.quote(script)}\n{END}".encode())


def test_a_short_command_stays_readable_in_the_hosts_logs() -> None:
    assert render_line("sudo -n sh -c 'systemctl is-active x'") == ("sudo -n sh -c 'systemctl is-active x'", b"")
    assert render_line(f"sh -c {shlex.quote(render('probe/survey.sh.j2'))}")[1]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_that_is_cut_is_not_run(shell: str) -> None:
    line, first = render_line("echo one\necho two")
    for length in (0, 9, len(first) - 1):
        done = subprocess.run([shell, "-c", line], input=first[:length], capture_output=True, check=False)
        assert (done.stdout, done.returncode) == (b"", 255)
