"""The check that a box makes of itself: its program and units, as text, and what of them lies on a host.

The program is roles/self_check/host; rigwright/plan/self_check_declaration.py has what it compares a host with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from rigwright.gateway.rotation import (
    ROTATION_SERVICE,
    ROTATION_TIMER,
    render_rotation_program,
    render_rotation_units,
)
from rigwright.host import script_output
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.host.script_output import HostOutput, optional, sha256
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.local_files import read_program
from rigwright.model.inventory_feature import FactSource
from rigwright.model.roots import Roots
from rigwright.monitoring.textfile import textfile_folder
from rigwright.project_root import ROOT
from rigwright.pull.pull_units import (
    PULL_FETCH_SERVICE,
    PULL_SERVICE,
    PULL_TIMER,
    pull_folder,
    pull_state,
    render_pull_program,
    render_pull_settings,
    render_pull_units,
    settings_path,
)
from rigwright.render import render

if TYPE_CHECKING:
    from rigwright.model.rig import Rig

NAME = "rigwright_self_check"  # no instance's: those are rigwright-NAME
SERVICE, TIMER, PATH = f"{NAME}.service", f"{NAME}.timer", f"{NAME}.path"
STARTERS = (TIMER, PATH)
UDEV = "/etc/udev/rules.d/60-rigwright-self-check.rules"
# First line of the files; another one than that of what a generation has.
OWNED = "# Written by rigwright to check itself; changes here are undone by the next deploy."
MINUTES = 5  # between two runs
STALE_MINUTES = 20  # after which a box without a run is reported
PATIENCE = 600  # seconds for which a run waits for a transaction of packages (PATIENCE_S of run.py)
FULL_READ_HOURS = 36  # after which a box without a nightly read is reported
FULL_READ = 300  # seconds for which a run of the night reads files (READ_S of full_read.py)
# Changes after which a run starts at once. dpkg renames its list at the end of each step; `set-property` writes below
# system.control; the lock's file is closed by the process that ends a deploy, start or stop.
TRIGGERS = (
    "/var/lib/dpkg/status",
    UNIT_FOLDER,
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    DEPLOY_LOCK,
)
PROGRAM = ("observed_host.py", "judgements.py", "full_read.py", "run.py")
START = f"""{OWNED}
import sys

from {NAME}.run import main

sys.exit(main(sys.argv[1:]))
"""


def program_folder(roots: Roots) -> str:
    """The program and the declaration; below the configuration's, which is there before other disks are."""
    return f"{roots.config}/self_check"


def declaration_path(roots: Roots) -> str:
    """The path of the last deploy's declaration of the host."""
    return f"{program_folder(roots)}/declaration.json"


def results_folder(roots: Roots) -> str:
    """The last result, the history and digests of files, by the host itself."""
    return f"{roots.state}/self_check"


def result_path(roots: Roots) -> str:
    """The result of the last run."""
    return f"{results_folder(roots)}/state.json"


def full_read_path(roots: Roots) -> str:
    """The findings of the last nightly reads, and the time of the last complete one."""
    return f"{results_folder(roots)}/full_read.json"


def history_paths(roots: Roots) -> tuple[str, str]:
    """The two files of the history, the older one first."""
    return (f"{results_folder(roots)}/history.1.jsonl", f"{results_folder(roots)}/history.jsonl")


def metrics_path(rig: Rig) -> str:
    """The file for node exporter; empty for a rig without monitoring."""
    return f"{textfile_folder(rig.roots)}/self_check.prom" if rig.monitoring else ""


@lru_cache(64)
def render_program(roots: Roots) -> Mapping[str, str]:
    """Path -> text of the program's files."""
    folder, source = program_folder(roots), ROOT / "roles/self_check/host"
    files = {f"{folder}/{NAME}/{name}": read_program(source / name) for name in PROGRAM}
    return {f"{folder}/__main__.py": START, **files}


def render_self_check_units(rig: Rig) -> dict[str, str]:
    """Path -> text of its units."""
    values = {
        "owned": OWNED,
        "folder": results_folder(rig.roots),
        "metrics": textfile_folder(rig.roots) if rig.monitoring else "",
        "program": program_folder(rig.roots),
        "declaration": declaration_path(rig.roots),
        "patience": PATIENCE,
        "full_read": FULL_READ,
        "minutes": MINUTES,
        "paths": TRIGGERS,
        "service": SERVICE,
    }
    kinds = ("service", "timer", "path")
    return {f"{UNIT_FOLDER}/{NAME}.{kind}": render(f"self_check/self_check.{kind}.j2", **values) for kind in kinds}


def render_self_check_rules(rig: Rig) -> dict[str, str]:
    """Path -> text of the udev rule that starts it after a load of the driver's module; empty without cards."""
    return {UDEV: render("self_check/self_check.rules.j2", owned=OWNED, service=SERVICE)} if rig.cards else {}


def rotation_program_folder(roots: Roots) -> str:
    """The program that keeps instances out of the gateway's rotation, of a rig that has one."""
    return f"{program_folder(roots)}/rotation"


def render_rotation_files(rig: Rig) -> Mapping[str, str]:
    """Path -> text of that program; empty without a gateway."""
    return render_rotation_program(rotation_program_folder(rig.roots), OWNED) if rig.gateway else {}


def render_units_of_rotation(rig: Rig) -> dict[str, str]:
    """Path -> text of its units; empty without a gateway."""
    if not rig.gateway:
        return {}
    return render_rotation_units(
        rotation_program_folder(rig.roots),
        declaration_path(rig.roots),
        textfile_folder(rig.roots) if rig.monitoring else "",
        rig.accounts,
        OWNED,
        cards=bool(rig.cards),
    )


def running_units(rig: Rig) -> tuple[str, ...]:
    """Units that are active on a host all the time."""
    rotation = (ROTATION_TIMER,) if rig.gateway else ()
    return (*STARTERS, *rotation, *((PULL_TIMER,) if rig.pull else ()))


def pull_program_folder(roots: Roots) -> str:
    """The program that pulls generations, of a rig that does."""
    return pull_folder(program_folder(roots))


def render_pull_files(rig: Rig) -> dict[str, str]:
    """Path -> text of that program and its settings; empty for a rig that does not pull."""
    if not rig.pull:
        return {}
    folder, roots = pull_program_folder(rig.roots), rig.roots
    metrics = f"{textfile_folder(roots)}/pull.prom" if rig.monitoring else ""
    settings = render_pull_settings(rig, program_folder(roots), declaration_path(roots), metrics)
    return {**render_pull_program(folder), settings_path(folder): settings}


def render_units_of_pull(rig: Rig) -> dict[str, str]:
    """Path -> text of its units; empty for a rig that does not pull."""
    return render_pull_units(rig, pull_program_folder(rig.roots), textfile_folder(rig.roots) if rig.monitoring else "")


def pull_paths(roots: Roots) -> tuple[str, ...]:
    """The files of the program that pulls and its units; the timer's is the first unit to end."""
    folder = pull_program_folder(roots)
    return (
        *sorted((*render_pull_program(folder), settings_path(folder))),
        *(f"{UNIT_FOLDER}/{one}" for one in (PULL_TIMER, PULL_SERVICE, PULL_FETCH_SERVICE)),
    )


def rotation_paths(roots: Roots) -> tuple[str, ...]:
    """The files of the rotation's program and its units; the timer's is the first unit to end."""
    return (
        *sorted(render_rotation_program(rotation_program_folder(roots), OWNED)),
        *(f"{UNIT_FOLDER}/{one}" for one in (ROTATION_TIMER, ROTATION_SERVICE)),
    )


@lru_cache(64)
def self_check_paths(roots: Roots) -> tuple[str, ...]:
    """Every one of its files that a deploy writes, in the order in which their digest is made."""
    units = (f"{UNIT_FOLDER}/{one}" for one in (SERVICE, *STARTERS))
    return (
        *sorted(render_program(roots)),
        declaration_path(roots),
        *units,
        UDEV,
        *rotation_paths(roots),
        *pull_paths(roots),
    )


def self_check_release_values(roots: Roots) -> dict[str, object]:
    """The values by which templates/removal/remove.sh.j2 takes it off a host."""
    return {
        "self_check_units": [
            *(*STARTERS, SERVICE, ROTATION_TIMER, ROTATION_SERVICE),
            *(PULL_TIMER, PULL_SERVICE, PULL_FETCH_SERVICE),
        ],
        "self_check_files": [UDEV],
        "self_check_trees": [program_folder(roots), results_folder(roots), pull_state(roots)],
    }


def self_check_state_values(rig: Rig) -> dict[str, object]:
    """The values of templates/self_check/state.sh.j2."""
    return {"self_check_files": self_check_paths(rig.roots), "self_check_units": running_units(rig)}


SCHEMA: script_output.Schema = {"self_check": (optional(sha256),)}
"""The output of templates/self_check/state.sh.j2."""


def read_self_check_facts(output: HostOutput) -> Mapping[str, object]:
    """The digest of its files on a host; empty where a unit that starts it is not active and enabled."""
    return {"self_check": output.one("self_check")}


SELF_CHECK_FACTS = FactSource(
    "self_check",
    "self_check/state.sh.j2",
    self_check_state_values,
    SCHEMA,
    read_self_check_facts,
)
