"""Instances that root keeps out of the gateway's rotation, and why (roles/gateway/host/rotation writes the files)."""

from __future__ import annotations

import contextlib
import json

from checks.survey.host import common

MANY, LENGTH = 50, 300  # reasons of an instance, and characters of one


def read_rotation(folder: str, name: str, last_resort: str) -> dict[str, object] | None:
    """The reasons of an instance; None without any.

    Args:
        folder: The folder of all reasons.
        name: The instance.
        last_resort: Ends the name of a file for an instance that is asked where no other can be.
    """
    for ending in ("", last_resort):
        text = common.read(f"{folder}/{name}{ending}")
        if text is None:
            continue
        reasons: list[dict[str, object]] = []
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            for one in json.loads(text)["reasons"][:MANY]:
                ended = None if one["ended"] is None else float(one["ended"])
                reasons.append({"text": str(one["text"])[:LENGTH], "since": float(one["since"]), "ended": ended})
        return {"reasons": reasons, "last_resort": bool(ending)}
    return None
