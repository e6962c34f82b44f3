"""Units of systemd that are no instances: written, enabled and running, or gone."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.host import channel
from rigwright.host.channel import optional, truth, word
from rigwright.host.systemd import UNITS
from roles.operations.files import Entries, Entry, Text, differ, texts
from roles.operations.look import Look


@dataclass(frozen=True)
class State:
    """How a unit is doing."""

    enabled: str = ""
    active: str = ""
    unread: bool = False
    """Whether systemd has yet to read files of those that were asked about."""


SCHEMA: channel.Schema = {"enabled": (optional(word),), "active": (word,), "reload": (truth,)}
"""What templates/look/unit.sh.j2 tells."""


class UnitState(Look[State]):
    """Whether a unit is enabled, whether it is active, and of some whether systemd has yet to read their files."""

    default = State

    def command(self, unit: str, read: Sequence[str]) -> StringCommand:
        """templates/look/unit.sh.j2."""
        return self.script("look/unit.sh.j2", unit=unit, read=read)

    def read(self, output: list[str]) -> State:
        """Read what it tells."""
        told = channel.read(output, SCHEMA)
        return State(told.one("enabled"), told.one("active"), any(told.all("reload")))


@operation()
def running(unit: str, files: Sequence[Text]) -> Generator[StringCommand, None, None]:
    """Have a unit run as its files say, now and after every boot.

    + unit: its name
    + files: its files and those of what it starts

    **Example:**

    .. code:: python

        running(name="Timer", unit="x.timer", files=[Text("/etc/systemd/system/x.timer", text)])
    """
    read = _names(file.path for file in files)
    # both are asked, whatever the first says: so both can be asked ahead
    runs = host.get_fact(UnitState, unit=unit, read=read) == State("enabled", "active")
    if not differ(files) and runs:
        host.noop(f"{unit} is up to date")
        return
    yield from texts._inner(files=files)
    yield StringCommand("systemctl daemon-reload")
    yield StringCommand("systemctl enable --quiet", QuoteString(unit), "&& systemctl restart", QuoteString(unit))


@operation()
def stopped(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Stop units that are no longer asked for, and take their files away.

    + paths: their files, and what else was made because of them
    """
    found = host.get_fact(Entries, paths=list(paths))
    there = [path for path in paths if found.get(path, Entry()).kind != "absent"]
    if not there:
        host.noop("nothing is left over")
        return
    # it fails for a unit without a file, which a run that was cut off may have left, and for what is none
    if units := [path for path in there if path.startswith(f"{UNITS}/")]:
        yield StringCommand("systemctl disable --quiet --now", *map(QuoteString, _names(units)))
    yield StringCommand("rm -f", *(QuoteString(path) for path in there))
    yield StringCommand("systemctl daemon-reload")


def _names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]
