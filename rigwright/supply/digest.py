"""One digest of all that a deploy brings from outside, short enough to come another way: by phone, on paper."""

from __future__ import annotations

import hashlib
import re

from rigwright.supply.bundle import Bundle
from rigwright.supply.lock import Lock

GROUP = 8  # digits that are read out at a time


def supply_digest(lock: Lock, bundle: Bundle | None) -> str:
    """SHA-256 of a lock's rows and a bundle's index: of every file from outside, by its hash.

    Neither where they lie nor when they were made counts.
    """
    parts = f"{lock.digest} {bundle.digest if bundle else 'no bundle'}"
    return hashlib.sha256(parts.encode()).hexdigest()


def format_digest(digest: str) -> str:
    """A digest in groups, as it is printed and read out; one word to a shell."""
    return "-".join(digest[at : at + GROUP] for at in range(0, len(digest), GROUP))


def parse_digest(value: object) -> str | None:
    """A digest as somebody has typed it, in groups or not; None where it is none."""
    digits = re.sub(r"[ -]", "", value).lower() if isinstance(value, str) else ""
    return digits if re.fullmatch(r"[0-9a-f]{64}", digits) else None


def describe_digest_mismatch(found: str, expected: str) -> str:
    """Why what is there is not what was meant; "" where it is, or nothing was said of it.

    Args:
        found: The digest of lock and bundle.
        expected: The one that came another way; "" where none did.
    """
    if expected in ("", found):
        return ""
    return (
        f"lock and bundle have the digest {format_digest(found)}, but {format_digest(expected)} is "
        f"expected: one of them was changed"
    )
