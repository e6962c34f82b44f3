"""The command line of a host whose instances are ready by any look at it: `python -m tests.unit.ready_instances VERB`.

A look reads this machine's own files and units, which a server of a test's own does not have.
"""

import os
from typing import Any

from cli import main, observed_box
from rigwright.model.rig import Rig
from rigwright.operate.instance_health import BLANK_HOST_FACTS, CommandResult, HealthFacts
from rigwright.operate.instance_state import EngineObservation, UnitObservation

UNIT = UnitObservation("loaded", "active", "running", "success", 0, True, 60.0, 1 << 30)
ENGINE = EngineObservation(200, "", 0.05, (), (), 0.3, 0.0, True)


def ready_facts(target: Any, rig: Rig | None) -> HealthFacts:
    """A look that finds each instance ready, and reads no generation; with BLANK_HOST set, one of a blank host."""
    if os.environ.get("BLANK_HOST"):
        return BLANK_HOST_FACTS
    found = rig.instances if rig else ()
    units, engines = {one.unit: UNIT for one in found}, {one.name: ENGINE for one in found}
    return HealthFacts(units, engines, {}, {}, CommandResult(127, "", ""), (), "", reboot=False)


if __name__ == "__main__":
    observed_box.read_health = ready_facts  # type: ignore[attr-defined]
    main()
