"""Host keys: the declarations of an inventory, and the hosts that Rigwright refuses to log in to."""

import base64
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from rigwright.declaration.connection import parse_host_key
from rigwright.project_root import ROOT
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd

LIMIT = 120  # seconds, for a machine with much else to do
PYINFRA = str(Path(sys.executable).with_name("pyinfra"))


def make_host_key(kind: str, folder: Path, *options: str) -> tuple[str, str]:
    """A key of OpenSSH's own making and its fingerprint."""
    file = folder / f"made-{kind}"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, *options, "-N", "", "-C", "root@box", "-f", file], check=True)
    said = subprocess.run(["ssh-keygen", "-lf", file], capture_output=True, text=True, check=True).stdout
    return file.with_suffix(".pub").read_text().strip(), said.split()[1]


@pytest.mark.parametrize(
    ("kind", "options"), [("ed25519", ()), ("ecdsa", ("-b", "256")), ("ecdsa", ("-b", "521")), ("rsa", ("-b", "2048"))]
)
def test_a_key_has_the_fingerprint_that_openssh_prints(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    text, fingerprint = make_host_key(kind, tmp_path, *options)
    key = parse_host_key(text)
    assert (key.fingerprint, text) == (fingerprint, f"{key} root@box")
    assert parse_host_key(str(key)) == key
    assert key.comparison_command == f"ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"


def blob(kind: str, *parts: bytes) -> str:
    """A key of this kind, whatever is in it."""
    fields = b"".join(len(one).to_bytes(4, "big") + one for one in parts)
    return f"{kind} {base64.b64encode(fields).decode()}"


ED, RSA, EC = b"ssh-ed25519", b"ssh-rsa", b"ecdsa-sha2-nistp256"
E = bytes([3])
GOOD = blob("ssh-ed25519", ED, bytes(32))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "a host's public key: ssh-ed25519"),
        (GOOD.replace("ssh-ed25519", "ssh-dss"), "a host's public key: ssh-ed25519"),
        ("SHA256:" + "a" * 43, "a host's public key: ssh-ed25519"),
        (f"{GOOD} x\ny", "a host's public key: ssh-ed25519"),
        (f"192.0.2.7 {GOOD}", "a host's public key: ssh-ed25519"),
        ("ssh-ed25519 é", "is not base64"),
        (GOOD[:-1], "is not base64"),
        (blob("ssh-ed25519", ED, bytes(31)), "contains no key of type ssh-ed25519"),
        (blob("ssh-ed25519", ED, bytes(32), b""), "contains no key of type ssh-ed25519"),
        (blob("ssh-ed25519", RSA, bytes(32)), "contains no key of type ssh-ed25519"),
        ("ssh-ed25519 /////w==", "contains no key of type ssh-ed25519"),
        (blob("ssh-rsa", RSA, b"", bytes([1]) * 256), "contains no key of type ssh-rsa"),
        (blob("ssh-rsa", RSA, E, bytes([1]) * 64), "contains no key of type ssh-rsa"),
        (blob("ssh-rsa", RSA, E, bytes([255]) * 256), "contains no key of type ssh-rsa"),
        (blob("ecdsa-sha2-nistp256", EC, b"nistp384", bytes([4]) * 65), "contains no key of type ecdsa-sha2-nistp256"),
        (blob("ecdsa-sha2-nistp256", EC, b"nistp256", bytes([5]) * 65), "contains no key of type ecdsa-sha2-nistp256"),
    ],
)
def test_an_invalid_key_is_refused(box: OperatorFolder, key: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_host_key(key)
    (line,) = box.refusal_lines(ssh_host_key=key)
    assert "box.ssh_host_key: " in line


@pytest.mark.parametrize("key", [None, 5, b"ssh-ed25519 x", [GOOD]])
def test_other_values_than_text_are_refused(box: OperatorFolder, key: object) -> None:
    assert "box.ssh_host_key: " in box.refusal_lines(ssh_host_key=key)[0]


@pytest.mark.parametrize("other", [{"ssh_known_hosts_file": "x"}, {"ssh_strict_host_key_checking": "no"}])
def test_a_declared_key_is_the_only_authority(box: OperatorFolder, other: dict[str, object]) -> None:
    (line,) = box.refusal_lines(ssh_host_key=GOOD, **other)
    assert line.endswith(f"box.{next(iter(other))}: conflicts with ssh_host_key: only that key is accepted")


@pytest.fixture
def host(box: OperatorFolder) -> Iterator[StandInSshd]:
    with run_sshd(box.folder / "host") as found:
        found.add_program("systemctl", "")
        yield found


@pytest.fixture
def home(box: OperatorFolder) -> Path:
    """The operator's home, where nothing is known of any host."""
    folder = box.folder / "home"
    (folder / ".ssh").mkdir(parents=True)
    return folder


def declare(box: OperatorFolder, host: StandInSshd, **keys: object) -> None:
    """An inventory of the host, with some keys of the connection changed; None takes one away."""
    changed = {**sample_entry(cards=[], instances=chat_instances()), **host.connection, **keys}
    own = {key: value for key, value in changed.items() if value is not None}
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {own!r}}})\n")


def run(box: OperatorFolder, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOME": str(home)}
    return subprocess.run(
        words, capture_output=True, text=True, env=environment, timeout=LIMIT, check=False, cwd=box.folder
    )


def logs(box: OperatorFolder, home: Path) -> subprocess.CompletedProcess[str]:
    """A verb that connects, over the same inventory as every other."""
    return run(box, home, sys.executable, "-m", "cli", "logs", str(box.inventory))


def plain_pyinfra(box: OperatorFolder, home: Path) -> subprocess.CompletedProcess[str]:
    return run(box, home, PYINFRA, str(box.inventory), str(ROOT / "deploy.py"), "--dry")


@pytest.fixture(params=["logs", "pyinfra"])
def connect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """A verb of ours, and pyinfra as it is."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return {"logs": logs, "pyinfra": plain_pyinfra}[request.param]


def other_key() -> str:
    key = paramiko.ECDSAKey.generate()
    return f"{key.get_name()} {key.get_base64()}"


def known_hosts(home: Path) -> str:
    file = home / ".ssh/known_hosts"
    return file.read_text() if file.exists() else ""


def test_a_host_with_the_declared_key_is_logged_in_to_wherever_it_is(box, host, home, connect):
    # known_hosts says otherwise of this address: a box that had it before
    before = f"[127.0.0.1]:{host.port} {other_key()}\n"
    (home / ".ssh/known_hosts").write_text(before)
    declare(box, host)
    done = connect(box, home)
    assert host.login_count, done.stderr
    assert "host key" not in (done.stdout + done.stderr).lower()
    assert known_hosts(home) == before


def test_a_host_with_another_key_is_sent_nothing(box, host, home, connect):
    # known_hosts has the very key: it is not asked
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{host.port} {host.host_key}\n")
    expected = other_key()
    declare(box, host, ssh_host_key=expected)
    done = connect(box, home)
    assert (host.login_count, host.run_commands) == (0, []), done.stdout + done.stderr
    assert done.returncode != 0
    (line,) = [one for one in (done.stdout + done.stderr).splitlines() if "SHA256:" in one]
    fingerprints = [parse_host_key(expected).fingerprint, parse_host_key(host.host_key).fingerprint]
    assert re.findall(r"SHA256:\S{43}", line) == fingerprints
    assert "ssh-keygen -lf /etc/ssh/ssh_host_rsa_key.pub" in line
    assert f"rigwright key host {box.inventory} --limit box" in line


def test_an_unknown_host_is_sent_nothing_and_not_remembered(box, host, home, connect):
    declare(box, host, ssh_host_key=None)
    done = connect(box, home)
    assert (host.login_count, host.run_commands, known_hosts(home)) == (0, [], ""), done.stdout + done.stderr
    assert done.returncode != 0
    (line,) = [one for one in (done.stdout + done.stderr).splitlines() if "SHA256:" in one]
    assert parse_host_key(host.host_key).fingerprint in line
    assert f"rigwright key host {box.inventory} --limit box" in line


def test_without_a_declared_key_known_hosts_is_believed(box, host, home, connect):
    declare(box, host, ssh_host_key=None)
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{host.port} {host.host_key}\n")
    done = connect(box, home)
    assert host.login_count, done.stdout + done.stderr
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{host.port} {other_key()}\n")
    before = host.login_count
    assert connect(box, home).returncode != 0
    assert host.login_count == before


def run_host_key(box: OperatorFolder, home: Path) -> subprocess.CompletedProcess[str]:
    return run(box, home, sys.executable, "-m", "cli", "key", "host", str(box.inventory))


def test_host_key_shows_what_to_declare_and_logs_in_nowhere(box, host, home, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    line = f'  "ssh_host_key": "{host.host_key}",'
    shown = f"box: {parse_host_key(host.host_key).fingerprint} (ssh-rsa), "
    declare(box, host)
    done = run_host_key(box, home)
    assert (done.returncode, done.stdout) == (0, f"{shown}as declared\n"), done.stderr
    other = other_key()
    declare(box, host, ssh_host_key=other)
    done = run_host_key(box, home)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"{shown}expected {parse_host_key(other).fingerprint}\n")
    assert done.stdout.splitlines()[-1] == line
    declare(box, host, ssh_host_key=None)
    done = run_host_key(box, home)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"{shown}which is unverified\n")
    assert done.stdout.splitlines()[-1] == line
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{host.port} {host.host_key}\n")
    done = run_host_key(box, home)
    assert (done.returncode, done.stdout) == (0, f"{shown}as in known_hosts; to declare it:\n{line}\n"), done.stderr
    (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{host.port} {other}\n")
    done = run_host_key(box, home)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, f"{shown}expected {parse_host_key(other).fingerprint}")
    assert (host.login_count, host.run_commands) == (0, [])


def test_host_key_says_which_host_is_out_of_reach(box, host, home, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    declare(box, host, ssh_port=1)
    done = run_host_key(box, home)
    assert (done.returncode, done.stdout) == (3, "")
    cause = "Connection refused (port 1 of 127.0.0.1)"
    remedy = "check the port (inventory: ssh_port; init: HOST:PORT), and that sshd runs there"
    assert done.stderr == f"box: cannot be reached: {cause}: {remedy}\n"
    assert done.stderr.count("\n") == 1
