"""Bringing weights is ended in the middle, and goes on; two at once; how far it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hub.faults import Stall
from tests.unit.file_server import whole
from tests.unit.weights_world import CONTENT, REPOSITORY, World, client_python, file, until, world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")

LARGE = CONTENT * 10
STALLED = 1_200_000


@pytest.fixture
def host(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


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
def test_what_was_fetched_before_a_kill_is_not_fetched_again(host: World, client: bool, how: signal.Signals) -> None:
    host.python = client_python() if client else ""
    (one, small) = wanted = host.commit({"x.gguf": LARGE, "config.json": b"{}"})
    stall = host.hub.fault(Stall(STALLED), REPOSITORY, "x.gguf", times=1)
    with host.start(wanted) as process:
        until(stall.met.is_set)
        until(lambda: host.part(one).exists() and host.part(one).stat().st_size > STALLED // 2)
        until(lambda: host.there(small))
        below = children(process.pid)
        assert below
        process.send_signal(how)
        process.wait(timeout=10)
    # nobody goes on writing into what the next run reads
    until(lambda: not any(alive(child) for child in below))
    had = host.part(one).stat().st_size
    assert not host.there(one)
    host.hub.asked.clear()
    done = host.bring(wanted)
    assert done.returncode == 0, done.stdout
    assert host.asked() == [f"x.gguf bytes={had}-"]
    assert host.there(one)
    assert host.left_over() == []


def test_a_kill_between_two_steps_of_naming_costs_a_hash_at_most(host: World) -> None:
    url = host.server.serve("m", whole(CONTENT))
    assert host.run(url).returncode == 0
    host.server.asked.clear()
    for record in host.records.glob("*-*"):
        record.unlink()
    assert host.run(url).returncode == 0
    assert host.there(file())
    host.path().rename(host.part())
    assert host.run(url).returncode == 0
    assert host.there(file())
    assert host.server.asked == []


def test_two_at_once_fetch_everything_once(host: World) -> None:
    wanted = host.commit({"x.gguf": LARGE, "config.json": b"{}"})
    host.hub.bytes_a_second = len(LARGE)
    processes = [host.start(wanted), host.start(wanted)]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum("waiting for another run" in text for text in said) == 1
    assert sorted(host.asked()) == ["config.json None", "x.gguf None"]


def test_how_far_it_is_stands_beside_the_models_while_it_lasts(host: World) -> None:
    host.settings["parallel"] = 1
    wanted = host.commit({"x.gguf": LARGE, "y.gguf": LARGE[1:]})
    for one, content in zip(wanted, (LARGE, LARGE[1:]), strict=True):  # which comes first is nobody's promise
        host.hub.fault(Stall(STALLED), REPOSITORY, one.path.rpartition("/")[2], times=1)
        host.place(host.part(one), content[:1000])
    shown: list[dict[str, object]] = []

    def moved() -> bool:
        path = host.root / ".progress.json"
        if path.exists():
            shown.append(json.loads(path.read_text()))
        return bool(shown) and any(int(str(row["done"])) > STALLED // 2 for row in rows(shown[-1]))

    with host.start(wanted) as process:
        until(moved)
        host.hub.heal()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    last = shown[-1]
    assert last["total"] == 2 * len(LARGE) - 1
    second, first = sorted(rows(last), key=lambda row: int(str(row["done"])))
    assert (first["state"], first["from"]) == ("fetching", "hub")
    assert (second["done"], second["state"]) == (1000, "waiting")
    assert {row["path"]: row["size"] for row in (first, second)} == {one.path: one.size for one in wanted}
    assert int(str(last["done"])) == int(str(first["done"])) + 1000
    assert host.left_over() == []


def rows(document: dict[str, object]) -> list[dict[str, object]]:
    listed = document["files"]
    assert isinstance(listed, list)
    return listed


def test_the_program_needs_nothing_but_python(host: World) -> None:
    """The oldest Python that a host may have runs it, with no package at all: none of its modules imports one."""
    wanted = host.commit({"x.gguf": CONTENT})
    command = [*host.command(wanted)]
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
