"""Role nvidia_cards: power limits, clocks and kernel settings of a box whose driver is its operator's."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.model.rig import Rig
from rigwright.nvidia.cards.files import folders, paths, record_path, settings
from roles.operations.cards import retired, set_up
from roles.operations.files import Text, directories, texts


@deploy("NVIDIA cards")
def nvidia_cards(rig: Rig) -> None:
    """Have cards and kernel set to what the rig declares, where no driver of ours brings that along."""
    files = settings(rig)
    needed = folders(rig)
    if needed:
        directories(name="Folders", paths=dict.fromkeys(needed, ("755", "root", "root")), ledger=rig.ledger)
    texts(name="Settings", files=[Text(file.path, file.text, file.mode) for file in files])
    left = set(paths(rig)) - {file.path for file in files}
    # what is written down of cards is for the unit alone
    retired(
        name="Undeclared settings",
        paths=sorted(left if rig.driver.sets_cards else left | {record_path(rig)}),
    )
    if files:
        set_up(name="Cards", rig=rig)
