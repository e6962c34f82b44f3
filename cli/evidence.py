"""What is found out about a host for who asks why it misbehaves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from checks import Drift
from checks.connections import ConnectedHost
from checks.survey.health import read_health
from rigwright.model.instance import Instance
from rigwright.operate.diagnose import KERNEL
from rigwright.operate.diagnosis_types import FailedCheck, HostEvidence
from rigwright.operate.instance_health import HealthFacts, assess_health, parse_card_uses
from rigwright.problems import printable
from rigwright.safe_text import mask_secrets
from roles import root_shell

MAX_LOG_LINES = 2000  # of an instance's journal
MAX_KERNEL_MESSAGES = 500  # of the kernel's
WIDTH = 4000  # bytes of a line: an engine writes what it likes
MAX_LOG_BYTES = 8 << 20  # bytes of either, and of a file
DRIVER = "cat /sys/module/nvidia/version 2>/dev/null || true"


def collect_evidence(
    inventory: str, box: ConnectedHost, instances: Sequence[Instance], red: Sequence[FailedCheck]
) -> tuple[HostEvidence, list[str]]:
    """Read a host's logs and take a look at it; returns what was seen, and what could not be.

    Args:
        inventory: The inventory, as commands about it name it.
        box: The host.
        instances: Those of it that matter.
        red: The checks that do not hold there.

    Raises:
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    driver = "".join(root_shell.run_command(box.target, DRIVER, limit=20, most=100).lines[:1])
    journal, cut = "journalctl --no-pager --quiet --output=cat", f"cut -b 1-{WIDTH}"
    kernel = _read_redacted_lines(
        box, f"{journal} -k -b --lines={MAX_KERNEL_MESSAGES} --grep={shlex.quote(KERNEL)} | {cut}"
    )
    logs = {
        one.name: _read_redacted_lines(box, f"{journal} --lines={MAX_LOG_LINES} --unit={shlex.quote(one.unit)} | {cut}")
        for one in instances
    }
    facts, unseen = {}, []
    try:
        facts = _evidence_facts(box, read_health(box.target, box.rig), instances)
    except (ValueError, Drift, root_shell.ConnectionGone) as error:
        unseen.append(f"how its instances are: {printable(str(error))}")
    return HostEvidence(inventory, box.name, driver[:40], logs, kernel, red=red, **facts), unseen


def _evidence_facts(box: ConnectedHost, seen: HealthFacts, instances: Sequence[Instance]) -> dict[str, Any]:
    """What a look tells, as members of the evidence."""
    uses, cards_say = parse_card_uses(seen.cards)
    return {
        "healths": [assess_health(seen, one) for one in instances],
        "cards": {one.name: tuple(one.cards) for one in box.rig.instances},
        **{"uses": uses, "cards_say": cards_say, "reboot": seen.reboot},
    }


def _read_redacted_lines(box: ConnectedHost, command: str) -> list[str]:
    """What a command of root's prints, without what looks like a secret."""
    return [
        mask_secrets(line) for line in root_shell.run_command(box.target, command, limit=60, most=MAX_LOG_BYTES).lines
    ]
