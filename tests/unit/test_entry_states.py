"""States of entries: names and attributes of files, services that churn belongs to, units and addresses of ours."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks.survey.host import entry_collection, entry_live, entry_privileges, entry_readers, live_entries
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.entry_packages import PackageRecords, attribute_packages
from checks.survey.host.host_entry import HostEntry
from tests.unit.attributed_host import AttributedHost
from tests.unit.fingerprinted_host import collect, question, write
from tests.unit.fingerprinted_host import root as root

TRANSIENT = "/run/systemd/transient"
ADDRESSES = r"""
1: lo    inet 127.0.0.1/8 scope host lo\       valid_lft forever preferred_lft forever
1: lo    inet 169.254.169.254/32 scope global lo\       valid_lft forever preferred_lft forever
2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global dynamic eth0\       valid_lft 9sec preferred_lft 9sec
2: eth0    inet6 fe80::1/64 scope link proto kernel_ll \       valid_lft forever preferred_lft forever
broken
"""


def test_a_further_name_of_a_setuid_program_is_a_state(root: Path) -> None:
    program = write(root, "usr/bin/su", mode=0o4755)
    write(root, "usr/bin/ls", mode=0o755)
    asked = question(root, "/usr/bin/*")
    assert [one.state.partition(", ")[2] for one in collect(asked).entries] == ["", ""]
    os.link(program, root / "srv-su")
    os.link(root / "usr/bin/ls", root / "ls")
    assert [one.state.partition(", ")[2] for one in collect(asked).entries] == ["", "2 links"]


def test_an_attribute_is_a_state(root: Path) -> None:
    path = write(root, "etc/cron.d/job")
    try:
        os.setxattr(path, "user.mime_type", b"secret")
    except OSError:
        pytest.skip("no extended attributes here")
    (entry,) = collect(question(root, "/etc/cron.d/**")).entries
    assert entry.state.endswith(", attribute user.mime_type of 6 bytes")


@pytest.mark.parametrize("state", [", 2 links", ", attribute user.x of 6 bytes", ", access list 02"])
def test_a_package_explains_no_further_names_and_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    host = AttributedHost(tmp_path, monkeypatch)
    host.package("tool", {"/usr/bin/tool": "x"})
    for further in ("", state):
        (entry,) = (one for one in host.entries() if one.path == "/usr/bin/tool")
        entry.state += further
        index = PackageRecords("")
        index.load({entry.path})
        attribute_packages([entry], index)
        assert bool(entry.origin) is not bool(further)


@pytest.mark.parametrize(("events", "excluded"), [("populated 1\n", True), ("populated 0\n", False), ("", False)])
def test_churn_of_a_service_needs_the_service(tmp_path: Path, events: str, excluded: bool) -> None:
    rule = {
        "kind": "*",
        "keys": ["* chain f2b-*"],
        "reason": "bans",
        "states": "*",
        "while_active": ["fail2ban.service"],
    }
    asked = {"classes": [], "churn": [rule], "folder": "", "nonce": "", "deep": False}
    if events:
        folder = tmp_path / "system.slice/fail2ban.service"
        folder.mkdir(parents=True)
        (folder / "cgroup.events").write_text(f"{events}frozen 0\n")
    with patch.object(entry_collection, "GROUPS", str(tmp_path)):
        collection = entry_collection.EntryCollection(asked)
    assert collection.is_excluded(HostEntry("packet_filters", "table inet filter chain f2b-sshd", "")) is excluded


@pytest.mark.parametrize(
    ("name", "age", "explained"),
    [
        ("rw-job-trees.service", 9999.0, True),
        ("rw-job-trees-2.service", 9999.0, True),
        ("rw-job-evil.service", 1.0, False),
        ("rw-check-0a-1.service", 1.0, True),
        ("rw-check-0a-1.service", 9999.0, False),
        ("run-u12.service", 1.0, False),
    ],
)
def test_transient_units_of_ours_have_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, age: float, explained: bool
) -> None:
    host = AttributedHost(tmp_path, monkeypatch)
    host.write("/var/lib/rigwright/jobs/rw-job-trees/script", "true")
    entry = HostEntry("units", f"{TRANSIENT}/{name}", "file 0644 root:root", f"{TRANSIENT}/{name}")
    entry.ctime = time.time() - age
    entry_live.attribute_live(Attribution([entry], PackageRecords(""), {"jobs": {"/var/lib/rigwright/jobs": ""}}))
    assert bool(entry.origin) is explained


def test_addresses_that_nothing_gave_are_entries() -> None:
    def answer(*words: str) -> str:
        return ADDRESSES if "address" in words else ""

    with patch.object(live_entries, "_output", answer), patch.object(live_entries, "_packet_sockets", lambda kind: ()):
        found = [entry.key for entry in live_entries.traffic_programs("network_hooks", {})]
    assert found == ["address lo 127.0.0.1/8", "address lo 169.254.169.254/32"]


def test_keys_of_users_that_a_block_matches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sshd itself tells them for each user; it is asked for none without a block."""
    key = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICcL3/Qas0yYW/K9CsYQrt3Z60/NtBA9OnVrGaxJXGoW\n"
    write(root, "usr/sbin/sshd", mode=0o755)
    write(root, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nbackup:x:34:34::/var/backups:/bin/sh\n")
    write(root, "var/backups/authorized", key)
    asked_for = list[str]()

    def answer(*words: str, **_: Any) -> tuple[int, str, str]:
        user = words[-1] if "-C" in words else ""
        asked_for.append(user)
        keys = "/var/backups/authorized" if user.startswith("user=backup,") else ".ssh/authorized_keys"
        return 0, f"authorizedkeysfile {keys}\n", ""

    monkeypatch.setattr(entry_readers.common, "ended", answer)
    for text, found in (("PermitRootLogin no\n", []), ("Match User backup\n  AuthorizedKeysFile x\n", ["backup"])):
        entry_readers._sshd_rows.cache_clear()
        entry_readers._matched_users.cache_clear()
        write(root, "etc/ssh/sshd_config", text.encode())
        keys = [one.key for one in entry_readers.authorised_keys("authorised_keys", {}) if " SHA256:" in one.key]
        assert [one.partition(" ")[0] for one in keys] == found
        assert any(asked_for) is bool(found)
    settings = [one.key for one in entry_readers.sshd_settings("sshd", {})]
    assert "sshd authorizedkeysfile for user backup" in settings
    entry_readers._sshd_rows.cache_clear()
    entry_readers._matched_users.cache_clear()


def test_folders_that_are_not_scanned_to_their_end_are_entries(root: Path) -> None:
    """A full look at all files, of less than two days ago, stands for what was left out."""
    for number in range(3):
        write(root, f"srv/{number}")
    asked = question(root, readers=("privileged_files",))
    for most, deep, origins in ((3, False, []), (2, False, [""]), (2, True, ["derived"]), (2, False, ["derived"])):
        entry_privileges.usual_scan.cache_clear()
        with patch.object(entry_privileges, "MOST_SCANNED", most):
            collection = collect(asked | {"deep": deep})
        collection.digests.save()
        bounds = [one for one in collection.entries if one.key == "/srv (bound reached)"]
        assert [one.origin.partition(" ")[0] for one in bounds] == origins
    entry_privileges.usual_scan.cache_clear()


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ("search example.org\nnameserver 192.0.2.53\n", True),
        ("nameserver 192.0.2.53\nnameserver 192.0.2.66\n", False),
        ("nameserver 192.0.2.53\noptions trust-ad\n", False),
        ("", False),
    ],
)
def test_a_resolver_has_the_servers_of_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, explained: bool
) -> None:
    host = AttributedHost(tmp_path, monkeypatch)
    host.package("tool", {"/usr/bin/tool": "x"})
    host.write(
        "/var/lib/dhcp/dhclient.eth0.leases", "lease {\n  option domain-name-servers 192.0.2.53, 192.0.2.54;\n}\n"
    )
    host.write("/etc/resolv.conf", text)
    entries, _ = host.attribute()
    assert bool(entries["/etc/resolv.conf"].origin) is explained
