"""The script of an activation, which a host runs as a job."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.engines import kind_of
from rigwright.engines.log_causes import select_faults
from rigwright.gateway.gateway_units import ADMIN, SILENCE
from rigwright.host.generation_layout import ACTIVATING, PROVEN
from rigwright.host.systemd import LINKS, UNIT_FOLDER
from rigwright.model.rig import Rig
from rigwright.nvidia.cards import smi
from rigwright.nvidia.cards.card_facts import UNEXPLAINED_MIB
from rigwright.render import render
from rigwright.serving.activation import Activation
from rigwright.serving.instance_units import STOPPED
from rigwright.serving.standby import FOLDER, RUNTIME_UNITS, StandbyInstance
from rigwright.serving.takeover import Takeover, drain_seconds

PATIENCE = 60  # seconds until a stopped unit has to have given back all that it held
LOG_LINES = 20  # of a unit that does not become ready
READ_LINES = 5000  # of those, where a cause is looked for


def render_activation(
    rig: Rig,
    number: int | None,
    way: Activation,
    foreign: Sequence[str] = (),
    beside: Sequence[StandbyInstance] = (),
    taking: Takeover | None = None,
) -> str:
    """The script.

    Args:
        rig: The rig, for where things are, and causes of failures.
        number: The generation's number on the host; None for the script's first argument.
        way: The steps.
        foreign: Unit files that are in the way of links.
        beside: The standbys that start before running instances stop.
        taking: The earlier service that is stopped for good, or comes back.
    """
    return render(
        "generation/activate.sh.j2",
        beside=beside,
        beside_folder=FOLDER,
        runtime_units=RUNTIME_UNITS,
        links=LINKS,
        config=rig.roots.config,
        units=UNIT_FOLDER,
        activating=ACTIVATING,
        stopped=STOPPED,
        number=number,
        way=way,
        foreign=foreign,
        log_lines=LOG_LINES,
        read_lines=READ_LINES,
        causes={one.unit: select_faults(kind_of(one).causes) for one in rig.instances},
        proven=PROVEN,
        smi_timeout=smi.TIMEOUT,
        tolerance_mib=UNEXPLAINED_MIB,
        patience=PATIENCE,
        admin=ADMIN,
        silence=SILENCE,
        **taking.template_values(rig.roots, rig.gateway)
        if taking
        else {"theirs": None, "back": False, "drain": drain_seconds(rig.gateway)},
    )
