"""Role nvidia_cards: power limits, clocks and kernel settings of a box whose driver is its operator's."""

from __future__ import annotations

from rigwright.nvidia.cards.card_setting_files import managed_folders, managed_paths, record_path, render_card_settings
from roles.operations.cards import apply_card_settings, remove_card_settings
from roles.operations.files import TextFile, make_directories, write_text_files
from roles.rig_lookup import DeployContext, role


@role("NVIDIA cards")
def nvidia_cards(context: DeployContext) -> None:
    """Have cards and kernel set to what the rig declares, where no driver of ours brings that along."""
    rig = context.rig
    files = render_card_settings(rig.roots, rig.cards, rig.driver)
    needed = managed_folders(rig.roots, rig.driver)
    if needed:
        make_directories(name="Folders", paths=dict.fromkeys(needed, ("755", "root", "root")), ledger=rig.roots.ledger)
    write_text_files(name="Settings", files=[TextFile(file.path, file.text, file.mode) for file in files])
    left = set(managed_paths(rig.roots)) - {file.path for file in files}
    # the record of cards is only for the unit
    remove_card_settings(
        name="Undeclared settings", paths=sorted(left if rig.driver.sets_cards else left | {record_path(rig.roots)})
    )
    if files:
        apply_card_settings(name="Cards", rig=rig)
