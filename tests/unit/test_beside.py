"""An instance beside the one in whose place it comes: whether there is room for both, what it is, and in what order."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.engines import kind_of
from rigwright.engines.fit import GIB, MIB
from rigwright.engines.vllm import Vllm
from rigwright.host.unit_states import UnitState
from rigwright.model.gateway.entry import Gateway
from rigwright.model.rig import Instance, Rig
from rigwright.serving import beside as deciding
from rigwright.serving.activation import Activation
from rigwright.serving.beside import MORE, Beside, Room, beside, refusal, room_script
from rigwright.serving.units import unit
from rigwright.supply.header import Cache, Header
from tests.unit.host_folder import HostFolder
from tests.unit.samples import artefact, card, instance, parts, plan, rig
from tests.unit.scripts import activate, stand_in
from tests.unit.states import CHAT, two, wanted
from tests.unit.test_drained import GATEWAY, SERVES

GATE = Gateway.model_validate({"listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}})
KEPT = Cache(keys=1024, values=1024, window=0, window_keys=0, window_values=0)
WEIGHTS, CONTEXT = 2 * GIB, 1 << 20
# f16: two bytes for each number of each of its tokens
ONE = WEIGHTS + CONTEXT * 2048 * 2 + MORE


def made(*cards: int, header: bool = True, **changes: Any) -> Instance:
    """An instance whose lock says what it needs, 6 GiB and what an engine takes beside."""
    known = Header(architecture="llama", cache=KEPT) if header else None
    weights = artefact(size=WEIGHTS, header=known)
    own = {"flags": {"threads": "2"}, "context": CONTEXT, "flash_attention": "on"} | changes
    return instance(cards=cards, parts=parts(weights), **own)


def box(one: Instance, **changes: Any) -> Rig:
    return rig(one, **{"cards": (card("8.6"), card("8.6")), "gateway": GATE} | changes)


CASES: dict[str, tuple[Instance, Room, str]] = {
    "both fit into RAM": (made(), Room(2 * ONE), ""),
    "a byte is lacking": (made(), Room(2 * ONE - 1), "15.0 GiB of RAM would be needed, 15.0 are free"),
    "both fit on the card": (made(0), Room(0, {0: (ONE, ONE)}), ""),
    "another instance's card is not looked at": (made(1), Room(0, {0: (0, 0), 1: (2 * ONE, 0)}), ""),
    "beside the old one there is none": (
        made(0),
        Room(0, {0: (ONE - 1, 9 * ONE)}),
        "7.5 GiB of card 0 would be needed",
    ),
    "twice it does not fit": (
        made(0),
        Room(0, {0: (ONE, ONE - 1)}),
        "15.0 GiB of card 0 would be needed, 15.0 are free",
    ),
    "of two cards one is full": (
        made(0, 1),
        Room(0, {0: (ONE, ONE), 1: (GIB, 0)}),
        "4.5 GiB of card 1 would be needed, 1.0 are free",
    ),
    "a card that does not answer": (made(0), Room(ONE * 9), "card 0 would be needed, 0.0 are free"),
    "it takes all processors": (made(flags={}), Room(99 * ONE), "no flags.threads is set"),
    "on a card it takes none of them": (made(0, flags={}), Room(0, {0: (ONE, ONE)}), ""),
    "nothing is known of it": (made(header=False), Room(99 * ONE), "its lock does not say what memory it needs"),
}


@pytest.mark.parametrize(("one", "room", "why"), CASES.values(), ids=list(CASES))
def test_whether_there_is_room_for_both(one: Instance, room: Room, why: str) -> None:
    said = refusal(box(one), one, room, renamed=True)
    assert why in said
    assert bool(why) == bool(said)


def test_without_a_gateway_nobody_moves_clients() -> None:
    assert "no gateway" in refusal(box(made(), gateway=None), made(), Room(99 * ONE), renamed=False)


def test_an_engine_that_judges_names_is_not_asked_by_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Vllm.judges_names
    monkeypatch.setattr(type(kind_of(made())), "judges_names", True)
    assert refusal(box(made()), made(), Room(2 * ONE), renamed=False) == ""
    assert "another model's name" in refusal(box(made()), made(), Room(2 * ONE), renamed=True)


def test_an_engine_with_a_share_of_a_card_takes_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(0)
    memory = kind_of(one).memory
    monkeypatch.setattr(type(kind_of(one)), "memory", lambda self, placed: replace(memory(placed), share=0.5))  # type: ignore[type-var]
    half = card("8.6").vram_mib * MIB // 2
    assert refusal(box(one), one, Room(0, {0: (half, half)}), renamed=False) == ""
    assert refusal(box(one), one, Room(0, {0: (half - 1, 9 * half)}), renamed=False)


def test_it_is_the_same_but_for_its_name_its_socket_and_where_it_reads() -> None:
    one, job = made(), "rw-job-activate.service"
    twin, own = beside(box(one), one, plan(), job), unit(box(one), one, plan())
    assert (twin.unit, twin.unit_file) == ("rigwright_beside-chat.service", f"/run/systemd/system/{twin.unit}")
    assert f"BindsTo={job}\nAfter={job}\n" in twin.text
    back = twin.text.replace(
        f"# whoever moves clients to it and away again must be there\nBindsTo={job}\nAfter={job}\n", ""
    )
    leaves = [line for line in back.splitlines(keepends=True) if line.endswith("/chat/leave\n")]
    assert len(leaves) == 1
    # its link first, then those who are answered
    before, _, _ = back.partition(leaves[0])
    assert "ExecStop=-+" in before
    back = re.sub(r"# it can be stopped [^\n]*\n" + re.escape(leaves[0]), "", back)
    back = back.replace("/run/rigwright_beside/chat/", "/etc/rigwright/current/").replace("chat.beside", "chat")
    assert back.replace(twin.unit, own.name) == own.text
    assert set(twin.files) == {"requests/chat", "leave"}
    assert twin.files["requests/chat"] == own.ready.replace("/chat/api.sock", "/chat.beside/api.sock")
    assert "/chat.beside/api.sock" in twin.files["requests/chat"]
    assert "User=rigwright-chat\n" in twin.text


SMI = r"""
case $1 in
  --query-compute-apps=*)
    printf '7, 00000000:01:00.0, 4000\n7, 00000000:02:00.0, 50\n99999999, 00000000:01:00.0, 7\n' ;;
  *) printf '0, 00000000:01:00.0, 12000\n1, 00000000:02:00.0, 500\n[Unknown Error]\n' ;;
esac
"""


def test_what_room_there_is_comes_from_the_kernel_and_the_cards(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:  99 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n")
    (tmp_path / "proc/7/cgroup").write_text(f"0::/rigwright.slice/rigwright-chat.slice/{CHAT}\n")
    stand_in(tmp_path / "bin", "nvidia-smi", SMI)
    script = room_script(instance()).replace("/proc/", f"{tmp_path}/proc/")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    found = deciding.parse(done.stdout.splitlines())
    assert found == Room(2 << 20, {0: (12000 * MIB, 4000 * MIB), 1: (500 * MIB, 50 * MIB)})


WAY = Activation((), (CHAT,), (), (UnitState(CHAT, "0" * 64, 0, frozenset()),))
FAILS = "ActiveState=activating\nSubState=auto-restart\nNRestarts=1\nJob=\n"


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    """A host that serves generation 1 behind a gateway."""
    host = HostFolder(tmp_path)
    host.write(1, wanted(two(instance("chat"))))
    host.write(2, wanted(two(instance("chat", context=8192))))
    (host.config / "current").symlink_to("generations/1")
    host.says(state=SERVES)
    for name in ("gateway", "proc", "volatile/rigwright/gateway"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "gateway/asked").touch()
    (tmp_path / "volatile/rigwright/gateway/chat.beside").touch()
    (tmp_path / "gateway/chat").write_text("0\n")
    (tmp_path / "gateway/chat.beside").write_text("0\n")
    stand_in(tmp_path / "bin", "curl", GATEWAY)
    return host


def run(host: HostFolder, way: Activation = WAY) -> subprocess.CompletedProcess[str]:
    run_ = host.root / "volatile"
    one = Beside(
        *("chat", "rigwright_beside-chat.service", "chat.beside", f"{run_}/rigwright_beside/chat", "[Unit]\n"),
        *({"requests/chat": "another socket\n"}, ()),
    )
    script = activate(way, (), str(host.config), str(host.units), (one,), str(run_))
    script = script.replace(one.unit_file, f"{run_}/systemd/system/{one.unit}")
    return host.sh(script.replace("/proc/", f"{host.root}/proc/"))


def test_it_has_answered_before_the_old_one_is_stopped_and_goes_after_the_new_one_has(host: HostFolder) -> None:
    # as it is when all have answered
    stand_in(host.root / "bin", "touch", f"cp -a {host.root}/volatile/rigwright_beside/chat {host.root}/seen; true")
    done = run(host)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = [one for one in host.asked if not one.startswith("reset-failed")]
    twin = "rigwright_beside-chat.service"
    assert asked[:4] == ["daemon-reload", f"start --no-block {twin}", f"stop {CHAT}", "daemon-reload"]
    assert asked[-2:] == [f"stop {twin}", "daemon-reload"]
    assert asked.index(f"restart --no-block {CHAT}") < asked.index(f"stop {twin}")
    # clients are back at the one that stays before it is drained
    assert not (host.root / "volatile/rigwright/gateway/chat.beside").exists()
    told = [line.split()[0] for line in (host.root / "gateway/asked").read_text().splitlines()]
    assert told == ["leave/chat", "stay/chat", "leave/chat.beside"]
    assert not list((host.root / "volatile/systemd/system").iterdir())
    assert not (host.root / "volatile/rigwright_beside").exists()
    assert host.current == "generations/2"
    # a generation's folder, but for the socket
    seen = {path.name: path for path in (host.root / "seen").iterdir()}
    assert seen.keys() >= {"ready", "env", "weights", "requests", "units"}
    assert (seen["requests"] / "chat").read_text() == "another socket\n"
    assert (seen["ready"]).read_text() == (host.config / "generations/2/ready").read_text()


def test_where_it_does_not_answer_the_old_one_was_never_stopped(host: HostFolder) -> None:
    (host.config / "generations/2/proven").unlink()
    host.says(**{"state_rigwright_beside-chat.service": FAILS, "active": "active\n"})
    done = run(host)
    assert done.returncode == 1
    assert "rigwright_beside-chat.service did not become ready; its last log lines:" in done.stdout
    assert "generation 2 does not serve" in done.stdout
    assert f"stop {CHAT}" not in host.asked
    assert not [one for one in host.asked if one.startswith("restart")]
    assert host.current == "generations/1"
    assert (host.config / "generations/failed").is_dir()
    assert "stop rigwright_beside-chat.service" in host.asked


def test_where_the_one_that_stays_does_not_answer_it_serves_until_the_old_one_is_back(host: HostFolder) -> None:
    stand_in(
        host.root / "bin",
        "journalctl",
        f"echo '{FAILS.splitlines()[0]}' > /dev/null; echo '{SERVES}' > {host.systemd}/state-{CHAT}; echo the log",
    )
    host.says(**{f"state_{CHAT}": FAILS})
    done = run(host)
    assert done.returncode == 1, done.stdout
    twin = "stop rigwright_beside-chat.service"
    again = [at for at, one in enumerate(host.asked) if one.startswith("restart --no-block") and CHAT in one]
    assert len(again) == 2
    assert host.asked.index(twin) > again[-1]
    assert host.current == "generations/1"


def test_what_one_that_was_cut_off_has_left_is_gone(host: HostFolder) -> None:
    left = host.root / "volatile/rigwright_beside/other"
    left.mkdir(parents=True)
    unit_ = host.root / "volatile/systemd/system/rigwright_beside-other.service"
    unit_.parent.mkdir(parents=True)
    unit_.touch()
    assert run(host).returncode == 0
    assert (left.exists(), unit_.exists()) == (False, False)


# says which seat it was asked about, and of one request on its way at the first look
CURL = 'for word; do :; done; echo "${word#http://localhost/}" >> "$ASKED"; grep -c /chat.beside "$ASKED" | grep -cx 1'


@pytest.mark.parametrize(("given", "most"), [(5, 5), (30, 15)])
def test_one_that_is_stopped_lets_its_clients_end_and_the_old_one_be_asked(
    tmp_path: Path, given: int, most: int
) -> None:
    stand_in(tmp_path / "bin", "curl", CURL)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "ASKED": str(tmp_path / "asked")}
    script = deciding.leave_script(replace(made(), beside=True), given)
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"==> 1 requests in progress: up to {most} s to finish\n"
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["stay/chat", "leave/chat.beside", "leave/chat.beside", "stay/chat.beside"]
