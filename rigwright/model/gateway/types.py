"""The small types of a gateway's keys, each with its rule."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator

from rigwright.addresses import PORT, ZONE, canonical_host
from rigwright.types import matching

OPAQUE_ORIGIN = "null"
"""What browsers send for a page whose origin is none: a sandboxed frame, a data: URL, a local file."""
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# RFC 6454, 6.2: scheme, host and a port that is not the scheme's usual one. Apps name pages of theirs by schemes of
# their own (RFC 3986, 3.1), and some have no host: file://.
_ORIGIN = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]{{0,31}})://([A-Za-z0-9._~-]{{0,253}}|\[[0-9A-Fa-f:.]+\])({PORT})")
_ORIGIN_ALLOWED = (
    "an origin without a path, such as https://chat.example.org, app://obsidian.md or chrome-extension://ID"
)


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


def _cors_origin(value: str) -> str:
    """An origin in the spelling that browsers send, by which the gateway compares it."""
    if value == OPAQUE_ORIGIN:
        return value
    found = _ORIGIN.fullmatch(value)
    if not found:
        begins = _ORIGIN.match(value)
        meant = f"; did you mean {begins[0]!r}?" if begins and value[begins.end() :][:1] == "/" else ""
        raise ValueError(_ORIGIN_ALLOWED + meant)
    scheme, name, port = found[1].lower(), found[2], found[3]
    if scheme not in _DEFAULT_PORTS:
        return f"{scheme}://{name}{port}"
    try:
        name = f"[{ip_address(name[1:-1])}]" if name[:1] == "[" else name if name == "0.0.0.0" else canonical_host(name)  # noqa: S104
    except ValueError as error:
        raise ValueError(f"{_ORIGIN_ALLOWED}: {error}") from None
    return f"{scheme}://{name}{'' if port == _DEFAULT_PORTS[scheme] else port}"


CorsOrigin = Annotated[str, AfterValidator(_cors_origin)]
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
