"""systemd on a host: syntax of unit files, their folder, and states of units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# In place of addresses, of what listens on none.
UNIX = "unix"


@dataclass(frozen=True)
class SocketUnit:
    """A socket unit, which holds what a service is given."""

    unit: str
    addresses: frozenset[str]
    """Where it is to listen, as ss prints them; UNIX for unix sockets."""
    also: frozenset[str] = frozenset()
    """Where it may, if the host has that."""

    def is_listening(self, found: frozenset[str]) -> bool:
        """Whether it listens where it is to, and nowhere else.

        Args:
            found: Where it listens.
        """
        return self.addresses <= found <= self.addresses | self.also

    @property
    def port(self) -> int:
        """Its TCP port; 0 for none."""
        return int(min(self.addresses).rpartition(":")[2]) if UNIX not in self.addresses else 0


@dataclass(frozen=True)
class UnitState:
    """The target state of a unit's process."""

    unit: str
    started_from: str
    """SHA-256 of the files that it is started from, as a script of its generation writes it down."""
    port: int
    """That it listens on; 0 for none."""
    cards: frozenset[int]
    holders: tuple[SocketUnit, ...] = ()
    """The socket units that listen in its stead."""
    leads_to: str = ""
    """The unit of the instance that its port leads to; empty for an instance itself, and for a gateway."""
    configured_from: str = ""
    """SHA-256 of the files that it reads beside those, as a script writes it down; empty where there are none."""
    rereads: bool = False
    """Whether it reads them again without a restart."""
    on_demand: bool = False
    """Whether the residency service starts and stops it: asleep, it is right."""


# Where the gateway finds what may be asked: NAME -> the socket of an instance that has answered.
LINKS = "/run/rigwright/gateway"
UNIT_FOLDER = "/etc/systemd/system"
# A file a unit, by root: SHA-256 of what its process was started from, then `DEVICE:INODE PATH` of each of its weights.
# Gone with a reboot.
STARTED_FROM_FOLDER = "/run/rigwright"
PLAIN = re.compile(r"[A-Za-z0-9_.,:=/+@-]+")


class ExpandedWord(str):
    """A word of a command line in which systemd expands variables; all others reach the process as they are."""

    __slots__ = ()


def quote_word(text: str) -> str:
    """One word of an ExecStart= (systemd.service(5), "Command lines"; systemd.syntax(7), "Quoting").

    `%` and `$`, which systemd would expand, are doubled; in an `ExpandedWord` they are left to it.

    Raises:
        ValueError: it has a NUL, which no argument can hold.
    """
    if "\0" in text:
        raise ValueError("an argument cannot hold a NUL")
    if isinstance(text, ExpandedWord) or PLAIN.fullmatch(text):
        return str(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def render_command_line(words: tuple[str, ...]) -> str:
    """An ExecStart='s value."""
    return " ".join(map(quote_word, words))


def escape_expansions(words: tuple[str, ...]) -> tuple[str, ...]:
    """A command for systemd-run that gets the words as they are: systemd would put a variable of its unit's in place of
    `${NAME}` anywhere in them (systemd.service(5), "Command lines"); 252 has no option against it.
    """
    return tuple(one.replace("$", "$$") for one in words)


def render_environment_file(variables: Mapping[str, str]) -> str:
    """An EnvironmentFile='s text, by name (systemd.exec(5)): nothing in it is expanded.

    Raises:
        ValueError: a value has a NUL, which no environment can hold.
    """
    return "".join(f"{name}={_quote_value(value)}\n" for name, value in sorted(variables.items()))


def _quote_value(text: str) -> str:
    if "\0" in text:
        raise ValueError("an environment cannot hold a NUL")
    if not text or PLAIN.fullmatch(text):
        return text
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
