"""What nvidia-smi says of cards, as typed values: the one reader of its rows, for roles, checks and the program on the
host alike (which is why nothing but the standard library is imported here).

It has no promise of a stable format (its manual), so one that is not understood is refused, never guessed. No question
here has a table of clocks in its answer (SUPPORTED_CLOCKS, and with it `-q -x`): with driver 610 that one crashed a
card's firmware and hung the machine (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1239).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TIMEOUT = 20  # seconds; seen on two H200, a question takes less than one
FORMAT = "--format=csv,noheader,nounits"
# A field that the driver does not know makes a whole question fail: these are known to each that serves here. The
# name is last, because it is the only one that can hold anything.
FIELDS = (
    "index",
    "pci.bus_id",
    "uuid",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "persistence_mode",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "ecc.errors.uncorrected.volatile.total",
    "power.limit",
    "power.min_limit",
    "power.max_limit",
    "power.default_limit",
    "clocks.current.graphics",
    "vbios_version",
    "name",
)
GPUS = (f"--query-gpu={','.join(FIELDS)}", FORMAT)
RECOVERY = ("--query-gpu=pci.bus_id,gpu_recovery_action", FORMAT)
APPS = ("--query-compute-apps=pid,gpu_bus_id,used_memory", FORMAT)

UNSAID = frozenset({"N/A", "[N/A]", "[Not Supported]"})
UNKNOWN_FIELD = "is not a valid field to query"
NO_DEVICES = "No devices were found"
# timeout's own status, and the one of a command that only SIGKILL could end (coreutils manual)
TIMED_OUT = (124, 137)
WARNED = 14
"""Exit status of an answer with a warning: NVML_ERROR_CORRUPTED_INFOROM (nvml.h)."""
WARNING = "WARNING:"
# every row begins with a number or an address
ROW = re.compile(r"[0-9]+,|[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:")
NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True)
class Gpu:
    """A card that answers. Sizes in MiB, power in W; None where nvidia-smi says that there is no such thing."""

    index: int
    """nvidia-smi's own number, which is also the one of CUDA in the order of the bus."""
    address: str
    """On the PCI bus, as the kernel writes it."""
    uuid: str
    driver: str
    capability: str
    total_mib: int | None
    used_mib: int | None
    """Taken by anybody's contexts; without what driver and firmware reserve."""
    persistence: str
    """"Enabled" or "Disabled"."""
    width: int | None
    """Lanes of its PCI link now."""
    width_max: int | None
    """Lanes that card and slot could have together."""
    uncorrected: int | None
    """Memory errors since the driver was loaded that ECC could not correct."""
    limit_w: float | None
    """Of power, now."""
    least_w: float | None
    most_w: float | None
    usual_w: float | None
    """The limit that it has of itself."""
    clock_mhz: float | None
    """The graphics clock now."""
    vbios: str
    name: str


@dataclass(frozen=True)
class App:
    """A process that computes on a card."""

    pid: int
    address: str
    used_mib: int | None


def bus_address(text: str) -> str:
    """An address as sysfs writes it: nvidia-smi prints the domain with eight digits, all in capitals."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def gpus(status: int, stdout: str, stderr: str = "") -> tuple[Gpu, ...]:
    """The cards that answer, in nvidia-smi's order, from what GPUS ended with and printed.

    Raises:
        ValueError: no card answers; a sentence that says why.
    """
    return those_that_answer(status, stdout, stderr)[0]


def those_that_answer(status: int, stdout: str, stderr: str = "") -> tuple[tuple[Gpu, ...], str]:
    """The sound cards of GPUS, and the first warning of nvidia-smi or about a card that is lost or sick; else empty.

    Raises:
        ValueError: no card answers; a sentence that says why.
    """
    found: list[Gpu] = []
    lines, warning = rows(status, stdout, stderr)
    for line in lines:
        try:
            found.append(_gpu(line))
        except ValueError as error:
            warning = warning or str(error)
    if not found:
        raise ValueError(warning or "nvidia-smi lists no card")
    return tuple(found), warning


def recovery(status: int, stdout: str, stderr: str = "") -> dict[str, str]:
    """What each card says has to be done with it ("None" on a sound one), by address, from RECOVERY.

    Empty with a driver that does not know the question: it came with 565 (NVML's list of changes), and cards that do
    not answer it are left out.

    Raises:
        ValueError: nvidia-smi fails otherwise; a sentence that says how.
    """
    if status != 0 and UNKNOWN_FIELD in stdout + stderr:
        return {}
    found = [fields(line, 2) for line in rows(status, stdout, stderr)[0]]
    return {bus_address(address): action for address, action in found if action not in UNSAID}


def apps(status: int, stdout: str, stderr: str = "") -> tuple[App, ...]:
    """The processes that compute, once for each card, from APPS.

    Raises:
        ValueError: nvidia-smi fails; a sentence that says how.
    """
    found = []
    for line in rows(status, stdout, stderr)[0]:
        pid, bus, used = fields(line, 3)
        found.append(App(int(pid), bus_address(bus), _count(used, "used_memory", bus)))
    return tuple(found)


def _spelt(text: str) -> str:
    """A text without what a terminal obeys. By Python alone: hosts run this module by itself, too."""
    return text.encode("unicode_escape").decode()


def rows(status: int, stdout: str, stderr: str = "") -> tuple[list[str], str]:
    """The rows that nvidia-smi printed, and the first of its other lines as a sentence; empty if there are none.

    A warning, or a card that is lost, does not make the rows of other cards wrong.

    Raises:
        ValueError: it printed no row and failed, or printed a line that is no row; a sentence that says why.
    """
    _text(stdout)
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    found = [line for line in lines if ROW.match(line)]
    others = [line.strip() for line in (*lines, *stderr.splitlines()) if line.strip() and not ROW.match(line.strip())]
    if not found or status in TIMED_OUT:
        answer(status, stdout, stderr)
        if lines and not all(line.startswith(WARNING) for line in lines):
            raise ValueError(f"nvidia-smi reports: {_spelt(lines[0])}")
    return found, f"nvidia-smi reports: {_spelt(others[0])}" if others else _ended(status)


def _text(stdout: str) -> str:
    """What nvidia-smi printed, where it is text.

    Raises:
        ValueError: it has a NUL in it.
    """
    if "\0" in stdout:
        raise ValueError("nvidia-smi prints invalid text")
    return stdout


def answer(status: int, stdout: str, stderr: str = "") -> list[str]:
    """The lines that nvidia-smi printed, without its warnings.

    Raises:
        ValueError: it has no answer; a sentence that says why.
    """
    lines = [line.strip() for line in _text(stdout).splitlines() if line.strip()]
    if status in TIMED_OUT:
        raise ValueError(f"nvidia-smi did not answer within {TIMEOUT} s")
    if status == 127:
        raise ValueError("nvidia-smi is not installed")
    # a card that is lost ends it after the rows of those before it
    words = [line for line in [*lines, *stderr.splitlines()] if line.strip() and not ROW.match(line)]
    if status not in (0, WARNED):
        raise ValueError(f"nvidia-smi reports: {_spelt(words[0].strip())}" if words else _ended(status))
    if NO_DEVICES in lines:
        raise ValueError(f"nvidia-smi reports: {NO_DEVICES}")
    return [line for line in lines if not line.startswith(WARNING)]


def _ended(status: int) -> str:
    return f"nvidia-smi ended with status {status}" if status not in (0, WARNED) else ""


def fields(line: str, count: int) -> list[str]:
    """The fields of a row; the last one may hold anything.

    Raises:
        ValueError: it is no such row.
    """
    found = [field.strip() for field in line.split(",", count - 1)]
    if len(found) != count or not ROW.match(line):
        raise ValueError(f"nvidia-smi reports: {_spelt(line)}")
    return found


def number(text: str) -> float | None:
    """A number as nvidia-smi prints it; None where it says none."""
    return float(text) if NUMBER.fullmatch(text) else None


def _gpu(line: str) -> Gpu:
    said = dict(zip(FIELDS, fields(line, len(FIELDS)), strict=True))
    bus = said["pci.bus_id"]
    for field in ("uuid", "driver_version", "compute_cap", "persistence_mode", "name"):
        if said[field].startswith("[") and said[field] not in UNSAID:
            raise ValueError(f"nvidia-smi reports {_spelt(said[field])} for the card at {_spelt(bus_address(bus))}")

    def count(field: str) -> int | None:
        return _count(said[field], field, bus)

    return Gpu(
        index=int(said["index"]),
        address=bus_address(bus),
        uuid=said["uuid"],
        driver=said["driver_version"],
        capability=said["compute_cap"],
        total_mib=count("memory.total"),
        used_mib=count("memory.used"),
        persistence=said["persistence_mode"],
        width=count("pcie.link.width.current"),
        width_max=count("pcie.link.width.max"),
        uncorrected=count("ecc.errors.uncorrected.volatile.total"),
        limit_w=number(said["power.limit"]),
        least_w=number(said["power.min_limit"]),
        most_w=number(said["power.max_limit"]),
        usual_w=number(said["power.default_limit"]),
        clock_mhz=number(said["clocks.current.graphics"]),
        vbios=said["vbios_version"],
        name=said["name"],
    )


def _count(text: str, what: str, bus: str) -> int | None:
    if text in UNSAID:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise ValueError(
            f"nvidia-smi reports {_spelt(text) or 'nothing'} for {what} of the card at {_spelt(bus_address(bus))}"
        )
    return int(text)
