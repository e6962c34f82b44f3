"""Files of a managed driver on a host: settings, and the record of a deploy."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from rigwright.model.catalog_schema import Card
from rigwright.model.instance import POWER_UNIT
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import DriverSupply
from rigwright.model.roots import Roots
from rigwright.nvidia.cards import card_setting_files
from rigwright.nvidia.cards.card_setting_files import OWNED, POWER, SettingFile, record_path
from rigwright.nvidia.driver.driver_facts import MODPROBE, SOURCE, DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan
from rigwright.nvidia.packages.locked_driver import archive_addresses, find_locked_driver
from rigwright.render import render

PREFERENCES = "/etc/apt/preferences.d/rigwright-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/52rigwright-nvidia"
PERSISTENCED = "/etc/systemd/system/nvidia-persistenced.service.d/rigwright.conf"
# Made on the host where a component of the distribution's archive had to be switched on, and not by
# `render_driver_settings`.
COMPONENT = "/etc/apt/sources.list.d/rigwright-component.sources"
PATHS = (SOURCE, PREFERENCES, UNATTENDED, MODPROBE, PERSISTENCED)

# Beginnings of package names: the driver's libraries and tools, and its modules, as built by DKMS or with a kernel.
DRIVER_PATTERNS = (
    "nvidia-",
    "libnvidia-",
    "lib.*-nvidia",
    "libcuda.*1",
    "libnvoptix1",
    "firmware-nvidia",
    "libnvcuvid1",
    "cuda-drivers",
    "cuda-compat",
    "xserver-xorg-video-nvidia",
    "linux-(modules|objects|signatures)-nvidia-",
)
# A kernel without modules of the driver's is a box without cards after the next boot.
KERNEL_PATTERNS = ("linux-(image|headers|modules|generic)",)


def managed_paths(roots: Roots) -> tuple[str, ...]:
    """Every file of the driver's that may be ours; one that `render_driver_settings` does not name is removed."""
    return (*PATHS, *card_setting_files.managed_paths(roots))


def driver_release_values(roots: Roots, keep: Collection[str] = ()) -> dict[str, object]:
    """The values of templates/nvidia_driver/release.sh.j2, which stops managing a rig's driver.

    Args:
        roots: Directories on the host.
        keep: Paths that stay, since they are declared for an operator's own driver too.
    """
    record = [record_path(roots)]
    gone = [path for path in (*managed_paths(roots), COMPONENT) if path not in (PREFERENCES, *keep)]
    return {
        "power": POWER if POWER in gone else "",
        "power_unit": POWER_UNIT,
        "driver_files": gone,
        "preferences": PREFERENCES,
        "persistence_link": "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service",
        "driver_store": store_folder(roots),
        "driver_records": [path for path in record if path not in keep],
    }


def store_folder(roots: Roots) -> str:
    """The folder with package files that are kept, and lists of what is installed and held."""
    return f"{roots.state}/driver"


def render_locked_settings(
    roots: Roots,
    cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    network: DownloadNetwork,
    plan: DriverPlan,
    facts: DriverFacts,
) -> tuple[SettingFile, ...]:
    """The files of a rig's driver on a host: as `render_driver_settings`, with the archive and the key of its lock."""
    kept = find_locked_driver(driver_supply, facts.system)
    # an archive that the operator has named already must not be named twice, with another key
    elsewhere = any(file != SOURCE for _, file in facts.nvidia_sources)
    asked = plan.source == "nvidia" and not elsewhere and not driver_supply.bundled
    key = kept.key if kept and asked else ""
    return render_driver_settings(
        roots,
        cards,
        driver_entry,
        plan,
        archive=archive_addresses(driver_supply, network, facts.system) if key else (),
        key=key,
    )


def render_driver_settings(
    roots: Roots,
    cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    plan: DriverPlan,
    *,
    pin: str = "",
    archive: Sequence[str] = (),
    key: str = "",
) -> tuple[SettingFile, ...]:
    """The files that a rig's driver has; none of them is empty.

    Args:
        roots: Directories on the host.
        cards: The declared cards by GPU index.
        driver_entry: The declared driver.
        plan: For its host.
        pin: Text for apt's preferences, where another one than the plan's: of an exact version, say.
        archive: Addresses of NVIDIA's flat archive for the host's system, in the order in which they are tried.
        key: That archive's signing key, armoured.

    Raises:
        ValueError: an archive without its key, or the other way round.
    """
    if bool(archive) != bool(key):
        raise ValueError("archive and key go together: one is missing")
    files = {
        PREFERENCES: render("nvidia_driver/preferences.j2", owned=OWNED, pin=(pin or plan.pin).rstrip("\n")),
        UNATTENDED: render("nvidia_driver/unattended.j2", owned=OWNED, patterns=upgrade_exclusions(plan)),
        MODPROBE: render("nvidia_driver/modprobe.conf.j2", owned=OWNED, options=driver_entry.module_options),
        PERSISTENCED: render("nvidia_driver/persistenced.conf.j2", owned=OWNED),
    }
    if plan.source == "nvidia" and key:
        files[SOURCE] = render("nvidia_driver/archive.sources.j2", owned=OWNED, archive=archive, key=key)
    own = (SettingFile(path, text) for path, text in files.items())
    return tuple(
        sorted((*own, *card_setting_files.render_card_settings(roots, cards, driver_entry)), key=lambda one: one.path)
    )


def upgrade_exclusions(plan: DriverPlan) -> tuple[str, ...]:
    """The packages that unattended upgrades leave alone: the driver, and the kernel if held with its modules."""
    held = any(name.startswith("linux-image-") for name in plan.holds)
    return (*DRIVER_PATTERNS, *(KERNEL_PATTERNS if held else ()))


FILE = "driver.json"


class RecordedCard(BaseModel):
    """A card when the driver was brought."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    address: str
    vbios: str = ""
    """Empty if unrecorded."""


class DriverRecord(BaseModel):
    """The driver that the last deploy left there; of an operator's own it knows the cards alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str = ""
    kernel: str = ""
    packages: dict[str, str] = {}
    cards: tuple[RecordedCard, ...] = ()


def driver_record_path(roots: Roots) -> str:
    """Where it lies on the host."""
    return f"{roots.config}/{FILE}"


def parse_driver_record(text: str) -> DriverRecord | None:
    """The record; None where there is none that can be read."""
    try:
        return DriverRecord.model_validate(json.loads(text))
    except (ValueError, ValidationError, RecursionError):
        return None
