"""Origins of addresses, and which of them a token is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

HUB_ORIGIN = "https://huggingface.co"
"""Where the hub itself is (huggingface_hub.constants)."""
_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, without the port that goes without saying."""
    parts = urlsplit(url)
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{(parts.hostname or '').lower()}{port}"


def token_origin(given: str | None) -> str:
    """The origin that a rig's token of the hub is for, as its inventory says it."""
    return origin_of(given) if given else HUB_ORIGIN


def refuse_token(
    token_file: str | None, given: str | None, hubs: Mapping[str, tuple[str, ...]], refuse: Callable[[str, str], None]
) -> None:
    """Refuse a token that would be readable on its way, or would be sent nowhere.

    Args:
        token_file: The inventory's `hub_token_file`.
        given: Its `hub_token_origin`.
        hubs: Its `mirrors`.
        refuse: Called with the key and its problem.
    """
    if token_file is None:
        if given is not None:
            refuse("hub_token_origin", "a token is required: set hub_token_file to a file with it")
        return
    wanted = token_origin(given)
    if not wanted.startswith("https://"):
        refuse("hub_token_origin", f"{wanted} is refused: over plain http the token is sent in the clear")
        return
    asked = [origin_of(base) for base in hubs.get("hub", ())] or [HUB_ORIGIN]
    if wanted in asked:
        return
    plain = [one for one in asked if one.partition("://")[2] == wanted.partition("://")[2]]
    why = f"{plain[0]} is plain http, which sends it in the clear" if plain else f"{', '.join(asked)} is used"
    key = "hub_token_file" if given is None else "hub_token_origin"
    refuse(key, f"the token is only sent to {wanted}, but {why}: set hub_token_origin to the hub that it is for")
