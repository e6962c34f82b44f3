"""The name of what an operator had serve before us."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:.@-]{0,199}\.service")
# As Docker and podman allow them; a program's name before it says whose it is.
CONTAINER = re.compile(r"(?:(docker|podman):)?([A-Za-z0-9][A-Za-z0-9_.-]{0,127})")
OWN_NAMES = re.compile(r"rigwright|rw-job-")
RULE = "a unit such as vllm.service, or a container's name, docker:NAME or podman:NAME; none of Rigwright's own"


@dataclass(frozen=True)
class ExistingService:
    """The name of an operator's unit, or of a container."""

    name: str
    program: str = ""
    """docker or podman, where it was said."""

    @property
    def is_unit(self) -> bool:
        """Whether systemd runs it by a unit file."""
        return UNIT.fullmatch(self.name) is not None

    def __str__(self) -> str:
        """As `--data` has it."""
        return f"{self.program}:{self.name}" if self.program else self.name


def parse_existing_service(value: object) -> ExistingService | None:
    """A name as it is given; None where it is none, or one of ours."""
    text = value if isinstance(value, str) else ""
    found = CONTAINER.fullmatch(text)
    name = text if UNIT.fullmatch(text) else found[2] if found else ""
    if not name or OWN_NAMES.match(name):
        return None
    return ExistingService(name, (found[1] or "") if found else "")
