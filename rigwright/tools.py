"""The Python tools that hosts need: one hashed environment, in a folder named by the digest of its lock."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rigwright.facts import HostFacts
from rigwright.inventory import ROOT
from rigwright.rig import Rig

LOCK = ROOT / "locks" / "tools.txt"


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


def tools(rig: Rig, facts: HostFacts) -> Tools:
    """The tools of a host; its distribution's release is an input, for a release brings another Python."""
    text = LOCK.read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{text}{facts.os_id}{facts.os_version}".encode()).hexdigest()[:12]
    return Tools(text, f"{rig.roots.software}/tools-{digest}")
