"""Where an instance's cards are: the one node that they share, and which of them read each other's memory."""

import re
from pathlib import Path

import pytest

from rigwright.host.pci_cards import PciCard
from rigwright.model.fact_types import HostFacts
from rigwright.nvidia.cards.numa_nodes import nearest_node
from rigwright.plan.host_probe import parse
from rigwright.render import render
from tests.unit import short_programs
from tests.unit.channel_records import channel_lines_of, decode_records
from tests.unit.samples import sample_facts, sample_probe_values
from tests.unit.test_facts import RECORDS
from tests.unit.test_survey import capture

FOUR = ("0000:01:00.0", "0000:21:00.0", "0000:81:00.0", "0000:c1:00.0")
BOTH = frozenset({0, 1})


def at(*nodes: int | None, there: frozenset[int] = BOTH) -> HostFacts:
    """A host with a card on each of these nodes."""
    cards = tuple(PciCard(address, "10de:2204", numa_node=node) for address, node in zip(FOUR, nodes, strict=False))
    return sample_facts(pci_cards=cards, numa_nodes=there)


@pytest.mark.parametrize(
    ("host", "cards", "node"),
    [
        (at(0, 0, 1, 1), (0, 1), 0),
        (at(0, 0, 1, 1), (2, 3), 1),
        (at(0, 0, 1, 1), (3,), 1),
        (at(0, 0, 1, 1), (1, 2), None),
        (at(0, 0, 1, 1), (), None),
        # on one node there is nothing to bind to, whatever number it has, or none
        (at(0, 0, there=frozenset({0})), (0, 1), None),
        (at(None, None, there=frozenset({0})), (0, 1), None),
        (at(0, 0, there=frozenset()), (0, 1), None),
        # firmware that says it of some cards alone
        (at(1, None), (0, 1), None),
        (at(None, None), (0, 1), None),
        # a node without processors or memory of its own would leave an instance neither
        (at(2, 2), (0, 1), None),
        # a card that is away, or that the bus tells nothing of
        (at(1), (0, 1), None),
        (sample_facts(pci_cards=((FOUR[0], "10de:2204"),), numa_nodes=BOTH), (0,), None),
    ],
)
def test_the_node_is_the_one_that_all_cards_share(host: HostFacts, cards: tuple[int, ...], node: int | None) -> None:
    assert nearest_node(host, cards) == node


def test_of_two_sockets_as_captured() -> None:
    seen = capture("two-sockets")
    host = sample_facts(
        pci_cards=seen.cards,
        numa_nodes=BOTH,
    )
    assert [nearest_node(host, cards) for cards in ((0, 1), (2, 3), (0, 2), (0, 1, 2, 3))] == [0, 1, None, None]


def test_the_probe_tells_nodes() -> None:
    records = [
        *RECORDS,
        ("nodes_with", "has_cpu", "0-1,4"),
        ("nodes_with", "has_memory", "0,1-3"),
    ]
    found = parse(channel_lines_of(records))
    assert found.numa_nodes == {0, 1}
    assert parse(channel_lines_of(RECORDS)).numa_nodes == frozenset()


@pytest.mark.parametrize(
    "record",
    [
        ("card_node", "0000:01:00.0", "1\n"),
        ("card_node", "0000:01:00.0", "-2"),
        ("card_node", "x", "1"),
        ("nodes_with", "has_cpu", "0-"),
        ("nodes_with", "has_cpu", "0-99999999999"),
        ("nodes_with", "has_cpu", "1;2"),
        ("nodes_with", "online", "0"),
    ],
)
def test_impossible_output_of_a_kernel_is_refused(record: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse(channel_lines_of([*RECORDS, record]))


def test_a_host_is_asked_with_the_rest(tmp_path: Path) -> None:
    for address, node in zip(FOUR, ("0", "1", "-1", None), strict=True):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        there = {"vendor": "0x10de", "class": "0x030000", "device": "0x2204", "numa_node": node}
        for name, text in there.items():
            if text is not None:
                (device / name).write_text(f"{text}\n")
    nodes = tmp_path / "sys/devices/system/node"
    nodes.mkdir(parents=True)
    (nodes / "has_cpu").write_text("0-1\n")
    (nodes / "has_memory").write_text("0-2\n")
    script = re.sub(r"(?<![\w/])/sys/", f"{tmp_path}/sys/", render("probe/probe.sh.j2", **sample_probe_values()))
    done = short_programs.run_program(["sh", "-c", script], check=True)
    assert done.stderr == ""
    records = decode_records(done.stdout.splitlines())
    assert [one[5] for one in records if one[0] == "card"] == ["0", "1", "-1", ""]
    found = parse(done.stdout.splitlines())
    assert [one.numa_node for one in found.pci_cards] == [0, 1, None, None]
    assert (found.numa_nodes, nearest_node(found, (1,))) == (BOTH, 1)
