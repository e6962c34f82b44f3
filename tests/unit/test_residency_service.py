"""The residency service as a process: its socket, its ledger on disk, and kills at each moment of a wake."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import TextIO

import pytest

from rigwright.gateway.secrets_distribution import RESIDENCY
from rigwright.project_root import ROOT
from rigwright.serving.residency import load_residency_modules
from tests.unit.polling import wait_until
from tests.unit.text_handler import TextHandler

MIB = 1 << 20
NAMES = ("one", "two")
HANDED = (
    "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); fd = int(sys.argv[1]);"
    "os.dup2(fd, 3); os.set_inheritable(3, True); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


class AdminServer(ThreadingUnixStreamServer):
    """Stand-in for the gateway's admin socket."""

    counts: dict[str, int]
    words: list[tuple[str, str]]


class AdminHandler(TextHandler):
    """Its requests."""

    server: AdminServer

    def do_GET(self) -> None:
        """`/state`."""
        rows = {name: {"under_way": count, "progress": 0} for name, count in self.server.counts.items()}
        self.send_text(200, json.dumps({"instances": rows}))

    def do_POST(self) -> None:
        """`/leave/NAME`, `/cut/NAME` and `/stay/NAME`."""
        _, verb, name = self.path.split("/")
        self.server.words.append((verb, name))
        self.send_text(200, f"{self.server.counts[name]}\n")


@dataclass
class ResidencyBox:
    """The service, its units and its gateway, in a folder."""

    folder: Path
    listener: socket.socket
    admin: AdminServer
    environment: dict[str, str]
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        words = [sys.executable, "-c", HANDED, str(self.listener.fileno()), "-I", "-S", "-B"]
        self.process = subprocess.Popen(
            [*words, str(self.folder / "program"), str(self.folder / "residency.json")],
            env={**os.environ, **self.environment, "LISTEN_FDS": "1"},
            pass_fds=[self.listener.fileno()],
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @contextmanager
    def request(self, line: str) -> Iterator[TextIO]:
        """The lines of one request, as they come."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(30.0)
            link.connect(str(self.folder / "wake.sock"))
            link.sendall(f"{line}\n".encode())
            yield link.makefile("r", encoding="ascii")

    def ask(self, line: str) -> list[str]:
        """All lines of one request; empty if the service ended."""
        with suppress(OSError), self.request(line) as lines:
            return lines.read().splitlines()
        return []

    def wake(self, name: str, evict: int = 1) -> str:
        """The last line of a wake; comes again as nginx does, until there is one."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            lines = self.ask(f"wake {name} lan - {evict}")
            if lines and not lines[-1].startswith("waiting"):
                return lines[-1]
        raise AssertionError(f"no answer about {name}")

    def unit_state(self, name: str) -> str:
        words = [str(self.folder / "bin/systemctl"), "show", f"rigwright-{name}.service"]
        text = subprocess.run(words, env={**os.environ, **self.environment}, capture_output=True, text=True, check=True)
        return next(line.partition("=")[2] for line in text.stdout.splitlines() if line.startswith("ActiveState"))

    def orders(self) -> list[str]:
        path = self.folder / "units/.log"
        return path.read_text().splitlines() if path.exists() else []

    def ledger(self) -> dict[str, str]:
        """Phases on disk; clients are answered a moment before the file is written."""

        def read() -> dict[str, str]:
            rows = json.loads((self.folder / "ledger.json").read_text())["instances"]
            return {name: row["phase"] for name, row in rows.items()}

        wait_until(lambda: "starting" not in read().values())
        return read()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[ResidencyBox]:
    """Two instances that do not fit together."""
    for path, text in load_residency_modules().items():
        (tmp_path / "program" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "program" / path).write_text(text)
    for name in ("bin", "units", "records", "stopped", "links"):
        (tmp_path / name).mkdir()
    stand_in = tmp_path / "bin/systemctl"
    stand_in.write_text(f"#!{sys.executable}\n" + (ROOT / "tests/stand_ins/residency_systemctl.py").read_text())
    stand_in.chmod(0o755)
    instance = {"idle": 0, "priority": 0, "keep_warm": False, "residence": 0, "floor": {"host": 60 * MIB}}
    instance["memory_max"] = "90%"
    config = {
        **{name: str(tmp_path / name) for name in ("states", "records", "stopped", "links", "activating")},
        "socket": str(tmp_path / "wake.sock"),
        "admin": str(tmp_path / "admin.sock"),
        "folder": str(tmp_path),
        "job": "rw-job-activate.service",
        "metrics": str(tmp_path / "residency.prom"),
        "drain": 1,
        "host_memory": "100M",
        "instances": {
            name: {**instance, "unit": f"rigwright-{name}.service", "fingerprint": f"print of {name}"} for name in NAMES
        },
    }
    (tmp_path / "residency.json").write_text(json.dumps(config))
    admin = AdminServer(str(tmp_path / "admin.sock"), AdminHandler)
    admin.counts, admin.words = dict.fromkeys(NAMES, 0), []
    threading.Thread(target=admin.serve_forever, daemon=True).start()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "wake.sock"))
        listener.listen(64)
        environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "STAND_IN_UNITS": str(tmp_path / "units")}
        made = ResidencyBox(tmp_path, listener, admin, environment)
        made.start()
        yield made
        made.kill()
    admin.shutdown()
    admin.server_close()


def test_a_client_waits_and_is_sent_to_its_instance(box: ResidencyBox) -> None:
    lines = box.ask("wake one lan 0123456789abcdef 1")
    assert lines[0] == "waiting 1 -"
    assert lines[-1] == "ready"
    assert box.unit_state("one") == "active"
    assert box.ledger() == {"one": "awake", "two": "asleep"}
    assert 'rigwright_residency_awake{instance="one"} 1' in (box.folder / "residency.prom").read_text()


def test_a_client_goes_on_with_the_link_and_does_not_wait_for_systemd(box: ResidencyBox) -> None:
    box.kill()
    box.environment["STAND_IN_SECONDS"] = "60"
    box.start()
    with box.request("wake one lan - 1 0") as lines:
        assert lines.readline() == "waiting 1 -\n"
        (box.folder / "links/one").symlink_to(box.folder)
        assert lines.read() == "ready\n"
    assert box.unit_state("one") == "activating"
    # neither do those that come while the unit has still to do
    assert box.wake("one") == "ready"
    assert box.ledger()["one"] == "awake"


def test_two_that_do_not_fit_take_turns(box: ResidencyBox) -> None:
    for name in (*NAMES, *NAMES):
        assert box.wake(name) == "ready"
    # each of two is stopped before the other starts
    turn = [f"{verb} rigwright-{name}.service" for name in NAMES for verb in ("start", "stop")]
    assert [one for one, _ in groupby(box.orders())] == (turn * 2)[:-1]


def test_requests_under_way_keep_an_instance(box: ResidencyBox) -> None:
    assert box.wake("one") == "ready"
    box.admin.counts["one"] = 1
    with ThreadPoolExecutor() as pool:
        found = pool.submit(box.wake, "two")
        wait_until(lambda: ("leave", "one") in box.admin.words)
        assert (box.unit_state("one"), found.done()) == ("active", False)
        box.admin.counts["one"] = 0
        assert found.result(30) == "ready"


@pytest.mark.parametrize(
    "line",
    [
        *("wake none lan - 1", "wake one lan - 2", "wake one lan - 1 12345678", "wake one lan - 1 -5"),
        *("wake one lan - 1 5 5", "wake ../one lan - 1", "x" * 600),
    ],
)
def test_other_lines_are_refused(box: ResidencyBox, line: str) -> None:
    assert box.ask(line) in (["refused forbidden 60 it is no instance on demand"], [])


def test_a_start_that_fails_gives_the_reason(box: ResidencyBox) -> None:
    (box.folder / "units/rigwright-one.service.broken").touch()
    assert box.wake("one") == "refused failed 5 its engine ended with status 1"
    assert box.wake("two") == "ready"
    assert box.wake("one").startswith("refused failed ")
    states = box.folder / "states"
    assert states.read_text() == "one failed 0\n"
    # a new process knows it as well, and needs no request for that
    box.kill()
    states.unlink()
    (box.folder / "stopped/two").touch()
    box.start()
    assert box.wake("two") == "ready", "it is loaded still"
    assert re.fullmatch("one failed [01]\ntwo stopped 0\n", states.read_text())


def rewrite(box: ResidencyBox, file: str, text: str, other: str) -> None:
    """Replace a text of a file that the service reads, and start the service again."""
    box.kill()
    path = box.folder / file
    path.write_text(path.read_text().replace(text, other))
    box.start()


def write_starts(box: ResidencyBox, name: str, *peaks: int) -> None:
    """Records of starts with these peaks, MiB, the latest first; then another form and damage."""
    last, *earlier = ({"fingerprint": f"print of {name}", "seconds": 7.4, "host": {"peak": one * MIB}} for one in peaks)
    other = {"fingerprint": "print of another form", "host": {"peak": 50 * MIB}}
    damaged = {"fingerprint": f"print of {name}", "host": [{"peak": "much"}], "cards": 3}
    history = [*earlier, other, damaged, 7]
    (box.folder / f"records/{name}.json").write_text(json.dumps({**last, "history": history}))


BOTH = {"one": "awake", "two": "awake"}


@pytest.mark.parametrize(
    ("limit", "peaks", "phases"),
    [
        # 30 and 8 MiB, each with its margin of 32, are more than 100
        pytest.param("90%", {"one": (5, 30, 5), "two": (8,)}, {**BOTH, "one": "asleep"}, id="an end at once"),
        pytest.param("90%", {"one": (125, 8)}, {**BOTH, "two": "asleep"}, id="a peak beyond the device"),
        pytest.param("40M", {"one": (60,), "two": (60,)}, BOTH, id="the unit's limit"),
        pytest.param("90%", {"one": (8,), "two": (8,)}, BOTH, id="less than the computed need"),
    ],
)
def test_the_need_of_an_instance_is_its_largest_possible_peak(
    box: ResidencyBox, limit: str, peaks: dict[str, tuple[int, ...]], phases: dict[str, str]
) -> None:
    rewrite(box, "residency.json", '"90%"', f'"{limit}"')
    for name, starts in peaks.items():
        write_starts(box, name, *starts)
        assert box.wake(name) == "ready"
    assert box.ledger() == phases


def test_a_client_learns_how_long_a_start_took(box: ResidencyBox) -> None:
    write_starts(box, "one", 8)
    assert box.ask("wake one lan - 1")[0] == "waiting 1 8"


def test_clients_wait_while_an_activation_is_under_way(box: ResidencyBox) -> None:
    (box.folder / "activating").touch()
    assert box.wake("one") == "ready", "no job is at work"
    (box.folder / "units/rigwright-one.service").write_text("inactive 0")
    (box.folder / "units/rw-job-activate.service").write_text("active 0")
    with box.request("wake one lan - 1") as lines:
        assert lines.readline().startswith("waiting 1 ")
        if os.geteuid() == 0:
            assert box.ask("prove two")[-1] == "ready"
        assert box.unit_state("one") == "inactive"
        (box.folder / "activating").unlink()
        assert [line for line in lines if not line.startswith("waiting")] == ["ready\n"]


@pytest.mark.parametrize("after", [number / 20 for number in range(16)])
def test_a_kill_at_any_moment_of_an_exchange_loses_no_request(box: ResidencyBox, after: float) -> None:
    assert box.wake("one") == "ready"
    with ThreadPoolExecutor() as pool:
        found = pool.submit(box.wake, "two")
        threading.Event().wait(after)  # the moment is the parameter
        box.kill()
        box.start()
        assert found.result(30) == "ready"
    assert (box.unit_state("one"), box.unit_state("two")) == ("inactive", "active")
    assert not (box.folder / ".ledger.json").exists()


def test_requests_that_come_again_after_a_restart_keep_their_places(box: ResidencyBox) -> None:
    """The older one is first, though the younger one is back before it."""
    # the service has no time to decide between the two
    box.process.send_signal(signal.SIGSTOP)
    with box.request("wake one lan - 1 2000") as second, box.request("wake two lan - 1 90000") as first:
        box.process.send_signal(signal.SIGCONT)
        assert (first.readline(), second.readline()) == ("waiting 1 -\n", "waiting 2 -\n")
        assert first.read() == "ready\n"
    assert box.orders()[0] == "start rigwright-two.service"


def test_a_ledger_that_is_cut_off_is_made_anew(box: ResidencyBox) -> None:
    assert box.wake("one") == "ready"
    assert box.ledger()["one"] == "awake"
    text = (box.folder / "ledger.json").read_text()
    rewrite(box, "ledger.json", text, text[:40])
    assert box.wake("two") == "ready"
    assert box.unit_state("one") == "inactive", "systemd told what was loaded"


def declare_cards(box: ResidencyBox, smi: str, **floors: dict[str, int]) -> None:
    """Have a stand-in for nvidia-smi tell of a card, and instances need it."""
    box.kill()
    path = box.folder / "smi"
    path.write_text(f"#!/bin/sh\n{smi}\ncase $1 in *gpu=*) echo '0, GPU-12345678, 100, 24000' ;; esac\n")
    path.chmod(0o755)
    program = box.folder / f"program/{RESIDENCY}/observation.py"
    program.write_text(program.read_text().replace('"/usr/bin/nvidia-smi"', repr(str(path))))
    config = json.loads((box.folder / "residency.json").read_text())
    for name, floor in floors.items():
        config["instances"][name]["floor"] = floor
    (box.folder / "residency.json").write_text(json.dumps(config))
    box.start()


ONE_CARD, ONE_HOST = {"0": 20 << 30}, {"host": MIB}


@pytest.mark.parametrize("hang", ["exec sleep 100", "trap '' TERM; sleep 100"])
def test_a_hung_nvidia_smi_holds_up_no_instance_without_cards(box: ResidencyBox, hang: str) -> None:
    declare_cards(box, hang, one=ONE_CARD, two=ONE_HOST)
    with box.request("wake one lan - 1") as lines:
        assert lines.readline() == "waiting 1 -\n"
        began = time.monotonic()
        assert box.wake("two") == "ready"
        assert time.monotonic() - began < 10


def test_a_slow_nvidia_smi_lets_no_announcement_expire(box: ResidencyBox) -> None:
    declare_cards(box, f"[ ! -e {box.folder}/slow ] || sleep 6", one=ONE_CARD, two=ONE_CARD)
    assert box.wake("one") == "ready"
    box.admin.counts["one"] = 1
    (box.folder / "slow").touch()
    with box.request("wake two lan - 1"):
        words, last, longest = box.admin.words, 0.0, 0.0
        until = time.monotonic() + 40
        # the gateway forgets an announcement after 10 s
        while time.monotonic() < until and not (last and time.monotonic() - until > -12):
            if ("leave", "one") in words:
                words.clear()
                longest = max(longest, time.monotonic() - last if last else 0.0)
                last = time.monotonic()
            threading.Event().wait(0.05)
        assert last and max(longest, time.monotonic() - last) < 5


def test_a_ledger_that_cannot_be_written_stops_no_client(box: ResidencyBox) -> None:
    assert box.wake("one") == "ready"
    assert box.ledger()["one"] == "awake"
    (box.folder / ".ledger.json").mkdir()  # as a full disk
    assert box.ask("wake two lan - 1")[-1:] == ["ready"]
    assert (box.unit_state("one"), box.unit_state("two")) == ("inactive", "active")
    (box.folder / ".ledger.json").rmdir()
    assert box.wake("one") == "ready"
    assert box.ledger() == {"one": "awake", "two": "asleep"}


def test_an_order_to_stop_that_was_lost_ends_no_request(box: ResidencyBox) -> None:
    assert box.wake("one") == "ready"
    assert box.ledger()["one"] == "awake"
    box.admin.counts["one"] = 3
    rewrite(box, "ledger.json", '"awake"', '"stopping"')
    with ThreadPoolExecutor() as pool:
        found = pool.submit(box.wake, "two")
        assert not wait([found], 3).done
        assert "stop rigwright-one.service" not in box.orders()
        box.admin.counts["one"] = 0
        assert found.result(30) == "ready"
