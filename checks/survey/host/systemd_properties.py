"""Properties of units: a few asked of systemd over its own socket, and what systemctl and systemd-analyze print.

systemctl asks systemd for all that a unit has, of which each takes systemd a millisecond, and takes longer itself to
begin. It alone prints commands, and answers for patterns.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from checks.survey.host import common

AT = "/run/systemd/private"
BUS = "org.freedesktop.systemd1"
PATIENCE = 40.0  # seconds
MOST = 16 << 20  # bytes of a message; none of systemd's is as long
# Properties of whatever kind a unit is; all others are of its own
OF_ALL = {
    *("Id", "Names", "LoadState", "ActiveState", "SubState", "UnitFileState", "FragmentPath", "DropInPaths"),
    *("NeedDaemonReload", "ConditionResult", "ConditionTimestamp", "InvocationID", "ActiveEnterTimestamp"),
    *("ActiveEnterTimestampMonotonic", "StateChangeTimestampMonotonic"),
}
OF_SERVICES = {"Result", "MainPID", "NRestarts", "MemoryCurrent", "User", "ExecMainStatus"}
PROPERTY = re.compile("([A-Z][A-Za-z0-9]*)=(.*)")
# Commands alone are printed over several lines where their words are: `{ path=/bin/sh ; argv[]=... ; status=0/0 }`
COMMAND, COMMAND_END = "{ path=", " }"
GROUP, CALL = re.compile("@[a-z-]+"), re.compile("    (@[a-z-]+|[a-z0-9_]+)")
# Of `systemctl list-units`: UNIT LOAD ACTIVE SUB DESCRIPTION
LISTED, LOADED = 3, ("loaded", "not-found", "bad-setting", "error", "masked", "merged", "stub")
NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+[.][a-z]+")
LEVEL = re.compile(r"^\S+ Overall exposure level for (\S+): ([0-9]{1,2}\.[0-9]) [A-Z]+ \S+$", re.MULTILINE)
METHOD, RETURN, FAILED = 1, 2, 3
PATH, INTERFACE, MEMBER, REPLY, DESTINATION, SIGNATURE = 1, 2, 3, 5, 6, 8


class BusMessageReader:
    """The contents of a message, from a place on (D-Bus Specification, "Marshaling")."""

    def __init__(self, data: bytes, order: str, at: int = 0) -> None:
        self.data, self.order, self.at = data, order, at

    def number(self, kind: str) -> int:
        """A number of struct's kind, which lies at a multiple of its size."""
        size = struct.calcsize(kind)
        self.at += -self.at % size
        (found,) = struct.unpack_from(f"{self.order}{kind}", self.data, self.at)
        self.at += size
        return int(found)

    def text(self, lengths: str = "I") -> str:
        """A text after its length, and before a zero."""
        length = self.number(lengths)
        found = self.data[self.at : self.at + length]
        self.at += length + 1
        return found.decode(errors="replace")

    def value(self) -> Any:
        """The value after its type.

        Raises:
            ValueError: it is of none that is asked for here.
        """
        kind = self.text("B")
        if kind in ("s", "o"):
            return self.text()
        if kind == "as":
            length = self.number("I")
            end, found = self.at + length, list[str]()
            while self.at < end:
                found.append(self.text())
            return found
        if kind == "b":
            return bool(self.number("I"))
        if kind in ("u", "t"):
            return self.number({"u": "I", "t": "Q"}[kind])
        if kind == "g":
            return self.text("B")
        raise ValueError(f"systemd answers with {kind!r}")


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _padded(data: bytes, size: int) -> bytes:
    return data + bytes(-len(data) % size)


def _call(serial: int, unit: str, interface: str, name: str) -> bytes:
    """The message that asks for a property of a unit."""
    escaped = re.sub(r"[^A-Za-z0-9]|^[0-9]", lambda found: "".join(f"_{one:02x}" for one in found[0].encode()), unit)
    body = _padded(_text(interface), 4) + _text(name)
    fields = b""
    for field, kind, value in (
        (PATH, b"o", f"/org/freedesktop/systemd1/unit/{escaped}"),
        (INTERFACE, b"s", "org.freedesktop.DBus.Properties"),
        (MEMBER, b"s", "Get"),
        (DESTINATION, b"s", BUS),
    ):
        fields = _padded(fields, 8) + bytes([field, 1]) + kind + b"\0" + _text(value)
    fields = _padded(fields, 8) + bytes([SIGNATURE, 1]) + b"g\0" + b"\2ss\0"
    head = b"l" + bytes([METHOD, 0, 1]) + struct.pack("<III", len(body), serial, len(fields))
    return _padded(head + fields, 8) + body


class BusReplies:
    """The data of the connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.kept = connection, bytearray()

    def take(self, most: int) -> bytes:
        """So many bytes.

        Raises:
            RuntimeError: there are fewer.
        """
        while len(self.kept) < most:
            piece = self.connection.recv(1 << 16)
            if not piece:
                raise RuntimeError("systemd has closed the connection")
            self.kept += piece
        found = bytes(self.kept[:most])
        del self.kept[:most]
        return found

    def line(self) -> bytes:
        """A line of the login."""
        found = b""
        while not found.endswith(b"\r\n") and len(found) < 200:
            found += self.take(1)
        return found

    def message(self) -> tuple[int, int, BusMessageReader]:
        """A message's kind, the number of the call that it answers, and what it says."""
        head = self.take(16)
        order = "<" if head[:1] == b"l" else ">"
        length, _, fields = struct.unpack(f"{order}III", head[4:])
        if length + fields > MOST:
            raise RuntimeError("systemd answers without end")
        data = head + self.take(fields + -fields % 8 + length)
        reader, serial = BusMessageReader(data, order, 16), 0
        while reader.at < 16 + fields:
            reader.at += -reader.at % 8
            field = reader.number("B")
            value = reader.value()
            serial = value if field == REPLY and isinstance(value, int) else serial
        return head[1], serial, BusMessageReader(data[16 + fields + -fields % 8 :], order)


def properties(units: Iterable[str], *names: str) -> dict[str, dict[str, Any]]:
    """Unit -> name -> its value now, without those that it does not have; a missing unit has states, too.

    Raises:
        RuntimeError, OSError, ValueError, struct.error: systemd does not say.
    """
    found: dict[str, dict[str, Any]] = {unit: {} for unit in units}
    calls = [(unit, name) for unit in found for name in names]
    if not calls:
        return {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        try:
            connection.connect(AT)
        except OSError as error:
            raise RuntimeError(f"{AT}: {error.strerror}") from None
        answers = BusReplies(connection)
        connection.sendall(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\nBEGIN\r\n")
        if not answers.line().startswith(b"OK "):
            raise RuntimeError("systemd does not let root ask")
        for serial, (unit, name) in enumerate(calls, 1):
            kind = "Unit" if name in OF_ALL else unit.rpartition(".")[2].capitalize()
            connection.sendall(_call(serial, unit, f"{BUS}.{kind}", name))
        left = len(calls)
        while left:
            kind_of, serial, said = answers.message()
            if kind_of not in (RETURN, FAILED) or not 0 < serial <= len(calls):
                continue
            left -= 1
            unit, name = calls[serial - 1]
            if kind_of == RETURN:
                found[unit][name] = said.value()
    # another unit of which this is a second name is not the one that is asked about
    return {unit: known for unit, known in found.items() if known.get("Id", unit) == unit}


def parse_blocks(text: str, wanted: Collection[str] = ()) -> list[dict[str, str]]:
    """Property -> value, of each unit that `systemctl show` has printed; of several commands each has a line.

    A line that is no property, nor of a command that goes on, is another program's and counts for nothing.

    Args:
        text: Its output.
        wanted: The properties that it was asked for; all, if none.

    Raises:
        RuntimeError: a block has a property twice: an empty line between two units is lost.
    """
    found: list[dict[str, str]] = [{}]
    last, goes_on = "", False
    for line in common.lines(text):
        block, matched = found[-1], PROPERTY.fullmatch(line)
        if goes_on:
            block[last] += f"\n{line}"
            goes_on = not line.endswith(COMMAND_END)
        elif not line:
            found.append({})
            last = ""
        elif matched and (not wanted or matched[1] in wanted):
            name, value = matched.groups()
            if name in block and (name != last or (name == "Id" and value != block[name])):
                raise RuntimeError(f"systemctl tells {name} of a unit twice")
            if name not in block:
                block[name] = value
            elif value != block[name] or value.startswith(COMMAND):
                block[name] += f"\n{value}"
            last, goes_on = name, value.startswith(COMMAND) and not value.endswith(COMMAND_END)
    if goes_on:
        raise RuntimeError(f"systemctl does not end {last}")
    return [block for block in found if block]


def read_properties(
    names: Sequence[str], wanted: Sequence[str], *options: str, pattern: str = "", limit: float = PATIENCE
) -> dict[str, dict[str, str]]:
    """Unit -> property -> value, as systemctl prints them; a unit without a file has a state, too.

    Args:
        names: Units.
        wanted: Properties.
        options: More of systemctl's.
        pattern: Matches units by name, as systemctl's patterns do.
        limit: Seconds.

    Raises:
        RuntimeError: systemctl fails, or does not tell all of that of each unit.
        subprocess.TimeoutExpired: after `limit` seconds.
    """
    properties_of = [*dict.fromkeys(("Id", "Names", *wanted))]
    units = [*names, *([pattern] if pattern else [])]
    if not units:
        return {}
    said = common.run("systemctl", "show", *options, f"--property={','.join(properties_of)}", "--", *units, limit=limit)
    found: dict[str, dict[str, str]] = {}
    for block in parse_blocks(said, properties_of):
        known = [block.get("Id", ""), *block.get("Names", "").split()]
        for name in {*known[:1], *names} & {*known}:
            needed = OF_ALL | (OF_SERVICES if name.endswith(".service") else set())
            if lost := [one for one in properties_of if one in needed and one not in block]:
                raise RuntimeError(f"systemctl does not tell {lost[0]} of {name or 'a unit'}")
            found.setdefault(name, block)
    if lost := [name for name in names if name not in found]:
        raise RuntimeError(f"systemctl does not tell of {lost[0]}")
    return found


def read_exposure(units: Sequence[str]) -> dict[str, str]:
    """Unit -> its exposure level (systemd-analyze(1)); without those that it does not know."""
    if not units:
        return {}
    return dict(LEVEL.findall(common.run("systemd-analyze", "security", "--no-pager", "--", *units, status=True)))


def parse_unit_names(text: str, word: str) -> list[str]:
    """Units whose names begin with a word, from the output of `systemctl list-units --plain --no-legend`."""
    rows = (line.split() for line in common.lines(text) if line.startswith(word))
    return [row[0] for row in rows if len(row) > LISTED and NAME.fullmatch(row[0]) and row[1] in LOADED]


def parse_call_groups(text: str) -> dict[str, list[str]]:
    """Group -> system calls and groups in it, of what `systemd-analyze syscall-filter` has printed.

    Raises:
        RuntimeError: the name of a group is lost.
    """
    found: dict[str, list[str]] = {}
    calls: list[str] | None = None
    for line in common.lines(text):
        if GROUP.fullmatch(line):
            calls = found.setdefault(line, [])
        elif matched := CALL.fullmatch(line):
            if calls is None:
                raise RuntimeError("systemd-analyze does not name a group of system calls")
            calls.append(matched[1])
        elif not line:
            calls = None
    return found
