"""A deploy and its plan with a keys file that the host's keys were not made into: both refuse, and name the keys."""

from dataclasses import replace
from pathlib import Path

import pytest

from checks.connections import ConnectedHost
from cli.plan import _keys_refusals
from rigwright.gateway import keyring, secrets_distribution
from rigwright.gateway.keyring import ClientKey, ClientKeyring
from rigwright.model.gateway_schema import Gateway
from roles.gateway import host_key_file_problems
from roles.operations import secrets
from tests.unit.gateway_host import GatewayFolderHost
from tests.unit.test_secrets_distribution import before_versions, write_keys_record

FIRST = ClientKeyring(keys={"alice": ClientKey(sha256="a" * 64, made="2026-11-22")})


@pytest.fixture
def host(tmp_path: Path) -> GatewayFolderHost:
    made = GatewayFolderHost(tmp_path)
    made.install_generation()
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway-keys.toml"
    keyring.dump(path, FIRST)
    return path


@pytest.fixture
def older(host: GatewayFolderHost, file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The text of the file as it is before a revocation that the host has."""
    text = file.read_text()
    host.run_operations(secrets, monkeypatch)
    host.carry_out(secrets.install_client_keys, file=str(file))
    keyring.dump(file, keyring.load_keyring(file).with_key("alice", None))
    host.carry_out(secrets.install_client_keys, file=str(file))
    file.write_text(text)
    return text


def test_a_deploy_with_an_older_file_changes_no_key(host: GatewayFolderHost, file: Path, older: str) -> None:
    lying = host.credentials / "gateway-keys.json"
    before = lying.read_bytes()
    (command,) = secrets.install_client_keys._inner(roots=host.rig.roots, file=str(file))
    done = host.run_script(command.get_raw_value())
    assert (done.returncode, lying.read_bytes(), file.read_text()) == (1, before, older)
    assert f"{file} is older: serial 1, and this host has serial 2; 1 key would return: alice" in done.stderr
    assert "key sync INVENTORY --replace-newer" in done.stderr


def test_a_deploy_and_its_plan_are_refused_before_anything_is_touched(host, file, older, monkeypatch):
    rig = replace(host.rig, gateway=Gateway.model_construct(listeners={"lan": None}, keys_file=file.name))
    (refusal,) = host_key_file_problems(rig)
    assert "1 key would return: alice" in refusal
    box = ConnectedHost("box", rig, host)
    monkeypatch.setattr(
        ConnectedHost, "_run", lambda box, script, stdin="", limit=None: host.answer_command(host, script, stdin)
    )
    assert _keys_refusals(box) == [refusal]
    keyring.dump(file, keyring.load_keyring(file).with_key("alice", None))
    assert (host_key_file_problems(rig), _keys_refusals(box)) == ([], [])
    assert host_key_file_problems(replace(rig, gateway=None)) == []


def test_keys_that_came_after_a_deploy_had_looked_are_not_replaced(host, file, older):
    lying = host.credentials / "gateway-keys.json"
    before, ring = lying.read_bytes(), keyring.load_keyring(file)
    text = keyring.keys_json(ring)
    done = host.run_script(
        secrets_distribution.render_secret_install(str(lying), keyring.keys_digest(text), ring.current_version), text
    )
    assert (done.returncode, lying.read_bytes()) == (1, before)
    assert "the keys on this host are no earlier version of these" in done.stderr


@pytest.mark.parametrize("lying", [before_versions(ClientKeyring()), keyring.keys_json(ClientKeyring())])
def test_a_gateway_without_keys_needs_no_file(host, tmp_path, monkeypatch, lying):
    host.run_operations(secrets, monkeypatch)
    (host.credentials / "gateway-keys.json").write_text(lying)
    (host.credentials / "gateway-keys.json").chmod(0o600)
    write_keys_record(host, keyring.keys_digest(lying))
    host.carry_out(secrets.install_client_keys, file=str(tmp_path / "gateway-keys.toml"))
    assert (host.credentials / "gateway-keys.json").read_text() == keyring.keys_json(ClientKeyring())
    assert not (tmp_path / "gateway-keys.toml").exists()


@pytest.mark.parametrize("executing", [False, True])
def test_a_run_writes_a_version_into_a_file_without_one_and_a_plan_does_not(host, file, monkeypatch, executing):
    host.run_operations(secrets, monkeypatch, executing)
    old = file.read_text().partition("\n# orders")[0] + "\n"
    file.write_text(old)
    lying = host.credentials / "gateway-keys.json"
    lying.write_text(before_versions(FIRST.with_key("eve", ClientKey(sha256="e" * 64, made="2026-11-22"))))
    host.carry_out(secrets.install_client_keys, file=str(file))
    # a plan compares with the files that the run brings
    assert lying.read_text() == keyring.keys_json(FIRST)
    assert (file.read_text() == old) is not executing
    assert keyring.load_keyring(file).current_version == FIRST.current_version


def test_keys_that_were_changed_on_the_host_are_put_right(host, file, monkeypatch):
    host.run_operations(secrets, monkeypatch)
    host.carry_out(secrets.install_client_keys, file=str(file))
    lying = host.credentials / "gateway-keys.json"
    wanted = lying.read_text()
    for other in (wanted.replace("a" * 64, "e" * 64), wanted[:-30], "junk", ""):
        lying.write_text(other)
        host.carry_out(secrets.install_client_keys, file=str(file))
        assert lying.read_text() == wanted


def test_a_file_that_cannot_have_its_version_written_ends_the_run_of_its_host(host, file, monkeypatch):
    host.run_operations(secrets, monkeypatch)
    file.write_text(file.read_text().partition("\n# orders")[0] + "\n")
    file.with_name(f".{file.name}.lock").symlink_to("elsewhere")
    (command,) = secrets.install_client_keys._inner(roots=host.rig.roots, file=str(file))
    done = host.run_script(command.get_raw_value())
    assert (done.returncode, f"{file.name}.lock: is a symbolic link: remove it" in done.stderr) == (1, True)
