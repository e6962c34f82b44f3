"""Kills processes of a box with two models on demand, each at a step of an exchange, as soon as that step is reached.

Python's own library only, for it runs on the host: `python3 -I kill_at_step.py LIMIT_S STEP:PROCESS...`. One model
arrives and the other one leaves; the process `none` is left out, so that the step alone is awaited. Prints a line of
JSON for each case, and a last one with the most engines that ran at the same time. Ends with status 1 where a step is
not reached within the limit, or a part does not come back. In place of a process, the stand-in card may have a fault.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

LEDGER = Path("/var/lib/rigwright/residency/ledger.json")
ADMIN = "/run/rigwright_gateway/admin.sock"
LINKS, SOCKETS = Path("/run/rigwright/gateway"), Path("/run/rigwright/instances")
GROUPS = Path("/sys/fs/cgroup")
RESIDENCY, ROUTER, GATEWAY = "rigwright_residency.service", "rigwright_router.service", "rigwright_gateway.service"
ENGINE = "llama-server"
SMI = "nvidia-smi"
# as benchmarks/stand_in_card.py has them
FAULT, FAULTS = "/run/rigwright/residency/fault", ("hang", "status", "rubbish", "half")
POLL_S = 0.001
NONE = "none"


def processes(folder: Path) -> list[int]:
    """The processes of a control group; empty if it is gone."""
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def command(pid: int) -> str:
    """The name of a process; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    """The parent of a process; 0 for one that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def group_of(unit: str) -> Path:
    """The folder of a unit's control group, whether it runs or not."""
    words = ["systemctl", "show", "--property=Slice", "--value", unit]
    name = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    # a-b.slice is below a.slice
    parts = name.removesuffix(".slice").split("-")
    return GROUPS.joinpath(*("-".join(parts[: end + 1]) + ".slice" for end in range(len(parts))), unit)


class Box:
    """The box at this moment."""

    def __init__(self) -> None:
        self.names = sorted(json.loads(LEDGER.read_text())["instances"])
        self.groups = {name: group_of(f"rigwright-{name}.service") for name in self.names}
        self.services = {unit: group_of(unit) for unit in (RESIDENCY, ROUTER, GATEWAY)}
        self.most = 0
        self.phases: dict[str, str] = {}
        self.engines: dict[str, list[int]] = {}

    def look(self) -> None:
        """Look at the ledger and at the engines."""
        rows = json.loads(LEDGER.read_text())["instances"]
        self.phases = {name: str(row["phase"]) for name, row in rows.items()}
        self.engines = {
            name: [pid for pid in processes(group) if command(pid) == ENGINE] for name, group in self.groups.items()
        }
        self.most = max(self.most, sum(bool(pids) for pids in self.engines.values()))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each pair of a model that arrives and one that leaves."""
        first, second = self.names
        yield first, second
        yield second, first

    def main(self, unit: str) -> list[int]:
        """The main process of a unit."""
        return [pid for pid in processes(self.services[unit]) if parent(pid) == 1]

    def workers(self) -> list[int]:
        """The workers of nginx."""
        masters = self.main(GATEWAY)
        return [pid for pid in processes(self.services[GATEWAY]) if parent(pid) in masters]

    def victims(self, process: str, arriving: str, leaving: str) -> list[int]:
        """The processes of a case."""
        if process == "worker":
            return self.workers()
        if process == SMI:
            return [pid for pid in processes(self.services[RESIDENCY]) if command(pid) == SMI]
        if process == "recorder":
            return [pid for group in (GROUPS / "system.slice").glob("rigwright_memory-*") for pid in processes(group)]
        if process in ("starting", "leaving"):
            return self.engines[arriving if process == "starting" else leaving]
        return self.main({"residency": RESIDENCY, "router": ROUTER, "nginx": GATEWAY}[process])

    def is_whole(self) -> bool:
        """Whether all parts run, and each fault of the card has been met."""
        is_faulty = any(Path(FAULT).parent.glob("fault.*"))
        return bool(self.main(RESIDENCY) and self.main(ROUTER) and self.workers() and gateway_state()) and not is_faulty


def gateway_state() -> dict[str, dict[str, int]]:
    """Instance -> the gateway's counts; empty while it does not answer."""
    link = http.client.HTTPConnection("localhost", timeout=2)
    link.sock = socket.socket(socket.AF_UNIX)
    try:
        link.sock.settimeout(2)
        link.sock.connect(ADMIN)
        link.request("GET", "/state", headers={"Connection": "close"})
        return dict(json.loads(link.getresponse().read())["instances"])
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return {}
    finally:
        link.close()


def is_waiting(box: Box, arriving: str, leaving: str) -> bool:
    """Clients wait for one that sleeps, while the other one serves."""
    if (box.phases[arriving], box.phases[leaving]) != ("asleep", "awake") or not box.engines[leaving]:
        return False
    return bool(gateway_state().get(arriving, {}).get("waiting"))


def is_starting(box: Box, arriving: str, leaving: str) -> bool:
    """The engine's process runs, and does not listen."""
    del leaving
    there = bool(box.engines[arriving]) and box.phases[arriving] == "starting"
    return there and not (SOCKETS / arriving / "api.sock").exists()


def is_loading(box: Box, arriving: str, leaving: str) -> bool:
    """The engine listens, and has not answered its readiness request."""
    del leaving
    there = bool(box.engines[arriving]) and box.phases[arriving] == "starting"
    return there and (SOCKETS / arriving / "api.sock").exists() and not (LINKS / arriving).exists()


def is_answered(box: Box, arriving: str, leaving: str) -> bool:
    """The engine has its link, and systemd or the ledger does not know yet that the start has ended."""
    del leaving
    if not box.engines[arriving] or not (LINKS / arriving).exists():
        return False
    return box.phases[arriving] == "starting" or "ready" in map(command, processes(box.groups[arriving]))


STEPS: dict[str, Callable[[Box, str, str], bool]] = {
    "waiting": is_waiting,
    "announced": lambda box, _, leaving: box.phases[leaving] == "leaving" and bool(box.engines[leaving]),
    "stopping": lambda box, _, leaving: box.phases[leaving] == "stopping" and bool(box.engines[leaving]),
    "stopped": lambda box, _, leaving: box.phases[leaving] == "stopping" and not box.engines[leaving],
    "ordered": lambda box, arriving, _: box.phases[arriving] == "starting" and not box.engines[arriving],
    "starting": is_starting,
    "loading": is_loading,
    "answered": is_answered,
}


def run_case(box: Box, step: str, process: str, limit: float) -> tuple[dict[str, object], list[int]] | None:
    """Await a step, and kill; the row of the case and the killed, or None for one that is not reached."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        box.look()
        for arriving, leaving in box.pairs():
            if not STEPS[step](box, arriving, leaving):
                continue
            pids = box.victims(process, arriving, leaving) if process not in (NONE, *FAULTS) else []
            if pids or process in (NONE, *FAULTS):
                began = time.monotonic()
                if process in FAULTS:
                    # both queries of a sample
                    for number in range(2):
                        Path(f"{FAULT}.{process}.{number}").touch()
                for pid in pids:
                    # one of two workers may have ended by itself
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                row = {"step": step, "process": process, "at": began, "phases": box.phases}
                return {**row, "arriving": arriving, "leaving": leaving}, pids
        time.sleep(POLL_S)
    return None


def is_back(box: Box, killed: list[int], limit: float) -> bool:
    """Whether all parts run again before the limit, without the killed processes."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        box.look()
        # a process that was killed is still listed for a moment
        if not any(Path(f"/proc/{pid}").exists() for pid in killed) and box.is_whole():
            return True
        time.sleep(POLL_S)
    return False


def main() -> int:
    """Run all cases."""
    limit, box = float(sys.argv[1]), Box()
    for case in sys.argv[2:]:
        step, _, process = case.partition(":")
        row, killed = run_case(box, step, process, limit) or ({}, [])
        problem = "" if row and is_back(box, killed, limit) else f"not reached, or not back: {box.phases}"
        shown = {"step": step, "process": process, **row, "back": time.monotonic(), "problem": problem}
        print(json.dumps(shown), flush=True)
        if problem:
            return 1
    print(json.dumps({"most": box.most}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
