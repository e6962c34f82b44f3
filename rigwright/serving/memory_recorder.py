"""The files of a generation by which its host records the memory of each start."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.engines.known_issues import place_instance
from rigwright.local_files import read_program
from rigwright.model.instance import patches_by_target
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.serving.instance_units import InstanceUnit

RECORDER = "memory/recorder"
"""The program's folder in a generation."""
_PACKAGE = "rigwright_memory"
PROGRAM = ("process_memory.py", "record.py", "start_log.py")
_START = f"import sys\n\nfrom {_PACKAGE}.record import main\n\nsys.exit(main(sys.argv[1:]))\n"


def render_recorder(rig: Rig, units: Sequence[InstanceUnit]) -> dict[str, str]:
    """Path in the generation -> text: the program, and for each instance what its records are about."""
    # few verbs build a generation
    from rigwright.engines.computed_memory import render_memory_declaration

    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches)
    source = ROOT / "roles/memory_records/host"
    program = {f"{RECORDER}/{_PACKAGE}/{name}": read_program(source / name) for name in PROGRAM}
    declared = {}
    for instance, unit in zip(rig.instances, units, strict=True):
        cards = (rig.cards[index] for index in instance.cards)
        placed = place_instance(instance, cards, patches.get(instance.installed_as, ()))
        declared[f"memory/{instance.name}.json"] = render_memory_declaration(placed, unit.unit_state.started_from)
    return {f"{RECORDER}/__main__.py": _START, **program, **declared} if declared else {}
