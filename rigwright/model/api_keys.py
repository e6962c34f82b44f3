"""API keys that the operator keeps in files of their own."""

from __future__ import annotations

import hashlib
import string
from contextlib import suppress
from pathlib import Path

from rigwright import local_files

# A key goes into an HTTP header; shorter ones can be guessed.
MINIMUM = 16
MAXIMUM = 4096
ALLOWED = frozenset(string.ascii_letters + string.digits + "._~+/=-")


def load_api_key(path: str, what: str = "key") -> str:
    """The key in a file: its only line.

    Args:
        path: The file.
        what: What it is called to the operator.

    Raises:
        ValueError: the file cannot be read, or holds no key; the text never repeats what it holds.
    """
    key = load_key_line(path)
    if not MINIMUM <= len(key) <= MAXIMUM or not ALLOWED.issuperset(key):
        raise ValueError(f"contains no {what}: must be one line of at least {MINIMUM} letters, digits and ._~+/=-")
    return key


def load_key_line(path: str) -> str:
    """A file's text, without the end of its last line.

    Raises:
        ValueError: it cannot be read, is no text, or is longer than a key may be.
    """
    try:
        return local_files.read_content(path, MAXIMUM + 1).decode().replace("\r\n", "\n").rstrip("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot be read: {error}") from None


def key_fingerprint(key: str, instance: str) -> str:
    """A name for a key that tells it from others, 12 hexadecimal digits.

    It stands in unit files that anybody can read: trying keys against it costs 16 MiB and some 50 ms each
    (scrypt, RFC 7914).
    """
    return hashlib.scrypt(key.encode(), salt=f"rigwright {instance}".encode(), n=2**14, r=8, p=1, dklen=6).hex()


def resolve_inventory_path(folder: Path, path: str) -> str:
    """A path from the inventory's folder; a `~name` of nobody is left for the reader to complain about."""
    with suppress(RuntimeError):
        return str(folder / Path(path).expanduser())
    return path
