"""crun starts an instance's container where podman is too old, which starts one by crun, too."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from rigwright.engines.container_spec import ContainerSpec
from rigwright.engines.image.runtime import TEMPORARY, ContainerStart, content_named
from rigwright.model.roots import Roots

CRUN, PYTHON, NVIDIA_CTK = "/usr/bin/crun", "/usr/bin/python3", "/usr/bin/nvidia-ctk"
# What writes for it what podman would have written.
BUNDLE = Path(__file__).with_name("bundle.py").read_text()


def crun_start(roots: Roots, made: ContainerSpec) -> ContainerStart:
    """How a unit starts it.

    Args:
        roots: Directories on the host.
        made: The container.
    """
    text = json.dumps({**dataclasses.asdict(made), "temporary": TEMPORARY}, indent=1, sort_keys=True) + "\n"
    program, declared = content_named("bundle", ".py", BUNDLE), content_named(made.name, ".json", text)
    words = (
        CRUN,
        # its processes stay in the unit's own control group, where its limits hold and nothing outlives it
        "--cgroup-manager=disabled",
        f"--root={made.folder}/runtime",
        "run",
        "--detach",
        f"--bundle={made.folder}",
        f"--pid-file={made.folder}/pid",
        made.name,
    )
    # what others read is YAML, for which the distribution's Python has nothing
    cards = (NVIDIA_CTK, "--quiet", "cdi", "generate", "--format=json", f"--output={made.folder}/cards.json")
    bundle = (PYTHON, "-I", roots.program_path(program), roots.program_path(declared))
    before = (cards, bundle) if made.devices else (bundle,)
    return ContainerStart(words, programs={program: BUNDLE, declared: text}, before=before)
