"""Facts that the driver's checks ask of a host in addition to its cards, as a typed value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rigwright.nvidia.driver.driver_facts import release_key

# Other modules with the driver's prefix, such as nvidia-fs, have a version of their own.
DRIVER = re.compile(r"[0-9]{3}\.[0-9.]*[0-9]")


@dataclass(frozen=True)
class KernelModule:
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
class DkmsEntry:
    """The driver in DKMS, for one kernel or for none."""

    version: str
    kernel: str
    """Empty where the state is of no kernel."""
    state: str
    """"added", "built", "installed" or "broken"."""
    remark: str


@dataclass(frozen=True)
class KernelFacts:
    """One host, as found."""

    running: str
    """The kernel that runs."""
    kernels: tuple[KernelModule, ...] = ()
    """The running one and all that could boot."""
    kernel_days: int | None = None
    """Days since the running kernel was built; None where its image is not there."""
    dkms: tuple[DkmsEntry, ...] = ()
    holds: frozenset[str] = frozenset()
    unattended: bool = False
    """Whether unattended-upgrades is installed."""
    blacklist: tuple[str, ...] = ()
    """The packages that those leave alone: regular expressions."""
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

    def module(self, release: str) -> KernelModule:
        """The module that lies there for a kernel."""
        return next((one for one in self.kernels if one.release == release), KernelModule(release, False, "", "", ""))

    @property
    def has_own_kernel(self) -> bool:
        """Whether it has a kernel of its own; a container has none, nor has a machine that is started from outside."""
        return any(one.bootable for one in self.kernels)

    @property
    def newest(self) -> KernelModule:
        """The kernel of the next boot: the newest one in /boot, or the running one where none is there."""
        there = [one for one in self.kernels if one.bootable]
        return max(there, key=lambda one: release_key(one.release), default=self.module(self.running))
