"""The channel: typed facts that scripts on a host report, one script or many in one command.

A script says `fact KEY VALUE...` (templates/channel.sh.j2) for each thing that it has found. Every value travels
between NUL bytes, so none can end early or begin another, and the whole in base64, so that no connection changes a
byte; it is the last line, so that what a login prints does no harm. The output is hostile all the same: an unexpected
key, too few values, or a value that is not wholly of its type is refused, with its name. So is what a
script has told that was cut off.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Any, TypeVar

from rigwright.render import render

T = TypeVar("T")
Type = Callable[[str], Any]
Schema = Mapping[str, tuple[Type, ...]]
"""Key -> the type of each of its values."""
END = "end"
UNREAD = "unread"
"""A program that failed on the host, and how: a script tells it in place of what that would have printed."""


_compile = cache(re.compile)
"""Patterns are compiled where they are needed: most scripts tell few of all the types."""


def matching(pattern: str, what: str) -> Type:
    """The type of values that a pattern matches whole."""

    def check(value: str) -> str:
        if not _compile(pattern).fullmatch(value):
            raise ValueError(what)
        return value

    return check


def optional(kind: Type, empty: object = "") -> Type:
    """A type, or nothing: then the value is `empty`."""
    return lambda value: kind(value) if value else empty


def tolerant(kind: Type, otherwise: object = "") -> Type:
    """A type for names that any user of a host may have chosen: a text of another type is `otherwise`, and stops no
    look."""

    def check(value: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            return otherwise

    return check


def one_of(*words: str) -> Type:
    """One of a few words."""
    return matching("|".join(map(re.escape, words)), f"one of {', '.join(words)}")


def number(value: str) -> int:
    """A whole number that is not negative."""
    if not _compile(r"[0-9]{1,19}").fullmatch(value):
        raise ValueError("a number")
    return int(value)


def octal(value: str) -> int:
    """A file's mode."""
    if not re.fullmatch(r"[0-7]{1,6}", value):
        raise ValueError("an octal number")
    return int(value, 8)


def hexadecimal(value: str) -> int:
    """A number as the kernel prints flags and ports."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", value):
        raise ValueError("a hexadecimal number")
    return int(value, 16)


def seconds(value: str) -> float:
    """A moment, in seconds since the epoch, or a time in seconds."""
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,12})?", value):
        raise ValueError("a number of seconds")
    return float(value)


def yes_or_no(value: str) -> bool:
    """`yes` or `no`."""
    if value not in ("yes", "no"):
        raise ValueError("yes or no")
    return value == "yes"


def free_text(value: str) -> str:
    """Whatever a program or a person has written, for people to read: one line of at most 400 characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value[:400])


def address(value: str) -> str:
    """An IP address, without the interface that a link-local one may have behind a percent sign."""
    try:
        return str(ip_address(value.partition("%")[0]))
    except ValueError:
        raise ValueError("an IP address") from None


# characters that would end a line, or steer a terminal
_ODD = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
text: Type = str
"""Anything at all, which is compared or taken apart, and neither shown nor given to a shell."""
word = matching(r"[A-Za-z0-9_.:+~@/=-]{1,255}", "a word of letters, digits and _.:+~@/=-")
path = matching(rf"/[^{_ODD}]{{0,4095}}", "an absolute path on one line")
file_name = matching(rf"(?!\.\.?\Z)[^/{_ODD}]{{1,255}}", "a file name on one line")
sha256 = matching(r"[0-9a-f]{64}", "a SHA-256")
version = matching(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}", "a version of numbers and dots")
unit = matching(r"[A-Za-z0-9:_.\\@-]{1,255}", "the name of a systemd unit")
pci_address = matching(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "an address on the PCI bus")
pci_id = matching(r"[0-9a-f]{4}:[0-9a-f]{4}", "vendor:device of a PCI device")


@dataclass(frozen=True)
class HostOutput:
    """The output of a host: key -> one row of typed values for each of its lines."""

    rows: dict[str, list[tuple[Any, ...]]]
    derived: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def derive(self, make: Callable[[HostOutput], T]) -> T:
        """The result of a function of this output, called once: operations read one answer several times."""
        if make not in self.derived:
            self.derived[make] = make(self)
        made: T = self.derived[make]
        return made

    def many(self, key: str) -> list[tuple[Any, ...]]:
        """All rows of a key, in the order of the output."""
        return self.rows.get(key, [])

    def all(self, key: str) -> list[Any]:
        """The values of a key that has one in each row."""
        return [value for (value,) in self.many(key)]

    def one(self, key: str) -> Any:
        """The value of a key with one row of one value.

        Raises:
            ValueError: it was not told, or more than once.
        """
        values = self.all(key)
        if len(values) != 1:
            raise ValueError(f"the host reported {key!r} {len(values) or 'no'} times instead of once")
        return values[0]


KEPT, LONGEST_KEPT = 256, 1 << 16
"""Reports that are kept, and characters of the longest: operations of a deploy read one answer several times."""
_parsed: dict[tuple[str, int], tuple[HostOutput, Schema]] = {}


def parse_output(output: Iterable[str], schema: Schema) -> HostOutput:
    """Read what a script with `fact` has printed.

    Raises:
        ValueError: it is not whole, a program that it goes by has failed, or a record is not what the schema says of
            its key.
    """
    line = next((line for line in reversed([line.strip() for line in output]) if line), "")
    if not line:
        raise ValueError("the host reported nothing")
    if len(line) > LONGEST_KEPT:
        return _parse_report(line, schema)
    known = _parsed.get((line, id(schema)))
    if known is None:
        if len(_parsed) >= KEPT:
            _parsed.pop(next(iter(_parsed)), None)
        # keeps the schema alive, so that no other one gets its id
        known = _parsed[line, id(schema)] = _parse_report(line, schema), schema
    return known[0]


def _parse_report(line: str, schema: Schema) -> HostOutput:
    try:
        fields = base64.b64decode(line.encode(), validate=True).decode(errors="replace").split("\0")
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError(f"the host reported nothing that was asked for: {free_text(line)[:200]!r}") from None
    rows: dict[str, list[tuple[Any, ...]]] = {}
    at = 0
    while at < len(fields) - 1:
        count = number(fields[at])
        key, *values = fields[at + 1 : at + 1 + count] or [""]
        at += 1 + count
        if at >= len(fields):
            break
        if (key, values) == (END, []):
            if at != len(fields) - 1:
                raise ValueError("the host's report has data after its end")
            return HostOutput(rows)
        if key == UNREAD and len(values) in (2, 3):
            raise ValueError(f"the host's {describe_failure(*values)}")
        rows.setdefault(key, []).append(_parse_row(key, values, schema))
    raise ValueError("the host's report was cut off")


def describe_failure(program: str, how: str, complaint: str = "") -> str:
    """Why a program's output counts for nothing.

    Args:
        program: Its name.
        how: Its exit status, `cut` for output that ends within a line, or the entry that it leaves out.
        complaint: The end of its standard error.
    """
    how = free_text(how)[:100]
    if how == "cut":
        reason = "printed no whole line at its end"
    elif how == "124":
        reason = "did not end in time"
    else:
        reason = f"ended with status {how}" if how.isdecimal() else f"does not print all of {how or 'a package'}"
    return ": ".join(filter(None, (f"{free_text(program)[:100]} {reason}", free_text(complaint.strip()))))


def apt_failure(told: HostOutput) -> str:
    """Why apt-cache reports nothing, in one line; empty where it reports."""
    return next((describe_failure("apt-cache", *row) for row in told.many("apt_failure")), "")


def _parse_row(key: str, values: list[str], schema: Schema) -> tuple[Any, ...]:
    types = schema.get(key)
    if types is None:
        raise ValueError(f"the host reported {free_text(key)!r}, which was not asked for")
    if len(values) != len(types):
        raise ValueError(f"the host reported {len(values)} values of {key!r} instead of {len(types)}")
    try:
        return tuple(kind(value) for kind, value in zip(types, values, strict=True))
    except ValueError as error:
        wrong = next(value for kind, value in zip(types, values, strict=True) if not _is_of_type(kind, value))
        raise ValueError(f"the host reported {free_text(wrong)[:100]!r} for {key!r}: must be {error}") from None


def _is_of_type(kind: Type, value: str) -> bool:
    try:
        kind(value)
    except ValueError:
        return False
    return True


SCHEMA: Schema = {"answer": (number, text)}
"""The output of templates/look/together.sh.j2: which script, and its output."""


def render_parallel(scripts: Sequence[str]) -> str:
    """The script that runs scripts. For a shell's standard input: an argument has an end, and a rig may have many
    files.
    """
    return render("look/together.sh.j2", scripts=scripts)


def parse_outputs(output: Iterable[str], scripts: Sequence[str]) -> dict[str, list[str]]:
    """Script -> the lines that it has printed; one that has failed is left out.

    Raises:
        ValueError: the host told something else.
    """
    found = {}
    for index, printed in parse_output(output, SCHEMA).many("answer"):
        if index >= len(scripts):
            raise ValueError(f"the host answered question {index} of {len(scripts)}")
        found[scripts[index]] = printed.splitlines()
    return found
