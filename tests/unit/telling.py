"""What a script tells over the channel, without a script."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from rigwright.host.channel import END


def encoded(*records: tuple[str, ...]) -> list[str]:
    """Records as a script prints them."""
    fields = [field for record in records for field in (str(len(record)), *record)]
    return [base64.b64encode("".join(f"{field}\0" for field in fields).encode()).decode()]


def told(records: Iterable[tuple[str, ...]]) -> list[str]:
    """Records and the end after them."""
    return encoded(*records, (END,))
