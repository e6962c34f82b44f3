"""Role self_check: the timer by which a box checks itself, and the declaration that it is compared with."""

from __future__ import annotations

from rigwright.host.systemd import UNIT_FOLDER
from rigwright.monitoring.self_check import NAME, PATH, SERVICE, TIMER, UDEV, program_folder, results_folder
from rigwright.plan.self_check_declaration import render_self_check
from roles.operations.files import TextFile, make_directories, missing_paths, remove_files, write_text_files
from roles.operations.units import ensure_unit_running
from roles.rig_lookup import DeployContext, role


@role("Self check")
def self_check(context: DeployContext) -> None:
    """Bring program, declaration and units to their state. Units of the rig itself are not touched."""
    rig = context.rig
    texts = render_self_check(rig, context.facts.system)
    folders = (program_folder(rig.roots), f"{program_folder(rig.roots)}/{NAME}", results_folder(rig.roots))
    modes = ("755", "755", "750")
    owned = {path: (mode, "root", "root") for path, mode in zip(folders, modes, strict=True)}
    if UDEV in texts:
        # a system without udev has no folder for its rules
        owned |= dict.fromkeys(missing_paths([UDEV.rpartition("/")[0]]), ("755", "root", "root"))
    make_directories(name="Directories", paths=owned, ledger=rig.roots.ledger)
    units = {name: TextFile(path, texts[path]) for name in (SERVICE, TIMER, PATH) for path in [f"{UNIT_FOLDER}/{name}"]}
    files = [TextFile(path, text) for path, text in texts.items() if not path.startswith(f"{UNIT_FOLDER}/")]
    write_text_files(name="Program and declaration", files=files)
    if UDEV not in texts:
        remove_files(name="No module to wait for", paths=[UDEV])
    ensure_unit_running(name="Run after changes", unit=PATH, files=[units[SERVICE], units[PATH]])
    ensure_unit_running(name="Run every few minutes", unit=TIMER, files=[units[TIMER]])
