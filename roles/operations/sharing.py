"""The unit that shares a box's weights, as it runs."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.model.entry import Share
from rigwright.model.rig import Rig
from rigwright.model.sharing import Found
from rigwright.render import render
from rigwright.weights import sharing
from roles.operations.look import Look

TRIES = 100  # five a second: nginx itself tries for three to get a port that was not free


class Sharing(Look[Found]):
    """The unit, its process, and what it was started from."""

    default = Found

    def command(self) -> StringCommand:
        """templates/look/sharing.sh.j2."""
        return self.script("look/sharing.sh.j2", **sharing.questions())

    def read(self, output: list[str]) -> Found:
        """Read what it tells."""
        return sharing.parse(output)


@operation()
def shared(rig: Rig, share: Share) -> Generator[StringCommand, None, None]:
    """Have the unit enabled, and its process started from the texts that the rig asks for.

    + rig: the rig
    + share: what it shares
    """
    found, wanted = host.get_fact(Sharing), sharing.digest(rig, share)
    if found.settled(wanted):
        host.noop(f"weights are shared on {sharing.endpoint(share)}")
        return
    script = render(
        "sharing/start.sh.j2",
        share_unit=sharing.UNIT,
        restart=not found.runs(wanted),
        listens=sharing.listens(share),
        endpoint=sharing.endpoint(share),
        tries=TRIES,
    )
    yield StringCommand("sh", "-c", QuoteString(script))


@operation()
def unshared(rig: Rig) -> Generator[StringCommand, None, None]:
    """Stop sharing, and take unit and configuration away.

    + rig: the rig
    """
    if not host.get_fact(Sharing).there:
        host.noop("no weights are shared")
        return
    yield StringCommand("sh", "-c", QuoteString(render("sharing/release.sh.j2", **sharing.release(rig))))
