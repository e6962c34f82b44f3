"""Whether a managed driver's configuration files are as deployed: check N28."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from checks import Drift
from rigwright.model.entry import DriverEntry
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_facts import required_units
from rigwright.nvidia.cards.card_setting_files import SettingFile
from rigwright.nvidia.driver.driver_files import managed_paths

OWNER = "root:root"
STEP = "re-run deploy to fix"


@dataclass(frozen=True)
class SettingFileFacts:
    """What lies at a path."""

    kind: str
    """"file", or words for what else it is."""
    mode: str = ""
    owner: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class SettingsFacts:
    """One host, as found."""

    files: dict[str, SettingFileFacts] = field(default_factory=dict)
    """By path; without those where nothing lies."""
    enabled: dict[str, str] = field(default_factory=dict)
    """Unit -> whether it starts at boot, in systemd's words."""


def find_settings_differences(
    roots: Roots, driver_entry: DriverEntry, files: Sequence[SettingFile], found: SettingsFacts
) -> list[Drift]:
    """N28: each of the driver's settings lies there as it is rendered, no other one does, and its units start at boot.

    Args:
        roots: Directories on the host.
        driver_entry: The declared driver.
        files: The settings that its driver has.
        found: Its host.
    """
    rows = []
    for one in files:
        there = found.files.get(one.path)
        said = "nothing" if there is None else there.kind
        if there is not None and there.kind == "file":
            text = hashlib.sha256(one.text.encode()).hexdigest()
            said = "different contents" if there.sha256 != text else ""
            if not said and (there.mode, there.owner) != (one.mode, OWNER):
                said = f"mode {there.mode} of {there.owner}"
        if said:
            rows.append(Drift(f"{one.path} as deployed", said, STEP))
    declared = {one.path for one in files}
    rows += [
        Drift(f"no {path}", "one", STEP)
        for path in managed_paths(roots)
        if path in found.files and path not in declared
    ]
    rows += [
        Drift(f"{unit} to start at boot", state, STEP)
        for unit in required_units(driver_entry)
        if (state := found.enabled.get(unit, "nothing")) != "enabled"
    ]
    return rows
