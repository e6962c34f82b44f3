"""Which addresses the controller may ask: the public ones, and the origins that its operator has named."""

from __future__ import annotations

from collections.abc import Iterable

from huggingface_hub import constants

from rigwright.model.rig import Rig
from roles.weights.host import reach


def declared_origins(rigs: Iterable[Rig], index: str) -> frozenset[str]:
    """The origins that inventories and this machine's configuration of the hub's client name, and the index's.

    Args:
        rigs: Of the inventory.
        index: The address of the package index that this machine's pip is configured to use.
    """
    bases = [index, constants.ENDPOINT]
    for rig in rigs:
        bases += [*rig.network.redirects, *(base for named in rig.network.mirrors.values() for base in named)]
    return frozenset(map(reach.origin_of, bases))
