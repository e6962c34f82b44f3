"""Facts from an engine's log: its reports at a start, and the cause of one that failed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

# Of the room for tokens between two starts that are alike: the memory of CUDA and the driver on a card differs by some
# MiB.
DRIFT = 0.05
# Characters of a line that are searched: the effort of a search can grow with the square of them, or worse.
LONGEST = 1000
NAME = 80  # characters of a name that a cause shows
UNKNOWN_CAUSE = "cause unknown; "
"""Start of what a form of message means: it names the kind of failure and no remedy."""
# Lines that report a failure, an exit or a code: there each number counts.
_FAULTY = re.compile(r"err|fail|exit|code|status|kill|signal|abort|fatal|xid|exceed|invalid", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class StartupFacts:
    """An engine's reports at a start; None and empty where there are none."""

    kv_tokens: int | None = None
    """Tokens that its KV cache has room for."""
    backend: str = ""
    """The backend that computes attention."""
    load_seconds: float | None = None
    """Seconds for loading the weights and preparing to serve, without earlier steps."""

    def is_like(self, first: StartupFacts) -> bool:
        """Whether it runs as it did at another start: its free memory depends on the other contents of the card."""
        tokens, then = self.kv_tokens or 0, first.kv_tokens or 0
        return self.backend == first.backend and abs(tokens - then) <= then * DRIFT


@dataclass(frozen=True)
class Cause:
    """A known cause of a failed or hung start, or of slow or wrong answers, and the lines of a log that show it."""

    id: str
    """Name of the symptom in reports, the same on every box."""
    pattern: str
    """Regular expression that a line contains; it matches within one line, and each repetition in it has a bound."""
    means: str
    """The likely meaning, and the remedy."""
    last: bool = False
    """Whether the line counts only if nothing follows it."""
    check: str = ""
    """The checks that look at that on the host, with commas between; empty if there is none."""
    harmless: bool = False
    """Whether the line looks like a fault and is not one."""
    general: bool = False
    """Whether the line only reports that something else failed, whose own line is the cause."""
    plain: bool = False
    """Whether the line is an ordinary one that only contains words of others' patterns: no reader needs a remark."""
    broad: bool = False
    """Whether the pattern is a form that many messages have: any specific cause is likelier."""
    request: bool = False
    """Whether the line reports a request that the engine refuses or cannot answer, while it goes on serving."""
    of_checks: bool = False
    """Whether the line also reports requests of our own checks, which a record in the journal announces."""
    context: str = ""
    """Regular expression that some line of the log contains, without which the cause does not apply; empty for none."""
    names: str = ""
    """Regular expression whose first group is the name (a file, an option, a model) that the line is about."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, re.MULTILINE)

    def name_in(self, line: str) -> str:
        """The name that a line is about, bounded; empty where the line has none."""
        match = re.search(self.names, line[:LONGEST]) if self.names else None
        return next((group for group in match.groups() if group), "").strip()[:NAME] if match else ""

    @property
    def text(self) -> str:
        """The meaning, the remedy, and the check that says more."""
        return f"{self.means} (see `rigwright check --only {self.check}`)" if self.check else self.means

    @property
    def sentence(self) -> str:
        """The text for a reader of the log."""
        if self.means.startswith(UNKNOWN_CAUSE):
            return self.text
        return f"harmless: {self.text}" if self.harmless else f"likely cause: {self.text}"


def find_cause(causes: Iterable[Cause], line: str) -> Cause | None:
    """The first cause whose pattern a line contains; specific causes come before general ones."""
    line = line[:LONGEST]
    return next((one for one in causes if not one.context and one.regex.search(line)), None)


_JOURNAL_LINE = re.compile(r"(?P<moment>\S{20,40}) (?P<sender>[^\s:\[]{1,100})(?:\[\d{1,10}\])?: (?P<message>.*)")
# A line that checks/survey/host/requests.py writes as root: no client and no engine can write a line from this sender.
_CHECK_RECORD = re.compile(r"a check sends (\d{1,2}) requests without a valid API key")
_CHECK_SENDER, _CHECK_SECONDS = "rigwright-check", 60.0


class CheckRequests:
    """Refusals of checks' own requests, among lines of `journalctl --output=short-iso --no-hostname` in their order.

    After each record of a check, as many refusals as it announces are its own, and only for a minute.
    """

    def __init__(self, causes: Iterable[Cause]) -> None:
        """Read a journal by the causes of its engines."""
        self._causes = [one for one in causes if one.of_checks]
        self._left = 0
        self._until = 0.0

    def is_own(self, line: str) -> bool:
        """Whether a line is the refusal of a check's own request."""
        match = _JOURNAL_LINE.fullmatch(line)
        if match is None:
            return False
        record = _CHECK_RECORD.fullmatch(match["message"]) if match["sender"] == _CHECK_SENDER else None
        if not record and not (self._left and find_cause(self._causes, match["message"])):
            return False
        moment = _parse_moment(match["moment"])
        if moment > self._until:
            self._left = 0
        if record:
            self._left += int(record[1])
            self._until = moment + _CHECK_SECONDS
            return False
        own = self._left > 0
        self._left -= own
        return own

    def without_own(self, lines: Iterable[str]) -> list[str]:
        """Messages of lines, without refusals of checks' own requests."""
        matches = [(line, _JOURNAL_LINE.fullmatch(line)) for line in lines if not self.is_own(line)]
        return [match["message"] if match else line for line, match in matches]


def _parse_moment(text: str) -> float:
    """Seconds since 1970 of a time as journalctl prints it; 0 for none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return 0.0


def find_cause_lines(causes: Iterable[Cause], lines: Sequence[str]) -> dict[Cause, list[int]]:
    """Cause -> indexes of the lines that show it. A line shows the first cause that matches it, and no other.

    Args:
        causes: In the order of precedence.
        lines: Each without a line break.
    """
    shapes = _lines_by_shape(lines)
    text = "\n".join(shapes)
    starts = [0]
    for shape in shapes:
        starts.append(starts[-1] + len(shape) + 1)
    numbers = list(shapes.values())
    claimed: set[int] = set()
    found: dict[Cause, list[int]] = {}
    for cause in causes:
        if cause.context and not re.search(cause.context, text, re.MULTILINE):
            continue
        for match in cause.regex.finditer(text):
            shape_number = bisect_right(starts, match.start()) - 1
            if shape_number not in claimed:
                claimed.add(shape_number)
                found.setdefault(cause, []).extend(numbers[shape_number])
    return {cause: sorted(indexes) for cause, indexes in found.items()}


def _lines_by_shape(lines: Iterable[str]) -> dict[str, list[int]]:
    """Distinct lines -> where they are; lines that report no failure and differ in numbers alone count as one.

    A large log consists of such lines: each pattern searches one of a kind.
    """
    seen: dict[str, str] = {}
    shapes: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        line = line[:LONGEST]
        key = line if _FAULTY.search(line) else _NUMBER.sub("0", line)
        shapes.setdefault(seen.setdefault(key, line), []).append(index)
    return shapes


def select_faults(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Those that are not harmless, and that one line alone shows."""
    return tuple(one for one in causes if not (one.harmless or one.context))
