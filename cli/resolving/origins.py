"""Which addresses the controller may ask: the public ones, and the origins that its operator has named."""

from __future__ import annotations

from collections.abc import Iterable

from huggingface_hub import constants

from cli.resolving.index import index_url
from rigwright.declaration.rig import Rig
from roles.weights.host import reach


def declared_origins(rigs: Iterable[Rig]) -> frozenset[str]:
    """The origins that inventories and this machine's configuration of pip and of the hub's client name."""
    bases = [index_url(), constants.ENDPOINT]
    for rig in rigs:
        bases += [*rig.redirects, *(base for named in rig.mirrors.values() for base in named)]
    return frozenset(map(reach.origin, bases))
