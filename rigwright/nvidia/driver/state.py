"""What the driver's checks ask of a host beside its cards: the state probe's output as a typed value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rigwright.declaration.rig import Rig
from rigwright.host.channel import Schema, file_name, number, read, said, truth, unit
from rigwright.nvidia.driver.found import MODULE_NAMES, OF_A_DRIVER, release_key
from rigwright.nvidia.modules.options import parameters
from rigwright.nvidia.values import package, sysctl_name, text, version
from rigwright.render import render

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


def days(value: str) -> int:
    """Days since something; negative where a clock was wrong."""
    if not re.fullmatch(r"-?[0-9]{1,9}", value):
        raise ValueError("a number of days")
    return int(value)


TOLD: Schema = {
    "running": (file_name,),
    "module": (file_name, truth, said, said, said),
    "kernel_days": (days,),
    "dkms": (text,),
    "hold": (package,),
    "unattended": (truth,),
    "blacklist": (said,),
    "candidate": (package, version),
    "security": (package, version),
    "reboot": (truth,),
    "reboot_for": (said,),
    "params": (text,),
    "sysctl": (sysctl_name, said),
    "p2p": (unit, number),
}


def script(rig: Rig) -> str:
    """The probe of a rig's host; what it prints is for `parse`."""
    values = {"packages": OF_A_DRIVER, "modules": MODULE_NAMES}
    return render("probe/driver_state.sh.j2", sysctl=sorted(rig.driver.sysctl), **values)


def parse(output: Iterable[str]) -> State:
    """Read what the probe has printed.

    Raises:
        ValueError: it is not what a host can tell, or something is missing.
    """
    told = read(output, TOLD)
    dkms = [line for said_by_dkms in told.all("dkms") for line in said_by_dkms.splitlines()]
    return State(
        running=told.one("running"),
        # what runs is told beside all that can be booted
        kernels=tuple(Kernel(*row) for row in dict.fromkeys(told.many("module"))),
        kernel_days=next(iter(told.all("kernel_days")), None),
        dkms=tuple(one for line in dkms if (one := dkms_line(line))),
        holds=frozenset(told.all("hold")),
        unattended=told.one("unattended"),
        blacklist=tuple(told.all("blacklist")),
        candidates=tuple(told.many("candidate")),
        security=tuple(told.many("security")),
        reboot=told.one("reboot"),
        reboot_for=tuple(told.all("reboot_for")),
        params=parameters(told.one("params")),
        sysctl=tuple(told.many("sysctl")),
        p2p=tuple(told.many("p2p")),
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
