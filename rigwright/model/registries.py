"""Registries of container images that ask who pulls."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from pydantic import Field

from rigwright.model import api_keys
from rigwright.problems import InventoryModel
from rigwright.supply import image_manifest


class RegistryEntry(InventoryModel):
    """How one registry is entered."""

    login_file: str = Field(
        min_length=1,
        description="A file on your machine, relative to the inventory, with `USER:PASSWORD` in base64 on its only "
        "line, like `auth` in docker's config.json. Never sent over plain http.",
    )


def load_login(path: str) -> str:
    """`USER:PASSWORD` in base64, out of an operator's file.

    Raises:
        ValueError: the file cannot be read, or holds something else; the text never repeats what it holds.
    """
    found = api_keys.load_api_key(path, "login")
    try:
        user, colon, password = base64.b64decode(found, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""
    if not (user and colon and password) or not (user + password).isprintable():
        raise ValueError("contains no login: must be one line with USER:PASSWORD in base64")
    return found


def refuse_logins(
    declared: Mapping[str, RegistryEntry],
    mirrors: Mapping[str, tuple[str, ...]],
    beside: Callable[[str], str],
    refuse: Callable[[str, str], None],
) -> dict[str, str]:
    """Refuse logins that cannot be read, or that would be readable on their way; the files of all, by registry.

    Args:
        declared: The inventory's `registries`.
        mirrors: Its `mirrors`.
        beside: Gives the path of a file that the inventory names.
        refuse: Is told the key, and what is wrong with it.
    """
    found = {}
    for name, one in declared.items():
        found[name] = beside(one.login_file)
        try:
            load_login(found[name])
        except ValueError as error:
            refuse(f"registries.{name}.login_file", f"{found[name]} {error}")
        places = image_manifest.repository_places(f"{name}:any", mirrors)
        if not places:
            refuse(f"registries.{name}", "its address is unknown: add it to mirrors")
        for base, _ in places:
            if not base.startswith("https://"):
                refuse(f"registries.{name}", f"{base} is plain http, which sends the login in the clear")
    return found
