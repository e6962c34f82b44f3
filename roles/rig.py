"""The rig of a host, read again from its data: `--data` can have changed what the inventory validated."""

from __future__ import annotations

from typing import Any

from pyinfra.api.exceptions import PyinfraError

from rigwright.declaration.rig import Rig
from rigwright.inventory import load
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
