"""The rig of a host, and what the run is asked for, judged again: `--data` comes after the inventory."""

from __future__ import annotations

from typing import Any

from pyinfra.api.exceptions import PyinfraError

from rigwright.declaration.rig import Rig
from rigwright.inventory import load
from rigwright.overrides import Orders, orders
from rigwright.problems import Invalid


def rig_of(host: Any) -> Rig:
    """The rig that a pyinfra host is.

    Raises:
        PyinfraError: its data is not a valid rig; raised before any operation exists.
    """
    try:
        return load(host.data.get("rig"))
    except Invalid as error:
        raise PyinfraError(f"{host.name}: {error}") from None


def orders_of(host: Any) -> Orders:
    """What the run of a pyinfra host is asked for. Only what `--data` gave is judged, not the host's own data.

    Raises:
        PyinfraError: something of it is refused; raised before any operation exists.
    """
    try:
        return orders(host.inventory.get_override_data())
    except Invalid as error:
        raise PyinfraError(str(error)) from None
