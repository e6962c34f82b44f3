"""What stands in files that are read at boot, where it concerns cards and us."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.model.instance import POWER_UNIT
from rigwright.nvidia.cards.card_setting_files import program_folder
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT
from rigwright.nvidia.driver.driver_files import managed_paths

AT_BOOT = (
    "systemd-sysctl.service",
    "systemd-modules-load.service",
    "systemd-udevd.service",
    "systemd-journald.service",
)
NEEDED = (
    *("systemd-tmpfiles-setup.service", "systemd-tmpfiles-setup-dev.service", "systemd-remount-fs.service"),
    *("dbus.service", "dbus.socket", "local-fs.target", "network.target"),
    "systemd-user-sessions.service",
)
"""What else a boot goes by, or services wait for."""
NETWORK = ("systemd-networkd.service", "networking.service", "NetworkManager.service")
WAYS_IN = ("ssh.service", "ssh.socket", "sshd.service")


@dataclass(frozen=True)
class SettingLine:
    """A line of a file."""

    kind: str
    """Who reads it: "modprobe", "sysctl" and so on; "hidden modprobe" where the file hides `line`, which is another."""
    path: str
    line: str
    package: str
    """That has brought the file; empty where none has."""
    brought: bool
    """Whether the file is as that package brought it."""


@dataclass(frozen=True)
class SettingsFile:
    """What lies at a path."""

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

    rows: list[SettingLine]
    """In the order in which they are read."""
    setters: list[list[str]]
    """(file, what) of programs at boot and by the clock that set cards."""
    shadows: list[list[str]]
    """(file, the system's program) of what stands before that on PATH."""
    sshd: list[str]
    """Why sshd would not start again, in its words."""
    risky: list[list[str]]
    """(file, line) of settings of the kernel's that open or starve what is ours, or start a program of nobody's."""
    loader: list[list[str]]
    """(folder, file that names it, a library) of folders with libraries of the driver's that the loader looks in."""
    files: list[SettingsFile]
    units: dict[str, dict[str, str]]
    """Unit -> what systemd has of it."""
    masked: list[str]
    """Those that the next boot finds masked."""
    kept_down: list[list[str]]
    """(file, line) by which network or sshd would start another program, or an interface has another name or none."""
    applied: str
    """Which limits and clocks were set last."""

    def unit_property(self, name: str, what: str) -> str:
        """A property of a unit; empty without it."""
        return self.units.get(name, {}).get(what, "")


def settings_questions(scene: SurveyScope) -> dict[str, object]:
    """What of it concerns a rig."""
    rig = scene.rig
    roots = [rig.roots.config, rig.roots.software, rig.roots.state, rig.roots.models, "/run/rigwright"]
    cards = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"] if rig.cards else []
    return {
        "sysctl": sorted(rig.driver.sysctl),
        "paths": [*roots, *cards],
        "files": list(managed_paths(rig.roots)),
        "folders": [program_folder(rig.roots)],
        "ways": [*NETWORK, *WAYS_IN],
        "units": [POWER_UNIT, PERSISTENCE_UNIT, *AT_BOOT, *NEEDED, *NETWORK, *WAYS_IN],
    }


SETTINGS: Section[BootSettings] = Section(
    "boot_settings",
    BootSettings,
    settings_questions,
    blind="files of programs that are not known to read settings there",
    start_order=5,
)
