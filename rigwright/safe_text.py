"""Words of others, as they may be shown. It stands on nothing: what only helps or complains loads nothing more."""

from __future__ import annotations

import re

SECRET = re.compile(
    r"((?<![Nn][Oo])(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|authorization|bearer|credentials?)(?:[\"']?\s*[:=]\s*|\s+)[\"']?"
    r"(?:bearer\s+|basic\s+)?)(?=[^\s\"'/-])[^\s\"']+",
    re.IGNORECASE,
)
"""Form of a secret; the survey's program imports nothing of Rigwright and has it too (checks/survey/host/common.py)."""


def printable(line: str) -> str:
    """A line whose newlines and escape codes are spelt: they would break it, or write on the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def mask_secrets(line: str) -> str:
    """A line of a log without values that look like secrets; masking it again changes nothing."""
    return SECRET.sub(r"\1...", line)
