"""Times in signed files: UTC, whole seconds, one form."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from rigwright.signing.refusals import SignatureRefused

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
FORM = "%Y-%m-%dT%H:%M:%SZ"


def render_time(moment: datetime) -> str:
    """`2026-11-29T13:10:14Z`."""
    return moment.astimezone(timezone.utc).strftime(FORM)


def parse_time(value: object, name: str) -> datetime:
    """Parse a time.

    Raises:
        SignatureRefused: malformed.
    """
    if isinstance(value, str) and _TIME.fullmatch(value):
        try:
            return datetime.strptime(value, FORM).replace(tzinfo=timezone.utc)
        except ValueError:
            pass
    raise SignatureRefused("malformed", f"{name} is not a time in UTC, such as 2026-11-29T13:10:14Z")


def current_time() -> datetime:
    """Now, in UTC and whole seconds."""
    return datetime.now(timezone.utc).replace(microsecond=0)
