"""Origins of downloads that an inventory allows: addresses, registries of images and their logins."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from pydantic import Field

from rigwright.model import api_keys
from rigwright.model.secret_sources import SecretCommand, SecretEntry, SecretSource, validate_secret
from rigwright.problems import InventoryModel
from rigwright.supply import image_manifest

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
    token_file: str | SecretCommand | None,
    given: str | None,
    hubs: Mapping[str, tuple[str, ...]],
    refuse: Callable[[str, str], None],
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


class RegistryEntry(InventoryModel):
    """How one registry is entered."""

    login_file: SecretEntry = Field(
        description="A file on your machine, relative to the inventory, with `USER:PASSWORD` in base64 on its only "
        "line, like `auth` in docker's config.json, or a command that prints it. Never sent over plain http.",
    )


LOGIN_RULE = "one line with USER:PASSWORD in base64, such as `printf %s USER:PASSWORD | base64` prints"


def load_login(source: SecretSource) -> str:
    """`USER:PASSWORD` in base64, from a file or a command.

    Raises:
        ValueError: the source cannot be read, or has something else; the text never repeats what it holds.
    """
    try:
        found = api_keys.load_key_line(source)
    except ValueError as error:
        raise ValueError(f"{error}; it must have {LOGIN_RULE}") from None
    try:
        user, colon, password = base64.b64decode(found, validate=True).decode().partition(":")
    except ValueError:  # of base64, of UTF-8, or of what is not ASCII
        user = colon = password = ""
    if not (user and colon and password) or not (user + password).isprintable() or len(found) > api_keys.MAXIMUM:
        raise ValueError(f"contains no login: must be {LOGIN_RULE}")
    return found


def refuse_logins(
    declared: Mapping[str, RegistryEntry],
    mirrors: Mapping[str, tuple[str, ...]],
    beside: Callable[[str | SecretCommand], SecretSource],
    refuse: Callable[[str, str], None],
) -> dict[str, SecretSource]:
    """Refuse logins that cannot be read, or that would be readable on their way; the sources of all, by registry.

    Args:
        declared: The inventory's `registries`.
        mirrors: Its `mirrors`.
        beside: Resolves the source of a secret from the inventory's folder.
        refuse: Gets the key, and its problem.
    """
    found = {}
    for name, one in declared.items():
        found[name] = beside(one.login_file)
        try:
            validate_secret(found[name], load_login)
        except ValueError as error:
            refuse(f"registries.{name}.login_file", f"{found[name]} {error}")
        places = image_manifest.repository_places(f"{name}:any", mirrors)
        if not places:
            refuse(f"registries.{name}", "its address is unknown: add it to mirrors")
        for base, _ in places:
            if not base.startswith("https://"):
                refuse(f"registries.{name}", f"{base} is plain http, which sends the login in the clear")
    return found
