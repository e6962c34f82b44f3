"""The probe: a host's facts for decisions, in one round trip."""

from __future__ import annotations

import json

from pyinfra import host
from pyinfra.api import StringCommand

from rigwright.model.fact_types import HostFacts
from rigwright.model.rig import Rig
from rigwright.plan import host_probe
from roles.operations.facts import ChannelFact


class HostProbeFact(ChannelFact[HostFacts]):
    """A host as it is before the run. Only what a run does not change may be decided on it."""

    def command(self, questions: str) -> StringCommand:
        """templates/probe/probe.sh.j2."""
        return self.render_command("probe/probe.sh.j2", **json.loads(questions))

    def read(self, output: list[str]) -> HostFacts:
        """Read what it tells."""
        return host_probe.parse(output)


def probe_host(rig: Rig) -> HostFacts | None:
    """Look at the host of the running deploy; None where that failed, and with it this host."""
    found: HostFacts | None = host.get_fact(HostProbeFact, questions=json.dumps(host_probe.probe_values(rig)))
    return found
