"""What the driver's checks ask of a host beside its cards: the state probe's output as a typed value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rigwright.declaration.rig import Rig
from rigwright.host.facts import keyed
from rigwright.nvidia.driver.found import param, release_key

# dkms 2.8 writes `nvidia, 580.95.05, KERNEL, ARCH: installed`, later ones `nvidia/580.95.05, KERNEL, ARCH: installed`;
# without kernel while it is only added or broken, and with remarks in brackets behind
DKMS = re.compile(r"([^/,:\s]+)(?:/|, )([^/,:\s]+)(?:, ([^,:\s]+), [^,:\s]+)?: ([a-z]+)(.*)")
DRIVER = re.compile(r"[0-9]{3}\.[0-9.]*[0-9]")


@dataclass(frozen=True)
class Kernel:
    """A kernel, and the nvidia module that lies there for it."""

    release: str
    bootable: bool
    """Whether its image is in /boot."""
    version: str
    """The module's; empty without one."""
    license: str
    signer: str
    """Empty where it has no signature."""


@dataclass(frozen=True)
class Dkms:
    """A line of `dkms status` about the driver."""

    version: str
    kernel: str
    """Empty where the state is of no kernel."""
    state: str
    """"added", "built", "installed" or "broken"."""
    remark: str


@dataclass(frozen=True)
class State:
    """One host, as found."""

    running: str
    """The kernel that runs."""
    kernels: tuple[Kernel, ...] = ()
    """The running one and all that could boot."""
    kernel_days: int | None = None
    """Days since the running kernel was built; None where its image is not there."""
    dkms: tuple[Dkms, ...] = ()
    holds: frozenset[str] = frozenset()
    unattended: bool = False
    """Whether unattended-upgrades is installed."""
    blacklist: tuple[str, ...] = ()
    """What that leaves alone: regular expressions."""
    candidates: tuple[tuple[str, str], ...] = ()
    """(package, the version that apt would install) of the driver's and of held packages."""
    security: tuple[tuple[str, str], ...] = ()
    """(package, a version of it above the installed one that an archive of security updates has)."""
    reboot: bool = False
    """Whether a package asks for a reboot."""
    reboot_for: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    """The loaded module's options."""
    sysctl: tuple[tuple[str, str], ...] = ()
    p2p: tuple[tuple[str, int], ...] = ()
    """(instance, pid) of each process of ours that has GGML_CUDA_P2P in its environment."""

    def module(self, release: str) -> Kernel:
        """The module that lies there for a kernel."""
        return next((one for one in self.kernels if one.release == release), Kernel(release, False, "", "", ""))

    @property
    def boots(self) -> bool:
        """Whether it has a kernel of its own; a container has none, nor has a machine that is started from outside."""
        return any(one.bootable for one in self.kernels)

    @property
    def newest(self) -> Kernel:
        """What boots next: the newest kernel in /boot, or what runs where none is there."""
        there = [one for one in self.kernels if one.bootable]
        return max(there, key=lambda one: release_key(one.release), default=self.module(self.running))


def questions(rig: Rig) -> dict[str, object]:
    """What the probe is asked about a rig's host: the values of its template."""
    return {"sysctl": sorted(rig.driver.sysctl)}


def parse(lines: list[str]) -> State:
    """Read the probe's `key value...` lines (templates/probe/driver_state.sh.j2).

    Raises:
        ValueError: it did not get as far as the running kernel, or a line is cut short.
    """
    single, many = keyed(lines)
    if not single.get("running"):
        raise ValueError("the probe of the driver's state printed no running kernel")
    days = single.get("kernel_days")
    return State(
        running=single["running"],
        kernels=tuple(_kernel(row) for row in many.get("module", [])),
        kernel_days=int(days) if days else None,
        dkms=tuple(one for row in many.get("dkms", []) if (one := dkms_line(row))),
        holds=frozenset(many.get("hold", [])),
        unattended=single.get("unattended") == "yes",
        blacklist=tuple(many.get("blacklist", [])),
        candidates=tuple(_pair(row) for row in many.get("candidate", [])),
        security=tuple(_pair(row) for row in many.get("security", [])),
        reboot=single.get("reboot") == "yes",
        reboot_for=tuple(many.get("reboot_for", [])),
        params=tuple(param(row) for row in many.get("param", [])),
        sysctl=tuple(_pair(row) for row in many.get("sysctl", [])),
        p2p=tuple((name, int(pid)) for name, pid in (_pair(row) for row in many.get("p2p", []))),
    )


def dkms_line(line: str) -> Dkms | None:
    """What a line of `dkms status` says of the driver; None where it is about something else.

    The driver's modules are called nvidia, nvidia-srv, nvidia-current or nvidia-open, and all have its version; what
    else begins so, such as nvidia-fs, has one of its own.
    """
    matched = DKMS.fullmatch(line.strip())
    if not matched or not matched[1].startswith("nvidia") or not DRIVER.fullmatch(matched[2]):
        return None
    return Dkms(matched[2], matched[3] or "", matched[4], matched[5].strip())


def _kernel(row: str) -> Kernel:
    fields = row.split("|", 4)
    if len(fields) != 5:
        raise ValueError(f"the probe of the driver's state printed a line that is cut short: {row!r}")
    release, bootable, version, licence, signer = fields
    return Kernel(release, bootable == "yes", version, licence, signer)


def _pair(row: str) -> tuple[str, str]:
    first, _, second = row.partition(" ")
    return first, second.strip()
