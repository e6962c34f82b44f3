"""Cards that are reserved for other work: no instance gets one, and their users are named and left alone."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks.nvidia.card_health import find_persistence_differences
from checks.nvidia.driver_status import CardHolder, find_holder_differences
from rigwright.host.systemd import UnitState
from rigwright.inventory import load_rig
from rigwright.nvidia.cards.card_facts import (
    ForeignProcesses,
    describe_borrowers,
    find_unset,
    parse_holders,
    render_holders_query,
)
from rigwright.nvidia.cards.smi import App, gpus
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT
from rigwright.serving.serving_state import ObservedServing
from roles.rollback import describe_rollback_refusal
from tests.unit.channel_records import card_record, channel_lines
from tests.unit.driver_samples import C3090, driverless_host
from tests.unit.host_states import host_generation
from tests.unit.nvidia_host import ADDRESSES, CAPTURED_OUTPUT, FACTS, GROUP, MANAGED, RIG
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry, sample_rig
from tests.unit.test_cli_plan import MANAGED_DRIVER_FACTS, PlanBox, run_plan
from tests.unit.test_driver_holders import process, rows

FOUR = ["ampere"] * 4
ONE_OF_THEM = {"chat": {"variant": "llamacpp/one", "cards": [2], "port": 8020}}
FIRST, SECOND = ADDRESSES
ONE, TWO = gpus(0, CAPTURED_OUTPUT["busy"], "")
LENT = replace(RIG, reserved_gpus=(1,))
SESSION = "/user.slice/user-1000.slice/session-3.scope"
BUS = tuple(
    card_record(f"0000:{bus}:00.0", "10de:2204", "nvidia", minor)
    for bus, minor in (("c1", "0"), ("01", "1"), ("21", ""))
)


def test_slots_are_lent(box: OperatorFolder) -> None:
    ((_, data),) = box.load_group({"box": sample_entry(cards=FOUR, reserved_gpus=[3, 1], instances=ONE_OF_THEM)})
    assert load_rig(data["rig"]).reserved_gpus == (1, 3)
    ((_, data),) = box.load_group({"box": sample_entry(cards=FOUR, instances=chat_instances())})
    assert load_rig(data["rig"]).reserved_gpus == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"reserved_gpus": [1, 2], "instances": ONE_OF_THEM},
            "instances.chat.cards: card 2 is reserved: remove it from reserved_gpus, or choose another",
        ),
        ({"reserved_gpus": [4]}, "reserved_gpus[0]: no card 4: the rig declares 4 cards, counted from 0"),
        ({"reserved_gpus": [3, 1, 3]}, "reserved_gpus[2]: card 3 is already listed"),
        ({"reserved_gpus": [0], "cards": []}, "reserved_gpus[0]: no card 0: the rig declares 0 cards, counted from 0"),
        ({"reserved_gpus": ["3"]}, "reserved_gpus[0]: '3' is refused: must be a whole number"),
        ({"reserved_gpus": [True]}, "reserved_gpus[0]: True is refused: must be a whole number"),
        ({"reserved_gpus": [-1]}, "reserved_gpus[0]: -1 is refused: must be at least 0"),
        ({"reserved_gpus": 3}, "reserved_gpus: 3 is refused: must be a list"),
        ({"reserved": [3]}, 'reserved: unknown key; did you mean "reserved_gpus"?'),
    ],
)
def test_a_card_that_cannot_be_reserved_is_refused(box: OperatorFolder, changes: dict[str, object], said: str) -> None:
    (line,) = box.refusal_lines(**{"cards": FOUR, "instances": chat_instances()} | changes)
    assert line.startswith(f"{box.inventory}: box.{said}")


def test_all_that_is_wrong_with_what_is_lent_is_reported_at_once(box: OperatorFolder) -> None:
    lines = box.refusal_lines(cards=FOUR, reserved_gpus=[2, 2, 9], instances=ONE_OF_THEM)
    assert [line.removeprefix(f"{box.inventory}: box.").split(":")[0] for line in lines] == [
        "instances.chat.cards",
        "reserved_gpus[1]",
        "reserved_gpus[2]",
    ]


def test_others_may_compute_on_a_lent_card_and_take_its_memory() -> None:
    cards, other = (replace(ONE, used_mib=0), replace(TWO, used_mib=90000)), {7: CardHolder("train", SESSION)}
    assert (
        len(
            find_holder_differences(
                RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS, cards, (App(7, SECOND, 30000),), other
            )
        )
        == 2
    )
    assert (
        find_holder_differences(
            LENT.cards, LENT.reserved_gpus, LENT.instances, FACTS, cards, (App(7, SECOND, 30000),), other
        )
        == []
    )


def test_others_may_not_compute_on_a_card_beside_it() -> None:
    (found,) = find_holder_differences(
        LENT.cards,
        LENT.reserved_gpus,
        LENT.instances,
        FACTS,
        (ONE, TWO),
        (App(7, FIRST, ONE.used_mib),),
        {7: CardHolder("train", SESSION)},
    )
    assert found.expected == f"only this rig on card 0 at {FIRST}"


def test_an_instance_of_ours_on_a_lent_card_is_reported() -> None:
    apps, processes = (App(493, FIRST, 1542), App(493, SECOND, 900)), {493: CardHolder("llama-server", GROUP)}
    assert (
        find_holder_differences(RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS, (ONE, TWO), apps, processes) == []
    )
    (found,) = find_holder_differences(
        LENT.cards, LENT.reserved_gpus, LENT.instances, FACTS, (ONE, TWO), apps, processes
    )
    assert (found.expected, found.found) == (
        f"no process of this rig on card 1 at {SECOND}, which is reserved",
        f"pid 493 (llama-server) with 900 MiB in {GROUP}",
    )


def test_whether_a_lent_card_is_kept_ready_is_its_users_business() -> None:
    cards = tuple(replace(one, persistence="Disabled") for one in (ONE, TWO))
    assert [one.expected for one in find_persistence_differences(LENT.cards, LENT.reserved_gpus, FACTS, cards)] == [
        f"persistence mode Enabled on card 0 at {FIRST}"
    ]


def test_no_daemon_is_started_again_for_a_lent_cards_sake() -> None:
    there = [SimpleNamespace(address=address) for address in ADDRESSES]
    found: Any = SimpleNamespace(
        units={},
        applied="",
        sysctl={},
        topology=SimpleNamespace(cards=there),
        gpus={SECOND: replace(TWO, persistence="Disabled")},
    )
    reason = f"persistence mode of {SECOND} is Disabled"
    assert (
        reason
        in find_unset(MANAGED.roots, MANAGED.cards, MANAGED.reserved_gpus, MANAGED.driver, found)[
            f"restart {PERSISTENCE_UNIT}"
        ]
    )
    box_rig = replace(MANAGED, reserved_gpus=(1,))
    assert (
        reason
        not in find_unset(box_rig.roots, box_rig.cards, box_rig.reserved_gpus, box_rig.driver, found)[
            f"restart {PERSISTENCE_UNIT}"
        ]
    )


HELD = [
    ("nobody", [], ForeignProcesses()),
    (
        "a reserved card",
        [("7", "train", SESSION, "/dev/nvidia1")],
        ForeignProcesses(borrowers=(f"pid 7 (train, in {SESSION}) uses card 0, which is reserved",)),
    ),
    (
        "reserved cards",
        [("7", "train", "/", "/dev/nvidia0"), ("7", "train", "/", "/dev/nvidia1")],
        ForeignProcesses(borrowers=("pid 7 (train) uses cards 0 and 2, which are reserved",)),
    ),
    (
        "a reserved one and another",
        [("7", "train", "/", "/dev/nvidia1"), ("7", "train", "/", "/dev/nvidia2")],
        ForeignProcesses(strangers=("pid 7 (train) holds /dev/nvidia1, /dev/nvidia2",)),
    ),
    (
        "each by somebody",
        [("8", "a", "/", "/dev/nvidia1"), ("7", "b", "/", "/dev/nvidia2")],
        ForeignProcesses(("pid 7 (b) holds /dev/nvidia2",), ("pid 8 (a) uses card 0, which is reserved",)),
    ),
    (
        "a file that is of no card any more",
        [("7", "a", "/", "/dev/nvidia1 (deleted)")],
        ForeignProcesses(strangers=("pid 7 (a) holds /dev/nvidia1 (deleted)",)),
    ),
    ("what we serve", [("7", "llama-server", GROUP, "/dev/nvidia1")], ForeignProcesses()),
    ("the driver's daemon", [("7", "nvidia-persiste", "/", "/dev/nvidia1")], ForeignProcesses()),
]


@pytest.mark.parametrize(("lines", "expected"), [one[1:] for one in HELD], ids=[one[0] for one in HELD])
def test_processes_on_only_reserved_cards_are_distinguished_from_others(
    lines: list[tuple[str, ...]], expected: ForeignProcesses
) -> None:
    assert parse_holders(channel_lines(*BUS, *(("holder", *line) for line in lines)), (0, 2)) == expected


def test_a_card_without_a_number_is_not_reserved_by_its_file() -> None:
    assert parse_holders(channel_lines(*BUS[2:], ("holder", "7", "a", "/", "/dev/nvidia0")), (0,)).borrowers == ()


@pytest.mark.parametrize("row", [card_record("x"), ("card", "0000:01:00.0"), ("holder", "7", "a", "/", "nvidia0")])
def test_impossible_output_of_a_host_is_refused(row: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse_holders(channel_lines(row), (0,))


def test_reserved_cards_are_reported_with_their_declarations() -> None:
    assert describe_borrowers(RIG.reserved_gpus, RIG.driver, ()) == []
    assert describe_borrowers(LENT.reserved_gpus, LENT.driver, ("pid 7",)) == ["card 1: no instance gets it", "pid 7"]
    box_rig = replace(MANAGED, reserved_gpus=(0, 1))
    assert describe_borrowers(box_rig.reserved_gpus, box_rig.driver, ()) == [
        "cards 0 and 1: no instance gets one; driver.power_w and driver.clocks_mhz hold for them too"
    ]


def test_the_script_tells_cards_by_the_numbers_of_their_files(tmp_path: Path) -> None:
    for number, (address, kind) in enumerate((("0000:01:00.0", "0x030000"), ("0000:02:00.0", "0x020000"))):
        device = tmp_path / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text(f"{kind}\n")
        (device / "device").write_text("0x2204\n")
        information = tmp_path / "proc/driver/nvidia/gpus" / address / "information"
        information.parent.mkdir(parents=True)
        information.write_text(CAPTURED_OUTPUT["information"].replace("Minor: \t 0", f"Minor: \t {number + 3}"))
    process(tmp_path, "7", "train", f"0::{SESSION}\n", "/dev/nvidia3")
    moved = render_holders_query().replace("/proc/", f"{tmp_path}/proc/").replace("/sys/", f"{tmp_path}/sys/")
    assert rows(moved) == [
        "\t".join(card_record("0000:01:00.0", "10de:2204", "", "3")[1:]),
        f"7\ttrain\t{SESSION}\t/dev/nvidia3",
    ]


def test_a_host_does_not_go_back_to_what_served_on_a_card_that_is_lent_now() -> None:
    unit_state = UnitState("rigwright-chat.service", "0" * 64, 8020, frozenset({0, 2}))
    there = ObservedServing(
        generations=(replace(host_generation(1), unit_states=(unit_state,)), host_generation(2)), current=2
    )
    assert describe_rollback_refusal(there, 1, ()) == describe_rollback_refusal(there, 1, (1, 3)) == ""
    assert describe_rollback_refusal(there, 1, (1, 2)) == (
        "generation 1 has rigwright-chat.service on card 2, which is reserved: remove it from reserved_gpus, or "
        "choose another generation"
    )


def test_a_plan_names_users_of_reserved_cards_and_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lending(PlanBox):
        def read_card_holders(self) -> ForeignProcesses:
            return ForeignProcesses(borrowers=("pid 7 (train) uses card 0, which is reserved",))

    box = Lending(
        sample_rig(cards=(C3090,), driver=MANAGED_DRIVER_FACTS, reserved_gpus=(0,)), driverless_host(nouveau=True)
    )
    said = run_plan(monkeypatch, box).output.splitlines()
    assert [line for line in said if line.startswith("box: lent: ")] == [
        "box: lent: card 0: no instance gets it",
        "box: lent: pid 7 (train) uses card 0, which is reserved; the reboot ends it",
    ]
    (row,) = json.loads(run_plan(monkeypatch, box, "--json").output)
    assert row["lent"] == [line.removeprefix("box: lent: ") for line in said if line.startswith("box: lent: ")]
    quiet = Lending(sample_rig(cards=(C3090,), reserved_gpus=(0,)), driverless_host())
    assert "box: lent: pid 7 (train) uses card 0, which is reserved" in run_plan(monkeypatch, quiet).output.splitlines()
