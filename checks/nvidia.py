"""What all checks of the NVIDIA driver share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from checks import Drift
from rigwright.declaration.rig import Rig
from rigwright.nvidia.difference import Difference


def with_cards(rig: Rig) -> None:
    """Leave out what only a rig with cards can be asked."""
    if not rig.cards:
        pytest.skip("the rig declares no cards")


def managed(rig: Rig) -> None:
    """Leave out what only a driver can be asked that deploys bring."""
    with_cards(rig)
    if not rig.driver.managed:
        pytest.skip("the driver is the operator's own")


def no(differences: Sequence[Difference]) -> None:
    """Say every difference in one line.

    Raises:
        Drift: there is one.
    """
    __tracebackhide__ = True
    if differences:
        raise Drift.several([Drift(one.expected, one.found, one.next_step) for one in differences])
