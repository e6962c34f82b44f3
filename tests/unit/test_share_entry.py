"""An inventory's keys of shared weights."""

import pytest

from rigwright.inventory import load_rig
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry


def test_an_instance_and_shared_weights_on_one_port_are_refused(box: OperatorFolder) -> None:
    share = {"address": "192.0.2.7", "port": 8020, "allow": ["192.0.2.0/24"]}
    (line,) = box.refusal_lines(instances=chat_instances(), share=share)
    assert line == f"{box.inventory}: box.share.port: 8020 is already the port of chat: choose another"


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1"])
def test_weights_are_shared_on_one_address(box: OperatorFolder, address: str) -> None:
    (line,) = box.refusal_lines(share={"address": address, "allow": ["192.0.2.0/24"]})
    assert line.endswith(f"share.address: '{address}' is refused: must be an IP address of the host, a single one")


@pytest.mark.parametrize(
    ("allow", "rule"),
    [
        ("192.0.2.7/24", "a network, 192.0.2.0/24, or 192.0.2.7/32 for one address"),
        ("fd00::7/64", "a network, fd00::/64, or fd00::7/128 for one address"),
        ("192.0.2.0/33", "a network, such as 10.0.0.0/24"),
        ("office", "a network, such as 10.0.0.0/24"),
    ],
)
def test_networks_decide_the_clients_that_may_fetch(box: OperatorFolder, allow: str, rule: str) -> None:
    (line,) = box.refusal_lines(share={"address": "192.0.2.7", "allow": [allow]})
    assert line == f"{box.inventory}: box.share.allow[0]: '{allow}' is refused: must be {rule}"


@pytest.mark.parametrize("allow", ["192.0.2.0/24", "192.0.2.7", "FD00::/64", "192.0.2.0/255.255.255.0"])
def test_networks_are_taken_however_they_are_written(box: OperatorFolder, allow: str) -> None:
    ((_, data),) = box.load_group({"box": sample_entry(share={"address": "192.0.2.7", "allow": [allow]})})
    assert load_rig(data["rig"]).share
