"""Power limits and clocks: set on every card that is there, within what each says it takes, and taken back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rigwright.model.inventory_schema import DriverEntry
from rigwright.nvidia.cards.topology import CardPair, CardPlace, Topology
from tests.unit.card_folder import CardFolder
from tests.unit.samples import sample_card, sample_rig

ADDRESSES = ("0000:01:00.0", "0000:41:00.0")
ROW = (
    "{index}, {domain}0000:{bus}:00.0, GPU-{name}, 580.178.04, 8.6, 24576, 0, {mode}, 16, 16, [N/A], 350.00, {least}, "
    "{most}, 350.00, 210, 94.02, NVIDIA GeForce RTX 3090\n"
)
LEAST, MOST = "100.00", "370.00"


def row(bus: str, name: str, least: str = LEAST, most: str = MOST, domain: str = "0000", mode: str = "Enabled") -> str:
    return ROW.format(index="abc".index(name[0]), bus=bus, name=name, least=least, most=most, domain=domain, mode=mode)


# nvidia-smi's order is the bus's; its domains are longer, its letters capitals
ROWS = row("01", "aa") + row("41", "bb")


@pytest.fixture
def host(tmp_path: Path) -> CardFolder:
    made = CardFolder(tmp_path)
    for address in ADDRESSES:
        made.add_device(address, kind="0x030200")
    made.add_device("0000:02:00.0", vendor="0x8086")
    made.add_device("0000:01:00.1", kind="0x040300")
    made.set_smi_answers(cards=ROWS)
    return made


def run(host: CardFolder, word: str = "set", timeout: int = 20, **keys: Any) -> tuple[int, list[str]]:
    return host.run_power(
        sample_rig(cards=(sample_card("8.6"), sample_card("8.6")), driver=DriverEntry(managed=True, **keys)),
        word,
        timeout,
    )


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"power_w": 280}, ["-i GPU-aa -pl 280", "-i GPU-bb -pl 280"]),
        ({"power_w": (100, 370)}, ["-i GPU-aa -pl 100", "-i GPU-bb -pl 370"]),
        ({"clocks_mhz": (210, 1695)}, ["-i GPU-aa -lgc 210,1695", "-i GPU-bb -lgc 210,1695"]),
        (
            {"power_w": 280, "clocks_mhz": (210, 1695)},
            ["-i GPU-aa -pl 280", "-i GPU-aa -lgc 210,1695", "-i GPU-bb -pl 280", "-i GPU-bb -lgc 210,1695"],
        ),
    ],
)
def test_declared_settings_are_made_by_uuid(host: CardFolder, keys: dict[str, Any], told: list[str]) -> None:
    status, _ = run(host, **keys)
    assert (status, host.smi_settings) == (0, told)


def test_a_card_that_would_forget_it_is_asked_to_stay_awake_first(host: CardFolder) -> None:
    host.set_smi_answers(cards=row("01", "aa", mode="Disabled") + row("41", "bb"))
    assert run(host, power_w=280)[0] == 0
    assert host.smi_settings == ["-i GPU-aa -pm 1", "-i GPU-aa -pl 280", "-i GPU-bb -pl 280"]


def test_slots_are_those_of_the_bus_whatever_the_order_of_the_answer(host: CardFolder) -> None:
    host.add_device("10000:c1:00.0")
    host.set_smi_answers(cards=row("C1", "cc", domain="0001") + row("41", "bb") + row("01", "aa"))
    made = sample_rig(cards=(sample_card("8.6"),) * 3, driver=DriverEntry(managed=True, power_w=(110, 120, 130)))
    assert host.run_power(made, "set")[0] == 0
    assert host.smi_settings == ["-i GPU-aa -pl 110", "-i GPU-bb -pl 120", "-i GPU-cc -pl 130"]


@pytest.mark.parametrize(
    ("keys", "rows", "line"),
    [
        (
            {"power_w": (280, 380)},
            ROWS,
            "card 1 at 0000:41:00.0: 380 W is refused: the card accepts 100.00 to 370.00 W",
        ),
        (
            {"power_w": 350},
            row("01", "aa", "400.00", "600.00") + row("41", "bb"),
            "card 0 at 0000:01:00.0: 350 W is refused: the card accepts 400.00 to 600.00 W",
        ),
        (
            {"power_w": 100},
            row("01", "aa", "100.50") + row("41", "bb"),
            "card 0 at 0000:01:00.0: 100 W is refused: the card accepts 100.50 to 370.00 W",
        ),
        (
            {"power_w": 280},
            ROWS.replace("100.00", "[N/A]"),
            "card 0 at 0000:01:00.0: 280 W is refused: the card reports no range",
        ),
    ],
)
def test_nothing_is_set_where_a_card_does_not_take_its_limit(host, keys, rows, line):
    host.set_smi_answers(cards=rows)
    status, lines = run(host, **keys)
    assert (status, host.smi_settings, lines[-1]) == (1, [], "nothing is set")
    assert line in lines


@pytest.mark.parametrize(
    ("keys", "told"),
    [({"power_w": (280, 300)}, "-i GPU-bb -pl 300"), ({"clocks_mhz": (210, 900)}, "-i GPU-bb -lgc 210,900")],
)
def test_a_card_that_does_not_answer_is_named_last_and_the_others_get_theirs(host, keys, told):
    host.set_smi_answers(cards=row("41", "bb"))
    status, lines = run(host, **keys)
    assert (status, host.smi_settings, (host.root / "applied").exists()) == (1, [told], False)
    assert lines[-1] == "card 0 at 0000:01:00.0: the driver does not report it"


def three(host: CardFolder, power_w: Any, word: str = "set") -> tuple[int, list[str]]:
    """A rig of three cards, of which the bus has two."""
    return host.run_power(
        sample_rig(cards=(sample_card("8.6"),) * 3, driver=DriverEntry(managed=True, power_w=power_w)), word
    )


def record_cards(host: CardFolder, *cards: tuple[str, str]) -> None:
    """Have cards written down, by address and UUID."""
    placed = (
        CardPlace(gpu_index, address, uuid, 0, "0-7", 16, 16, "94.02", 256)
        for gpu_index, (address, uuid) in enumerate(cards)
    )
    rows = Topology(tuple(placed), (CardPair((0, 1), "PHB", "OK"),)).record()
    (host.root / "driver.json").write_text(json.dumps({"version": "580.178.04", **rows}, indent=2, sort_keys=True))


def test_a_card_that_is_not_on_the_bus_is_named_and_where_limits_are_the_same_the_others_get_theirs(host):
    status, lines = three(host, 280)
    assert (status, host.smi_settings) == (1, ["-i GPU-aa -pl 280", "-i GPU-bb -pl 280"])
    assert lines[-1] == "card 2: no such card on the bus, which has 2"


def test_where_limits_differ_a_card_is_reported_by_what_was_written_down(host: CardFolder) -> None:
    # buses are numbered anew where a card is away
    record_cards(host, ("0000:01:00.0", "GPU-aa"), ("0000:02:00.0", "GPU-cc"), ("0000:42:00.0", "GPU-bb"))
    status, lines = three(host, (110, 120, 130))
    assert (status, host.smi_settings) == (1, ["-i GPU-aa -pl 110", "-i GPU-bb -pl 130"])
    assert lines[-1] == "card 1, GPU-cc, is missing: it was at 0000:02:00.0, and the bus has 2 of 3 cards"


@pytest.mark.parametrize("known", [0, 2], ids=["nothing", "of fewer cards"])
def test_where_limits_differ_and_nothing_says_which_card_is_away_none_gets_anothers(host, known):
    record_cards(host, *[("0000:01:00.0", "GPU-aa"), ("0000:41:00.0", "GPU-bb")][:known])
    status, lines = three(host, (110, 120, 130))
    assert (status, host.smi_settings) == (1, [])
    assert lines == [
        "the bus has 2 of 3 cards, their limits differ, and no record shows which one is missing: no limit is set"
    ]
    # a card gets the figures that every card has
    assert three(host, (110, 120, 130), "reset")[0] == 1
    assert [order for order in host.smi_settings if "-pl" in order] == ["-i GPU-aa -pl 350", "-i GPU-bb -pl 350"]


def test_records_do_not_matter_while_the_bus_is_full(host: CardFolder) -> None:
    record_cards(host, ("0000:01:00.0", "GPU-bb"), ("0000:41:00.0", "GPU-gone"))
    assert run(host, power_w=(110, 120))[0] == 0
    assert host.smi_settings == ["-i GPU-aa -pl 110", "-i GPU-bb -pl 120"]


@pytest.mark.parametrize("word", ["set", "reset"])
def test_a_question_that_hangs_is_given_up_and_nothing_is_changed(host: CardFolder, word: str) -> None:
    host.set_smi_answers(hangs="--query-gpu\n")
    begun = time.monotonic()
    status, lines = run(host, word, timeout=1, power_w=280)
    assert (status, host.smi_settings) == (1, [])
    assert lines == ["nvidia-smi did not answer within 1 s: nothing is changed"]
    assert time.monotonic() - begun < 10


def test_after_an_order_that_hangs_no_other_is_given(host: CardFolder) -> None:
    host.set_smi_answers(hangs="-i GPU-aa -lgc\n")
    status, lines = run(host, timeout=1, power_w=280, clocks_mhz=(210, 1695))
    assert (status, host.smi_settings) == (1, ["-i GPU-aa -pl 280"])
    assert lines[-1] == "card 0 at 0000:01:00.0: 210 to 1695 MHz: nvidia-smi did not answer within 1 s"


def test_where_one_card_refuses_the_others_get_theirs(host: CardFolder) -> None:
    host.set_smi_answers(refuses="-i GPU-aa -pl\n")
    status, lines = run(host, power_w=280)
    assert (status, host.smi_settings) == (1, ["-i GPU-bb -pl 280"])
    assert lines[0] == "card 0 at 0000:01:00.0: 280 W is refused: The current user does not have permission"


def test_a_warning_of_nvidia_smi_is_a_failure(host: CardFolder) -> None:
    host.set_smi_answers(warns="-i GPU-bb -lgc\n")
    status, lines = run(host, clocks_mhz=(210, 1695))
    assert status == 1
    assert "is refused: Setting locked GPU clocks is not supported" in lines[-1]


@pytest.mark.parametrize("keys", [{"power_w": 280}, {"clocks_mhz": (210, 1695)}])
def test_a_reset_takes_back_limits_and_clocks_whatever_was_set(host: CardFolder, keys: dict[str, Any]) -> None:
    assert run(host, "reset", **keys)[0] == 0
    assert host.smi_settings == [f"-i GPU-{name} {order}" for name in ("aa", "bb") for order in ("-rgc", "-pl 350")]


def test_a_reset_does_what_it_can_without_a_card(host: CardFolder) -> None:
    host.set_smi_answers(cards=row("41", "bb"))
    status, lines = run(host, "reset", power_w=280)
    assert (status, host.smi_settings) == (1, ["-i GPU-bb -rgc", "-i GPU-bb -pl 350"])
    assert lines[-1] == "card 0 at 0000:01:00.0: the driver does not report it"


def test_a_driver_that_is_not_there_is_reported_in_its_words(host: CardFolder) -> None:
    host.set_smi_answers(cards="Failed to initialize NVML: Driver/library version mismatch\n", status="18")
    assert run(host, power_w=280) == (
        1,
        ["nvidia-smi reports: Failed to initialize NVML: Driver/library version mismatch: nothing is changed"],
    )


def test_a_card_that_is_lost_behind_one_that_answers_is_reported(host: CardFolder) -> None:
    lost = "Unable to determine the device handle for GPU1: 0000:41:00.0: Unknown Error"
    host.set_smi_answers(cards=f"{row('01', 'aa')}{lost}\n", status="255")
    assert run(host, power_w=280) == (
        1,
        [
            "card 0 at 0000:01:00.0: 280 W",
            "card 1 at 0000:41:00.0: the driver does not report it",
            f"nvidia-smi reports: {lost}",
        ],
    )
    assert host.smi_settings == ["-i GPU-aa -pl 280"]


def test_another_word_is_refused(host: CardFolder) -> None:
    assert run(host, "off", power_w=280) == (2, ["power set | power reset"])
