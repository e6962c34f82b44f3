"""The last error of a log, by the marks that programs put on errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from rigwright.engines.log_causes import LONGEST, Cause, find_cause

# Severities and phrases by which programs mark an error: Python's logging and exceptions, llama.cpp's letters, glibc,
# the kernel's driver, container engines and systemd.
ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|EMERG|ALERT)\b|^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b|(?:^|\s)(?:[0-9.]+ "
    r")?[EF] [\w:]"
    r"|\b[Ee]rror[:=\]]|\[[Ee]rror\]|\blevel=(?:error|fatal)|\"error\":|\b[Ff]atal\b|error loading|[Ff]ailed to "
    r"|[Cc]ould ?n[o']t "
    r"|[Cc]an ?not |[Uu]nable to |terminate called|what\(\): |core dumped|\bAborted\b|\bKilled\b|\b[Pp]anic|\bBUG:"
    r"|GGML_ASSERT"
    r"|GGML_ABORT|Assertion .{0,200}failed|[Ss]egmentation fault|NVRM: .{0,200}(?:[Ff]ail|[Ee]rror|invalid|timed out)"
    r"|Exit code: ?[1-9]"
    r"|Main process exited, code=(?!exited, status=0)|Failed with result|nvidia-container-cli: |OCI runtime"
)
# Words of a failure in a line without any such mark; they count where a log has none.
FAILURE = re.compile(
    r"\b(?:unsupported|not supported|not recogni[sz]ed|not found|invalid|exceed(?:s|ed)|incompatible|mismatch|must "
    r"match"
    r"|lost|failed|inconsistent|failure|denied|refused|timed out|time-?out|missing|not enough|crash(?:ed)?|killed"
    r"|died|corrupt(?:ed)?|no such"
    r"|unexpected(?:ly)?|illegal|does not (?:exist|support)|not available|unavailable|out of (?:memory|range|bounds)"
    r"|insufficient"
    r"|aborted|terminated|undefined|not loaded|not present|hung|stuck|broken|errors?(?!s?[ _]?(?:rate|count)|s?: "
    r"?(?:0|none)))\b"
    r"|(?:exit(?:ed)?|code|status)[ =:(]+-?[1-9]\d{0,2}\b",
    re.IGNORECASE,
)
NO_FAILURE = re.compile(r"\b(?:no|0|without) (?:errors?|failures?)|\b(?:HTTP/[\d.]+\" [23]\d\d)", re.IGNORECASE)
_MILD = ("warning", "information")
# Severities below an error: Python's logging, llama.cpp's letters, glog's, and the word before a message.
WARNING = re.compile(r"\b(?:WARNING|WARN)\b|(?:^|\s)[0-9.]+ W |\[W\d{3,4} |\b[Ww]arning: |\wWarning: |level=warn")
INFORMATION = re.compile(r"\b(?:INFO|DEBUG|NOTICE)\b|(?:^|\s)[0-9.]+ [ID] |\[I\d{3,4} |level=(?:info|debug)")
EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|OfResources|Timeout|Failed)(?::|$)"
)
# What vLLM, torch, journald and container engines put before a line of a traceback.
PREFIX = re.compile(
    r"^(?:\w{3} +\d+ [\d:]+ \S+ \S+: |[\w.-]{1,60} *\| |\[[\w .:-]{1,40}\]:? *|\([^()]{1,60}\) |\d{4}-\d\d-\d\d[T "
    r"][\d:.,]+\S* "
    r"|(?:ERROR|CRITICAL) (?:[\d-]+ [\d:.]+ )?\[[\w./]+:\d+\] |\s+(?=\S)){0,8}"
)
CONTINUED = 3
"""Lines after an error that may continue its message."""
TRACEBACK = 200
"""Lines between an exception and the last error after it: vLLM repeats a traceback in each process."""


def strip_prefix(line: str) -> str:
    """A line without what programs put before a message."""
    return PREFIX.sub("", line[:LONGEST], count=1)


def is_exception(line: str) -> bool:
    """Whether a line is the last one of a traceback."""
    return EXCEPTION.match(strip_prefix(line)) is not None


def marked_severity(text: str) -> Literal["error", "warning", "information", ""]:
    """The severity that a line, or what comes before its message, is marked with; empty for none."""
    text = text[:LONGEST]
    if re.search(r"\b(?:ERROR|CRITICAL|FATAL)\b", text):
        return "error"
    return "warning" if WARNING.search(text) else "information" if INFORMATION.search(text) else ""


def messages_at(lines: Sequence[str], number: int) -> tuple[str, str]:
    """The message that begins at a line and goes on in the next ones: with a blank between them, and without.

    Programs break a message (pydantic, torch), and terminals break a copy of one.
    """
    parts = [lines[number], *(strip_prefix(line) for line in lines[number + 1 : number + 1 + CONTINUED])]
    return " ".join(map(str.strip, parts)), "".join(parts)


def find_last_error(lines: Sequence[str], causes: Sequence[Cause]) -> int | None:
    """Index of the line that reports the last error: the exception of the last traceback, else the last line that is
    marked as an error, else the last one with words of a failure; None if there is none. Lines that are known as
    harmless, that are warnings, or that only report another error, do not count.
    """
    silent = [one for one in causes if one.harmless or one.general]
    marked: int | None = None
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number][:LONGEST]
        exception = is_exception(line)
        if (
            exception or (marked is None and ERROR.search(line) and marked_severity(line) not in _MILD)
        ) and not find_cause(silent, line):
            marked = number
            if exception:
                break
        if marked is not None and marked - number > TRACEBACK:
            break
    if marked is None:
        failures = (at for at in range(len(lines) - 1, -1, -1) if _is_failure(lines[at][:LONGEST]))
        return next((at for at in failures if not find_cause(silent, lines[at])), None)
    return marked


def _is_failure(line: str) -> bool:
    return FAILURE.search(line) is not None and marked_severity(line) not in _MILD and not NO_FAILURE.search(line)
