"""The last error of a log, by the marks that programs put on errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rigwright.engines.log import Cause, matching_cause

# Severities and phrases by which programs mark an error: Python's logging and exceptions, llama.cpp's letters, glibc.
ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b|(?:^|\s)[0-9.]+ [EF] "
    r"|\b[Ee]rror[:=] |\b[Ff]atal\b|error loading|[Ff]ailed to |[Cc]ould not |[Cc]annot |terminate called"
    r"|core dumped|\bAborted\b|\bpanic|\bBUG:|GGML_ASSERT|Main process exited, code=(?!exited, status=0)"
    r"|Failed with result"
)
# Words of a failure in a line without any such mark; they count where a log has none.
FAILURE = re.compile(
    r"\b(?:unsupported|not supported|not recogni[sz]ed|not found|invalid|exceeded|incompatible|mismatch|must match"
    r"|lost)\b",
    re.IGNORECASE,
)
EXCEPTION = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|OfResources)(?::|$)")
# What vLLM and journald put before a line of a traceback.
PREFIX = re.compile(
    r"^(?:\w{3} +\d+ [\d:]+ \S+ \S+: )?(?:\([^()]{1,60}\) )?(?:(?:ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[\w./]+:\d+\] )?"
)
TRACEBACK = 200
"""Lines between an exception and the last error after it: vLLM repeats a traceback in each process."""


def last_error(lines: Sequence[str], causes: Sequence[Cause]) -> int | None:
    """Index of the line that reports the last error: the exception of the last traceback, else the last line that is
    marked as an error; None if there is none. Lines that are known as harmless, or that only report another error, do
    not count.
    """
    silent = [one for one in causes if one.harmless or one.general]
    marked: int | None = None
    for number in range(len(lines) - 1, -1, -1):
        is_exception = EXCEPTION.match(PREFIX.sub("", lines[number], count=1)) is not None
        if (is_exception or (marked is None and ERROR.search(lines[number]))) and not matching_cause(
            silent, lines[number]
        ):
            marked = number
            if is_exception:
                break
        if marked is not None and marked - number > TRACEBACK:
            break
    if marked is None:
        failures = (at for at in range(len(lines) - 1, -1, -1) if FAILURE.search(lines[at]))
        return next((at for at in failures if not matching_cause(silent, lines[at])), None)
    return marked
