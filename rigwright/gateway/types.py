"""The small types of a gateway's keys, each with its rule."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator

from rigwright.addresses import ZONE
from rigwright.types import matching


def _listen_address(value: str) -> str:
    wrong = ValueError("an IP address of the host, or 0.0.0.0 or :: for all")
    try:
        found = ip_address(value)
    except ValueError:
        raise wrong from None
    if found.is_multicast:
        raise wrong
    if "%" in value:
        raise ValueError(f"{wrong}, {ZONE}")
    return str(found)


ListenAddress = Annotated[str, AfterValidator(_listen_address)]
ServedName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}", "a model's name: letters, digits and ._:/@+-, at most 128")
]
Sticky = Annotated[
    str,
    matching(r"|conversation|header:[A-Za-z][A-Za-z0-9-]{0,63}", '"", "conversation" or "header:" and its name'),
    # names of headers are one in capitals and without
    AfterValidator(str.lower),
]
