"""A reboot: announced, drained, waited for."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import gevent
from pyinfra import logger

from rigwright.nvidia.cards.card_processes import ENDS, ForeignProcesses, parse_holders, render_holders_query
from roles.operations.shell import HostLost, ReconnectingShell
from roles.progress import progress

# Seconds until a host must be back: boards with eight cards and much memory take minutes until they boot
PATIENCE = 900
# Of the boot, by two clocks: a container's kernel has one boot id for all
BOOT = "systemctl show --property=UserspaceTimestamp --property=UserspaceTimestampMonotonic | tr '\\n' ' '"
DRAIN = "systemctl stop rigwright.target 'rigwright-*.service' 2>/dev/null; true"


def describe_needed_reboot(shell: ReconnectingShell, why: str, reserved_gpus: Collection[int]) -> list[str]:
    """Lines about a reboot that needs the operator's consent.

    Args:
        shell: Of the host that needs it.
        why: For the operator.
        reserved_gpus: As of `reboot`.
    """
    said = (
        f"needs a reboot: {why}. Re-run deploy with --reboot, or reboot it yourself and re-run deploy; the "
        "steps after the driver wait until then"
    )
    return [
        said,
        *(f"{line}{ENDS}" for line in (_read_card_holders(shell, reserved_gpus).borrowers if reserved_gpus else ())),
    ]


def reboot_host(host: Any, why: str, reserved_gpus: Collection[int]) -> bool:
    """Stop Rigwright's services, reboot the host and wait for it; False if another process uses a card not reserved.

    Args:
        host: The pyinfra host.
        why: For the operator.
        reserved_gpus: GPU indexes of the cards that are reserved: a reboot may end processes on them, and names those.
    """
    shell = ReconnectingShell(host, PATIENCE)
    others = _read_card_holders(shell, reserved_gpus)
    if others.strangers:
        for line in others.strangers:
            logger.error(f"{host.print_prefix}no reboot: {line}")
        logger.error(f"{host.print_prefix}stop these, or wait for them, then run it again")
        return False
    for line in others.borrowers:
        logger.warning(f"{host.print_prefix}{line}{ENDS}")
    before = shell.run(BOOT)
    logger.warning(f"{host.print_prefix}rebooting: {why}")
    shell.run(DRAIN)
    # after this command has answered: the connection goes with the host
    shell.run("systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot")
    started = time.monotonic()
    with progress.task(host.name, "rebooting") as task:
        task.start_step("waiting for the host to come back")
        # a system that goes down may have no answer left
        while shell.run(BOOT) in (before, []):
            if time.monotonic() - started > PATIENCE:
                raise HostLost(f"it did not go down within {PATIENCE} s")
            gevent.sleep(0.5)
        # the next command needs a system that has started
        shell.run("timeout 50 systemctl is-system-running --wait >/dev/null 2>&1; true")
    logger.info(f"{host.print_prefix}back after {time.monotonic() - started:.0f} s")
    return True


def _read_card_holders(shell: ReconnectingShell, reserved_gpus: Collection[int]) -> ForeignProcesses:
    return parse_holders(shell.run(render_holders_query()), reserved_gpus)
