"""The units that set the cards, as systemd has them, and what else sets them."""

from __future__ import annotations

import pytest

from checks import DEPLOY, Drift, check
from checks.nvidia import expect_no_items, skip_unless_managed
from checks.remedy import host_command, restart_units
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SETTINGS, BootSettings
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import POWER_UNIT
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_setting_files import POWER, power_digest, program_folder
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT
from rigwright.nvidia.driver.driver_files import PERSISTENCED


def effective(settings: BootSettings, unit: str, fragments: set[str], drop_ins: list[str], command: str) -> list[str]:
    """How what systemd has of a unit differs from what is declared of it."""
    wrong = []
    there = settings.unit_property(unit, "FragmentPath")
    if settings.unit_property(unit, "LoadState") != "loaded" or there not in fragments:
        wrong.append(f"it is from {there or 'nowhere'} ({settings.unit_property(unit, 'LoadState') or 'unknown'})")
    merged = settings.unit_property(unit, "DropInPaths").split()
    wrong += [f"{path} was added to it" for path in merged if path not in drop_ins]
    wrong += [f"{path} is not loaded" for path in drop_ins if path not in merged]
    if settings.unit_property(unit, "NeedDaemonReload") == "yes":
        wrong.append("its files changed after systemd loaded them")
    if command not in settings.unit_property(unit, "ExecStart"):
        wrong.append(
            f"it runs "
            f"{settings.unit_property(unit, 'ExecStart').partition('argv[]=')[2].partition(' ;')[0] or 'nothing'}"
        )
    return wrong


@check(
    "N47",
    "the unit that sets power limits and clocks is as declared, and has run",
    severity="high",
    why="the merged unit sets up the cards at the next boot, and a drop-in can change it",
)
def test_power_unit(
    survey: SurveyAnswers, roots: Roots, declared_cards: tuple[Card, ...], driver_entry: DriverEntry
) -> None:
    if not driver_entry.sets_cards:
        pytest.skip("no card settings are declared")
    settings = survey.read(SETTINGS)
    command = f"/usr/bin/python3 -I -B {program_folder(roots)} set"
    wrong = effective(settings, POWER_UNIT, {POWER}, [], f"argv[]={command} ;")
    state = (settings.unit_property(POWER_UNIT, "ActiveState"), settings.unit_property(POWER_UNIT, "Result"))
    if state != ("active", "success"):
        wrong.append(f"it is {state[0] or 'unknown'} ({state[1]})")
    expect_no_items(f"{POWER_UNIT} as declared", wrong, host_command("systemctl revert {}", POWER_UNIT) + DEPLOY)
    if settings.applied != power_digest(roots, declared_cards, driver_entry):
        raise Drift(
            "all declared limits and clocks set since boot",
            "others, or none",
            restart_units(POWER_UNIT),
        )


@check(
    "N48",
    "the persistence daemon runs as declared",
    severity="high",
    why="without the daemon, idle cards lose their limits",
)
def test_persistence_unit(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    settings = survey.read(SETTINGS)
    fragments = {f"{folder}/systemd/system/{PERSISTENCE_UNIT}" for folder in ("/lib", "/usr/lib")}
    wrong = effective(settings, PERSISTENCE_UNIT, fragments, [PERSISTENCED], "exec /usr/bin/nvidia-persistenced --user")
    if "--persistence-mode" not in settings.unit_property(PERSISTENCE_UNIT, "ExecStart"):
        wrong.append("it is started without persistence mode")
    if settings.unit_property(PERSISTENCE_UNIT, "ActiveState") != "active":
        wrong.append(f"it is {settings.unit_property(PERSISTENCE_UNIT, 'ActiveState') or 'unknown'}")
    expect_no_items(
        f"{PERSISTENCE_UNIT} as declared",
        wrong,
        host_command("systemctl revert {}", PERSISTENCE_UNIT) + DEPLOY,
    )
