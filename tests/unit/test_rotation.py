"""The service that keeps instances out of the gateway's rotation: conditions, reasons, and the gate of the return."""

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from rigwright.gateway.rotation import ROTATION_FOLDER, ROTATION_SERVICE, ROTATION_TIMER
from rigwright.inventory import load_rig
from rigwright.model.gateway_schema import ROTATION_CHECKS
from rigwright.monitoring import self_check
from rigwright.nvidia.cards.xids import RECOVERED, UNUSABLE_XIDS, XID
from rigwright.plan.self_check_declaration import render_self_check
from rigwright.project_root import ROOT
from roles.gateway.host.rotation import run
from roles.gateway.host.rotation.card_faults import CardConditions
from roles.gateway.host.rotation.run import RotationWatch
from tests.unit.nginx_lua import NginxLua
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.text_handler import TextHandler

FIRST, SECOND = "0000:01:00", "0000:02:00"
FELL = f"NVRM: Xid (PCI:{SECOND}): 79, pid=1, name=python3, GPU has fallen off the bus."
BACK = f"NVRM: Xid (PCI:{SECOND}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
DECLARED: dict[str, Any] = {
    "folder": ROTATION_FOLDER,
    "config": "/etc/rigwright",
    "checks": ["W", "U02"],
    "result": "/var/lib/rigwright/self_check/state.json",
    "disks": {"/var/lib/rigwright": 0},
    "metrics": "/var/lib/rigwright/metrics/rotation.prom",
    "xids": {str(code): text for code, text in UNUSABLE_XIDS.items()},
    "xid": XID.pattern,
    "recovered": RECOVERED.pattern,
}


class BoxFolder:
    """A box with two cards and an instance on each, below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("run/rigwright/rotation", "var/lib/rigwright/metrics", "sys/bus/pci/devices"):
            (root / name).mkdir(parents=True)
        self.declare()
        for slot in (FIRST, SECOND):
            self.plug(slot)
        instances = {
            name: {"cards": [number], "weights": [f"/srv/models/{name}.gguf"]}
            for number, name in enumerate(("chat", "code"))
        }
        self.write("etc/rigwright/current/manifest.json", json.dumps({"cards": ["a", "b"], "instances": instances}))
        self.judge()
        self.again()

    def again(self) -> None:
        """Another run."""
        self.watch = RotationWatch("/declaration.json", str(self.root))

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def declare(self, **changes: object) -> None:
        self.write("declaration.json", json.dumps({"rotation": DECLARED | changes}))

    def plug(self, slot: str) -> None:
        self.write(f"sys/bus/pci/devices/{slot}.0/vendor", "0x10de\n")
        self.write(f"sys/bus/pci/devices/{slot}.0/class", "0x030000\n")

    def unplug(self, slot: str) -> None:
        shutil.rmtree(self.root / f"sys/bus/pci/devices/{slot}.0")

    def judge(self, *failing: tuple[str, str]) -> None:
        """A run of the box's check of itself; check and part of what fails."""
        rows = [{"check": check, "part": part, "text": "x", "since": 5.0} for check, part in failing]
        self.write(DECLARED["result"][1:], json.dumps({"judged": time.time(), "failing": rows}))

    def out(self) -> dict[str, list[str]]:
        """File -> its reasons."""
        self.watch.result = run.read_json(f"{self.root}{DECLARED['result']}")
        self.watch.declared = json.loads((self.root / "declaration.json").read_text())["rotation"]
        self.watch.look()
        folder = self.root / ROTATION_FOLDER[1:]
        return {
            one.name: [row["reason"] for row in json.loads(one.read_text())["reasons"]]
            for one in sorted(folder.iterdir())
            if not one.name.startswith(".")
        }

    @property
    def metrics(self) -> str:
        return (self.root / DECLARED["metrics"][1:]).read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoxFolder:
    monkeypatch.setattr(run.subprocess, "run", lambda *words, **options: None)
    return BoxFolder(tmp_path)


CONDITIONS: dict[str, tuple[Callable[[BoxFolder], object], dict[str, list[str]]]] = {
    "nothing": (lambda box: None, {}),
    "an Xid of a card": (lambda box: box.watch.log.take(FELL, 5.0), {"code": ["xid 79"]}),
    "an Xid of a program": (lambda box: box.watch.log.take(FELL.replace("79", "31"), 5.0), {}),
    "a row that is due for remapping": (lambda box: box.watch.log.take(FELL.replace("79", "63"), 5.0), {}),
    "a card of nobody": (lambda box: box.watch.log.take(FELL.replace("02:00", "77:00"), 5.0), {}),
    "an Xid within another message": (lambda box: box.watch.log.take(f"x {FELL}", 5.0), {}),
    "a card that has recovered": (lambda box: (box.watch.log.take(FELL, 5.0), box.watch.log.take(BACK, 6.0)), {}),
    "a module that was loaded again": (
        lambda box: (box.watch.log.take(FELL, 5.0), box.watch.log.take("NVRM: loading NVIDIA UNIX Open 580", 6.0)),
        {},
    ),
    "the first card is gone": (lambda box: (box.watch.look(), box.unplug(FIRST)), {"chat": ["card"]}),
    "the first card was never seen": (lambda box: box.unplug(FIRST), {"code": ["card"]}),
    "a full disk": (
        lambda box: box.declare(disks={"/var/lib/rigwright": 1 << 62}),
        {"chat.last": ["disk"], "code.last": ["disk"]},
    ),
    "weights of one instance": (lambda box: box.judge(("W01", "code.gguf")), {"code.last": ["check W01"]}),
    "an instance": (lambda box: box.judge(("U02", "chat")), {"chat.last": ["check U02"]}),
    "all of the box": (lambda box: box.judge(("U02", "")), {"chat.last": ["check U02"], "code.last": ["check U02"]}),
    "a check that is not declared": (lambda box: box.judge(("U01", "chat")), {}),
    "two reasons": (
        lambda box: (box.judge(("U02", "code")), box.watch.log.take(FELL, 9.0)),
        {"code": ["check U02", "xid 79"]},
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_condition_takes_out_the_instances_that_it_is_about(folder: BoxFolder, name: str) -> None:
    bring, expected = CONDITIONS[name]
    bring(folder)
    assert folder.out() == expected


SMI = {
    (0, f"0000{FIRST}.0, 24576\n0000{SECOND}.0, 24576\n"): {},
    (0, f"0000{FIRST}.0, 24576\n"): {"code": ["card"]},
    (0, f"0000{FIRST}.0, 24576\n0000{SECOND}.0, [GPU is lost]\n"): {"code": ["card"]},
    (6, "No devices were found\n"): {"chat": ["card"], "code": ["card"]},
    # a lost card ends the list: of those after it nothing is known
    (15, f"Unable to determine the device handle for GPU0: 0000{FIRST}.0: GPU is lost. Reboot\n"): {"chat": ["card"]},
    (9, "Failed to initialize NVML: Driver/library version mismatch\n"): {},
    (124, ""): {},
    (0, "\0\x1b[2J"): {},
}


@pytest.mark.parametrize("answer", SMI)
def test_nvidia_smi_names_cards_that_are_lost(folder: BoxFolder, answer: tuple[int, str]) -> None:
    folder.watch.cards.take(*answer)
    assert folder.out() == SMI[answer]


class _Engine(TextHandler):
    """Stands in for an engine: answers a completion, if its key is right."""

    def do_POST(self) -> None:
        sent = self.read_json()
        right = self.headers["Authorization"] == "Bearer secret" and sent["messages"] == 'a "b"'
        self.send_text(200 if right else 401, '{"choices": []}')


@pytest.fixture
def engine(folder: BoxFolder) -> Iterator[Path]:
    """The socket of `code`, once it is listened at."""
    path = folder.root / "code.sock"
    body = json.dumps({"messages": 'a "b"'}).replace("\\", "\\\\").replace('"', '\\"')
    request = f'unix-socket = "/code.sock"\nurl = "http://localhost/v1/x"\nheader = "A: b"\ndata = "{body}"\n'
    folder.write("etc/rigwright/current/requests/code", request)
    folder.write("etc/rigwright/current/gateway/engine-keys", "code code.api-key\n")
    folder.write("etc/rigwright/credentials/code.api-key", "secret\n")
    yield path


def test_an_instance_returns_after_a_run_of_the_check_and_a_completion(folder: BoxFolder, engine: Path) -> None:
    folder.watch.log.take(FELL, 5.0)
    assert folder.out() == {"code": ["xid 79"]}
    assert 'rigwright_rotation_left_seconds{instance="code",reason="xid 79"} 5' in folder.metrics
    folder.watch.log.take(BACK, 6.0)
    assert folder.out() == {"code": ["xid 79"]}, "the last run of the check is from before"
    folder.judge()
    folder.again()
    folder.watch.log.take(BACK, 6.0)
    assert folder.out() == {"code": ["xid 79"]}, "its engine does not answer"
    with ThreadingUnixStreamServer(str(engine), _Engine) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        assert folder.out() == {}
        server.shutdown()
    assert "code" not in folder.metrics


def test_an_instance_returns_after_a_clock_that_was_ahead_is_set(
    folder: BoxFolder, engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(run.subprocess, "run", lambda words, **options: started.append(words))
    with monkeypatch.context() as clock:
        ahead = time.time() + 86_400
        clock.setattr(time, "time", lambda: ahead)
        folder.judge()
        folder.watch.log.take(FELL, 5.0)
        folder.out()
        folder.watch.log.take(BACK, 6.0)
        # a check is started, at a time to come
        folder.again()
        folder.write("var/lib/rigwright/self_check/state.json", json.dumps({"judged": 5.0, "failing": []}))
        folder.watch.log.take(FELL, 5.0)
        folder.out()
        folder.watch.log.take(BACK, 6.0)
        folder.out()
    assert len(started) == 1
    folder.judge()
    folder.again()
    folder.write("var/lib/rigwright/self_check/state.json", json.dumps({"judged": ahead, "failing": []}))
    with ThreadingUnixStreamServer(str(engine), _Engine) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        assert folder.out() == {"code": ["xid 79"]}, "no run of the check since is known"
        assert len(started) == 2
        folder.judge()
        folder.again()
        assert folder.out() == {}
        server.shutdown()


def test_a_condition_that_comes_back_closes_the_gate(folder: BoxFolder) -> None:
    folder.watch.log.take(FELL, 5.0)
    folder.out()
    folder.watch.log.take(BACK, 6.0)
    folder.out()
    folder.judge(("W01", "code.gguf"))
    assert folder.out() == {"code": ["xid 79", "check W01"]}


def test_a_process_that_was_killed_goes_on_with_its_reasons(folder: BoxFolder) -> None:
    folder.watch.log.take(FELL, 5.0)
    folder.judge(("U02", "chat"))
    before = folder.out()
    folder.again()
    folder.watch.log.take(FELL, 5.0)
    assert folder.out() == before == {"chat.last": ["check U02"], "code": ["xid 79"]}
    folder.write(f"{ROTATION_FOLDER[1:]}/chat.last", "{")
    folder.again()
    folder.watch.log.take(FELL, 5.0)
    assert folder.out() == before


def test_an_instance_that_is_no_longer_declared_leaves_no_file(folder: BoxFolder) -> None:
    folder.watch.log.take(FELL, 5.0)
    folder.out()
    folder.write("etc/rigwright/current/manifest.json", json.dumps({"cards": [], "instances": {"new": {"cards": []}}}))
    assert folder.out() == {}


def test_slots_are_recorded_while_all_cards_are_there(folder: BoxFolder) -> None:
    cards = CardConditions(str(folder.root / "slots.json"), str(folder.root / "sys/bus/pci/devices"))
    assert cards.declared(2, [FIRST, SECOND]) == [FIRST, SECOND]
    assert cards.declared(2, [SECOND]) == [FIRST, SECOND]
    cards = CardConditions(str(folder.root / "slots.json"))
    assert cards.declared(2, [SECOND]) == [FIRST, SECOND]
    assert cards.declared(2, ["0000:05:00", SECOND]) == ["0000:05:00", SECOND]


LUA_CASES: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str | None, bool]]] = [
    ((), (), ("chat", False)),
    (("chat",), (), ("code", False)),
    (("chat.last",), (), ("code", False)),
    (("chat.last",), ("code",), ("chat", True)),
    (("chat.last", "code"), (), ("chat", True)),
    (("chat", "code"), (), (None, True)),
    (("chat.last", "code.last"), ("chat",), ("code", True)),
]


@pytest.mark.parametrize(("out", "tried", "expected"), LUA_CASES)
def test_the_gateway_asks_a_last_resort_where_no_other_can_be_asked(
    tmp_path: Path, out: tuple[str, ...], tried: tuple[str, ...], expected: tuple[str | None, bool]
) -> None:
    lua: Any = NginxLua()
    settings = lua.require("settings")
    for name in ("links", "out", "rotation"):
        (tmp_path / name).mkdir()
        settings[name] = str(tmp_path / name)
    for name in out:
        (tmp_path / "rotation" / name).touch()
    sockets = []
    for name in ("chat", "code"):
        sockets.append(socket.socket(socket.AF_UNIX))
        sockets[-1].bind(str(tmp_path / f"{name}.sock"))
        (tmp_path / "links" / name).symlink_to(tmp_path / f"{name}.sock")
    model = lua.table({"instances": lua.table(["chat", "code"])})
    found = lua.require("instances").choose(model, "", lua.table(dict.fromkeys(tried, True)))
    if expected == ("chat", False):
        assert found[1] is False
        assert found[0] in ("chat", "code")
    else:
        assert tuple(found) == expected
    for one in sockets:
        one.close()


def test_each_check_of_a_rotation_is_one_that_a_box_makes() -> None:
    text = "".join(path.read_text() for path in sorted((ROOT / "roles/self_check/host").glob("*.py")))
    made = {*re.findall(r'"([A-Z][0-9]{2})"', text)}
    assert {*ROTATION_CHECKS} <= made


def declared_with(box: OperatorFolder, **gateway: object) -> Any:
    listeners = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
    entry = sample_entry(instances=chat_instances(), gateway={"listeners": listeners, **gateway})
    return load_rig(box.load_group({"one": entry})[0][1]["rig"])


def test_an_unknown_check_is_refused_with_the_nearest_one(box: OperatorFolder) -> None:
    with pytest.raises(SystemExit, match=r'rotation_checks\[0\]: .* did you mean "W01"\?'):
        declared_with(box, rotation_checks=["W1"])


def test_a_deploy_writes_program_unit_and_declaration_of_a_gateway(box: OperatorFolder) -> None:
    rig = declared_with(box, rotation_checks=["W"])
    texts = render_self_check(rig, "debian-13")
    declared = json.loads(texts[self_check.declaration_path(rig.roots)])["rotation"]
    assert declared.keys() == DECLARED.keys()
    assert declared["checks"] == ["W"]
    unit = texts[f"/etc/systemd/system/{ROTATION_SERVICE}"]
    assert f"SupplementaryGroups={rig.accounts.gateway}" in unit
    assert ROTATION_TIMER in self_check.running_units(rig)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(box: OperatorFolder, tmp_path: Path) -> None:
    for path, text in self_check.render_units_of_rotation(declared_with(box)).items():
        (tmp_path / Path(path).name).write_text(text.replace("/usr/bin/python3", "/bin/true"))
    for name in (ROTATION_SERVICE, ROTATION_TIMER):
        words = ["systemd-analyze", "verify", tmp_path / name]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.stdout + done.stderr == ""


def test_the_program_of_a_host_imports_what_lies_beside_it(box: OperatorFolder, tmp_path: Path) -> None:
    rig = declared_with(box)
    for path, text in self_check.render_rotation_files(rig).items():
        there = tmp_path / path[1:]
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)
    program = tmp_path / self_check.rotation_program_folder(rig.roots)[1:]
    words = ["python3", "-I", "-S", "-B", program, "/nowhere"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert "JSONDecodeError" in done.stderr
