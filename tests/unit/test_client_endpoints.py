"""Where clients on a box ask: instances' own sockets, and the gateway's front door."""

from pathlib import Path
from typing import Any

import pytest

from rigwright.gateway.served_models import offers_of
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.operate.client_target import NoClientTarget, gateway_target, instance_target, load_key_line
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

KEYED = {"address": "192.0.2.7", "port": 8000}


def load_gateway_rig(box: OperatorFolder, **listeners: Any) -> Rig:
    gateway = {"gateway": {"listeners": listeners}} if listeners else {}
    ((_, data),) = box.load_group({"box": sample_entry(cards=[], instances=chat_instances(), **gateway)})
    return load_rig(data["rig"])


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "client.key").write_text("a-clients-key\n")
    return str(tmp_path / "client.key")


def test_an_instance_is_asked_at_its_socket_with_its_own_key(box: OperatorFolder) -> None:
    rig = load_gateway_rig(box, office=KEYED)
    found = instance_target(rig.roots, rig.accounts, rig.gateway, rig.instances[0])
    assert (found.at, found.key, found.authority) == ("/run/rigwright/instances/chat/api.sock", "", "")
    assert found.credential.startswith("/etc/rigwright/credentials/chat")
    # before it has answered the first, after that the second
    assert found.groups == ("rigwright-chat", "rigwright_gateway")


def test_the_front_door_wants_a_clients_key(box: OperatorFolder, key: str) -> None:
    rig = load_gateway_rig(box, office=KEYED)
    with pytest.raises(NoClientTarget, match="listener office needs a client's key: --key-file"):
        gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0])
    found = gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0], None, key)
    assert (found.at, found.key, found.credential, found.groups) == ("192.0.2.7:8000", "a-clients-key", "", ())
    assert found.model == offers_of(rig.instances, rig.gateway)[0].name


def test_an_open_door_is_shown_no_key(box: OperatorFolder, key: str) -> None:
    rig = load_gateway_rig(box, lab={"address": "0.0.0.0", "port": 8001, "keys": False})
    found = gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0], "lab", key)
    assert (found.at, found.key) == ("127.0.0.1:8001", "")


def test_tls_is_held_to_the_operators_authority(box: OperatorFolder, key: str) -> None:
    rig = load_gateway_rig(box, office={**KEYED, "tls": True, "names": ["ai.example.org"]})
    with pytest.raises(NoClientTarget, match=r"gateway-ca/ca\.crt: No such file"):
        gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0], None, key)
    (box.folder / "gateway-ca").mkdir()
    (box.folder / "gateway-ca" / "ca.crt").write_text("a certificate")
    found = gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0], None, key)
    assert (found.authority, found.tls_name) == ("a certificate", "ai.example.org")


def test_missing_objects_are_named(box: OperatorFolder, key: str) -> None:
    rig = load_gateway_rig(box, office=KEYED)
    with pytest.raises(NoClientTarget, match='there is no listener "ofice"; did you mean "office"'):
        gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0], "ofice", key)
    rig = load_gateway_rig(box)
    with pytest.raises(NoClientTarget, match="behind no gateway"):
        gateway_target(rig.inventory, rig.instances, rig.gateway, rig.instances[0])


@pytest.mark.parametrize("text", [b"", b"two\nlines\n", b"\xff\n", b"x" * 600, b"a\x1b[31m"])
def test_a_file_that_is_no_key_is_refused_without_being_shown(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "k").write_bytes(text)
    with pytest.raises(NoClientTarget) as refused:
        load_key_line(str(tmp_path / "k"))
    assert "two" not in str(refused.value)
