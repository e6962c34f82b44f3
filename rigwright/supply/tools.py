"""What hosts need in Python: hashed environments, each in a folder named by the digest of its lock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from rigwright.declaration.rig import HUB_CLIENT, TOOLS, Rig
from rigwright.host.facts import HostFacts
from rigwright.supply.lock import Artefact


@dataclass(frozen=True)
class Tools:
    """The environment on one host."""

    requirements: str
    """Text of the hashed requirements."""
    folder: str

    @property
    def marker(self) -> str:
        """Written last: the environment is whole."""
        return f"{self.folder}/.complete"


def requirements(wheels: Iterable[Artefact]) -> str:
    """Locked wheels as pip's hashed requirements, the same text for the same wheels."""
    hashes: dict[str, set[str]] = {}
    for wheel in wheels:
        pin = f"{wheel.name}=={wheel.version}" + (f" ; {wheel.marker}" if wheel.marker else "")
        hashes.setdefault(pin, set()).add(wheel.sha256)
    return "".join(
        " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[pin]))]) + "\n"
        for pin in sorted(hashes)
    )


def tools(rig: Rig, facts: HostFacts) -> Tools:
    """The tools of a host."""
    return _environment(rig, facts, TOOLS, rig.tools)


def hub_client(rig: Rig, facts: HostFacts) -> Tools | None:
    """The hub's own client on a host; None where nothing is fetched with it."""
    return _environment(rig, facts, HUB_CLIENT, rig.hub_client) if rig.hub_client else None


def _environment(rig: Rig, facts: HostFacts, name: str, wheels: Iterable[Artefact]) -> Tools:
    """The distribution's release is an input, for a release brings another Python."""
    text = requirements(wheels)
    digest = hashlib.sha256(f"{text}{facts.os_id}{facts.os_version}".encode()).hexdigest()[:12]
    return Tools(text, f"{rig.roots.software}/{name}-{digest}")
