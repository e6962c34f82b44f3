"""Role self_check: the timer by which a box checks itself, and the declaration that it is compared with."""

from __future__ import annotations

from rigwright.gateway.rotation import ROTATION, ROTATION_SERVICE, ROTATION_TIMER
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.monitoring.self_check import (
    NAME,
    PATH,
    SERVICE,
    TIMER,
    UDEV,
    program_folder,
    pull_paths,
    pull_program_folder,
    results_folder,
    rotation_paths,
    rotation_program_folder,
)
from rigwright.plan.self_check_declaration import render_self_check
from rigwright.pull.pull_units import PULL_FETCH_SERVICE, PULL_SERVICE, PULL_TIMER, pull_folders, pull_state
from roles.operations.files import TextFile, make_directories, missing_paths, remove_files, write_text_files
from roles.operations.units import ensure_unit_running, remove_units
from roles.rig_lookup import DeployContext, role

PULL_UNITS = (PULL_SERVICE, PULL_FETCH_SERVICE, PULL_TIMER)


@role("Self check")
def self_check(context: DeployContext) -> None:
    """Bring program, declaration and units to their state. Units of the rig itself are not touched."""
    rig = context.rig
    texts = render_self_check(rig, context.facts.system)
    program, rotation = program_folder(rig.roots), rotation_program_folder(rig.roots)
    folders = [program, f"{program}/{NAME}", *([rotation, f"{rotation}/{ROTATION}"] if rig.gateway else [])]
    folders += pull_folders(pull_program_folder(rig.roots)) if rig.pull else []
    owned = dict.fromkeys(folders, ("755", "root", "root")) | {results_folder(rig.roots): ("750", "root", "root")}
    if rig.pull:
        owned[pull_state(rig.roots)] = ("755", "root", "root")
    if UDEV in texts:
        # a system without udev has no folder for its rules
        owned |= dict.fromkeys(missing_paths([UDEV.rpartition("/")[0]]), ("755", "root", "root"))
    make_directories(name="Directories", paths=owned, ledger=rig.roots.ledger)
    units = {
        name: TextFile(path, texts[path])
        for name in (SERVICE, TIMER, PATH, ROTATION_SERVICE, ROTATION_TIMER, *PULL_UNITS)
        if (path := f"{UNIT_FOLDER}/{name}") in texts
    }
    files = [TextFile(path, text) for path, text in texts.items() if not path.startswith(f"{UNIT_FOLDER}/")]
    write_text_files(name="Program and declaration", files=files)
    if UDEV not in texts:
        remove_files(name="No module to wait for", paths=[UDEV])
    ensure_unit_running(name="Run after changes", unit=PATH, files=[units[SERVICE], units[PATH]])
    ensure_unit_running(name="Run every few minutes", unit=TIMER, files=[units[TIMER]])
    if rig.gateway:
        files = [units[ROTATION_SERVICE], units[ROTATION_TIMER]]
        ensure_unit_running(name="Look after the rotation", unit=ROTATION_TIMER, files=files)
    else:
        remove_units(name="No rotation to keep instances out of", paths=rotation_paths(rig.roots))
    if rig.pull:
        files = [units[one] for one in PULL_UNITS]
        ensure_unit_running(name="Pull generations", unit=PULL_TIMER, files=files)
    else:
        remove_units(name="No generations to pull", paths=pull_paths(rig.roots))
