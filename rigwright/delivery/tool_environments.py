"""What hosts need in Python: hashed environments, each in a folder named by the digest of its lock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rigwright.model.roots import Roots
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import HUB_CLIENT, INSTALLERS, LOCKED_GROUPS, TOOLS

if TYPE_CHECKING:
    from rigwright.model.facts import HostFacts


@dataclass(frozen=True)
class ToolEnvironment:
    """The environment on one host."""

    requirements: str
    """Text of the hashed requirements."""
    folder: str

    @property
    def marker(self) -> str:
        """Written last: the environment is whole."""
        return f"{self.folder}/.complete"


def render_requirements(wheels: Iterable[Artefact]) -> str:
    """Locked wheels as pip's hashed requirements, the same text for the same wheels.

    Raises:
        ValueError: root would install a group that is not in the list of what it starts.
    """
    hashes: dict[str, set[str]] = {}
    for wheel in wheels:
        if wheel.group not in LOCKED_GROUPS:
            raise ValueError(f"{wheel.group} is not among the locked groups of rigwright.supply.root_programs")
        pin = f"{wheel.name}=={wheel.version}" + (f" ; {wheel.marker}" if wheel.marker else "")
        hashes.setdefault(pin, set()).add(wheel.sha256)
    return "".join(
        " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[pin]))]) + "\n"
        for pin in sorted(hashes)
    )


def host_tools(roots: Roots, tools: tuple[Artefact, ...], facts: HostFacts) -> ToolEnvironment:
    """The tools of a host."""
    return _tool_environment(roots, facts, TOOLS, tools)


def hub_client_tools(roots: Roots, hub_client: tuple[Artefact, ...], facts: HostFacts) -> ToolEnvironment | None:
    """The hub's own client on a host; None where nothing is fetched with it."""
    return _tool_environment(roots, facts, HUB_CLIENT, hub_client) if hub_client else None


def installer_tools(roots: Roots, installers: tuple[Artefact, ...], facts: HostFacts) -> ToolEnvironment:
    """What puts environments together on a host."""
    return _tool_environment(roots, facts, INSTALLERS, installers)


def _tool_environment(roots: Roots, facts: HostFacts, name: str, wheels: Iterable[Artefact]) -> ToolEnvironment:
    """The distribution's release is an input, for a release brings another Python."""
    text = render_requirements(wheels)
    digest = hashlib.sha256(f"{text}{facts.os_id}{facts.os_version}".encode()).hexdigest()[:12]
    return ToolEnvironment(text, f"{roots.software}/{name}-{digest}")
