"""The digests of what a deploy owns, as the host of the running deploy has them at its beginning."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import StringCommand

from rigwright.plan.state_digests import TEMPLATE, OwnedStateFacts, owned_state_values, parse_owned_state
from roles.operations.facts import ChannelFact


class OwnedStateFact(ChannelFact[OwnedStateFacts]):
    """The digests."""

    default = OwnedStateFacts

    def command(self, asked: str) -> StringCommand:
        """templates/owned_state/look.sh.j2."""
        return self.render_command(TEMPLATE, **owned_state_values(asked))

    def read(self, output: list[str]) -> OwnedStateFacts:
        """Read what it reports."""
        return parse_owned_state(output)


_observed: dict[str, OwnedStateFacts] = {}
_generations: dict[str, str] = {}


def observe_owned_state(asked: str) -> OwnedStateFacts:
    """The digests of the host of the running deploy, kept for its end.

    Args:
        asked: As `rigwright.plan.state_digests.render_question` has it.
    """
    found: OwnedStateFacts = host.get_fact(OwnedStateFact, asked=asked) or OwnedStateFacts()
    _observed[host.name] = found
    return found


def observed_state(name: str) -> OwnedStateFacts | None:
    """The run's observation of a host at its beginning; None of one whose preflight did not run."""
    return _observed.get(name)


def keep_generation(digest: str) -> None:
    """Keep the digest of the generation that is declared for the host of the running deploy."""
    _generations[host.name] = digest


def observed_generation(name: str) -> str:
    """That digest; empty for a host that was refused."""
    return _generations.get(name, "")
