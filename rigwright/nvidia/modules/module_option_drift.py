"""Options of the kernel module that are declared, beside those that it was loaded with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Where the module shows an option under another name than it is set by (NVIDIA, nv-reg.h: entries with a custom name)
SHOWN_AS = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
# What the module shows for an option that was left at "as the driver sees fit": -1 without its sign
UNSET = str(2**32 - 1)


@dataclass(frozen=True)
class ModuleOptionDrift:
    """A declared one that is not in force."""

    name: str
    value: int
    """That is declared."""
    loaded: str | None
    """The module's, as /proc/driver/nvidia/params has it; None where that does not know the option."""

    @property
    def loaded_text(self) -> str:
        """That in words."""
        if self.loaded is None:
            return "no such option"
        return "the driver's default" if self.loaded == UNSET else self.loaded


def parse_parameters(text: str) -> tuple[tuple[str, str], ...]:
    """(name, value) of each line of /proc/driver/nvidia/params, which is the loaded module's own text."""
    rows = (line.partition(":") for line in text.splitlines() if line.strip())
    return tuple((name, value.strip()) for name, _, value in rows)


def find_differing_options(
    options: Iterable[tuple[str, int]], params: Iterable[tuple[str, str]]
) -> list[ModuleOptionDrift]:
    """The declared options that the loaded module does not have.

    Args:
        options: (name, value) as declared.
        params: (name, value) as the module shows them; empty without one.
    """
    there, found = dict(params), []
    for name, value in sorted(options):
        short = name.removeprefix("NVreg_")
        loaded = there.get(SHOWN_AS.get(short, short))
        if loaded != str(value):
            found.append(ModuleOptionDrift(name, value, loaded))
    return found


def describe_pending_reboot(options: Iterable[tuple[str, int]], params: Iterable[tuple[str, str]]) -> str:
    """Why a reboot is needed for options, which count from when the module is loaded; empty where none is.

    One that the module does not know it would not know after a reboot.
    """
    return "; ".join(
        f"the module is loaded with {one.name}={one.loaded_text}, {one.value} is declared"
        if one.loaded_text == one.loaded
        else f"the module is loaded without {one.name}, {one.value} is declared"
        for one in find_differing_options(options, params)
        if one.loaded is not None
    )
