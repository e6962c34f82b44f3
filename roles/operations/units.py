"""Units of systemd that are no instances: written, enabled and running, or gone."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.host import channel
from rigwright.host.channel import optional, word, yes_or_no
from rigwright.host.systemd_syntax import UNIT_FOLDER
from roles.operations.channel_fact import ChannelFact
from roles.operations.files import PathEntriesFact, PathEntry, TextFile, texts_differ, write_text_files


@dataclass(frozen=True)
class UnitStatus:
    """How a unit is doing."""

    enabled: str = ""
    active: str = ""
    unread: bool = False
    """Whether systemd has yet to read files of those that were asked about."""


SCHEMA: channel.Schema = {"enabled": (optional(word),), "active": (word,), "reload": (yes_or_no,)}
"""What templates/look/unit.sh.j2 tells."""


class UnitStatusFact(ChannelFact[UnitStatus]):
    """Whether a unit is enabled, whether it is active, and of some whether systemd has yet to read their files."""

    default = UnitStatus

    def command(self, unit: str, read: Sequence[str]) -> StringCommand:
        """templates/look/unit.sh.j2."""
        return self.render_command("look/unit.sh.j2", unit=unit, read=read)

    def read(self, output: list[str]) -> UnitStatus:
        """Read what it tells."""
        told = channel.parse_output(output, SCHEMA)
        return UnitStatus(told.one("enabled"), told.one("active"), any(told.all("reload")))


@operation()
def ensure_unit_running(unit: str, files: Sequence[TextFile]) -> Generator[StringCommand, None, None]:
    """Have a unit run as its files say, now and after every boot.

    + unit: its name
    + files: its files and those of what it starts

    **Example:**

    .. code:: python

        running(name="Timer", unit="x.timer", files=[Text("/etc/systemd/system/x.timer", text)])
    """
    read = _unit_names(file.path for file in files)
    # both are asked, whatever the first says: so both can be asked ahead
    runs = host.get_fact(UnitStatusFact, unit=unit, read=read) == UnitStatus("enabled", "active")
    if not texts_differ(files) and runs:
        host.noop(f"{unit} is up to date")
        return
    yield from write_text_files._inner(files=files)
    yield StringCommand("systemctl daemon-reload")
    yield StringCommand("systemctl enable --quiet", QuoteString(unit), "&& systemctl restart", QuoteString(unit))


@operation()
def remove_units(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Stop units that are no longer asked for, and take their files away.

    + paths: their files, and what else was made because of them
    """
    found = host.get_fact(PathEntriesFact, paths=list(paths))
    there = [path for path in paths if found.get(path, PathEntry()).kind != "absent"]
    if not there:
        host.noop("nothing is left over")
        return
    # it fails for a unit without a file, which a run that was cut off may have left, and for what is none
    if units := [path for path in there if path.startswith(f"{UNIT_FOLDER}/")]:
        yield StringCommand("systemctl disable --quiet --now", *map(QuoteString, _unit_names(units)))
    yield StringCommand("rm -f", *(QuoteString(path) for path in there))
    yield StringCommand("systemctl daemon-reload")


def _unit_names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]
