"""What receivers of alerts are given that nobody else may read: tokens, and addresses that are secrets themselves."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from rigwright.addresses import HttpUrl
from rigwright.model import api_keys
from rigwright.model.monitoring.entry import MonitoringServer

# The Alertmanager that came to read an address from a file (its CHANGELOG.md, 0.26.0, "url_file" of webhooks).
SINCE = "0.26.0"
# Systems whose own is older, and which it is.
OLDER = {"debian-12": "0.25.0"}


def receiver_secret_files(server: MonitoringServer) -> dict[str, str]:
    """`RECEIVER.token` and `RECEIVER.url` -> the file of the operator's that has it, in order."""
    found: dict[str, str] = {}
    for name, one in sorted(server.receivers.items()):
        found |= {f"{name}.token": one.token_file} if one.token_file else {}
        found |= {f"{name}.url": one.url_file} if one.url_file else {}
    return found


def load_receiver_secret(name: str, path: str) -> str:
    """What is in a file.

    Args:
        name: `RECEIVER.token` or `RECEIVER.url`.
        path: The file.

    Raises:
        ValueError: it cannot be read, or holds no such thing; the text never repeats what it holds.
    """
    if name.endswith(".token"):
        return api_keys.load_api_key(path, "token")
    try:
        address: str = TypeAdapter(HttpUrl).validate_python(api_keys.load_key_line(path))
    except ValidationError:
        raise ValueError("holds no address: one line, an http(s) URL (port up to 65535)") from None
    return address
