"""The settings of cards: read from a host, compared with the rig's, and recorded."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.host.service_states import ServiceState
from rigwright.model.instance import POWER_UNIT
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_facts import (
    CardFacts,
    find_unset,
    parse,
    record_digest,
    render_card_query,
    render_driver_record,
    required_units,
)
from rigwright.nvidia.cards.card_setting_files import APPLIED, power_digest, record_path
from rigwright.nvidia.cards.smi import TIMEOUT, Gpu, gpus
from rigwright.nvidia.cards.topology import DEVICES, CardPair, CardPlace, Topology
from rigwright.nvidia.driver.driver_facts import InstalledPackage
from tests.unit.card_folder import CardFolder
from tests.unit.channel_records import channel_lines
from tests.unit.driver_samples import C3090, make_driver_plan
from tests.unit.managed_driver_samples import CONVERGED_HOST, NEW, managed_rig
from tests.unit.nvidia_host import CAPTURED_OUTPUT
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig

ONE, TWO = "0000:01:00.0", "0000:41:00.0"
PERSISTENCED = "nvidia-persistenced.service"
SOUND = ServiceState("active", "enabled")
PLACES = Topology(
    tuple(
        CardPlace(gpu_index, address, f"GPU-{gpu_index}", None, "0-31", 16, 16, "94.02", 32768)
        for gpu_index, address in enumerate([ONE, TWO])
    ),
    (CardPair((0, 1), "PHB", "CNS"),),
)


def declared_rig(**driver: Any) -> Rig:
    return sample_rig(cards=(C3090, C3090), driver=DriverEntry(managed=True, **driver))


CLOCKED = declared_rig(clocks_mhz=(210, 1695))
TUNED = declared_rig(power_w=(280, 300), sysctl={"vm.swappiness": 10, "kernel.numa_balancing": 0})


def gpu(limit_w: float | None, persistence: str = "Enabled") -> Gpu:
    """One that answers."""
    return replace(gpus(0, CAPTURED_OUTPUT["gpus"])[0], limit_w=limit_w, persistence=persistence)


def live(**changes: Any) -> CardFacts:
    """A host that is as TUNED says."""
    sound = CardFacts(
        units={PERSISTENCED: SOUND, POWER_UNIT: SOUND},
        gpus={ONE: gpu(280), TWO: gpu(300)},
        applied=power_digest(TUNED.roots, TUNED.cards, TUNED.driver),
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
    assert required_units(declared_rig(**driver).driver) == expected


def both(power: ServiceState) -> dict[str, ServiceState]:
    return {PERSISTENCED: SOUND, POWER_UNIT: power}


RESTART, POWER = f"restart {PERSISTENCED}", f"restart {POWER_UNIT}"
UNSET: dict[str, tuple[Rig, CardFacts, dict[str, list[str]]]] = {
    "nothing": (TUNED, live(), {}),
    "a unit that was changed": (
        TUNED,
        live(units=both(ServiceState("active", "enabled", reload_needed=True))),
        {"reload": [f"{POWER_UNIT} was changed"], POWER: [f"{POWER_UNIT} was changed"]},
    ),
    "a unit that does not come with the boot": (
        TUNED,
        live(units=both(ServiceState("active", "disabled"))),
        {f"enable {POWER_UNIT}": [f"{POWER_UNIT} is disabled"]},
    ),
    "a unit that has failed": (
        TUNED,
        live(units=both(ServiceState("failed", "enabled"))),
        {POWER: [f"{POWER_UNIT} is failed"]},
    ),
    "a unit that is not there": (
        TUNED,
        live(units={PERSISTENCED: SOUND}),
        {f"enable {POWER_UNIT}": [f"{POWER_UNIT} is not-found"], POWER: [f"{POWER_UNIT} is inactive"]},
    ),
    "a daemon without persistence": (
        TUNED,
        live(gpus={ONE: gpu(280), TWO: gpu(300, "Disabled")}),
        {RESTART: [f"persistence mode of {TWO} is Disabled"]},
    ),
    "a limit": (
        TUNED,
        live(gpus={ONE: gpu(280), TWO: gpu(350)}),
        {POWER: ["card 1 is limited to 350 W, 300 W are declared"]},
    ),
    "a limit that the card has rounded": (TUNED, live(gpus={ONE: gpu(279), TWO: gpu(301)}), {}),
    "a limit that is off by more": (
        TUNED,
        live(gpus={ONE: gpu(278.9), TWO: gpu(300)}),
        {POWER: ["card 0 is limited to 278.9 W, 280 W are declared"]},
    ),
    "a limit that the card does not tell": (
        TUNED,
        live(gpus={ONE: gpu(None), TWO: gpu(300)}),
        {POWER: ["card 0 is limited to no W, 280 W are declared"]},
    ),
    "a card that does not answer": (
        TUNED,
        live(gpus={ONE: gpu(280)}),
        {POWER: ["card 1 is limited to no W, 300 W are declared"]},
    ),
    "clocks that another script has set": (
        declared_rig(clocks_mhz=(210, 1695)),
        live(applied=""),
        {POWER: ["the declared limits and clocks were not set"]},
    ),
    "clocks, whatever the limits are": (
        CLOCKED,
        live(gpus={ONE: gpu(1)}, applied=power_digest(CLOCKED.roots, CLOCKED.cards, CLOCKED.driver)),
        {},
    ),
    "limits that are nobody's": (declared_rig(), live(applied="", gpus={ONE: gpu(1)}), {}),
    "a setting": (
        TUNED,
        live(sysctl={"vm.swappiness": "60"}),
        {"sysctl": ["vm.swappiness is 60, 10 is declared", "kernel.numa_balancing is not there, 0 is declared"]},
    ),
    "everything after a boot without us": (
        TUNED,
        live(units={}, gpus={ONE: gpu(350, "Disabled")}, applied=""),
        {
            f"enable {PERSISTENCED}": [f"{PERSISTENCED} is not-found"],
            RESTART: [f"{PERSISTENCED} is inactive", f"persistence mode of {ONE} is Disabled"],
            f"enable {POWER_UNIT}": [f"{POWER_UNIT} is not-found"],
            POWER: [
                f"{POWER_UNIT} is inactive",
                "the declared limits and clocks were not set",
                "card 0 is limited to 350 W, 280 W are declared",
                "card 1 is limited to no W, 300 W are declared",
            ],
        },
    ),
}


@pytest.mark.parametrize("name", UNSET)
def test_it_is_to_be_set(name: str) -> None:
    one, found, expected = UNSET[name]
    assert find_unset(one.roots, one.cards, one.reserved_gpus, one.driver, found) == expected


SYSTEMCTL = """
cd "$(dirname "$0")/../units" || exit
unit=
for word in "$@"; do case $word in *.service) unit=$word ;; esac; done
[ -e "$unit" ] || { case $1 in is-enabled) echo "Failed to get unit file state for $unit" >&2; exit 1 ;; esac; }
case "$*" in
  is-enabled*) cut -d ' ' -f 1 "$unit" ;;
  *)
    read -r _ active reload 2>/dev/null < "$unit" || active=inactive reload=no
    printf 'MainPID=0\nActiveState=%s\nNeedDaemonReload=%s\n' "$active" "$reload"
    ;;
esac
"""
SYSCTL = 'case $2 in vm.swappiness) echo 10 ;; net.odd) printf "a\\tb\\nc\\n" ;; *) exit 255 ;; esac'
ROW = (
    "{}, 0000{}, GPU-{}, 580.178.04, 8.6, 24576, 0, {}, 16, 16, [N/A], {}, 100.00, 370.00, 350.00, 210, 94.02, "
    "NVIDIA GeForce RTX 3090\n"
)


class CardSettingsHost(CardFolder):
    """A folder that stands in for a host, with systemd's and the kernel's settings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        write_stand_in(self.root / "bin", "systemctl", SYSTEMCTL)
        write_stand_in(self.root / "bin", "sysctl", SYSCTL)
        (self.root / "units").mkdir()
        for address in (ONE, TWO):
            self.add_device(address)
        self.set_smi_answers(
            cards=ROW.format(0, ONE, "a", "Enabled", "280.00") + ROW.format(1, TWO, "b", "Disabled", "[N/A]")
        )

    def unit(self, name: str, words: str) -> None:
        (self.root / "units" / name).write_text(f"{words}\n")

    def live(self, one: Rig, timeout: int = 20) -> CardFacts:
        """The findings of the script."""
        text = render_card_query(one.roots, one.driver)
        places = {record_path(one.roots): "driver.json", APPLIED: "applied", DEVICES: "devices"}
        for place, name in places.items():
            assert place in text
            text = text.replace(place, str(self.root / name))
        (self.root / "script").write_text(text.replace(f"-k 5 {TIMEOUT}", f"-k 5 {timeout}"))
        return parse(self._run("sh", str(self.root / "script")).stdout.splitlines())


@pytest.fixture
def host(tmp_path: Path) -> CardSettingsHost:
    return CardSettingsHost(tmp_path)


def test_a_host_is_read_in_one_round_trip(host: CardSettingsHost) -> None:
    host.unit(PERSISTENCED, "enabled active yes")
    host.unit(POWER_UNIT, "disabled failed no")
    (host.root / "driver.json").write_text("{}\n")
    found = host.live(TUNED)
    assert found.units == {
        PERSISTENCED: ServiceState("active", "enabled", reload_needed=True),
        POWER_UNIT: ServiceState("failed", "disabled"),
    }
    assert {place: (one.persistence, one.limit_w) for place, one in found.gpus.items()} == {
        ONE: ("Enabled", 280.0),
        TWO: ("Disabled", None),
    }
    assert found.sysctl == {"vm.swappiness": "10", "kernel.numa_balancing": ""}
    assert found.record == record_digest("{}\n")
    assert [card.address for card in found.topology.cards] == [ONE, TWO]


def test_units_that_are_not_there_are_reported_as_nothing(host: CardSettingsHost) -> None:
    found = host.live(TUNED)
    assert found.units == {PERSISTENCED: ServiceState(), POWER_UNIT: ServiceState()}
    assert found.record == ""


def test_the_program_that_sets_limits_says_which_in_the_form_that_is_compared(host: CardSettingsHost) -> None:
    assert host.live(TUNED).applied == ""
    status, lines = host.run_power(TUNED, "set")
    assert status == 0, lines
    assert host.live(TUNED).applied == power_digest(TUNED.roots, TUNED.cards, TUNED.driver)
    box_rig = declared_rig(power_w=(280, 301))
    assert power_digest(TUNED.roots, TUNED.cards, TUNED.driver) != power_digest(
        box_rig.roots, box_rig.cards, box_rig.driver
    )


def test_a_driver_that_does_not_answer_leaves_the_rest(host: CardSettingsHost) -> None:
    host.unit(PERSISTENCED, "enabled active no")
    host.set_smi_answers(hangs="--query\n")
    found = host.live(TUNED, timeout=1)
    assert (found.gpus, found.topology.failed) == ({}, "nvidia-smi did not answer within 20 s")
    assert (found.units[PERSISTENCED], found.sysctl["vm.swappiness"]) == (SOUND, "10")


def test_an_answer_that_is_invalid_is_no_card(host: CardSettingsHost) -> None:
    host.set_smi_answers(
        cards="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", status="9"
    )
    assert host.live(TUNED).gpus == {}


@pytest.mark.parametrize("record", [("unit", "x.service", "enabled", "active"), ("card", ONE), ("sysctl", "a b", "1")])
def test_a_short_text_or_one_of_another_type_is_refused(record: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse(channel_lines(record))


def test_the_record_has_the_driver_its_packages_and_where_the_cards_are() -> None:
    facts = replace(
        CONVERGED_HOST, packages=(*CONVERGED_HOST.packages, InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4"))
    )
    plan = make_driver_plan(managed_rig(), facts)
    text = render_driver_record(plan, facts, live())
    rows = json.loads(text)
    assert (rows["version"], rows["branch"], rows["flavour"], rows["source"]) == (NEW, 595, "open", "nvidia")
    assert rows["kernel"] == facts.kernel
    assert rows["packages"] == {one.name: one.version for one in CONVERGED_HOST.packages}
    assert [(card["slot"], card["address"], card["uuid"]) for card in rows["cards"]] == [
        (0, ONE, "GPU-0"),
        (1, TWO, "GPU-1"),
    ]
    assert rows["pairs"] == [{"cards": [0, 1], "way": "PHB", "p2p": "CNS"}]
    assert text.endswith("}\n")
    assert record_digest(text) == hashlib.sha256(text.encode()).hexdigest()
    # the settings of cards are no part of it: it would differ with each look
    assert render_driver_record(plan, facts, live(gpus={}, applied="", record="x")) == text
    assert render_driver_record(plan, replace(facts, kernel="6.1.0"), live()) != text
