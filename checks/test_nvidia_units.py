"""The units that set the cards, as systemd has them, and what else sets them."""

from __future__ import annotations

import pytest

from checks import DEPLOY, Drift, check
from checks.nvidia import managed, none, with_cards
from checks.survey.settings import SETTINGS, Settings
from checks.survey.taken import Survey
from rigwright.model.rig import POWER_UNIT, Rig
from rigwright.nvidia.cards.files import POWER, power_digest, program_folder
from rigwright.nvidia.driver.files import PERSISTENCED
from rigwright.nvidia.driver.found import PERSISTENCE_UNIT


def effective(settings: Settings, unit: str, fragments: set[str], drop_ins: list[str], command: str) -> list[str]:
    """How what systemd has of a unit differs from what is declared of it."""
    wrong = []
    there = settings.unit(unit, "FragmentPath")
    if settings.unit(unit, "LoadState") != "loaded" or there not in fragments:
        wrong.append(f"it is from {there or 'nowhere'} ({settings.unit(unit, 'LoadState') or 'unknown'})")
    merged = settings.unit(unit, "DropInPaths").split()
    wrong += [f"{path} was added to it" for path in merged if path not in drop_ins]
    wrong += [f"{path} is not loaded" for path in drop_ins if path not in merged]
    if settings.unit(unit, "NeedDaemonReload") == "yes":
        wrong.append("its files changed after systemd loaded them")
    if command not in settings.unit(unit, "ExecStart"):
        wrong.append(
            f"it runs {settings.unit(unit, 'ExecStart').partition('argv[]=')[2].partition(' ;')[0] or 'nothing'}"
        )
    return wrong


@check(
    "N47",
    "the unit that sets power limits and clocks is as declared, and has run",
    severity="high",
    why="the unit as systemd has merged it sets up the cards at the next boot, whatever one file says",
)
def test_power_unit(survey: Survey, rig: Rig) -> None:
    if not rig.driver.sets_cards:
        pytest.skip("no card settings are declared")
    settings = survey.read(SETTINGS)
    command = f"/usr/bin/python3 -I -B {program_folder(rig)} set"
    wrong = effective(settings, POWER_UNIT, {POWER}, [], f"argv[]={command} ;")
    state = (settings.unit(POWER_UNIT, "ActiveState"), settings.unit(POWER_UNIT, "Result"))
    if state != ("active", "success"):
        wrong.append(f"it is {state[0] or 'unknown'} ({state[1]})")
    none(f"{POWER_UNIT} as declared", wrong, f"remove what was added, run `systemctl daemon-reload`, then {DEPLOY}")
    if settings.applied != power_digest(rig):
        raise Drift(
            "all declared limits and clocks set since boot",
            "others, or none",
            f"`systemctl restart {POWER_UNIT}`",
        )


@check(
    "N48",
    "the persistence daemon runs as declared",
    severity="high",
    why="without it idle cards forget their limits",
)
def test_persistence_unit(survey: Survey, rig: Rig) -> None:
    managed(rig)
    settings = survey.read(SETTINGS)
    fragments = {f"{folder}/systemd/system/{PERSISTENCE_UNIT}" for folder in ("/lib", "/usr/lib")}
    wrong = effective(settings, PERSISTENCE_UNIT, fragments, [PERSISTENCED], "exec /usr/bin/nvidia-persistenced --user")
    if "--persistence-mode" not in settings.unit(PERSISTENCE_UNIT, "ExecStart"):
        wrong.append("it is started without persistence mode")
    if settings.unit(PERSISTENCE_UNIT, "ActiveState") != "active":
        wrong.append(f"it is {settings.unit(PERSISTENCE_UNIT, 'ActiveState') or 'unknown'}")
    none(
        f"{PERSISTENCE_UNIT} as declared",
        wrong,
        f"remove what was added, run `systemctl daemon-reload && systemctl restart {PERSISTENCE_UNIT}`, then {DEPLOY}",
    )


@check(
    "N49",
    "nothing else sets up the cards at boot or on a schedule",
    severity="high",
    why="a job that sets a limit or ends persistence mode undoes the declared settings, some time after every check",
)
def test_setters(survey: Survey, rig: Rig) -> None:
    with_cards(rig)
    wrong = [f"{path}: {what}" for path, what in survey.read(SETTINGS).setters]
    none("nothing else that sets up cards", wrong, "remove it, or declare what it sets under driver")
