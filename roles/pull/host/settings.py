"""Settings that a deploy puts on a box, and the record that the box keeps of its pulls."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime, timezone

from rigwright.pull.publication import SeenSerials
from rigwright.signing.public_keys import parse_public_key
from rigwright.signing.trusted_signers import Signer, TrustedSigners

TYPE_CHECKING = False  # typing takes a tenth of the time of a run
if TYPE_CHECKING:
    from typing import Any

MOST_FAILED = 100  # serials of generations that failed, the newest
RECORD = "state.json"


ATTEMPT = frozenset({"serial", "number", "base", "before", "digest", "proof", "record"})


def _is_seen(value: Any) -> bool:
    return len(value) == 3 and [type(one) for one in value] == [int, str, int]


FORMS: dict[str, tuple[type, Any]] = {
    "seen": (list, _is_seen),
    "failed": (list, lambda value: all(type(one) is int for one in value)),
    "serial": (int, lambda value: value > 0),
    "attempt": (dict, lambda value: value.keys() >= ATTEMPT),
}
"""Keys of the record that protect the box -> their forms."""


class RecordUnreadable(ValueError):
    """A record that is there: without its serials, older generations would count as new."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(f"{path} is not readable ({fault}): restore it, or remove it to let all serials count as new")


class PullSettings:
    """All that a deploy has declared of pulls."""

    def __init__(self, path: str, root: str = "") -> None:
        """Read the file.

        Args:
            path: The file.
            root: A folder that stands in for the host's root.
        """
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        self.root = root
        self.box: str = value["box"]
        self.url: str = value["url"]
        self.certificates: str = value["certificates"]
        self.config: str = root + value["config"]
        self.declaration: str = root + value["declaration"]
        self.self_check: str = root + value["self_check"]
        self.state: str = root + value["state"]
        self.fetched: str = root + value["fetched"]
        self.deploy_lock: str = root + value["deploy_lock"]
        self.jobs: str = root + value["jobs"]
        self.download_progress: str = root + value["download_progress"]
        self.started_from: str = root + value["started_from"]
        self.metrics: str = value["metrics"] and root + value["metrics"]
        self.signers = TrustedSigners(
            tuple(
                Signer(
                    one["name"],
                    parse_public_key(one["key"]),
                    tuple(one["signs"]),
                    _parse_moment(one["valid_after"]),
                    _parse_moment(one["valid_before"]),
                )
                for one in value["signers"]
            ),
            frozenset(value["revoked"]),
            value["inventory"],
        )
        trust = json.dumps([value["inventory"], value["signers"], value["revoked"]])
        self.trust = hashlib.sha256(trust.encode()).hexdigest()
        """Names the inventory and the trusted keys: with other ones, serials count from the beginning."""

    def read_machine(self) -> str:
        """SHA-256 of the machine id."""
        with open(f"{self.root}/etc/machine-id", encoding="ascii") as file:
            return hashlib.sha256(file.read(100).strip().encode()).hexdigest()


def _parse_moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc) if text else None


class PullRecord:
    """The record of pulls: serials, failed generations and the last outcome."""

    def __init__(self, settings: PullSettings) -> None:
        self.path = self.path_of(settings)
        self.value: dict[str, Any] = _load_record(self.path)
        if self.value.get("trust") != settings.trust:
            # as TUF does after a rotation of keys: a stolen key may have signed serials that no later one reaches
            self.value = {"trust": settings.trust, "attempt": self.value.get("attempt")}

    @staticmethod
    def path_of(settings: PullSettings) -> str:
        """The file."""
        return f"{settings.state}/{RECORD}"

    @property
    def serials(self) -> SeenSerials:
        """The serials that the box has verified."""
        return SeenSerials(*(self.value.get("seen") or (0, "", 0)))

    @serials.setter
    def serials(self, value: SeenSerials) -> None:
        self.value["seen"] = [value.timestamp, value.timestamp_sha256, value.generation]

    @property
    def serial(self) -> int:
        """The serial of the generation that the box has pulled and serves; 0 for none."""
        return int(self.value.get("serial") or 0)

    @property
    def failed(self) -> list[int]:
        """Serials of generations that did not pass their gate."""
        return list(self.value.get("failed") or [])

    def add_failed(self, serial: int) -> None:
        """Remember a generation that is not tried again."""
        self.value["failed"] = [*self.failed, serial][-MOST_FAILED:]

    def write(self) -> None:
        """Write the record, whole or not at all."""
        write_whole(self.path, json.dumps(self.value, sort_keys=True) + "\n")


def _load_record(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise RecordUnreadable(path, type(error).__name__) from None
    if not isinstance(found, dict) or not all(
        found.get(key) is None or (isinstance(found[key], form) and is_right(found[key]))
        for key, (form, is_right) in FORMS.items()
    ):
        raise RecordUnreadable(path, "another form")
    return found


def write_whole(path: str, text: str | bytes, mode: int = 0o644) -> None:
    """Write a file next to its place, and rename it: a kill leaves the old one or the new one."""
    data = text.encode() if isinstance(text, str) else text
    opened = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(data)
        os.fchmod(opened, mode)
        file.flush()
        os.fsync(opened)
    os.replace(f"{path}.new", path)


def read_bounded(path: str, most: int) -> bytes | None:
    """The bytes of a file, at most one more than allowed; None for no file."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        return file.read(most + 1)
