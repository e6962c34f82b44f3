"""API keys that the operator keeps in files of their own."""

from __future__ import annotations

import hashlib
import string
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from rigwright.model.secret_sources import CommandSource, SecretCommand, SecretSource, read_secret

# A key goes into an HTTP header; shorter ones can be guessed.
MINIMUM = 16
MAXIMUM = 4096
ALLOWED = frozenset(string.ascii_letters + string.digits + "._~+/=-")


def load_api_key(source: SecretSource, what: str = "key") -> str:
    """The key of a file or a command: its only line.

    Args:
        source: The file or command.
        what: Its name in messages.

    Raises:
        ValueError: the source cannot be read, or has no key; the text never repeats its content.
    """
    key = load_key_line(source)
    if not MINIMUM <= len(key) <= MAXIMUM or not ALLOWED.issuperset(key):
        raise ValueError(f"contains no {what}: must be one line of at least {MINIMUM} letters, digits and ._~+/=-")
    return key


def load_key_line(source: SecretSource) -> str:
    """The text of a file or a command, without the end of its last line.

    Raises:
        ValueError: it cannot be read, is no text, or is longer than a key may be.
    """
    try:
        return read_secret(source, MAXIMUM + 1).decode().replace("\r\n", "\n").rstrip("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot be read: {error}") from None


@lru_cache(maxsize=256)
def key_fingerprint(key: str, instance: str) -> str:
    """A name for a key that tells it from others, 12 hexadecimal digits.

    It stands in unit files that anybody can read: trying keys against it costs 16 MiB and some 50 ms each
    (scrypt, RFC 7914).
    """
    return hashlib.scrypt(key.encode(), salt=f"rigwright {instance}".encode(), n=2**14, r=8, p=1, dklen=6).hex()


def resolve_inventory_path(folder: Path, path: str) -> str:
    """A path from the inventory's folder; a `~name` of an unknown user is left for the reader to complain about."""
    with suppress(RuntimeError):
        return str(folder / Path(path).expanduser())
    return path


def resolve_secret(folder: Path, entry: str | SecretCommand) -> SecretSource:
    """The source of a declared secret, from the inventory's folder."""
    if isinstance(entry, SecretCommand):
        return CommandSource(entry.command, str(folder.absolute()))
    return resolve_inventory_path(folder, entry)
