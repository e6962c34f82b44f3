"""What cards are set to: read from a host, compared with what the rig says, and written down."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.declaration.entry import Driver
from rigwright.declaration.rig import POWER_UNIT, Rig
from rigwright.nvidia.cards.live import Live, digest, parse, questions, record, units, unset
from rigwright.nvidia.cards.topology import Pair, Placed, Topology
from rigwright.nvidia.driver.found import Package
from rigwright.render import render
from tests.unit.card_folder import CardFolder
from tests.unit.driver_hosts import C3090, made
from tests.unit.driver_ours import NEW, WHOLE
from tests.unit.driver_ours import rig as locked_rig
from tests.unit.samples import rig
from tests.unit.scripts import stand_in

ONE, TWO = "0000:01:00.0", "0000:41:00.0"
PERSISTENCED = "nvidia-persistenced.service"
SOUND = ("enabled", "active", "no")
PLACES = Topology(
    tuple(
        Placed(slot, address, f"GPU-{slot}", None, "0-31", 16, 16, "94.02", 32768)
        for slot, address in enumerate([ONE, TWO])
    ),
    (Pair((0, 1), "PHB", "CNS"),),
)


def declared(**driver: Any) -> Rig:
    return rig(cards=(C3090, C3090), driver=Driver(managed=True, **driver))


TUNED = declared(power_w=(280, 300), sysctl={"vm.swappiness": 10, "kernel.numa_balancing": 0})


def live(**changes: Any) -> Live:
    """A host that is as TUNED says."""
    sound = Live(
        units={PERSISTENCED: SOUND, POWER_UNIT: SOUND},
        cards={ONE: ("Enabled", "280.00"), TWO: ("Enabled", "300.00")},
        applied=True,
        sysctl={"vm.swappiness": "10", "kernel.numa_balancing": "0"},
        record="",
        topology=PLACES,
    )
    return replace(sound, **changes)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        ({}, (PERSISTENCED,)),
        ({"sysctl": {"vm.swappiness": 1}}, (PERSISTENCED,)),
        ({"power_w": 280}, (PERSISTENCED, POWER_UNIT)),
        ({"clocks_mhz": (210, 1695)}, (PERSISTENCED, POWER_UNIT)),
    ],
)
def test_the_unit_for_power_runs_where_there_is_something_to_set(
    driver: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert units(declared(**driver)) == expected


def both(power: tuple[str, str, str]) -> dict[str, tuple[str, str, str]]:
    return {PERSISTENCED: SOUND, POWER_UNIT: power}


RESTART, POWER = f"restart {PERSISTENCED}", f"restart {POWER_UNIT}"
UNSET: dict[str, tuple[Rig, Live, dict[str, list[str]]]] = {
    "nothing": (TUNED, live(), {}),
    "a unit that was changed": (
        TUNED,
        live(units=both(("enabled", "active", "yes"))),
        {"reload": [f"{POWER_UNIT} was changed"], POWER: [f"{POWER_UNIT} was changed"]},
    ),
    "a unit that does not come with the boot": (
        TUNED,
        live(units=both(("disabled", "active", "no"))),
        {f"enable {POWER_UNIT}": [f"{POWER_UNIT} is disabled"]},
    ),
    "a unit that has failed": (
        TUNED,
        live(units=both(("enabled", "failed", "no"))),
        {POWER: [f"{POWER_UNIT} is failed"]},
    ),
    "a unit that is not there": (
        TUNED,
        live(units={PERSISTENCED: SOUND}),
        {f"enable {POWER_UNIT}": [f"{POWER_UNIT} is none"], POWER: [f"{POWER_UNIT} is inactive"]},
    ),
    "a daemon without persistence": (
        TUNED,
        live(cards={ONE: ("Enabled", "280.00"), TWO: ("Disabled", "300.00")}),
        {RESTART: [f"persistence mode of {TWO} is Disabled"]},
    ),
    "a limit": (
        TUNED,
        live(cards={ONE: ("Enabled", "280.00"), TWO: ("Enabled", "350.00")}),
        {POWER: ["card 1 has 350.00 W, and 300 W are declared"]},
    ),
    "a limit that the card has rounded": (
        TUNED,
        live(cards={ONE: ("Enabled", "279.00"), TWO: ("Enabled", "301.00")}),
        {},
    ),
    "a limit that is off by more": (
        TUNED,
        live(cards={ONE: ("Enabled", "278.90"), TWO: ("Enabled", "300.00")}),
        {POWER: ["card 0 has 278.90 W, and 280 W are declared"]},
    ),
    "a limit that the card does not tell": (
        TUNED,
        live(cards={ONE: ("Enabled", "[N/A]"), TWO: ("Enabled", "300.00")}),
        {POWER: ["card 0 has [N/A] W, and 280 W are declared"]},
    ),
    "a card that does not answer": (
        TUNED,
        live(cards={ONE: ("Enabled", "280.00")}),
        {POWER: ["card 1 has no W, and 300 W are declared"]},
    ),
    "clocks that another script has set": (
        declared(clocks_mhz=(210, 1695)),
        live(applied=False),
        {POWER: ["the limits and clocks that are declared were not set"]},
    ),
    "clocks, whatever the limits are": (declared(clocks_mhz=(210, 1695)), live(cards={ONE: ("Enabled", "1.00")}), {}),
    "limits that are nobody's": (declared(), live(applied=False, cards={ONE: ("Enabled", "1.00")}), {}),
    "a setting": (
        TUNED,
        live(sysctl={"vm.swappiness": "60"}),
        {
            "sysctl": [
                "vm.swappiness is 60, and 10 is declared",
                "kernel.numa_balancing is not there, and 0 is declared",
            ]
        },
    ),
    "everything after a boot without us": (
        TUNED,
        live(units={}, cards={ONE: ("Disabled", "350.00")}, applied=False),
        {
            f"enable {PERSISTENCED}": [f"{PERSISTENCED} is none"],
            RESTART: [f"{PERSISTENCED} is inactive", f"persistence mode of {ONE} is Disabled"],
            f"enable {POWER_UNIT}": [f"{POWER_UNIT} is none"],
            POWER: [
                f"{POWER_UNIT} is inactive",
                "the limits and clocks that are declared were not set",
                "card 0 has 350.00 W, and 280 W are declared",
                "card 1 has no W, and 300 W are declared",
            ],
        },
    ),
}


@pytest.mark.parametrize("name", UNSET)
def test_it_is_to_be_set(name: str) -> None:
    one, found, expected = UNSET[name]
    assert unset(one, found) == expected


SYSTEMCTL = """
cd "$(dirname "$0")/../units" || exit
unit=
for word in "$@"; do case $word in *.service) unit=$word ;; esac; done
[ -e "$unit" ] || { case $1 in is-enabled) echo "Failed to get unit file state for $unit" >&2; exit 1 ;; esac; }
case "$*" in
  is-enabled*) cut -d ' ' -f 1 "$unit" ;;
  *ActiveState*) cut -d ' ' -f 2 "$unit" 2>/dev/null || echo inactive ;;
  *NeedDaemonReload*) cut -d ' ' -f 3 "$unit" 2>/dev/null || echo no ;;
esac
"""
SYSCTL = 'case $2 in vm.swappiness) echo 10 ;; net.odd) printf "a\\tb\\nc\\n" ;; *) exit 255 ;; esac'
ROWS = "00000000:01:00.0, Enabled, 280.00\n00000000:41:00.0, Disabled, [N/A]\n"


class Host(CardFolder):
    """A folder that stands in for a host, with systemd's and the kernel's settings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stand_in(self.root / "bin", "systemctl", SYSTEMCTL)
        stand_in(self.root / "bin", "sysctl", SYSCTL)
        (self.root / "units").mkdir()
        for address in (ONE, TWO):
            self.device(address)
        cards = (f"{slot}, 0000{address}, GPU-{slot}, 94.02\n" for slot, address in enumerate([ONE, TWO]))
        self.says(power=ROWS, cards="".join(cards))

    def unit(self, name: str, words: str) -> None:
        (self.root / "units" / name).write_text(f"{words}\n")

    def live(self, one: Rig, timeout: int = 20) -> Live:
        """What the script finds."""
        places = {name: str(self.root / name) for name in ("script", "applied", "record")}
        places["script"] += "-power"
        asked = questions(one) | places | {"devices": str(self.devices), "timeout": timeout}
        return parse(self._run(render("nvidia_driver/live.sh.j2", **asked)).stdout.splitlines())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_host_is_read_in_one_round_trip(host: Host) -> None:
    host.unit(PERSISTENCED, "enabled active yes")
    host.unit(POWER_UNIT, "disabled failed no")
    (host.root / "record").write_text("{}\n")
    found = host.live(TUNED)
    assert found.units == {PERSISTENCED: ("enabled", "active", "yes"), POWER_UNIT: ("disabled", "failed", "no")}
    assert found.cards == {ONE: ("Enabled", "280.00"), TWO: ("Disabled", "[N/A]")}
    assert found.sysctl == {"vm.swappiness": "10", "kernel.numa_balancing": ""}
    assert found.record == digest("{}\n")
    assert [card.address for card in found.topology.cards] == [ONE, TWO]


def test_units_that_are_not_there_are_said_to_be_nothing(host: Host) -> None:
    found = host.live(TUNED)
    assert found.units == {PERSISTENCED: ("none", "inactive", "no"), POWER_UNIT: ("none", "inactive", "no")}
    assert found.record == ""


@pytest.mark.parametrize(
    ("script", "applied", "expected"), [("one\n", "one\n", True), ("two\n", "one\n", False), ("one\n", None, False)]
)
def test_limits_count_as_set_by_the_script_that_lies_there(
    host: Host, script: str, applied: str | None, expected: bool
) -> None:
    (host.root / "script-power").write_text(script)
    if applied is not None:
        (host.root / "applied").write_text(f"{hashlib.sha256(applied.encode()).hexdigest()}  -\n")
    assert host.live(TUNED).applied is expected


def test_the_script_that_sets_limits_says_so_in_the_form_that_is_compared(host: Host) -> None:
    host.says(
        power="00000000:01:00.0, GPU-a, 100.00, 370.00, 350.00\n00000000:41:00.0, GPU-b, 100.00, 370.00, 350.00\n"
    )
    status, lines = host.power(TUNED, "set")
    assert status == 0, lines
    (host.root / "script-power").write_text((host.root / "script").read_text())
    assert host.live(TUNED).applied is True
    (host.root / "script-power").write_text("another")
    assert host.live(TUNED).applied is False


def test_a_driver_that_does_not_answer_leaves_the_rest(host: Host) -> None:
    host.unit(PERSISTENCED, "enabled active no")
    host.says(hangs="--query\n")
    found = host.live(TUNED, timeout=1)
    assert (found.cards, found.topology.failed) == ({}, "nvidia-smi does not answer")
    assert found.units[PERSISTENCED] == SOUND
    assert found.sysctl["vm.swappiness"] == "10"


def test_an_answer_that_is_none_is_no_card(host: Host) -> None:
    host.says(power="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", status="9")
    assert host.live(TUNED).cards == {}


@pytest.mark.parametrize("line", ["live unit x.service enabled active", "live unit", "live card 0000:01:00.0", "else"])
def test_a_line_that_is_cut_short_is_refused(line: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse([line])


def test_the_record_has_the_driver_its_packages_and_where_the_cards_are() -> None:
    facts = replace(WHOLE, packages=(*WHOLE.packages, Package("nvidia-settings", "510.47.03-0ubuntu4")))
    plan = made(locked_rig(), facts)
    text = record(plan, facts, live())
    rows = json.loads(text)
    assert (rows["version"], rows["branch"], rows["flavour"], rows["source"]) == (NEW, 595, "open", "nvidia")
    assert rows["kernel"] == facts.kernel
    assert rows["packages"] == {one.name: one.version for one in WHOLE.packages}
    assert [(card["slot"], card["address"], card["uuid"]) for card in rows["cards"]] == [
        (0, ONE, "GPU-0"),
        (1, TWO, "GPU-1"),
    ]
    assert rows["pairs"] == [{"cards": [0, 1], "way": "PHB", "p2p": "CNS"}]
    assert text.endswith("}\n")
    assert digest(text) == hashlib.sha256(text.encode()).hexdigest()
    # what cards are set to is no part of it: it would differ with each look
    assert record(plan, facts, live(cards={}, applied=False, record="x")) == text
    assert record(plan, replace(facts, kernel="6.1.0"), live()) != text
