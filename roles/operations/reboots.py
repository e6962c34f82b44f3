"""A reboot: announced, drained, waited for."""

from __future__ import annotations

import time
from typing import Any

import gevent
from pyinfra import logger

from rigwright.nvidia.cards.holders import script as holders_script
from rigwright.nvidia.cards.holders import strangers
from roles.operations.shell import Lost, Shell
from roles.progress import progress

# Seconds until a host must be back: boards with eight cards and much memory take minutes until they boot
PATIENCE = 900
# Of the boot, by two clocks: a container's kernel has one boot id for all
BOOT = "systemctl show --property=UserspaceTimestamp --property=UserspaceTimestampMonotonic | tr '\\n' ' '"
DRAIN = "systemctl stop rigwright.target 'rigwright-*.service' 2>/dev/null; true"


def reboot(host: Any, why: str) -> bool:
    """Stop what we serve, reboot the host and wait for it; False where somebody else uses a card, or it stays away.

    Args:
        host: The pyinfra host.
        why: For the operator.
    """
    shell = Shell(host, PATIENCE)
    if others := strangers(shell.run(holders_script())):
        for line in others:
            logger.error(f"{host.print_prefix}no reboot: {line}")
        logger.error(f"{host.print_prefix}end these, or wait for them, and run again")
        return False
    before = shell.run(BOOT)
    logger.warning(f"{host.print_prefix}rebooting: {why}")
    shell.run(DRAIN)
    # after this command has answered: the connection goes with the host
    shell.run("systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot")
    started = time.monotonic()
    with progress.task(host.name, "rebooting") as task:
        task.label("waiting for the host to come back")
        # a system that goes down may have no answer left
        while shell.run(BOOT) in (before, []):
            if time.monotonic() - started > PATIENCE:
                raise Lost(f"it has not gone down within {PATIENCE} s")
            gevent.sleep(0.5)
        # what is asked next must not meet a system that is still starting
        shell.run("timeout 50 systemctl is-system-running --wait >/dev/null 2>&1; true")
    logger.info(f"{host.print_prefix}back after {time.monotonic() - started:.0f} s")
    return True
