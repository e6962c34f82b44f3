"""What a plugin's doctor has said, read by what its description says of its lines.

Python's library alone: hosts run this file by itself, as root, `python3 -I verdict.py PLAN SAID STATUS SECONDS`. PLAN
is JSON: `doctor`, its name; `lines`, name -> `says`, `kind` and `holds`; `seconds` and `largest`, its bounds. SAID is a
file with what it has written, STATUS its exit status, SECONDS how long it took. Prints one line, or exits with 1 and
the reasons. What a doctor writes is shown without what moves a cursor, and no exit status is believed alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

# What moves a terminal's cursor, colours it or names its window (ECMA-48: CSI, OSC, and other escapes).
ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]"
)
# The same, but for what a title or another string of a terminal's consists of.
MOVES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])")
# In capitals alone: why something was skipped may say that it failed.
FAILS = re.compile(
    r"(?<![A-Za-z])FAIL(?:S|ED|ING|URES?)?(?![A-Za-z])|(?i:(?:not|n't|never)\s+pass(?:ed|es|ing)?(?![a-z-]))"
)
PASSES = re.compile(r"(?<![A-Za-z])PASS(?:ED)?(?![A-Za-z])")
# What a line says of its words by their contrary, as far as the next comma: `no SM75 card`, `SM75: not found`.
CLAUSE = re.compile(r"[,;()]")
DENIES = re.compile(
    r"(?<![a-z])(?:no|non|not|none|never|neither|without|missing|lacks?|[a-z]+n't)(?![a-z])", re.IGNORECASE
)
NUMBER = re.compile(r"[^0-9A-Za-z.+-]*([+-]?[0-9]{1,12}(?:\.[0-9]{1,9})?)(?![0-9.])")
LONGEST = 160
"""Characters of a line that is shown."""
SHOWN = 8
"""Lines that fail, and that are of nothing that is named."""


class Refused(Exception):
    """A doctor that has not found all well; a line a reason."""


def plain(content: bytes) -> list[str]:
    """Its lines, as somebody who reads a terminal sees them, without those that are empty."""
    text = ESCAPES.sub("", content.decode(errors="replace"))
    # after a carriage return a line is written over
    return _printable(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def written(content: bytes) -> list[str]:
    """All of its lines, those too that nobody sees: that are written over, or that name a window."""
    return _printable(re.split(r"[\r\n]", MOVES.sub(" ", content.decode(errors="replace"))))


def _printable(lines: Iterable[str]) -> list[str]:
    return [kept for line in lines if (kept := "".join(c if c.isprintable() else " " for c in line).strip())]


def verdict(plan: Mapping[str, Any], content: bytes, status: int, seconds: int) -> dict[str, str]:
    """Name -> what was found, of each line that its description names.

    Raises:
        Refused: with every reason why it may not be served.
    """
    if seconds >= plan["seconds"]:
        raise Refused(f"it did not finish within {plan['seconds']} seconds")
    if len(content) > plan["largest"]:
        raise Refused(f"it prints more than {plan['largest']:,} bytes")
    lines = plain(content)
    # what its maker has it say beside what is asked of it counts as much
    failing = [line for line in lines if FAILS.search(line)] or [
        line for line in written(content) if FAILS.search(line)
    ]
    named: set[str] = set()
    found, wrong = {}, []
    for name, wanted in plan["lines"].items():
        says = bounded_pattern(wanted["says"], re.IGNORECASE)
        own = [line for line in lines if says.search(line)]
        if not own:
            wrong.append(f"it reports nothing for {name}")
            continue
        found[name], text, line = _READERS[wanted["kind"]](own, says, wanted)
        if failed := [one for one in failing if one in own]:
            text, line = "FAIL", failed[0]
            named.update(failed)
        if text:
            wrong.append(f"{name}: {text}: {line[:LONGEST]}")
    wrong += [f"it says FAIL: {line[:LONGEST]}" for line in failing if line not in named][:SHOWN]
    if status:
        wrong.append(f"it exited with status {status}")
    if wrong:
        raise Refused("\n".join(wrong))
    return found


def bounded_pattern(words: str, flags: int = 0) -> re.Pattern[str]:
    """What finds words that no other letter or digit touches."""
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(words)}(?![A-Za-z0-9])", flags)


def _verdict(lines: Sequence[str], says: re.Pattern[str], wanted: Mapping[str, Any]) -> tuple[str, str, str]:
    """Whether a line passes: what it skipped is well where another line of it does."""
    passes = any(map(PASSES.search, lines))
    return ("PASS", "", "") if passes else ("", "neither PASS nor FAIL", lines[0])


def _number(lines: Sequence[str], says: re.Pattern[str], wanted: Mapping[str, Any]) -> tuple[str, str, str]:
    for line in lines:
        after = line[next(says.finditer(line)).end() :]
        if found := NUMBER.match(after):
            return found[1], "", ""
    return "", "no number", lines[0]


def _text(lines: Sequence[str], says: re.Pattern[str], wanted: Mapping[str, Any]) -> tuple[str, str, str]:
    """Whether a line contains a text, and none its contrary."""
    holds = bounded_pattern(wanted["holds"])
    clauses = {line: holds.split(line) for line in lines if holds.search(line)}
    denied = [line for line, beside in clauses.items() if any(map(DENIES.search, _near(beside)))]
    if clauses and not denied:
        return wanted["holds"], "", ""
    return "", f"not {wanted['holds']}", [*denied, *lines][0]


def _near(beside: Sequence[str]) -> Iterator[str]:
    """Of what stands around a text in a line, what belongs to it: up to the next comma, on either side."""
    for before, after in pairwise(beside):
        yield CLAUSE.split(before)[-1]
        yield CLAUSE.split(after)[0]


_READERS = {"verdict": _verdict, "number": _number, "text": _text}


def main() -> int:
    """Judge what a doctor has said; the exit status."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    try:
        found = verdict(plan, Path(sys.argv[2]).read_bytes(), int(sys.argv[3]), int(sys.argv[4]))
    except Refused as error:
        sys.stdout.write("".join(f"{plan['doctor']}: {line}\n" for line in str(error).splitlines()))
        return 1
    sys.stdout.write(f"note: {plan['doctor']}: {', '.join(f'{name} {value}' for name, value in found.items())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
