"""The files that a managed driver has on a host, as text; one function says which there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rigwright.declaration.rig import POWER_UNIT, Rig
from rigwright.nvidia.driver.choice import DriverPlan
from rigwright.nvidia.driver.found import MODPROBE, SOURCE, DriverFacts
from rigwright.nvidia.packages.locked import archive_addresses, locked
from rigwright.render import render

# First line of each. Not the one of a generation's units (rigwright.serving.units): those are removed where no
# generation has them, and the unit for power is no generation's.
OWNED = "# Written by rigwright for the cards' driver; changes here are undone by the next deploy."
PREFERENCES = "/etc/apt/preferences.d/rigwright-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/52rigwright-nvidia"
PERSISTENCED = "/etc/systemd/system/nvidia-persistenced.service.d/rigwright.conf"
POWER = f"/etc/systemd/system/{POWER_UNIT}"
SYSCTL = "/etc/sysctl.d/60-rigwright.conf"
# Which script has set limits and clocks last, as sha256sum says it; gone with a boot, as they are.
APPLIED = "/run/rigwright-power"
# Made on the host where a component of the distribution's archive had to be switched on; not by `settings`.
COMPONENT = "/etc/apt/sources.list.d/rigwright-component.sources"
# All but the script for power, which lies in a rig's own folder.
PATHS = (SOURCE, PREFERENCES, UNATTENDED, MODPROBE, PERSISTENCED, POWER, SYSCTL)

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
# Seconds. A healthy card answers in less than one; what hangs would hang for ever (see rigwright.nvidia.smi).
TIMEOUT = 20
# Seconds for all cards together: sixteen of them, with a question and two orders each that take their time.
UNIT_PATIENCE = 300
DEVICES = "/sys/bus/pci/devices"


@dataclass(frozen=True)
class Setting:
    """A file on the host, root's."""

    path: str
    text: str

    @property
    def mode(self) -> str:
        """In octal: scripts can be run."""
        return "755" if self.text.startswith("#!") else "644"


def script_path(rig: Rig) -> str:
    """The script that sets limits and clocks."""
    return f"{rig.roots.config}/power"


def paths(rig: Rig) -> tuple[str, ...]:
    """Every file of the driver's that may be ours; one that `settings` does not name is removed."""
    return (*PATHS, script_path(rig))


def release(rig: Rig) -> dict[str, object]:
    """The values of templates/nvidia_driver/release.sh.j2, which lets go of a rig's driver."""
    return {
        "power": POWER,
        "power_unit": POWER_UNIT,
        "driver_files": [path for path in (*paths(rig), COMPONENT) if path != PREFERENCES],
        "preferences": PREFERENCES,
        "persistence_link": "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service",
        "driver_store": store(rig),
        "driver_record": record_path(rig),
    }


def store(rig: Rig) -> str:
    """The folder with package files that are kept, and lists of what is installed and held."""
    return f"{rig.roots.state}/driver"


def record_path(rig: Rig) -> str:
    """What was made of the driver and its cards, for later roles and for comparison."""
    return f"{rig.roots.config}/driver.json"


def settings_of(rig: Rig, plan: DriverPlan, facts: DriverFacts) -> tuple[Setting, ...]:
    """The files that a rig's driver has on a host: as `settings`, with the archive and the key of its lock."""
    kept = locked(rig, facts.system)
    # an archive that the operator has named already must not be named twice, with another key
    elsewhere = any(file != SOURCE for _, file in facts.nvidia_sources)
    key = kept.key if kept and plan.source == "nvidia" and not elsewhere else ""
    return settings(rig, plan, archive=archive_addresses(rig, facts.system) if key else (), key=key)


def settings(
    rig: Rig, plan: DriverPlan, *, pin: str = "", archive: Sequence[str] = (), key: str = ""
) -> tuple[Setting, ...]:
    """The files that a rig's driver has; none of them is empty.

    Args:
        rig: One whose driver is managed.
        plan: For its host.
        pin: Text for apt's preferences, where another one than the plan's: of an exact version, say.
        archive: Addresses of NVIDIA's flat archive for the host's system, in the order in which they are tried.
        key: That archive's signing key, armoured.

    Raises:
        ValueError: an archive without its key, or the other way round.
    """
    if bool(archive) != bool(key):
        raise ValueError("an archive goes with its key: one is there without the other")
    driver = rig.driver
    files = {
        PREFERENCES: render("nvidia_driver/preferences.j2", owned=OWNED, pin=(pin or plan.pin).rstrip("\n")),
        UNATTENDED: render("nvidia_driver/unattended.j2", owned=OWNED, patterns=patterns(plan)),
        MODPROBE: render("nvidia_driver/modprobe.conf.j2", owned=OWNED, options=driver.module_options),
        PERSISTENCED: render("nvidia_driver/persistenced.conf.j2", owned=OWNED),
    }
    if plan.source == "nvidia" and key:
        files[SOURCE] = render("nvidia_driver/archive.sources.j2", owned=OWNED, archive=archive, key=key)
    if driver.sysctl:
        files[SYSCTL] = render("nvidia_driver/sysctl.conf.j2", owned=OWNED, settings=driver.sysctl)
    if driver.power_w is not None or driver.clocks_mhz is not None:
        unit = render("nvidia_driver/power.service.j2", owned=OWNED, script=script_path(rig), patience=UNIT_PATIENCE)
        files |= {script_path(rig): power_script(rig), POWER: unit}
    return tuple(Setting(path, files[path]) for path in sorted(files))


def patterns(plan: DriverPlan) -> tuple[str, ...]:
    """What unattended upgrades leave alone: the driver, and the kernel where it is held with its modules."""
    held = any(name.startswith("linux-image-") for name in plan.holds)
    return (*DRIVER_PATTERNS, *(KERNEL_PATTERNS if held else ()))


def limits(rig: Rig) -> tuple[int | None, ...]:
    """The power limit of each declared card by slot, W; None where it is left alone."""
    declared = rig.driver.power_w
    return declared if isinstance(declared, tuple) else (declared,) * len(rig.cards)


def power_script(
    rig: Rig, timeout: int = TIMEOUT, devices: str = DEVICES, applied: str = APPLIED, record: str = ""
) -> str:
    """The script of the unit for power: `set` and `reset`.

    Args:
        rig: With a limit or clocks.
        timeout: For one call of nvidia-smi, s.
        devices: The kernel's folder of the bus.
        applied: The file by which the script says that it has set everything.
        record: The file in which cards are written down, where that is not the rig's.
    """
    return render(
        "nvidia_driver/power.sh.j2",
        owned=OWNED,
        timeout=timeout,
        devices=devices,
        applied=applied,
        record=record or record_path(rig),
        limits=limits(rig),
        clocks=rig.driver.clocks_mhz,
    )
