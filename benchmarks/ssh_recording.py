"""Recordings of commands on a host: an SSH server that passes each on to a real host, and its answers for replay."""

from __future__ import annotations

import base64
import binascii
import json
import re
import shlex
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import gevent
import paramiko

from rigwright.host import script_output

PIECE = 1 << 16
RECORDED_NAME = "n0000"
"""The name of the recorded host; those of simulated hosts have as many characters."""
SLACK = 200
"""Bytes by which the inputs of one command may differ, besides a hundredth: paths, names, moments."""
MOMENT = re.compile(rb"\b1[0-9]{9}\b")
"""Seconds since the epoch."""
DATE = re.compile(rb"\b[A-Z][a-z]{2} [0-9]{4}(?:-[0-9]{2}){2} [0-9]{2}(?::[0-9]{2}){2} UTC\b")
DATE_FORM = "%a %Y-%m-%d %H:%M:%S UTC"
"""systemd's form of a moment."""
AROUND = 3600.0
"""Seconds before and after a recording: the simulation moves moments in this range to its own time."""
ENCODED = re.compile(rb"(?:(?<=\\n)|(?<![A-Za-z0-9+/\\]))[A-Za-z0-9+/]{40,}={0,2}")
"""Text of base64's letters; in JSON a line's end before it is an n, too."""
ZLIB = b"x"  # first byte of its usual window


@dataclass
class RecordedCommand:
    """A command and its answer."""

    line: str
    at: float = field(default_factory=time.time)
    """When it began."""
    steps: list[tuple[str, bytes]] = field(default_factory=list)
    """In order: `in` and `out` with bytes, `err` too, `eof` for the end of its input, `exit` with its status."""

    def add(self, kind: str, data: bytes) -> None:
        """Add bytes; those of one kind that follow each other are one step."""
        if self.steps and kind == self.steps[-1][0]:
            self.steps[-1] = (kind, self.steps[-1][1] + data)
        else:
            self.steps.append((kind, data))

    def as_json(self) -> str:
        """One line."""
        return json.dumps(
            {"line": self.line, "at": self.at, "steps": [[kind, data.decode("latin-1")] for kind, data in self.steps]}
        )

    def is_input(self, data: bytes | bytearray) -> bool:
        """Whether an input is this command's, but for names, moments and what compression makes of them."""
        recorded = b"".join(part for kind, part in self.steps if kind == "in")
        return recorded.count(b"\n") == data.count(b"\n") and abs(len(recorded) - len(data)) <= SLACK + len(data) // 100

    def answer_with(self, texts: Mapping[bytes, bytes]) -> list[tuple[str, bytes]]:
        """Its steps as a host has them that differs in some texts from the recorded one."""
        shift = int(time.time() - self.at)

        def move(found: re.Match[bytes]) -> bytes:
            """A moment around the recorded one, as long before now."""
            moment = int(found[0])
            return str(moment + shift).encode() if abs(moment - self.at) < AROUND else found[0]

        def move_date(found: re.Match[bytes]) -> bytes:
            date = datetime.strptime(found[0].decode(), DATE_FORM).replace(tzinfo=timezone.utc)
            near = abs(date.timestamp() - self.at) < AROUND
            return (date + timedelta(seconds=shift)).strftime(DATE_FORM).encode() if near else found[0]

        def replace(data: bytes) -> bytes:
            for old, new in texts.items():
                data = data.replace(old, new)
            return DATE.sub(move_date, MOMENT.sub(move, data))

        return [(kind, replace_encoded(data, replace) if kind in ("out", "err") else data) for kind, data in self.steps]


def is_received(data: bytes | bytearray, due: bytes) -> bool:
    """Whether an input has come as far as the recorded one, which may be a little longer or shorter."""
    return data.count(b"\n") >= lines if (lines := due.count(b"\n")) and due.endswith(b"\n") else len(data) >= len(due)


def replace_encoded(data: bytes, replace: Callable[[bytes], bytes]) -> bytes:
    """An answer with other texts; also within base64, compressed or not."""

    def replace_within(found: re.Match[bytes]) -> bytes:
        try:
            plain = base64.b64decode(found[0], validate=True)
        except binascii.Error:
            return found[0]
        packed = False
        with suppress(zlib.error):
            if plain.startswith(ZLIB):
                plain, packed = zlib.decompress(plain), True
        if (made := replace_encoded(plain, replace)) == plain:
            return found[0]
        return base64.b64encode(zlib.compress(made) if packed else made)

    return replace(ENCODED.sub(replace_within, data))


def load_recording(file: Path) -> list[RecordedCommand]:
    """The commands of a recording, in the order of their beginnings."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        RecordedCommand(row["line"], row["at"], [(kind, data.encode("latin-1")) for kind, data in row["steps"]])
        for row in rows
    ]


QUESTION = re.compile(r"^  answer=\$\(sh -c (.*?) </dev/null 2>/dev/null\) && answered=yes", re.MULTILINE | re.DOTALL)
"""A script among several in one command (templates/look/together.sh.j2)."""


def find_scripts(data: bytes) -> list[str]:
    """The scripts of an input that has several."""
    return [shlex.split(found[1])[0] for found in QUESTION.finditer(data.decode())]


class Replay:
    """The answers of one connection: of commands with one line, the next in order."""

    def __init__(self, recording: Iterable[RecordedCommand]) -> None:
        self.recording = [*recording]
        self.left: dict[str, deque[RecordedCommand]] = defaultdict(deque)
        for one in self.recording:
            self.left[one.line].append(one)

    def answer_scripts(self, scripts: Iterable[str], texts: Mapping[bytes, bytes]) -> list[str] | None:
        """The answers of scripts that were recorded in commands with others; None if one of them is unknown.

        Args:
            scripts: As a host has them that differs from the recorded one in texts.
            texts: Text of the recorded host -> its own in that place.
        """
        known: dict[str, str] = {}
        for command in self.recording:
            if asked := find_scripts(b"".join(data for kind, data in command.steps if kind == "in")):
                told = b"".join(data for kind, data in command.answer_with(texts) if kind == "out")
                for script, lines in script_output.parse_outputs(told.decode().splitlines(), asked).items():
                    for old, new in texts.items():
                        script = script.replace(old.decode(), new.decode())
                    known[script] = "\n".join(lines)
        found = [known.get(one, "") for one in scripts]
        return found if found and all(found) else None

    def take(self, line: str) -> RecordedCommand | None:
        """The answer of a command; the last of those with its line counts for all further ones."""
        waiting = self.left.get(line)
        if not waiting:
            return None
        return waiting.popleft() if len(waiting) > 1 else waiting[0]


class Recorder:
    """Runs commands on a real host, and keeps them with their answers."""

    def __init__(self, upstream: paramiko.SSHClient) -> None:
        self.upstream = upstream
        self.commands: list[RecordedCommand] = []

    def run(self, channel: paramiko.Channel, line: str) -> None:
        """Pass a command on, and its answer back."""
        command = RecordedCommand(line)
        self.commands.append(command)
        transport = self.upstream.get_transport()
        assert transport
        there = transport.open_session()
        there.exec_command(line)
        sending = gevent.spawn(self._send, channel, there, command)
        errors = gevent.spawn(self._receive, there.recv_stderr, channel.sendall_stderr, command, "err")
        self._receive(there.recv, channel.sendall, command, "out")
        errors.join()
        status = there.recv_exit_status()
        command.add("exit", str(status).encode())
        sending.kill(block=False)
        with suppress(OSError, EOFError):
            channel.send_exit_status(status)
            channel.close()
        there.close()

    @staticmethod
    def _send(channel: paramiko.Channel, there: paramiko.Channel, command: RecordedCommand) -> None:
        with suppress(OSError, EOFError):
            while piece := channel.recv(PIECE):
                command.add("in", piece)
                there.sendall(piece)
            command.add("eof", b"")
            there.shutdown_write()

    @staticmethod
    def _receive(read: object, write: object, command: RecordedCommand, kind: str) -> None:
        assert callable(read)
        assert callable(write)
        with suppress(OSError, EOFError):
            while piece := read(PIECE):
                command.add(kind, piece)
                write(piece)

    def save(self, file: Path) -> None:
        """Write the recording."""
        file.write_text("".join(one.as_json() + "\n" for one in self.commands))


def load_texts(file: Path) -> dict[str, dict[bytes, bytes]]:
    """Host -> text of the recorded host -> its own in that place."""
    rows: dict[str, dict[str, str]] = json.loads(file.read_text())
    return {name: {old.encode(): new.encode() for old, new in texts.items()} for name, texts in rows.items()}
