"""What is found out about a host for who asks why it misbehaves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from checks import Drift
from checks.looking import Box
from checks.survey.health import look
from rigwright.model.rig import Instance
from rigwright.operate.diagnose import KERNEL
from rigwright.operate.evidence import Evidence, RedCheck
from rigwright.operate.health import Look, cards, health
from rigwright.problems import printable
from rigwright.text import masked
from roles import root

LINES = 2000  # of an instance's journal
MESSAGES = 500  # of the kernel's
WIDTH = 4000  # bytes of a line: an engine writes what it likes
MOST = 8 << 20  # bytes of either, and of a file
DRIVER = "cat /sys/module/nvidia/version 2>/dev/null || true"


def gathered(
    inventory: str, box: Box, instances: Sequence[Instance], red: Sequence[RedCheck]
) -> tuple[Evidence, list[str]]:
    """Read a host's logs and take a look at it; returns what was seen, and what could not be.

    Args:
        inventory: The inventory, as commands about it name it.
        box: The host.
        instances: Those of it that matter.
        red: The checks that do not hold there.

    Raises:
        roles.root.Gone: the connection is gone.
    """
    driver = "".join(root.run(box.target, DRIVER, limit=20, most=100).lines[:1])
    journal, cut = "journalctl --no-pager --quiet --output=cat", f"cut -b 1-{WIDTH}"
    kernel = _lines(box, f"{journal} -k -b --lines={MESSAGES} --grep={shlex.quote(KERNEL)} | {cut}")
    logs = {
        one.name: _lines(box, f"{journal} --lines={LINES} --unit={shlex.quote(one.unit)} | {cut}") for one in instances
    }
    facts, unseen = {}, []
    try:
        facts = _facts(box, look(box.target, box.rig), instances)
    except (ValueError, Drift, root.Gone) as error:
        unseen.append(f"how its instances are: {printable(str(error))}")
    return Evidence(inventory, box.name, driver[:40], logs, kernel, red=red, **facts), unseen


def _facts(box: Box, seen: Look, instances: Sequence[Instance]) -> dict[str, Any]:
    """What a look tells, as members of the evidence."""
    uses, cards_say = cards(seen.cards)
    return {
        "healths": [health(seen, one) for one in instances],
        "cards": {one.name: tuple(one.cards) for one in box.rig.instances},
        **{"uses": uses, "cards_say": cards_say, "reboot": seen.reboot},
    }


def _lines(box: Box, command: str) -> list[str]:
    """What a command of root's prints, without what looks like a secret."""
    return [masked(line) for line in root.run(box.target, command, limit=60, most=MOST).lines]
