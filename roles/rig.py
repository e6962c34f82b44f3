"""The rig of a host, and what the run is asked for, judged again: `--data` comes after the inventory."""

from __future__ import annotations

from typing import Any

from pyinfra.api.exceptions import PyinfraError

from rigwright.declaration.variant_edit import VariantSwitch, apply_switch
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.problems import Invalid
from rigwright.run_options import RunOptions, parse_run_options


def rig_of_host(host: Any, switch: VariantSwitch | None = None) -> Rig:
    """The rig that a pyinfra host is, with another variant of an instance where the run is asked for that.

    Raises:
        PyinfraError: its data is not a valid rig; raised before any operation exists.
    """
    try:
        data = host.data.get("rig")
        return load_rig(apply_switch(data, switch) if switch else data)
    except Invalid as error:
        raise PyinfraError(f"{host.name}: {error}") from None


def orders_of_host(host: Any) -> RunOptions:
    """What the run of a pyinfra host is asked for. Only what `--data` gave is judged, not the host's own data.

    Raises:
        PyinfraError: something of it is refused; raised before any operation exists.
    """
    try:
        return parse_run_options(host.inventory.get_override_data())
    except Invalid as error:
        raise PyinfraError(str(error)) from None
