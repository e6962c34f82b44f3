"""Locks on a host: their folder, and the holder of the deploy lock.

A user with the right to open a file can lock it, for reading too (flock(2)): a lock on a file that others may read is
theirs to hold, for as long as they like. A process without root's rights that has to hold one is handed the open file.
"""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from rigwright.host import script_output
from rigwright.host.script_output import free_text

LOCKS = "/run/rigwright/locks"
DEPLOY_LOCK = f"{LOCKS}/lease"  # where earlier controllers look, too


@dataclass(frozen=True)
class LockHolder:
    """The holder of a deploy lock; all texts are for people."""

    who: str = ""
    """Empty where that is not known, as the rest is then."""
    process: str = ""
    since: str = ""
    doing: str = ""

    def __str__(self) -> str:
        return self.describe("the deploy lock") if self.who else "another process holds the deploy lock"

    def describe(self, lock: str) -> str:
        """The holder of a lock in one sentence: user, process, command, since when.

        Args:
            lock: The name of the lock.
        """
        if not self.who:
            return f"another process holds {lock}"
        who = f"{self.who} (process {self.process})"
        return f"{who} holds {lock} since {self.since}: {self.doing}; wait until that is done"


def render_holder_record(doing: str) -> str:
    """The record that this process writes into a lock that it holds, as JSON on one line.

    Args:
        doing: The command or step.
    """
    return json.dumps(
        {
            "who": f"{getpass.getuser()}@{os.uname().nodename}",
            "pid": os.getpid(),
            "since": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
            "doing": doing,
        }
    )


def parse_holder(value: str) -> LockHolder:
    """The type of what a holder writes: JSON of four texts. A text of another format is still a holder."""
    try:
        found = json.loads(value)
        return LockHolder(*(free_text(str(found[key])).strip() for key in ("who", "pid", "since", "doing")))
    except (ValueError, KeyError, TypeError, RecursionError):
        return LockHolder()


REMOVAL = "a removal is still running on this host; wait until it is done"
SCHEMA: script_output.Schema = {"taken": (), "held": (parse_holder,), "removal": ()}
"""The output of templates/deploy_lock/hold.sh.j2 and holder.sh.j2."""


def describe_lock_refusal(output: Iterable[str]) -> str:
    """Why a deploy lock was not given, in words for the operator; empty where it was.

    Raises:
        ValueError: the host told something else.
    """
    told = script_output.parse_output(output, SCHEMA)
    if told.many("removal"):
        return REMOVAL
    held = told.all("held")
    if not held and not told.many("taken"):
        raise ValueError("the host did not report whether the deploy lock is free")
    return str(held[0]) if held else ""


def parse_lock_holder(output: Iterable[str]) -> LockHolder | None:
    """The holder of the deploy lock; None if it is free.

    Raises:
        ValueError: the host told something else.
    """
    return next(iter(script_output.parse_output(output, SCHEMA).all("held")), None)
