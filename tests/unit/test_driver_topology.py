"""Where the cards are: a host's output about them becomes typed rows."""

import json
import re
from pathlib import Path

import pytest

from rigwright.nvidia.cards.topology import CardPair, CardPlace, parse
from tests.unit.card_folder import CardFolder
from tests.unit.channel_records import card_record, channel_lines

CAPTURE = (Path(__file__).parent / "captures" / "topology-h200-x2.txt").read_text()
SAID = dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", CAPTURE, re.MULTILINE))
ADDRESSES = ("0000:00:06.0", "0000:00:07.0")

# Made by hand: four cards on two nodes, the last two bridged, and a network card between.
HEAD = "\t\x1b[4m{}\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
WAYS = [row.split() for row in ("X NODE SYS SYS", "NODE X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X")]
READS = [["X", "CNS", "CNS", "CNS"], ["CNS", "X", "CNS", "CNS"], ["CNS", "CNS", "X", "OK"], ["CNS", "CNS", "OK", "X"]]
BUSES, NEAR = ("01", "21", "81", "c1"), ("0-31,64-95", "32-63,96-127")


def topology_output(away: int | None = None) -> list[str]:
    """The host's output, or its behaviour where the driver does not answer for one card."""
    there = [gpu_index for gpu_index in range(4) if gpu_index != away]
    places = [f"00000000:{BUSES[gpu_index].upper()}:00.0" for gpu_index in there]
    names = [f"GPU{number}" for number in range(len(there))]

    def table(cells: list[list[str]], head: str, more: str) -> str:
        rows = (
            f"{name}\t{chr(9).join(cells[one][two] for two in there)}\t{more}\n"
            for name, one in zip(names, there, strict=True)
        )
        return head + "".join(rows) + "\nLegend:\n\n  X    = Self\n"

    more = "580.1, 8.6, 24576, 0, Enabled, 8, 16, [N/A], 1, 1, 1, 1, 210, 94.02, NVIDIA GeForce RTX 3090"
    gpus = "".join(
        f"{number}, {places[number]}, GPU-{BUSES[gpu_index]}, {more}\n" for number, gpu_index in enumerate(there)
    )
    bars = "".join(f"GPU {one}\n    BAR1 Memory Usage\n        Total       : 256 MiB\n" for one in places)
    return channel_lines(
        *(
            card_record(
                f"0000:{bus}:00.0",
                "10de:2204",
                "nvidia",
                str(gpu_index),
                str(gpu_index // 2),
                NEAR[gpu_index // 2],
                *(("", "") if gpu_index == away else ("8", "16")),
            )
            for gpu_index, bus in enumerate(BUSES)
        ),
        ("gpus", "0", gpus),
        ("memory", "0", bars),
        ("topology", "0", table(WAYS, HEAD.format(chr(9).join(names)), "PIX\t0-31\t0\t\tN/A")),
        ("peers", "0", table(READS, f" \t\x1b[4m{chr(9).join(names)}\t\x1b[0m\n", "")),
    )


@pytest.fixture
def host(tmp_path: Path) -> CardFolder:
    made = CardFolder(tmp_path)
    for address in ADDRESSES:
        made.add_device(
            address, kind="0x030200", numa_node="-1", local_cpulist="0-31", current_link_width="16", max_link_width="16"
        )
    made.add_device("0000:00:01.0", vendor="0x8086")
    made.set_smi_answers(**SAID)
    return made


def test_two_h200(host: CardFolder) -> None:
    found = host.read_topology()
    assert found.failed == ""
    assert found.cards == tuple(
        CardPlace(gpu_index, address, uuid, None, "0-31", 16, 16, "96.00.A5.00.1A", 262144)
        for gpu_index, (address, uuid) in enumerate(
            zip(ADDRESSES, (f"GPU-{n * 8}-{n * 4}-{n * 4}-{n * 4}-{n * 12}" for n in "01"), strict=True)
        )
    )
    assert found.pairs == (CardPair((0, 1), "NV18", "OK"),)
    assert found.pairs[0].nvlinks == 18


def test_four_cards_on_two_nodes() -> None:
    found = parse(topology_output())
    assert [(card.gpu_index, card.numa_node, card.cpus, card.lanes, card.bar1_mib) for card in found.cards] == [
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
    found = parse(topology_output(away=1))
    assert found.cards[1] == CardPlace(1, "0000:21:00.0", "", 0, "0-31,64-95", None, None, "", None)
    assert [card.uuid for card in found.cards] == ["GPU-01", "", "GPU-81", "GPU-c1"]
    assert [pair.cards for pair in found.pairs] == [(0, 2), (0, 3), (2, 3)]


def test_without_a_driver_the_kernel_still_says_where_cards_are(host: CardFolder) -> None:
    host.set_smi_answers(
        cards="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", status="9"
    )
    found = host.read_topology()
    assert [(card.address, card.uuid, card.lanes) for card in found.cards] == [(one, "", 16) for one in ADDRESSES]
    assert found.pairs == ()
    assert found.failed.startswith("nvidia-smi reports: NVIDIA-SMI has failed because it couldn't communicate")


def test_a_driver_that_hangs_is_given_up(host: CardFolder) -> None:
    host.set_smi_answers(hangs="--query-gpu=index\n")
    found = host.read_topology(timeout=1)
    assert (len(found.cards), found.failed) == (2, "nvidia-smi did not answer within 20 s")


def test_a_table_that_hangs_leaves_the_rest(host: CardFolder) -> None:
    host.set_smi_answers(hangs="topo -p2p\n")
    assert host.read_topology(timeout=1).pairs == (CardPair((0, 1), "NV18", ""),)


def test_a_box_without_cards_has_none(tmp_path: Path) -> None:
    host = CardFolder(tmp_path)
    host.set_smi_answers(cards="No devices were found\n", status="6")
    assert host.read_topology().cards == ()


def test_the_record_goes_through_json(host: CardFolder) -> None:
    record = json.loads(json.dumps(host.read_topology().record()))
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


@pytest.mark.parametrize(
    "record", [("gpu", "0"), ("card", "0", "0-31"), ("card", "x", "", "", "", ""), ("gpus", "no", "")]
)
def test_values_of_another_type_are_refused(record: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse(channel_lines(record))
