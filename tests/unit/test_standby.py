"""An instance beside the one in whose place it comes: whether there is room for both, what it is, and in what order."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.engines import kind_of
from rigwright.engines.memory_fit import GIB, MIB
from rigwright.engines.vllm import Vllm
from rigwright.host.systemd import UnitState
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.serving import standby
from rigwright.serving.activation import Activation
from rigwright.serving.instance_units import build_unit
from rigwright.serving.standby import (
    MORE,
    FreeMemory,
    StandbyInstance,
    describe_standby_refusal,
    plan_standby,
    render_memory_query,
)
from rigwright.supply.artefact import GgufMetadata, KvCacheSize
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, FAILS, SERVES, target_generation, two_instance_rig
from tests.unit.rendered_scripts import activation_script, write_stand_in
from tests.unit.samples import sample_artefact, sample_build, sample_card, sample_instance, sample_parts, sample_rig
from tests.unit.test_drain import GATEWAY

GATE = Gateway.model_validate({"listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}})
KEPT = KvCacheSize(keys=1024, values=1024, window=0, window_keys=0, window_values=0)
WEIGHTS, CONTEXT = 2 * GIB, 1 << 20
# f16: two bytes for each number of each of its tokens
ONE = WEIGHTS + CONTEXT * 2048 * 2 + MORE


def sized_instance(*cards: int, header: bool = True, **changes: Any) -> Instance:
    """An instance whose lock says what it needs, 6 GiB and what an engine takes beside."""
    known = GgufMetadata(architecture="llama", cache=KEPT) if header else None
    weights = sample_artefact(size=WEIGHTS, header=known)
    own = {"flags": {"threads": "2"}, "context": CONTEXT, "flash_attention": "on"} | changes
    return sample_instance(cards=cards, parts=sample_parts(weights), **own)


def box(one: Instance, **changes: Any) -> Rig:
    return sample_rig(one, **{"cards": (sample_card("8.6"), sample_card("8.6")), "gateway": GATE} | changes)


CASES: dict[str, tuple[Instance, FreeMemory, str]] = {
    "both fit into RAM": (sized_instance(), FreeMemory(2 * ONE), ""),
    "a byte is lacking": (sized_instance(), FreeMemory(2 * ONE - 1), "15.0 GiB of RAM are needed, 15.0 are free"),
    "both fit on the card": (sized_instance(0), FreeMemory(0, {0: (ONE, ONE)}), ""),
    "another instance's card is not looked at": (sized_instance(1), FreeMemory(0, {0: (0, 0), 1: (2 * ONE, 0)}), ""),
    "beside the old one there is none": (
        sized_instance(0),
        FreeMemory(0, {0: (ONE - 1, 9 * ONE)}),
        "7.5 GiB of card 0 are needed",
    ),
    "twice it does not fit": (
        sized_instance(0),
        FreeMemory(0, {0: (ONE, ONE - 1)}),
        "15.0 GiB of card 0 are needed, 15.0 are free",
    ),
    "of two cards one is full": (
        sized_instance(0, 1),
        FreeMemory(0, {0: (ONE, ONE), 1: (GIB, 0)}),
        "4.5 GiB of card 1 are needed, 1.0 are free",
    ),
    "a card that does not answer": (sized_instance(0), FreeMemory(ONE * 9), "card 0 are needed, 0.0 are free"),
    "it takes all processors": (sized_instance(flags={}), FreeMemory(99 * ONE), "no flags.threads is set"),
    "on a card it takes none of them": (sized_instance(0, flags={}), FreeMemory(0, {0: (ONE, ONE)}), ""),
    "nothing is known of it": (
        sized_instance(header=False),
        FreeMemory(99 * ONE),
        "its lock has no memory figures",
    ),
}


@pytest.mark.parametrize(("one", "room", "why"), CASES.values(), ids=list(CASES))
def test_whether_there_is_room_for_both(one: Instance, room: FreeMemory, why: str) -> None:
    said = describe_standby_refusal(box(one), one, room, renamed=True)
    assert why in said
    assert bool(why) == bool(said)


def test_without_a_gateway_clients_are_not_moved() -> None:
    assert "no gateway" in describe_standby_refusal(
        box(sized_instance(), gateway=None), sized_instance(), FreeMemory(99 * ONE), renamed=False
    )


def test_an_engine_that_judges_names_is_not_asked_by_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Vllm.validates_model_name
    monkeypatch.setattr(type(kind_of(sized_instance())), "validates_model_name", True)
    assert describe_standby_refusal(box(sized_instance()), sized_instance(), FreeMemory(2 * ONE), renamed=False) == ""
    assert "another model name" in describe_standby_refusal(
        box(sized_instance()), sized_instance(), FreeMemory(2 * ONE), renamed=True
    )


def test_an_engine_with_a_share_of_a_card_takes_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = sized_instance(0)
    memory = kind_of(one).memory
    monkeypatch.setattr(type(kind_of(one)), "memory", lambda self, placed: replace(memory(placed), share=0.5))  # type: ignore[type-var]
    half = sample_card("8.6").vram_mib * MIB // 2
    assert describe_standby_refusal(box(one), one, FreeMemory(0, {0: (half, half)}), renamed=False) == ""
    assert describe_standby_refusal(box(one), one, FreeMemory(0, {0: (half - 1, 9 * half)}), renamed=False)


def test_it_is_the_same_but_for_its_name_its_socket_and_where_it_reads() -> None:
    one, job = sized_instance(), "rw-job-activate.service"
    twin, own = plan_standby(box(one), one, sample_build(), job), build_unit(box(one), one, sample_build())
    assert (twin.unit, twin.unit_file) == ("rigwright_beside-chat.service", f"/run/systemd/system/{twin.unit}")
    assert f"BindsTo={job}\nAfter={job}\n" in twin.text
    back = twin.text.replace(
        f"# the job that moves clients to it and back must be there\nBindsTo={job}\nAfter={job}\n", ""
    )
    leaves = [line for line in back.splitlines(keepends=True) if line.endswith("/chat/leave\n")]
    assert len(leaves) == 1
    # its link first, then the clients that are still answered
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


def test_free_memory_comes_from_the_kernel_and_the_cards(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:  99 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n")
    (tmp_path / "proc/7/cgroup").write_text(f"0::/rigwright.slice/rigwright-chat.slice/{CHAT}\n")
    write_stand_in(tmp_path / "bin", "nvidia-smi", SMI)
    script = render_memory_query(sample_instance()).replace("/proc/", f"{tmp_path}/proc/")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    found = standby.parse_free_memory(done.stdout.splitlines())
    assert found == FreeMemory(2 << 20, {0: (12000 * MIB, 4000 * MIB), 1: (500 * MIB, 50 * MIB)})


WAY = Activation((), (CHAT,), (), (UnitState(CHAT, "0" * 64, 0, frozenset()),))


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    """A host that serves generation 1 behind a gateway."""
    host = HostFolder(tmp_path)
    host.write_generation(1, target_generation(two_instance_rig(sample_instance("chat"))))
    host.write_generation(2, target_generation(two_instance_rig(sample_instance("chat", context=8192))))
    (host.config / "current").symlink_to("generations/1")
    host.set_answers(state=SERVES)
    for name in ("gateway", "proc", "volatile/rigwright/gateway"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "gateway/asked").touch()
    (tmp_path / "volatile/rigwright/gateway/chat.beside").touch()
    (tmp_path / "gateway/chat").write_text("0\n")
    (tmp_path / "gateway/chat.beside").write_text("0\n")
    write_stand_in(tmp_path / "bin", "curl", GATEWAY)
    return host


def run(host: HostFolder, way: Activation = WAY) -> subprocess.CompletedProcess[str]:
    run_ = host.root / "volatile"
    one = StandbyInstance(
        *("chat", "rigwright_beside-chat.service", "chat.beside", f"{run_}/rigwright_beside/chat", "[Unit]\n"),
        *({"requests/chat": "another socket\n"}, ()),
    )
    script = activation_script(way, (), str(host.config), str(host.units), (one,), str(run_))
    script = script.replace(one.unit_file, f"{run_}/systemd/system/{one.unit}")
    return host.run_script(script.replace("/proc/", f"{host.root}/proc/"))


def test_it_has_answered_before_the_old_one_is_stopped_and_goes_after_the_new_one_has(host: HostFolder) -> None:
    # as it is when all have answered
    write_stand_in(
        host.root / "bin", "touch", f"cp -a {host.root}/volatile/rigwright_beside/chat {host.root}/seen; true"
    )
    done = run(host)
    assert done.returncode == 0, done.stdout + done.stderr
    asked = [one for one in host.systemctl_commands if not one.startswith("reset-failed")]
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
    host.set_answers(**{"state_rigwright_beside-chat.service": FAILS, "active": "active\n"})
    done = run(host)
    assert done.returncode == 1
    assert "rigwright_beside-chat.service did not become ready; its last log lines:" in done.stdout
    assert "generation 2 does not serve" in done.stdout
    assert f"stop {CHAT}" not in host.systemctl_commands
    assert not [one for one in host.systemctl_commands if one.startswith("restart")]
    assert host.current == "generations/1"
    assert (host.config / "generations/failed").is_dir()
    assert "stop rigwright_beside-chat.service" in host.systemctl_commands


def test_where_the_one_that_stays_does_not_answer_it_serves_until_the_old_one_is_back(host: HostFolder) -> None:
    write_stand_in(
        host.root / "bin",
        "journalctl",
        f"echo '{FAILS.splitlines()[0]}' > /dev/null; echo '{SERVES}' > {host.systemd}/state-{CHAT}; echo the log",
    )
    host.set_answers(**{f"state_{CHAT}": FAILS})
    done = run(host)
    assert done.returncode == 1, done.stdout
    twin = "stop rigwright_beside-chat.service"
    again = [
        at for at, one in enumerate(host.systemctl_commands) if one.startswith("restart --no-block") and CHAT in one
    ]
    assert len(again) == 2
    assert host.systemctl_commands.index(twin) > again[-1]
    assert host.current == "generations/1"


def test_remains_of_an_unfinished_one_are_gone(host: HostFolder) -> None:
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
    write_stand_in(tmp_path / "bin", "curl", CURL)
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "ASKED": str(tmp_path / "asked")}
    script = standby.render_standby_drain(replace(sized_instance(), beside=True), given)
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"==> 1 requests in progress: up to {most} s to finish\n"
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["stay/chat", "leave/chat.beside", "leave/chat.beside", "stay/chat.beside"]
