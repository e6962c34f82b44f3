"""`rigwright ssh --in` as an instance: it is where that one is, and what it runs ends with it, however that ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import LabHost
from tests.hosts.support import is_serving, main_pid, red_checks, wait_until

pytestmark = pytest.mark.all_only

LEFT = "systemctl list-units --plain --no-legend 'rigwright_shell-*'"


def words(inventory: Path, *command: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "cli", "ssh", "--in", "chat", str(inventory), *command]


def entered(inventory: Path, *command: str) -> str:
    """The output of a command next to the instance."""
    done = subprocess.run(words(inventory, *command), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_where_its_instance_is(converged: LabHost, inventory: Path) -> None:
    before = main_pid(converged)
    own = converged.run(f"tr '\\0' '\\n' < /proc/{before}/environ | grep -E '^(RW_DIGEST|CUDA_)' | sort")
    assert entered(inventory, "sh", "-c", "env | grep -E '^(RW_DIGEST|CUDA_)' | sort") == own
    assert entered(inventory, "id", "-un").strip() == "rigwright-chat"
    assert entered(inventory, "sh", "-c", 'x=1; echo "${x} $1"', "sh", "${HOME}") == "1 ${HOME}\n"
    # no network but its own, no host files but what the instance sees, and the instance's socket
    assert "lo" in (told := entered(inventory, "sh", "-c", "cut -d: -f1 /proc/self/net/dev | tail -n +3"))
    assert told.split() == ["lo"]
    ask = "curl -s -o /dev/null -w '%{http_code}' --unix-socket /run/rigwright/instances/chat/api.sock http://x/health"
    assert entered(inventory, "sh", "-c", ask) == "200"
    assert entered(inventory, "sh", "-c", "touch /opt/x 2>/dev/null || touch /tmp/x && echo kept out") == "kept out\n"
    done = subprocess.run(words(inventory, "sh", "-c", "exit 7"), capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 7
    # a folder that a unit takes with it when it ends is still the instance's
    assert (main_pid(converged), is_serving(converged)) == (before, True)
    assert red_checks(inventory) == set()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_its_processes_end_with_it_after_any_end(converged: LabHost, inventory: Path, end: signal.Signals) -> None:
    command = words(inventory, "sh", "-c", "echo begun; sleep 1000")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stderr
        assert running.stdout.readline() == b"begun\n"
        assert converged.run(LEFT) != ""
        running.send_signal(end)
        status = running.wait(60)
        complaint = running.stderr.read().decode()
    assert status == (130 if end is signal.SIGINT else -end)
    assert complaint.strip() == ""
    wait_until(lambda: converged.run(LEFT) == "", "without what it ran")
    assert converged.run("pgrep -f 'sleep [1]000' || true") == ""
