"""Rules that the next boot loads are loaded in a network of their own, and read there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checks.survey.host import next_boot_packet_filters as filters
from tests.unit.rendered_scripts import write_stand_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network of one's own is root's to make")
NETWORK = "/proc/self/ns/net"
# in a process of its own: it forks
PROGRAM = f"""
import json, os, sys
from checks.survey.host import next_boot_packet_filters as filters
from tests.unit.rendered_scripts import write_stand_in
folder = sys.argv[1]
filters.WANTS = f"{{folder}}/*.wants"
filters.SAVED = {{"nftables": [([sys.argv[2]], f"{{folder}}/rules")]}}
filters.MODULES = f"{{folder}}/modules"
print(json.dumps(filters.loaded({{"lo": 1, "rw0": 77}}, lambda: {{"network": os.readlink("{NETWORK}")}})))
"""


def loaded(
    folder: Path, rules: str, *, enabled: bool = True, modules: tuple[str, ...] = ("bridge",), program: str = "sh"
) -> dict[str, Any]:
    """What comes of a host that loads rules at a boot by a program of a test's own, and has modules in its kernel."""
    for module in modules:
        (folder / "modules" / module).mkdir(parents=True)
    (folder / "multi-user.target.wants").mkdir()
    (folder / "rules").write_text(rules)
    if enabled:
        (folder / "multi-user.target.wants/nftables.service").touch()
    words = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, program], env=words, capture_output=True, text=True, timeout=30
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_they_are_looked_at_where_no_packet_comes(tmp_path: Path) -> None:
    found = loaded(tmp_path, f"readlink {NETWORK} > {tmp_path}/loaded\n")
    assert found == {"network": (tmp_path / "loaded").read_text().strip(), "failed": "", "judged": True}
    assert found["network"] != str(Path(NETWORK).readlink())


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    found = loaded(tmp_path, "echo 'line 3: no such table' >&2; exit 1\n")
    assert found["failed"] == f"{tmp_path}/rules: line 3: no such table"


def test_sets_that_rules_name_are_there_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "multi-user.target.wants").mkdir()
    (tmp_path / "multi-user.target.wants/netfilter-persistent.service").touch()
    monkeypatch.setattr(filters, "WANTS", f"{tmp_path}/*.wants")
    monkeypatch.setattr(
        filters.os.path,
        "isfile",
        lambda path: path in ("/etc/iptables/ipsets", "/etc/iptables/rules.v4"),
    )
    assert [words[0] for words in filters.saved()] == ["ipset", "iptables-restore"]


def test_where_a_boot_loads_none_nothing_is_loaded(tmp_path: Path) -> None:
    assert loaded(tmp_path, f"touch {tmp_path}/loaded\n", enabled=False) == {}
    assert not (tmp_path / "loaded").exists()


@pytest.fixture
def recorded_commands(tmp_path: Path) -> Path:
    """Stand-ins of ip(8) and nft(8): what the one was asked is noted, and the other takes no file as it is loaded."""
    (tmp_path / "bin").mkdir()
    write_stand_in(tmp_path / "bin", "ip", f"echo $* >> {tmp_path}/asked; exit 2")
    write_stand_in(
        tmp_path / "bin", "nft", f'[ "$1" = -c ] || {{ echo no such interface >&2; exit 1; }}; . {tmp_path}/rules'
    )
    return tmp_path / "asked"


def test_no_module_is_loaded_for_a_look(tmp_path: Path, recorded_commands: Path) -> None:
    assert loaded(tmp_path, "exit 0", modules=("bonding", "ifb"))["failed"] == ""
    assert recorded_commands.read_text() == "".join(f"link add rw0 index 77 type {kind}\n" for kind in ("ifb", "bond"))


@pytest.mark.parametrize(
    ("rules", "failed"), [("exit 0", ""), ("echo 'line 3: syntax error' >&2; exit 1", "{}/rules: line 3: syntax error")]
)
def test_rules_that_no_interface_is_at_hand_for_are_not_judged(
    tmp_path: Path, recorded_commands: Path, rules: str, failed: str
) -> None:
    found = loaded(tmp_path, rules, modules=(), program="nft")
    assert (found["failed"], found["judged"], recorded_commands.exists()) == (failed.format(tmp_path), False, False)


def test_what_is_built_into_a_kernel_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "built").write_text(
        "kernel/drivers/net/dummy.ko\nkernel/drivers/net/bonding/bonding.ko\nkernel/a-ifb.ko\n"
    )
    (tmp_path / "bridge").mkdir()
    monkeypatch.setattr(filters, "MODULES", str(tmp_path))
    monkeypatch.setattr(filters, "BUILT_IN", str(tmp_path / "built"))
    assert filters.at_hand() == ["bridge", "dummy", "bond"]
