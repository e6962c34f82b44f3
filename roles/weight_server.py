"""Role sharing: a box's weights for other boxes, over an nginx that does nothing else."""

from __future__ import annotations

from rigwright.nginx_package import PROOF
from rigwright.weights.weight_server import PATH, config_path, render_share_config, render_share_unit, share_endpoint
from roles.operations.files import TextFile, write_text_files
from roles.operations.units import ensure_share, remove_share
from roles.rig_lookup import DeployContext, role


@role("Sharing")
def sharing(context: DeployContext) -> None:
    """Bring nginx's settings, its unit and its process to their state; shares that are not declared any more go.

    Its package is among those of the role base.
    """
    rig = context.rig
    if rig.share is None:
        remove_share(name="Stop sharing weights", roots=rig.roots)
        return
    files = [
        TextFile(config_path(rig.roots), render_share_config(rig.roots, rig.share), proof=PROOF),
        TextFile(PATH, render_share_unit(rig.roots, rig.share)),
    ]
    write_text_files(name="Share settings", files=files)
    ensure_share(name=f"Share weights on {share_endpoint(rig.share)}", roots=rig.roots, share=rig.share)
