"""Probes of silent instances by gateways, as a measurement of one meets them: engines count their tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rigwright.engines.instance_request import CHAT, InstanceRequest
from rigwright.gateway.gateway_units import PROBE_EVERY
from rigwright.gateway.served_models import offers_of
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance

PROBE = InstanceRequest(CHAT, {"messages": [{"role": "user", "content": "ping"}], "max_tokens": 1, "stream": False})
"""As roles/gateway/host/router/probe.py sends it."""


def count_probing_gateways(instances: tuple[Instance, ...], gateway: Gateway | None, name: str) -> int:
    """The gateways that serve an instance of a box, and so probe it: its own, and those of other boxes."""
    own = any(one.name == name for model in offers_of(instances, gateway) for one in model.instances)
    lent = gateway.fleet.listener if gateway else None
    return own + len(lent.users.get(name, ()) if lent else ())


@dataclass
class ProbeAllowance:
    """Tokens that may be of probes: at most one probe of each gateway in each interval, since this was made."""

    tokens: int
    """Of one probe, its prompt and its answer."""
    clock: Callable[[], float] = time.monotonic
    gateways: int = 1
    """Those that probe the instance."""
    _probes: int = 0
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin now."""
        self._began = self.clock()

    @property
    def most(self) -> int:
        """Probes until now, at most."""
        return self.gateways * (1 + int((self.clock() - self._began) // PROBE_EVERY))

    def deduct(self, foreign: int) -> int:
        """Tokens of requests that are not ours, without those of the probes since the last call."""
        probes = min(self.most - self._probes, math.ceil(foreign / self.tokens))
        self._probes += probes
        return max(0, foreign - probes * self.tokens)
