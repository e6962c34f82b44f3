"""What the host says it is: the record of a rig, as text."""

from __future__ import annotations

import json

from rigwright.llama_cpp import Build
from rigwright.rig import Rig


def text(rig: Rig, builds: dict[str, Build]) -> str:
    """The record, the same for the same rig."""
    value = {
        "rig": rig.name,
        "cards": [card.name for card in rig.cards],
        "engines": {name: build.folder for name, build in builds.items()},
        "weights": {artefact.name: artefact.sha256 for artefact in rig.weights},
        "instances": {
            i.name: {"variant": i.variant_name, "port": i.port, "cards": list(i.cards), "engine": i.engine_name}
            for i in rig.instances
        },
    }
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
