"""A host as a deploy of a rig leaves it, below a folder: for the check that a box makes of itself."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rigwright.host.generation_layout import file_mode
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.monitoring_schema import Monitoring
from rigwright.monitoring import self_check
from rigwright.monitoring.monitoring_units import monitoring_services
from rigwright.monitoring.self_check_history import SelfCheckEvent, parse_event
from rigwright.plan.plan_inputs import TargetState, build_target_state
from rigwright.plan.self_check_declaration import render_self_check
from rigwright.weights.verification import recorded_file, records_folder, render_rehash_units
from roles.self_check.host import run
from tests.unit.samples import sample_card, sample_facts, sample_instance, sample_rig

CHAT = "rigwright-chat.service"
UNITS = "etc/systemd/system"
STATE = "var/lib/rigwright/self_check"
LEASE = "run/rigwright/locks/lease"
HEALTHY = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "DropInPaths": "",
    "NeedDaemonReload": "no",
    "Result": "success",
}
RIG = sample_rig(sample_instance(cards=(0,)), cards=(sample_card("8.6"),), monitoring=Monitoring(address="10.0.0.5"))
WANTED: TargetState = build_target_state(RIG, sample_facts())
PACKAGES = sorted(json.loads(render_self_check(RIG, "debian-12")[self_check.declaration_path(RIG.roots)])["packages"])


class DeployedFolder:
    """A host as a deploy of RIG leaves it, below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        generation = WANTED.generation
        folder = root / "etc/rigwright/generations/1"
        for path, text in generation.files.items():
            self.write(f"etc/rigwright/generations/1/{path}", text, int(file_mode(text), 8))
        for path, target in generation.links.items():
            self.link(f"etc/rigwright/generations/1/{path}", target)
        self.write("etc/rigwright/generations/1/meta", f"{generation.digest} 2026-11-01\n")
        self.link("etc/rigwright/current", "generations/1")
        for name in sorted(path.name for path in (folder / "units").iterdir()):
            self.link(f"{UNITS}/{name}", f"/etc/rigwright/current/units/{name}")
        declared = render_self_check(RIG, "debian-12")
        for path, text in (declared | render_rehash_units(RIG.roots) | _other_files()).items():
            self.write(path[1:], text)
        self.declared = json.loads(declared[self_check.declaration_path(RIG.roots)])
        for one in self.declared["units"]:
            for target in one["wanted_by"]:
                self.link(f"{UNITS}/{target}.wants/{one['unit']}", f"../{one['unit']}")
        self.link(f"{UNITS}/multi-user.target.wants/rigwright.target", "../rigwright.target")
        for unit_state in generation.unit_states:
            self.write(f"run/rigwright/{unit_state.unit}", f"{unit_state.started_from}\n")
        self.weight = recorded_file(RIG.roots, RIG.instances[0].weights[0])
        self.write(self.weight.absolute[1:], "weights")
        self.record_weight()
        self.packages(dict.fromkeys(PACKAGES, ("install", "installed", "1")))
        self.write("proc/1/mountinfo", "1 0 0:1 / / rw - ext4 /dev/x rw\n")
        self.write("proc/locks", "")
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module  580.95  Release\n")
        self.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "x")
        self.write("etc/rigwright/driver.json", json.dumps({"version": "580.95"}))
        ports = {one["port"] for one in json.loads(generation.files["manifest.json"])["listeners"]} | {9100, 9400}
        rows = "".join(f" 0: 0100007F:{port:04X} 00000000:0000 0A 0:0\n" for port in sorted(ports))
        self.write("proc/1/net/tcp", f"sl local remote st\n{rows}")
        (root / STATE).mkdir(parents=True)
        (root / "var/lib/rigwright/metrics").mkdir()
        (root / "opt/rigwright").mkdir(parents=True)
        self.shown: dict[str, dict[str, str]] = {}

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        there = self.root / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)
        there.chmod(mode)

    def append(self, path: str, text: str = "\n# x\n") -> None:
        with (self.root / path).open("a") as file:
            file.write(text)

    def link(self, path: str, target: str) -> None:
        there = self.root / path
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(target)

    def packages(self, rows: dict[str, tuple[str, str, str]]) -> None:
        blocks = (
            f"Package: {name}\nStatus: {want} ok {state}\nVersion: {version}\n"
            for name, (want, state, version) in rows.items()
        )
        self.write("var/lib/dpkg/status", "\n".join(blocks))

    def record_weight(self) -> None:
        found = (self.root / self.weight.absolute[1:]).stat()
        time = f"{found.st_mtime_ns // 10**9}.{found.st_mtime_ns % 10**9:09}"
        line = f"{found.st_size} {time} {time} {found.st_ino} {self.weight.absolute}"
        self.write(f"{records_folder(RIG.roots)[1:]}/{self.weight.record}", f"{line}\n")

    def show(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Units in systemd's words: all is well but what a test has changed."""
        idle = {"rw-job-activate.service": {"ActiveState": "inactive"}}
        found = {}
        for name in names:
            path = {"FragmentPath": f"/{UNITS}/{name}"}
            found[name] = HEALTHY | path | idle.get(name, {}) | self.shown.get(name, {})
        return found

    def change(self, unit: str, **properties: str) -> None:
        self.shown[unit] = {**self.shown.get(unit, {}), **properties}

    def failing(self) -> set[str]:
        """Checks that do not hold, of one run."""
        self.run()
        return {one["check"] for one in self.state["failing"]}

    def run(self, sleep: Callable[[float], None] = lambda seconds: None) -> None:
        assert run.main([self_check.declaration_path(RIG.roots)], str(self.root), sleep) == 0

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / STATE / "state.json").read_text())
        return found

    @property
    def history(self) -> list[SelfCheckEvent]:
        return [parse_event(line) for line in (self.root / STATE / "history.jsonl").read_text().splitlines()]


def _other_files() -> dict[str, str]:
    services = monitoring_services(RIG)
    files = {f"{UNIT_FOLDER}/{one.unit_name}": one.unit for one in services}
    return files | {path: text for one in services for path, text in one.files.items()}


TOOL = "usr/bin/tool"


def write_below_file_system(host: DeployedFolder, kind: str = "sha256") -> None:
    """Leave a file as a raw write does: other bytes than were read before, behind the same inode, size and times."""
    host.write(TOOL, "later bytes\n")
    there = (host.root / TOOL).stat()
    identity = [there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns]
    before = b"other bytes\n"
    sha256, md5 = hashlib.sha256(before).hexdigest(), hashlib.md5(before, usedforsecurity=False).hexdigest()
    files = {f"/{TOOL}": [*identity, md5, sha256]} if kind == "sha256" else {}
    listed = {"owners": {f"/{TOOL}": "tool"}, "moments": {"tool": there.st_ctime + 1}}
    cache = {"format": 1, "files": files, "memory": {"dpkg": listed}}
    host.write(f"{STATE}/fingerprint_cache.json", json.dumps(cache))
    host.write(f"{STATE}/fingerprint_packages.json", json.dumps({"owners": {f"/{TOOL}": ["tool", "1", md5, 0.0]}}))
    declaration = host.root / "etc/rigwright/self_check/declaration.json"
    os.utime(declaration, (1, 1))
