"""known_hosts as OpenSSH reads it: no line hides another, and no key that is revoked or unverified passes silently."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from pyinfra.connectors.sshuserclient.client import AcceptNewPolicy, AskPolicy, StrictPolicy, WarningPolicy

from roles import known_hosts_reader, ssh_transport
from roles.known_hosts_reader import KnownHosts, matches_pattern

KEY, OTHER = (paramiko.RSAKey.generate(1024) for _ in range(2))
LINE, REST = f"box1 ssh-rsa {KEY.get_base64()}", f"ssh-rsa {OTHER.get_base64()}"
UNREADABLE = [
    f"@cert-authority *.example.org {REST}",
    "box9 sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA==",
    "box9 ssh-rsa AAAAB3NzaC1yc2EAAAAD",
    "box9 ssh-ed25519",
    "box9 ssh-ed25519 !!!!",
    "@revoked box9 ssh-ed25519 AAAA",
    "\x00\x01\xff",
]


def known_hosts_file(tmp_path: Path, *lines: str, end: str = "\n") -> KnownHosts:
    (tmp_path / "known_hosts").write_bytes(end.join([*lines, ""]).encode("latin-1"))
    hosts = KnownHosts()
    hosts.load(str(tmp_path / "known_hosts"))
    return hosts


@pytest.mark.parametrize("line", [one for one in UNREADABLE if not one.startswith("@revoked")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_that_cannot_be_read_hides_no_other(tmp_path: Path, line: str, end: str) -> None:
    hosts = known_hosts_file(tmp_path, "# a comment", line, "", LINE, end=end)
    assert (hosts.lookup("box1")["ssh-rsa"], hosts.skipped) == (KEY, [f"{tmp_path}/known_hosts:2"])


def test_a_revoked_key_matches_no_host(tmp_path: Path) -> None:
    hosts = known_hosts_file(tmp_path, LINE, f"@revoked * ssh-rsa {KEY.get_base64()}", f"box2 {REST}")
    assert hosts.is_revoked(KEY)
    assert hosts.lookup("box1")["ssh-rsa"] != KEY
    assert (hosts.lookup("box1").keys()[0], hosts.lookup("box2")["ssh-rsa"]) == ("ssh-rsa", OTHER)


@pytest.mark.parametrize(
    ("patterns", "host", "found"),
    [
        ("*.example.org", "box1.example.org", True),
        ("*.example.org,!box1.example.org", "box1.example.org", False),
        ("box?", "box1", True),
        ("box?", "box12", False),
        ("[box1]:2222", "[box1]:2222", True),
        ("[box1]:2222", "b:2222", False),
        (paramiko.HostKeys.hash_host("box1"), "box1", True),
        (paramiko.HostKeys.hash_host("box1"), "box2", False),
    ],
)
def test_names_and_patterns(tmp_path: Path, patterns: str, host: str, found: bool) -> None:
    assert (known_hosts_file(tmp_path, f"{patterns} {REST}").lookup(host) is not None) == found


def test_brackets_are_no_pattern() -> None:
    assert not matches_pattern("b", "[ab]")


def client(hosts: KnownHosts) -> Any:
    return SimpleNamespace(_host_keys=hosts, _host_keys_filename=None, close=lambda: None, get_transport=lambda: None)


def test_an_unknown_jump_host_is_refused_on_a_pipe_with_its_fingerprint(tmp_path: Path) -> None:
    hosts = known_hosts_file(tmp_path, LINE)
    with pytest.raises(paramiko.SSHException, match=r"SHA256:.*Rigwright has sent no data") as refused:
        AskPolicy().missing_host_key(client(hosts), "hop", OTHER)
    assert ssh_transport.as_host_key(OTHER).fingerprint in str(refused.value)


@pytest.mark.parametrize("policy", [AcceptNewPolicy, AskPolicy, StrictPolicy, WarningPolicy])
def test_a_revoked_key_of_an_unknown_host_is_refused(tmp_path: Path, policy: Any) -> None:
    hosts = known_hosts_file(tmp_path, f"@revoked * {REST}")
    with pytest.raises(paramiko.SSHException, match="which known_hosts revokes"):
        policy().missing_host_key(client(hosts), "hop", OTHER)


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").mkdir()
    with pytest.raises(OSError, match="directory"):
        KnownHosts().load(str(tmp_path / "known_hosts"))


@pytest.mark.parametrize("space", ["  ", "\t", " \t "])
def test_white_space_of_any_kind_separates_the_fields_of_a_revocation(tmp_path: Path, space: str) -> None:
    assert known_hosts_file(tmp_path, space.join(["@revoked", "*", "ssh-rsa", KEY.get_base64()])).is_revoked(KEY)


@pytest.mark.parametrize("line", ["@revoked", "@revoked\t*", "@revoked box9 ssh-ed25519 AAAA"])
def test_a_revocation_that_cannot_be_read_has_no_key_relied_on(tmp_path: Path, line: str) -> None:
    hosts = known_hosts_file(tmp_path, line, LINE)
    assert hosts.unreadable_revocations == hosts.skipped == [f"{tmp_path}/known_hosts:1"]
    with pytest.raises(paramiko.SSHException, match="known_hosts:1 revokes a host key and is not readable"):
        hosts.lookup("box1")
    with pytest.raises(paramiko.SSHException, match="is not readable"):
        WarningPolicy().missing_host_key(client(hosts), "hop", OTHER)


def test_the_systems_own_files_are_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_hosts_reader, "SYSTEM_FILES", (str(tmp_path / "system"), str(tmp_path / "absent")))
    (tmp_path / "system").write_text(f"{LINE}\n@revoked * {REST}\n")
    hosts = known_hosts_reader.load_known_hosts([str(tmp_path / "mine")])
    assert hosts.lookup("box1")["ssh-rsa"] == KEY
    assert hosts.is_revoked(OTHER)
    assert known_hosts_reader.load_known_hosts(["/dev/null"]).lookup("box1") is None
