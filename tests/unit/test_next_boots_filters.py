"""Rules that the next boot loads are loaded in a network of their own, and read there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checks.survey.host import filters

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network of one's own is root's to make")
NETWORK = "/proc/self/ns/net"
# in a process of its own: it forks
PROGRAM = f"""
import json, os, sys
from checks.survey.host import filters
folder = sys.argv[1]
filters.WANTS, filters.SAVED = f"{{folder}}/*.wants", {{"nftables": [(["sh"], f"{{folder}}/rules")]}}
print(json.dumps(filters.loaded({{"lo": 1}}, lambda: {{"network": os.readlink("{NETWORK}")}})))
"""


def loaded(folder: Path, rules: str, *, enabled: bool = True) -> dict[str, Any]:
    """What comes of a host that loads rules at a boot by a program of a test's own."""
    (folder / "multi-user.target.wants").mkdir()
    (folder / "rules").write_text(rules)
    if enabled:
        (folder / "multi-user.target.wants/nftables.service").touch()
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, timeout=30)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_they_are_looked_at_where_no_packet_comes(tmp_path: Path) -> None:
    found = loaded(tmp_path, f"readlink {NETWORK} > {tmp_path}/loaded\n")
    assert found == {"network": (tmp_path / "loaded").read_text().strip(), "failed": ""}
    assert found["network"] != str(Path(NETWORK).readlink())


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    found = loaded(tmp_path, "echo 'line 3: no such table' >&2; exit 1\n")
    assert found["failed"] == f"{tmp_path}/rules: line 3: no such table"


def test_sets_that_rules_name_are_there_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "multi-user.target.wants").mkdir()
    (tmp_path / "multi-user.target.wants/netfilter-persistent.service").touch()
    monkeypatch.setattr(filters, "WANTS", f"{tmp_path}/*.wants")
    monkeypatch.setattr(
        filters.os.path, "isfile", lambda path: path in ("/etc/iptables/ipsets", "/etc/iptables/rules.v4")
    )
    assert [words[0] for words in filters.saved()] == ["ipset", "iptables-restore"]


def test_where_a_boot_loads_none_nothing_is_loaded(tmp_path: Path) -> None:
    assert loaded(tmp_path, f"touch {tmp_path}/loaded\n", enabled=False) == {}
    assert not (tmp_path / "loaded").exists()
