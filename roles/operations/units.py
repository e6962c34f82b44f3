"""Units of systemd that are no instances: written, enabled and running, or gone."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from pyinfra import host
from pyinfra.api import FactBase, QuoteString, StringCommand, operation

from rigwright.serving.units import UNITS
from roles.operations.files import Entries, Entry, Text, differ, texts

WANTED = ["enabled", "active"]


class UnitState(FactBase[list[str]]):
    """Whether a unit is enabled, whether it is active, and of some whether systemd has yet to read their files."""

    default = list

    def command(self, unit: str, read: Sequence[str]) -> StringCommand:
        """A line a property, in the order that they are asked for."""
        asked = [("UnitFileState", unit), ("ActiveState", unit), *(("NeedDaemonReload", one) for one in read)]
        each = " && ".join(f"systemctl show --property={name} --value {one}" for name, one in asked)
        return StringCommand("sh", "-c", QuoteString(each))

    def process(self, output: list[str]) -> list[str]:
        """The values."""
        return output


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
    if not differ(files) and host.get_fact(UnitState, unit=unit, read=read) == [*WANTED, *("no" for _ in read)]:
        host.noop(f"{unit} runs as it should")
        return
    yield from texts._inner(files=files)
    yield StringCommand("systemctl daemon-reload")
    yield StringCommand("systemctl enable --quiet", unit, "&& systemctl restart", unit)


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
        yield StringCommand("systemctl disable --quiet --now", *_names(units))
    yield StringCommand("rm -f", *(QuoteString(path) for path in there))
    yield StringCommand("systemctl daemon-reload")


def _names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]
