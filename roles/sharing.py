"""Role sharing: a box's weights for other boxes, over an nginx that does nothing else."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright.model.rig import Rig
from rigwright.nginx import PROOF
from rigwright.weights.sharing import PATH, config, config_path, endpoint, unit
from roles.operations.files import Text, texts
from roles.operations.sharing import shared, unshared


@deploy("Sharing")
def sharing(rig: Rig) -> None:
    """Bring nginx's settings, its unit and its process to their state; what is not declared any more goes.

    Its package is among those of the role base.
    """
    if rig.share is None:
        unshared(name="Stop sharing weights", rig=rig)
        return
    files = [Text(config_path(rig), config(rig, rig.share), proof=PROOF), Text(PATH, unit(rig, rig.share))]
    texts(name="Share settings", files=files)
    shared(name=f"Share weights on {endpoint(rig.share)}", rig=rig, share=rig.share)
