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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# What moves a terminal's cursor, colours it or names its window (ECMA-48: CSI, OSC, and other escapes).
ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]"
)
# In capitals alone: why something was skipped may say that it failed.
VERDICT = re.compile(r"(?<![A-Za-z])(PASS|FAIL)(?:ED)?(?![A-Za-z])")
NUMBER = re.compile(r"[^0-9A-Za-z.+-]*([+-]?[0-9]{1,12}(?:\.[0-9]{1,9})?)(?![0-9.])")
LONGEST = 160
"""Characters of a line that is shown."""


class Refused(Exception):
    """A doctor that has not found all well; a line a reason."""


def plain(content: bytes) -> list[str]:
    """Its lines, as somebody who reads a terminal sees them, without those that are empty."""
    text = ESCAPES.sub("", content.decode(errors="replace"))
    # after a carriage return a line is written over
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
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
    found, wrong = {}, []
    for name, wanted in plan["lines"].items():
        says = re.compile(rf"(?<![A-Za-z0-9]){re.escape(wanted['says'])}(?![A-Za-z0-9])", re.IGNORECASE)
        own = [line for line in lines if says.search(line)]
        if not own:
            wrong.append(f"it reports nothing for {name}")
            continue
        value, text = _READERS[wanted["kind"]](own, says, wanted)
        if text:
            wrong.append(f"{name}: {text}: {own[0][:LONGEST]}")
        found[name] = value
    if status:
        wrong.append(f"it exited with status {status}")
    if wrong:
        raise Refused("\n".join(wrong))
    return found


def _verdict(lines: Iterable[str], says: re.Pattern[str], wanted: Mapping[str, Any]) -> tuple[str, str]:
    """The worst that lines say of one thing; what it skipped is well where another line of it passes."""
    words = {word for line in lines for word in VERDICT.findall(line)}
    if "FAIL" in words:
        return "FAIL", "FAIL"
    return ("PASS", "") if "PASS" in words else ("", "neither PASS nor FAIL")


def _number(lines: Iterable[str], says: re.Pattern[str], wanted: Mapping[str, Any]) -> tuple[str, str]:
    for line in lines:
        after = line[next(says.finditer(line)).end() :]
        if found := NUMBER.match(after):
            return found[1], ""
    return "", "no number"


def _text(lines: Iterable[str], says: re.Pattern[str], wanted: Mapping[str, Any]) -> tuple[str, str]:
    holds = str(wanted["holds"])
    return (holds, "") if any(holds in line for line in lines) else ("", f"not {holds}")


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
