"""Packages that many machines have are no drift: their rules, units and settings are their own."""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from tests.hosts.support import is_serving, red_check_lines, wait_until

pytestmark = pytest.mark.all_only
# Programs and files that name network cards, set permissions, start programs by timers and sockets, filter packets,
# change PAM's stacks, or have the kernel start others' programs
PACKAGES = (
    *(
        "udev",
        "polkitd",
        "libpam-systemd",
        "libpam-google-authenticator",
        "network-manager",
        "avahi-daemon",
        "cloud-init",
    ),
    *(
        "unattended-upgrades",
        "cron",
        "rsyslog",
        "logrotate",
        "ufw",
        "fail2ban",
        "ipset",
        "nftables",
        "iptables",
        "chrony",
    ),
    *("smartmontools", "lm-sensors", "nfs-common", "kexec-tools", "docker.io", "podman", "qemu-user-static"),
    *("binfmt-support", "default-jre-headless"),
)


def test_packages_that_many_machines_have_are_no_drift(converged: LabHost, inventory: Path) -> None:
    install = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install"
    converged.run(f"apt-get -qq update && {install} {' '.join(PACKAGES)} 2>&1 | tail -n 5")
    assert red_check_lines(inventory) == {}
    converged.reboot()
    wait_until(lambda: is_serving(converged), "serving after a boot")
    assert red_check_lines(inventory) == {}
