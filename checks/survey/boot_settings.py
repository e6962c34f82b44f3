"""Files and units that set up the cards, and the units by which a box is reached after a boot."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.model.instance import POWER_UNIT
from rigwright.nvidia.cards.card_setting_files import program_folder
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT
from rigwright.nvidia.driver.driver_files import managed_paths

NETWORK = ("systemd-networkd.service", "networking.service", "NetworkManager.service")
WAYS_IN = ("ssh.service", "ssh.socket", "sshd.service")


@dataclass(frozen=True)
class SettingsFile:
    """The object at a path."""

    path: str
    kind: str
    """"file", or words for what else it is."""
    mode: str
    uid: int
    gid: int
    sha256: str


@dataclass(frozen=True)
class BootSettings:
    """All of it."""

    sshd: list[str]
    """Why sshd would not start again, in its words."""
    files: list[SettingsFile]
    units: dict[str, dict[str, str]]
    """Unit -> what systemd has of it."""
    applied: str
    """Which limits and clocks were set last."""

    def unit_property(self, name: str, what: str) -> str:
        """A property of a unit; empty without it."""
        return self.units.get(name, {}).get(what, "")


def settings_questions(scene: SurveyScope) -> dict[str, object]:
    """The questions that concern a rig."""
    rig = scene.rig
    return {
        "files": list(managed_paths(rig.roots)),
        "folders": [program_folder(rig.roots)],
        "units": [POWER_UNIT, PERSISTENCE_UNIT, *NETWORK, *WAYS_IN],
    }


SETTINGS: Section[BootSettings] = Section(
    "boot_settings",
    BootSettings,
    settings_questions,
    blind="settings that a program changes once it runs",
    start_order=5,
)
