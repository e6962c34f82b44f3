"""Role network: the host's trust for fetching, in addition to the system's authorities."""

from __future__ import annotations

from rigwright.fetch_job_spec import authority_path
from roles.operations.files import TextFile, remove_files, write_text_files
from roles.rig_lookup import DeployContext, role


@role("Network")
def network(context: DeployContext) -> None:
    """Write the rig's own authorities, or take them away. Its users are jobs, not the system."""
    rig = context.rig
    path = authority_path(rig.roots)
    if rig.network.ca_certificates:
        write_text_files(name="CA certificates", files=[TextFile(path, rig.network.ca_certificates)])
    else:
        remove_files(name="CA certificates", paths=[path])
