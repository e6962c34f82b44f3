"""How keys and certificates reach a gateway's programs: brought whole, and given by root, with a record."""

import json
import os
import stat
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rigwright.gateway import certificate_authority, certificates, deployed_keys, keyring, secrets_distribution
from rigwright.gateway.certificates import CertificateSpec
from rigwright.gateway.keyring import ClientKey, ClientKeyring
from rigwright.gateway.keys_file_version import HostVersion
from rigwright.gateway.secrets_distribution import GATEWAY, GATEWAY_UNIT, ROUTER, ROUTER_UNIT
from roles.operations import secrets
from tests.unit.gateway_host import GatewayFolderHost, write_stand_in

RING = ClientKeyring(keys={"alice": ClientKey(sha256="a" * 64, made="2026-11-22")})
KEYS = keyring.keys_json(RING)
SECRET = "sk-0123456789.abcdef_~+/="


@pytest.fixture
def host(tmp_path: Path) -> GatewayFolderHost:
    made = GatewayFolderHost(tmp_path)
    made.install_generation()
    return made


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def before_versions(ring: ClientKeyring) -> str:
    """Keys as a controller from before there were versions gives them to a host."""
    rows = {"keys": keyring.key_rows(ring), "ending": keyring.expiring_rows(ring)}
    return json.dumps(rows, separators=(",", ":")) + "\n"


def write_keys_record(host: GatewayFolderHost, digest: str) -> None:
    """Have it written down that the router was given keys of this digest."""
    record = Path(host.relocate_script(secrets_distribution.KEYS_RECORD))
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(f"{digest}\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway-keys.toml"
    keyring.dump(path, RING)
    return path


def test_keys_lie_there_before_the_router_is_and_it_begins_with_them(
    host: GatewayFolderHost, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = host.run_operations(secrets, monkeypatch)
    assert host.carry_out(secrets.install_client_keys, file=str(file))
    lying = host.credentials / "gateway-keys.json"
    assert (lying.read_text(), mode(lying), host.reloaded_units, quiet) == (KEYS, "600", [], [])
    assert host.carry_out(secrets.install_client_keys, file=str(file)) == []
    # other readers are kept from it
    lying.chmod(0o644)
    assert host.carry_out(secrets.install_client_keys, file=str(file))
    assert mode(lying) == "600"
    assert host.run_program("give-keys").returncode == 0
    there = host.run / ROUTER / "keys.json"
    assert (there.read_text(), mode(there)) == (KEYS, "400")
    assert [path.name for path in there.parent.iterdir()] == ["keys.json"]
    assert host.keys_record == keyring.keys_digest(KEYS)


def test_a_router_that_runs_is_given_them_once(
    host: GatewayFolderHost, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = host.run_operations(secrets, monkeypatch)
    host.run_program("give-keys")
    host.set_unit_state(ROUTER, "active")
    assert json.loads((host.run / ROUTER / "keys.json").read_text()) == {"keys": []}
    assert len(host.carry_out(secrets.install_client_keys, file=str(file))) == 2
    assert (host.reloaded_units, host.keys_record) == ([ROUTER_UNIT], keyring.keys_digest(KEYS))
    assert host.carry_out(secrets.install_client_keys, file=str(file)) == []
    assert quiet == ["1 key of the gateway, up to date"]
    # one that began before they were brought, as after a run that was killed between the two
    host.keys_record_path.unlink()
    assert len(host.carry_out(secrets.install_client_keys, file=str(file))) == 1
    assert host.reloaded_units == [ROUTER_UNIT] * 2


def test_one_that_is_starting_is_waited_for(host: GatewayFolderHost) -> None:
    host.set_unit_state(ROUTER, "activating")
    (host.credentials / "gateway-keys.json").write_text(KEYS)
    words = ["sh", "-c", host.relocate_script(secrets_distribution.render_keys_reload(keyring.keys_digest(KEYS)))]
    process = subprocess.Popen(words, env={"PATH": f"{host.bin}:{os.environ['PATH']}"})
    assert host.reloaded_units == []
    host.set_unit_state(ROUTER, "active")
    assert process.wait(30) == 0
    assert host.reloaded_units == [ROUTER_UNIT]


def test_one_that_does_not_take_them_is_reported(host: GatewayFolderHost) -> None:
    host.set_unit_state(ROUTER, "active")
    host.systemctl.with_name(f"systemctl.reload.{ROUTER_UNIT}").write_text("true\n")
    done = host.run_script(secrets_distribution.render_keys_reload(keyring.keys_digest(KEYS)))
    assert (done.returncode, done.stderr.strip()) == (1, f"{ROUTER_UNIT} was not given what lies there now")


# no file of more than these blocks can be written, as on a disk without any left
FULL = "ulimit -f 0\ntrap '' XFSZ\n"


@pytest.mark.parametrize(("before", "sent", "said"), [("", KEYS[:-20], "was cut off"), (FULL, KEYS, "")])
def test_an_incomplete_file_never_takes_its_place(host: GatewayFolderHost, before: str, sent: str, said: str) -> None:
    lying = host.credentials / "gateway-keys.json"
    lying.write_text("before")
    script = secrets_distribution.render_secret_install(str(lying), keyring.keys_digest(KEYS))
    done = host.run_script(before + script, sent)
    assert (done.returncode, lying.read_text(), list(host.credentials.iterdir())) == (1, "before", [lying])
    assert said in done.stderr


def test_without_the_file_of_keys_no_client_loses_its_key(
    host: GatewayFolderHost, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run_operations(secrets, monkeypatch)
    host.carry_out(secrets.install_client_keys, file=str(file))
    write_keys_record(host, keyring.keys_digest(KEYS))
    file.unlink()
    (command,) = secrets.install_client_keys._inner(roots=host.rig.roots, file=str(file))
    done = host.run_script(command.get_raw_value())
    assert (done.returncode, f"{file} is not there: bring it back, or create it empty" in done.stderr) == (1, True)
    file.write_text("nonsense")
    (command,) = secrets.install_client_keys._inner(roots=host.rig.roots, file=str(file))
    done = host.run_script(command.get_raw_value())
    assert (done.returncode, "cannot be read as TOML" in done.stderr) == (1, True)
    file.unlink()
    # a file that it was not given is foreign, and goes
    lying = host.credentials / "gateway-keys.json"
    lying.write_text(before_versions(RING.with_key("eve", ClientKey(sha256="e" * 64, made="2026-11-22"))))
    host.carry_out(secrets.install_client_keys, file=str(file))
    assert lying.read_text() == keyring.keys_json(ClientKeyring())
    # and so do all, where that is meant
    host.carry_out(secrets.install_client_keys, file=str(file))
    lying.write_text(KEYS)
    write_keys_record(host, keyring.keys_digest(KEYS))
    file.touch()
    emptied = keyring.keys_json(keyring.write_version(file, "test", advance=True))
    replaced = deployed_keys.render_key_delivery(
        host.rig.roots,
        keyring.keys_digest(emptied),
        keyring.load_keyring(file).current_version,
        "{}",
        1,
        HostVersion(1, RING.current_version.id),
    )
    assert host.run_script(replaced, emptied).returncode == 0
    assert json.loads(lying.read_text())["keys"] == []
    assert host.carry_out(secrets.install_client_keys, file=str(file)) == []


def test_the_process_learns_of_keys_after_they_are_there(host: GatewayFolderHost, tmp_path: Path) -> None:
    program = 'trap \'cat "$1" > "$2"; exit\' HUP; echo; while :; do sleep 0.05; done'
    # the process that runs the tests may ignore it, and a shell cannot trap a signal that was ignored before
    places = [str(host.run / ROUTER / "keys.json"), str(tmp_path / "heard")]
    words = ["env", "--default-signal=HUP", "sh", "-c", program, "router", *places]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    (host.credentials / "gateway-keys.json").write_text(KEYS)
    assert host.run_program("give-keys", str(process.pid)).returncode == 0
    process.wait(10)
    assert (tmp_path / "heard").read_text() == KEYS


def test_a_router_that_goes_on_with_other_keys_is_not_noted_to_have_these(host: GatewayFolderHost) -> None:
    (host.credentials / "gateway-keys.json").write_text(KEYS)
    assert host.run_program("give-keys").returncode == 0
    write_stand_in(host.bin, "curl", "echo '{}'")
    process = subprocess.Popen(["sh", "-c", "trap '' HUP; exec sleep 60"])
    done = host.run_program("give-keys", str(process.pid))
    process.kill()
    process.wait()
    assert (done.returncode, done.stderr) == (1, "the router still uses other keys; its journal says why\n")
    assert host.read_record(secrets_distribution.KEYS_RECORD) == ""


def test_root_follows_no_link_of_the_routers(host: GatewayFolderHost, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("keys.json", "keys.json.new", "keys.json.all"):
        (host.run / ROUTER / name).symlink_to(victim)
    assert host.run_program("give-keys").returncode == 0
    assert victim.read_text() == "precious"
    assert not (host.run / ROUTER / "keys.json").is_symlink()
    # nothing is opened there before root's rights are given up
    assert all(
        "--no-new-privs sh -c" in line for line in host.setpriv_arguments.splitlines() if line.startswith("--reuid")
    )


def test_one_that_was_killed_in_between_is_not_taken_for_given(host: GatewayFolderHost) -> None:
    host.run_program("give-keys")
    assert host.keys_record
    # it dies with the first program that gives up root's rights
    host.setpriv.write_text("#!/bin/sh\nkill -9 $PPID\n")
    (host.credentials / "gateway-keys.json").write_text(KEYS)
    process = subprocess.Popen(
        [str(host.current / "give-keys")], env={"PATH": f"{host.bin}:{os.environ['PATH']}"}, stderr=subprocess.DEVNULL
    )
    assert process.wait(10) != 0
    assert host.keys_record == ""
    assert json.loads((host.run / ROUTER / "keys.json").read_text()) == {"keys": []}


def engine_key(host: GatewayFolderHost, content: bytes = f"{SECRET}\n".encode(), name: str = "chat.api-key") -> Path:
    path = host.credentials / name
    path.write_bytes(content)
    return path


def pair_of(host: GatewayFolderHost, *names: str) -> certificates.CertificatePair:
    return certificate_authority.ensure_authority(
        host.folder / "gateway-ca", certificate_authority.certificate_now()
    ).issue(names or ("gpu",), certificate_authority.certificate_now())


def test_the_gateway_is_given_keys_of_engines_and_certificates(host: GatewayFolderHost) -> None:
    pair = pair_of(host)
    engine_key(host)
    engine_key(host, b"f" * 64 + b"\n", "code.0123456789ab.api-key")
    (host.credentials / "gateway-lan.pem").write_text(pair.text)
    host.install_generation({"chat": "chat.api-key", "code-2": "code.0123456789ab.api-key"}, ("lan",))
    tls = host.run / GATEWAY / "tls"
    tls.mkdir()
    (tls / "old.crt").write_text("old")
    done = host.run_program("prepare")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    keys = host.run / GATEWAY / "engine-keys.json"
    assert json.loads(keys.read_text()) == {"chat": SECRET, "code-2": "f" * 64}
    assert {path.name: path.read_text() for path in tls.iterdir()} == {
        "lan.crt": pair.expected_facts.head,
        "lan.key": pair.key,
    }
    assert {mode(path) for path in (keys, *tls.iterdir())} == {"400"}
    assert SECRET not in host.setpriv_arguments
    assert "PRIVATE KEY" not in host.setpriv_arguments
    found = host.read_secrets_facts()
    assert found.credentials == found.credentials_given == host.credentials_record
    assert mode(Path(host.relocate_script(secrets_distribution.CREDENTIALS_RECORD))) == "600"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        SECRET.encode(),
        f"{SECRET}\n{SECRET}\n".encode(),
        f"\n{SECRET}".encode(),
        f'{SECRET}"\n'.encode(),
        f"{SECRET}\\\n".encode(),
        f"{SECRET} x\n".encode(),
        f"{SECRET}\r\n".encode(),
        f"{SECRET}\0\n".encode(),
        f"{SECRET}é\n".encode(),
        b"\xff\n",
        f"{SECRET}$(id)\n".encode(),
    ],
)
def test_an_invalid_key_is_not_given(host: GatewayFolderHost, content: bytes) -> None:
    host.install_generation({"chat": "chat.api-key"})
    engine_key(host)
    host.run_program("prepare")
    before = (host.run / GATEWAY / "engine-keys.json").read_bytes()
    engine_key(host, content)
    done = host.run_program("prepare")
    assert (done.returncode, done.stderr) == (1, "chat has no valid API key: deploy again\n")
    assert (host.run / GATEWAY / "engine-keys.json").read_bytes() == before


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "listener lan has no certificate"),
        (lambda path: path.write_text(path.read_text()[:-80]), "do not belong together"),
        (lambda path: path.write_text(path.read_text().split("\n", 1)[1]), "do not belong together"),
        (lambda path: path.write_text(""), "do not belong together"),
    ],
    ids=["gone", "cut off", "without its first line", "empty"],
)
def test_half_a_pair_is_not_given(host: GatewayFolderHost, spoil: Callable[[Path], object], said: str) -> None:
    path = host.credentials / "gateway-lan.pem"
    path.write_text(pair_of(host).text)
    host.install_generation({}, ("lan",))
    spoil(path)
    done = host.run_program("prepare")
    assert (done.returncode, said in done.stderr) == (1, True)
    assert "PRIVATE" not in done.stderr
    assert not (host.run / GATEWAY / "tls").exists()


def test_certificates_are_made_once_and_again_for_other_names(
    host: GatewayFolderHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = host.run_operations(secrets, monkeypatch)
    host.install_generation({}, ("lan",))
    lan = CertificateSpec("lan", ("10.0.0.5", "gpu"))
    (script,) = host.carry_out(secrets.install_certificates, wanted=[lan])
    assert "PRIVATE" not in script
    path = host.credentials / "gateway-lan.pem"
    assert mode(path) == "600"
    text = path.read_text()
    assert host.carry_out(secrets.install_certificates, wanted=[lan]) == []
    assert quiet == ["1 certificate up to date"]
    host.carry_out(secrets.install_certificates, wanted=[CertificateSpec("lan", ("10.0.0.5", "gpu", "gpu.lan"))])
    assert path.read_text() != text
    # it is given with the next reload, and then no more
    host.set_unit_state(GATEWAY, "active")
    assert len(host.carry_out(secrets.reload_credentials)) == 1
    assert host.carry_out(secrets.reload_credentials) == []
    assert host.reloaded_units == [GATEWAY_UNIT]
    key = next(path for path in (host.run / GATEWAY / "tls").iterdir() if path.name == "lan.key")
    assert path.read_text().endswith(key.read_text())


def test_one_that_is_about_to_end_is_made_anew(host: GatewayFolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.run_operations(secrets, monkeypatch)
    lan = CertificateSpec("lan", ("gpu",))
    host.carry_out(secrets.install_certificates, wanted=[lan])
    later = certificate_authority.certificate_now() + timedelta(days=61)
    monkeypatch.setattr(certificate_authority, "certificate_now", lambda: later)
    assert len(host.carry_out(secrets.install_certificates, wanted=[lan])) == 1


def test_a_plan_makes_no_authority(host: GatewayFolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.run_operations(secrets, monkeypatch, executing=False)
    assert list(
        secrets.install_certificates._inner(
            inventory=host.rig.inventory, roots=host.rig.roots, wanted=[CertificateSpec("lan", ("gpu",))]
        )
    )
    assert not (host.folder / "gateway-ca").exists()


def test_files_of_the_operators_are_brought_and_compared(
    host: GatewayFolderHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run_operations(secrets, monkeypatch)
    pair = pair_of(host)
    (tmp_path / "own.crt").write_text(pair.certificates)
    (tmp_path / "own.key").write_text(pair.key)
    wanted = [CertificateSpec("lan", ("gpu",), str(tmp_path / "own.crt"), str(tmp_path / "own.key"))]
    assert len(host.carry_out(secrets.install_certificates, wanted=wanted)) == 1
    assert (host.credentials / "gateway-lan.pem").read_text() == pair.text
    assert host.carry_out(secrets.install_certificates, wanted=wanted) == []
    (tmp_path / "own.key").unlink()
    (refused,) = secrets.install_certificates._inner(inventory=host.rig.inventory, roots=host.rig.roots, wanted=wanted)
    done = host.run_script(refused.get_raw_value())
    assert (done.returncode, done.stderr.strip()) == (1, f"listener lan: {tmp_path}/own.key does not exist")


def test_pairs_go_when_no_generation_has_their_listener(
    host: GatewayFolderHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run_operations(secrets, monkeypatch)
    host.install_generation({}, ("lan",))
    host.carry_out(
        secrets.install_certificates, wanted=[CertificateSpec("lan", ("gpu",)), CertificateSpec("wan", ("gpu",))]
    )
    (host.credentials / "gateway-A B\n.pem").write_text("somebody's")
    (script,) = host.carry_out(secrets.install_certificates, wanted=[])
    assert "gateway-wan.pem" in script
    assert sorted(path.name for path in host.credentials.iterdir()) == ["gateway-A B\n.pem", "gateway-lan.pem"]


def test_a_start_does_not_wait_for_ever(host: GatewayFolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets_distribution, "TRIES", 2)
    host.set_unit_state(ROUTER, "activating")
    began = time.monotonic()
    assert host.run_script(secrets_distribution.render_keys_reload("0" * 64)).returncode == 0
    assert time.monotonic() - began < 10
