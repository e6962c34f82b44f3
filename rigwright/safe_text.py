"""Words of others, as they may be shown. It has no dependencies: help and complaints load nothing more."""

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


def printable_lines(text: str) -> str:
    """Several lines, each printable."""
    return "\n".join(map(printable, text.splitlines()))


def wrap_words(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """A text in lines that break between words alone: a word that is too long is one to copy, such as a path.

    Args:
        text: One line.
        width: Columns.
        first: Begins the first line.
        others: Begins each further line.
    """
    # imported where text is printed: programs of hosts have this module's functions without it
    import textwrap

    lines = textwrap.TextWrapper(width, first, others, break_long_words=False, break_on_hyphens=False)
    return lines.wrap(text)


def mask_secrets(line: str) -> str:
    """A line of a log without values that look like secrets; masking it again changes nothing."""
    return SECRET.sub(r"\1...", line)


PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?:.*-----END [A-Z0-9 ]*PRIVATE KEY-----|.*)", re.DOTALL)
# Forms of tokens: Hugging Face, OpenAI, GitHub, GitLab, PyPI, npm, Slack, AWS, JSON Web Tokens, and our gateway's keys.
TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:hf_|gh[oprsu]_|npm_)[A-Za-z0-9]{16,}|(?:sk|pypi|glpat|xox[abeoprs])-[A-Za-z0-9_-]{16,}"
    r"|github_pat_[A-Za-z0-9_]{16,}|rw-[A-Za-z0-9_-]{32,}|AKIA[0-9A-Z]{12,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+)"
)
_RANDOM = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")
HIDDEN = "(hidden)"
"""Replaces a secret in a text."""


def hide_tokens(text: str) -> str:
    """A text without private keys and without what has the form of a service's token."""
    return TOKEN.sub(HIDDEN, PRIVATE_KEY.sub(HIDDEN, text))


def has_secret_form(text: str) -> bool:
    """Whether a text contains a private key, a token, or 32 or more random letters and digits (base64, hexadecimal)."""
    return hide_tokens(text) != text or any(map(_is_random, _RANDOM.findall(text)))


def _is_random(run: str) -> bool:
    digits, lower, upper = (any(rule(one) for one in run) for rule in (str.isdigit, str.islower, str.isupper))
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", run):
        return digits and (lower or upper)
    # names have more separators: of random base64, one of 32 characters is one
    return digits and lower and upper and sum(one in "+/_-" for one in run) <= len(run) // 12
