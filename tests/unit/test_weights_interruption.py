"""Bringing weights is ended in the middle, and goes on; two at once; how far it is."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stand_ins.hub.faults import StalledAnswer
from tests.unit.file_server import complete_file
from tests.unit.polling import wait_until
from tests.unit.weights_world import (
    CONTENT,
    REPOSITORY,
    WeightsFixture,
    client_python,
)
from tests.unit.weights_world import host as host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

LARGE = CONTENT * 10
STALLED = 1_200_000


def children(pid: int) -> set[int]:
    """All processes below one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(path.parent.name)
            found |= {child} | children(child)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("client", [True, False], ids=["client", "plain"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_files_fetched_before_a_kill_are_not_fetched_again(
    host: WeightsFixture, client: bool, how: signal.Signals
) -> None:
    host.python = client_python() if client else ""
    (one, small) = wanted = host.commit_files({"x.gguf": LARGE, "config.json": b"{}"})
    stall = host.hub.add_fault(StalledAnswer(STALLED), REPOSITORY, "x.gguf", times=1)
    with host.start_fetch(wanted) as process:
        wait_until(stall.met.is_set)
        wait_until(lambda: host.part_path(one).exists() and host.part_path(one).stat().st_size > STALLED // 2)
        wait_until(lambda: host.is_fetched(small))
        below = children(process.pid)
        assert below
        process.send_signal(how)
        process.wait(timeout=10)
    # no process goes on writing into what the next run reads
    wait_until(lambda: not any(alive(child) for child in below))
    had = host.part_path(one).stat().st_size
    assert not host.is_fetched(one)
    host.hub.asked.clear()
    host.fetch(wanted)
    assert host.requested_ranges() == [f"x.gguf bytes={had}-"]
    assert host.is_fetched(one)
    assert host.leftover_paths() == []


def test_a_kill_between_two_steps_of_naming_costs_a_hash_at_most(host: WeightsFixture) -> None:
    url = host.server.serve("m", complete_file(CONTENT))
    host.fetch_file(url)
    host.server.asked.clear()
    for record in host.records.glob("*-*"):
        record.unlink()
    host.fetch_file(url)
    host.file_path().rename(host.part_path())
    host.fetch_file(url)
    assert host.server.asked == []


def test_two_at_once_fetch_everything_once(host: WeightsFixture) -> None:
    wanted = host.commit_files({"x.gguf": LARGE, "config.json": b"{}"})
    host.hub.bytes_a_second = len(LARGE)
    processes = [host.start_fetch(wanted), host.start_fetch(wanted)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum("waiting for another run" in text for text in said) == 1
    assert sorted(host.requested_ranges()) == ["config.json None", "x.gguf None"]


def test_how_far_it_is_stands_beside_the_models_while_it_lasts(host: WeightsFixture) -> None:
    host.settings["parallel"] = 1
    wanted = host.commit_files({"x.gguf": LARGE, "y.gguf": LARGE[1:]})
    for one, content in zip(wanted, (LARGE, LARGE[1:]), strict=True):  # the order is undefined
        host.hub.add_fault(StalledAnswer(STALLED), REPOSITORY, one.path.rpartition("/")[2], times=1)
        host.place_file(host.part_path(one), content[:1000])
    shown: list[dict[str, object]] = []

    def moved() -> bool:
        path = host.root / ".progress.json"
        if path.exists():
            shown.append(json.loads(path.read_text()))
        return bool(shown) and any(int(str(row["done"])) > STALLED // 2 for row in rows(shown[-1]))

    with host.start_fetch(wanted) as process:
        wait_until(moved)
        host.hub.clear_faults()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    last = shown[-1]
    assert last["total"] == 2 * len(LARGE) - 1
    second, first = sorted(rows(last), key=lambda row: int(str(row["done"])))
    assert (first["state"], first["from"]) == ("fetching", "hub")
    assert (second["done"], second["state"]) == (1000, "waiting")
    assert {row["path"]: row["size"] for row in (first, second)} == {one.path: one.size for one in wanted}
    assert int(str(last["done"])) == int(str(first["done"])) + 1000
    assert host.leftover_paths() == []


def rows(document: dict[str, object]) -> list[dict[str, object]]:
    listed = document["files"]
    assert isinstance(listed, list)
    return listed


def test_the_program_needs_nothing_but_python(host: WeightsFixture) -> None:
    """The oldest Python that a host may have runs it, with no package at all: none of its modules imports one."""
    wanted = host.commit_files({"x.gguf": CONTENT})
    command = [*host.fetch_command(wanted)]
    assert command[1] == "-S"  # leaves out all packages
    listed = subprocess.run(
        [sys.executable, "-S", "-c", "import rigwright_weights.fetch, sys; print(*sys.modules)"],
        env={"PYTHONPATH": str(host.folder / "packages"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    outside = {name.partition(".")[0] for name in listed} - set(sys.stdlib_module_names) - {"rigwright_weights"}
    assert {name for name in outside if not name.startswith("_")} == set()
