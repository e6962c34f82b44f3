"""Role record: write down on the host what the rig is, for people. Nothing reads it to decide."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.llama_cpp import Build
from rigwright.record import text
from rigwright.rig import Rig
from roles.operations.files import Text, texts


@deploy("Record")
def record(rig: Rig, builds: dict[str, Build]) -> None:
    """Write rig.json."""
    texts(name="rig.json", files=[Text(f"{rig.roots.config}/rig.json", text(rig, builds))])
