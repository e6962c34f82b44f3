"""Records of the last deploy of driver and cards, and settings files: checks N20, N27, N28."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from checks import DEPLOY, Drift
from checks.remedy import instruction
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.card_facts import required_units
from rigwright.nvidia.cards.card_setting_files import SettingFile
from rigwright.nvidia.cards.smi import Gpu, number
from rigwright.nvidia.cards.topology import cards_on_bus
from rigwright.nvidia.driver.driver_files import DriverRecord, managed_paths


def find_driver_drift(there: DriverRecord | None, kernel: str, module: str, packages: Mapping[str, str]) -> list[Drift]:
    """N20: kernel and driver are those of the last deploy.

    Args:
        there: Its record.
        kernel: The one that runs.
        module: Version of the loaded module.
        packages: Each installed package of the driver, with its version.
    """
    step = instruction("/var/log/apt/history.log may name the change") + DEPLOY
    if there is None:
        return [Drift("a record of the driver by the last deploy", "none", DEPLOY)]
    changed = [
        f"{name} {packages.get(name, 'gone')}"
        for name, version in sorted(there.packages.items())
        if packages.get(name) != version
    ]
    rows = (
        (f"kernel {there.kernel}", kernel, kernel == there.kernel),
        (f"driver {there.version}", module or "none", module == there.version),
        ("the packages of the last deploy", ", ".join(changed), not changed),
    )
    return [Drift(expected, found, step) for expected, found, holds in rows if not holds]


def find_vital_differences(
    cards: tuple[Card, ...],
    facts: HostFacts,
    gpus: Mapping[str, Gpu],
    temperature: Mapping[str, Mapping[str, str]],
    there: DriverRecord | None,
) -> list[Drift]:
    """N27: no card is as hot as where it slows itself down, and each has the VBIOS that it had.

    Newer drivers tell of some cards only how many degrees are left to that point.

    Args:
        cards: The declared cards by GPU index.
        facts: Its host.
        gpus: The cards that answer, by address.
        temperature: nvidia-smi's report of their temperatures, by address.
        there: The last deploy's record; None without one.
    """
    had = {card.address: card.vbios for card in there.cards} if there else {}
    found = []
    for index, _, address in cards_on_bus(cards, facts):
        said = temperature.get(address, {})

        def degrees(key: str, said: Mapping[str, str] = said) -> float | None:
            return number(said.get(f"Temperature/GPU {key}", "").removesuffix(" C"))

        now, limit = degrees("Current Temp"), degrees("Slowdown Temp")
        left, least = degrees("T.Limit Temp"), degrees("Slowdown T.Limit Temp")
        cool = instruction("check fans, dust and airflow")
        if now is not None and limit is not None and now >= limit:
            found.append(Drift(f"card {index} at {address} below {limit:g} C, where it throttles", f"{now:g} C", cool))
        elif left is not None and least is not None and left <= least:
            found.append(
                Drift(f"card {index} at {address} below its throttling temperature", f"{least - left:g} C above", cool)
            )
        vbios = gpus[address].vbios if address in gpus else ""
        if vbios and had.get(address, vbios) not in ("", vbios):
            found.append(
                Drift(
                    f"VBIOS {had[address]} on card {index} at {address}",
                    vbios,
                    instruction("if it was not updated, this is another card") + DEPLOY,
                )
            )
    return found


OWNER = "root:root"


@dataclass(frozen=True)
class SettingFileFacts:
    """The object at a path."""

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
            rows.append(Drift(f"{one.path} as deployed", said, DEPLOY))
    declared = {one.path for one in files}
    rows += [
        Drift(f"no {path}", "one", DEPLOY)
        for path in managed_paths(roots)
        if path in found.files and path not in declared
    ]
    rows += [
        Drift(f"{unit} to start at boot", state, DEPLOY)
        for unit in required_units(driver_entry)
        if (state := found.enabled.get(unit, "nothing")) != "enabled"
    ]
    return rows
