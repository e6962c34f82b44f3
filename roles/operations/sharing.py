"""The unit that shares a box's weights, as it runs."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.model.entry import ShareEntry
from rigwright.model.roots import Roots
from rigwright.model.sharing import SharingFacts
from rigwright.render import render
from rigwright.weights import weight_sharing
from roles.operations.channel_fact import ChannelFact

TRIES = 100  # five a second: nginx itself tries for three to get a port that was not free


class ShareStateFact(ChannelFact[SharingFacts]):
    """The unit, its process, and what it was started from."""

    default = SharingFacts

    def command(self) -> StringCommand:
        """templates/look/sharing.sh.j2."""
        return self.render_command("look/sharing.sh.j2", **weight_sharing.share_state_values())

    def read(self, output: list[str]) -> SharingFacts:
        """Read what it tells."""
        return weight_sharing.parse_sharing_facts(output)


@operation()
def ensure_share(roots: Roots, share: ShareEntry) -> Generator[StringCommand, None, None]:
    """Have the unit enabled, and its process started from the texts that the rig asks for.

    + rig: the rig
    + share: what it shares
    """
    found, wanted = host.get_fact(ShareStateFact), weight_sharing.share_digest(roots, share)
    if found.is_settled(wanted):
        host.noop(f"weights are shared on {weight_sharing.share_endpoint(share)}")
        return
    script = render(
        "sharing/start.sh.j2",
        share_unit=weight_sharing.SHARE_UNIT,
        restart=not found.is_running(wanted),
        listens=weight_sharing.listener_filter(share),
        endpoint=weight_sharing.share_endpoint(share),
        tries=TRIES,
    )
    yield StringCommand("sh", "-c", QuoteString(script))


@operation()
def remove_share(roots: Roots) -> Generator[StringCommand, None, None]:
    """Stop sharing, and take unit and configuration away.

    + rig: the rig
    """
    if not host.get_fact(ShareStateFact).there:
        host.noop("no weights are shared")
        return
    yield StringCommand(
        "sh", "-c", QuoteString(render("sharing/release.sh.j2", **weight_sharing.share_release_values(roots)))
    )
