"""Where the cards are: what a host prints about them becomes typed rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rigwright.nvidia.cards.topology import Pair, Placed, parse
from tests.unit.card_folder import CardFolder

CAPTURE = (Path(__file__).parent / "captures" / "topology-h200-x2.txt").read_text()
SAID = dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", CAPTURE, re.MULTILINE))
ADDRESSES = ("0000:00:06.0", "0000:00:07.0")

# Made by hand: four cards on two nodes, the last two bridged, and a network card between.
TOPO = """\
topo [4mGPU0 GPU1 GPU2 GPU3 NIC0 CPU Affinity NUMA Affinity GPU NUMA ID[0m
topo GPU0  X  NODE SYS SYS SYS 0-31,64-95 0  N/A
topo GPU1 NODE  X  SYS SYS SYS 0-31,64-95 0  N/A
topo GPU2 SYS SYS  X  NV4 PIX 32-63,96-127 1  N/A
topo GPU3 SYS SYS NV4  X  PHB 32-63,96-127 1  N/A
topo NIC0 SYS SYS PIX PHB  X
topo Legend:
p2p  [4mGPU0 GPU1 GPU2 GPU3 [0m
p2p  GPU0 X CNS CNS CNS
p2p  GPU1 CNS X CNS CNS
p2p  GPU2 CNS CNS X OK
p2p  GPU3 CNS CNS OK X
"""
FOUR = TOPO + "".join(
    f"card {node} {cpus} 8 16 0000:{bus}:00.0\nsmi {number}, 00000000:{bus.upper()}:00.0, GPU-{bus}, 94.02\n"
    f"bar1 00000000:{bus.upper()}:00.0 256\n"
    for number, (bus, node, cpus) in enumerate(
        [("01", 0, "0-31,64-95"), ("21", 0, "0-31,64-95"), ("81", 1, "32-63,96-127"), ("c1", 1, "32-63,96-127")]
    )
)


@pytest.fixture
def host(tmp_path: Path) -> CardFolder:
    made = CardFolder(tmp_path)
    for address in ADDRESSES:
        made.device(
            address,
            kind="0x030200",
            numa_node="-1",
            local_cpulist="0-31",
            current_link_width="16",
            max_link_width="16",
        )
    made.device("0000:00:01.0", vendor="0x8086")
    made.says(**SAID)
    return made


def test_two_h200(host: CardFolder) -> None:
    found = host.look()
    assert found.failed == ""
    assert found.cards == tuple(
        Placed(slot, address, uuid, None, "0-31", 16, 16, "96.00.A5.00.1A", 262144)
        for slot, (address, uuid) in enumerate(
            zip(ADDRESSES, (f"GPU-{n * 8}-{n * 4}-{n * 4}-{n * 4}-{n * 12}" for n in "01"), strict=True)
        )
    )
    assert found.pairs == (Pair((0, 1), "NV18", "OK"),)
    assert found.pairs[0].nvlinks == 18


def test_four_cards_on_two_nodes() -> None:
    found = parse(FOUR.splitlines())
    assert [(card.slot, card.numa_node, card.cpus, card.lanes, card.bar1_mib) for card in found.cards] == [
        (0, 0, "0-31,64-95", 8, 256),
        (1, 0, "0-31,64-95", 8, 256),
        (2, 1, "32-63,96-127", 8, 256),
        (3, 1, "32-63,96-127", 8, 256),
    ]
    assert [(*pair.cards, pair.way, pair.p2p, pair.nvlinks) for pair in found.pairs] == [
        (0, 1, "NODE", "CNS", 0),
        (0, 2, "SYS", "CNS", 0),
        (0, 3, "SYS", "CNS", 0),
        (1, 2, "SYS", "CNS", 0),
        (1, 3, "SYS", "CNS", 0),
        (2, 3, "NV4", "OK", 4),
    ]


def test_a_card_that_does_not_answer_has_its_slot_and_moves_no_pair() -> None:
    text = re.sub("^(topo|p2p ) GPU3.*\n", "", FOUR, flags=re.MULTILINE).replace(" GPU3", "")
    lines = [line for line in text.splitlines() if "21" not in line]
    # nvidia-smi counts those that answer: 0, 1 and 2 are slots 0, 2 and 3
    lines = [re.sub(r"^smi [23]", lambda number: f"smi {int(number[0][-1]) - 1}", line) for line in lines]
    lines = ["card 0 0-31,64-95 - - 0000:21:00.0", *lines]
    found = parse(lines)
    assert found.cards[1] == Placed(1, "0000:21:00.0", "", 0, "0-31,64-95", None, None, "", None)
    assert [card.uuid for card in found.cards] == ["GPU-01", "", "GPU-81", "GPU-c1"]
    assert [pair.cards for pair in found.pairs] == [(0, 2), (0, 3), (2, 3)]


def test_without_a_driver_the_kernel_still_says_where_cards_are(host: CardFolder) -> None:
    host.says(cards="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", status="9")
    found = host.look()
    assert [(card.address, card.uuid, card.lanes) for card in found.cards] == [(one, "", 16) for one in ADDRESSES]
    assert found.pairs == ()
    assert found.failed == "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


def test_a_driver_that_hangs_is_given_up(host: CardFolder) -> None:
    host.says(hangs="--query-gpu=index\n")
    found = host.look(timeout=1)
    assert (len(found.cards), found.failed) == (2, "nvidia-smi does not answer")


def test_a_table_that_hangs_leaves_the_rest(host: CardFolder) -> None:
    host.says(hangs="topo -p2p\n")
    found = host.look(timeout=1)
    assert found.pairs == (Pair((0, 1), "NV18", ""),)


def test_a_box_without_cards_has_none(tmp_path: Path) -> None:
    host = CardFolder(tmp_path)
    host.says(cards="No devices were found\n", status="6")
    assert host.look().cards == ()


def test_the_record_goes_through_json(host: CardFolder) -> None:
    record = json.loads(json.dumps(host.look().record()))
    assert record["cards"][0] == {
        "slot": 0,
        "address": "0000:00:06.0",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "numa_node": None,
        "cpus": "0-31",
        "lanes": 16,
        "lanes_max": 16,
        "vbios": "96.00.A5.00.1A",
        "bar1_mib": 262144,
    }
    assert record["pairs"] == [{"cards": [0, 1], "way": "NV18", "p2p": "OK"}]


@pytest.mark.parametrize("line", ["gpu 0", "card 0 0-31 16", "smi 0, 00000000:01:00.0", "bar1 00000000:01:00.0"])
def test_a_line_that_is_not_understood_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="the look at the cards printed"):
        parse([line])
