"""Holders of a card: a reboot ends no foreign work, and our own does not stop one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from rigwright.nvidia.cards.card_facts import parse_holders, render_holders_query
from tests.unit import short_programs
from tests.unit.channel_records import channel_lines, decode_records
from tests.unit.polling import wait_until

SCRIPT = render_holders_query()
SESSION = "/user.slice/user-1000.slice/session-3.scope"
CONTAINER = "/system.slice/docker-0123.scope"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], []),
        (["7\tpython3\t" + SESSION + "\t/dev/nvidia0"], [f"pid 7 (python3, in {SESSION}) holds /dev/nvidia0"]),
        (
            [f"7\ta b\t{CONTAINER}\t/dev/nvidia0", f"7\ta b\t{CONTAINER}\t/dev/nvidia1"],
            [f"pid 7 (a b, in {CONTAINER}) holds /dev/nvidia0, /dev/nvidia1"],
        ),
        (
            ["8\tb\t/\t/dev/nvidia0", "7\ta\t\t/dev/nvidia0"],
            ["pid 7 (a) holds /dev/nvidia0", "pid 8 (b) holds /dev/nvidia0"],
        ),
        (["7\tnvidia-persiste \t/system.slice/nvidia-persistenced.service\t/dev/nvidia0"], []),
        (["7\tnvidia-persist\t/\t/dev/nvidia0"], ["pid 7 (nvidia-persist) holds /dev/nvidia0"]),
        (["7\tllama-server\t/rigwright.slice/rigwright-chat.service\t/dev/nvidia0"], []),
        (
            ["7\tx\t/user.slice/rigwright.slice/x\t/dev/nvidia0"],
            ["pid 7 (x, in /user.slice/rigwright.slice/x) holds /dev/nvidia0"],
        ),
    ],
    ids=[
        "nobody",
        "a login",
        "two cards",
        "several",
        "the daemon, whose name the kernel cuts",
        "not the daemon",
        "ours",
        "not ours",
    ],
)
def test_strangers_are_named_with_their_cards(lines: list[str], expected: list[str]) -> None:
    found = parse_holders(channel_lines(*(("holder", *line.split("\t")) for line in lines)), ())
    assert (found.strangers, found.borrowers) == (tuple(expected), ())


def process(root: Path, pid: str, name: str, cgroup: str, *targets: str) -> None:
    """A process in a folder that stands in for /proc."""
    folder = root / "proc" / pid
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "cgroup").write_text(cgroup)
    for number, target in enumerate(targets):
        (folder / "fd" / str(number)).symlink_to(target)


def holders_output(script: str) -> list[str]:
    """The output of a host."""
    done = short_programs.run_program(["sh", "-c", script], check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def rows(script: str) -> list[str]:
    """Its rows, with tabs between."""
    return ["\t".join(record[1:]) for record in decode_records(holders_output(script))]


def test_only_processes_with_a_card_are_found_each_card_once(tmp_path: Path) -> None:
    process(tmp_path, "7", "python3", f"0::{SESSION}\n", "/dev/null", "/dev/nvidia0", "/dev/nvidia0", "/dev/nvidia12")
    process(tmp_path, "8", "tab\tbed", "1:cpu:/old\n0::/system.slice/x.service\n", "/dev/nvidia1 (deleted)")
    process(tmp_path, "9", "smi", "0::/\n", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps/nvidia-cap1")
    process(tmp_path, "10", "files", "0::/\n", "/home/dev/nvidia0", "socket:[1]")
    process(tmp_path, "self", "me", "0::/\n", "/dev/nvidia0")
    # in a mount namespace of one's own any file can have such a name
    process(tmp_path, "12", "own", "0::/\n", "/dev/nvidia0\nx y", "/dev/nvidia0\tx", "/dev/nvidia0x")
    (tmp_path / "proc/11/fd").mkdir(parents=True)
    assert "/proc/" in SCRIPT
    assert rows(SCRIPT.replace("/proc/", f"{tmp_path}/proc/")) == [
        f"7\tpython3\t{SESSION}\t/dev/nvidia0",
        f"7\tpython3\t{SESSION}\t/dev/nvidia12",
        "8\ttab\tbed\t/system.slice/x.service\t/dev/nvidia1 (deleted)",
    ]


def test_a_process_that_ends_during_the_look_is_left_out(tmp_path: Path) -> None:
    process(tmp_path, "7", "x", "0::/\n", "/dev/nvidia0")
    (tmp_path / "proc/7/comm").unlink()
    (tmp_path / "proc/7/cgroup").unlink()
    assert rows(SCRIPT.replace("/proc/", f"{tmp_path}/proc/")) == ["7\t\t\t/dev/nvidia0"]


@pytest.mark.parametrize(("name", "strange"), [("train", True), ("nvidia-persistenced", False)])
def test_a_real_process_is_found_while_it_holds_its_file(tmp_path: Path, name: str, strange: bool) -> None:
    device, program, script = tmp_path / "nvidia0", tmp_path / name, SCRIPT.replace("/dev/nvidia", f"{tmp_path}/nvidia")
    device.touch()
    shutil.copy("/bin/cat", program)
    with device.open() as held, subprocess.Popen([program], stdin=subprocess.PIPE, stdout=held) as holder:
        until_it_runs(holder.pid, name)
        mine = [record for record in decode_records(holders_output(script)) if record[1] == str(holder.pid)]
        assert [record[4] for record in mine] == [str(device)]
        assert [
            one.startswith(f"pid {holder.pid} ({name}") for one in parse_holders(channel_lines(*mine), ()).strangers
        ] == [True] * strange
        holder.communicate()
    assert rows(script) == []


def until_it_runs(pid: int, name: str) -> None:
    """Wait for the program to take the place of the shell's copy that starts it."""
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text().strip() == name[:15])
