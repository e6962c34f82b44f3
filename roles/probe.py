"""The probe: what decisions need to know of a host, in one round trip."""

from __future__ import annotations

import json

from pyinfra import host
from pyinfra.api import FactBase, QuoteString, StringCommand
from pyinfra.api.exceptions import FactProcessError

from rigwright.declaration.rig import Rig
from rigwright.host import facts
from rigwright.host.facts import HostFacts
from rigwright.render import render


class Probe(FactBase[HostFacts]):
    """A host as it is before the run. Only what a run does not change may be decided on it."""

    def command(self, questions: str) -> StringCommand:
        """templates/probe/probe.sh.j2."""
        script = render("probe/probe.sh.j2", **json.loads(questions))
        return StringCommand("sh", "-c", QuoteString(script))

    def process(self, output: list[str]) -> HostFacts:
        """Read its lines."""
        try:
            return facts.parse(output)
        except ValueError as error:
            raise FactProcessError(str(error)) from error


def probe(rig: Rig) -> HostFacts | None:
    """Look at the host of the running deploy; None where that failed, and with it this host."""
    found: HostFacts | None = host.get_fact(Probe, questions=json.dumps(facts.questions(rig)))
    return found
