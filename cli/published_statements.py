"""A published folder as a publisher reads it: its web server and others may write there, so each file is verified."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

import click

from rigwright import local_files
from rigwright.local_files import write_atomically
from rigwright.plan.generation_publication import BaseGeneration, base_of_payload, parse_published
from rigwright.pull.publication import (
    MOST_METADATA,
    MOST_PAYLOAD,
    MOST_TIMESTAMP,
    PAYLOAD,
    TIMESTAMP_FILE,
    PublishedEntry,
    is_serial_ahead,
    metadata_file,
    parse_entries,
    payload_file,
    require_inventory,
)
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import verify_signature
from rigwright.signing.statements import CLOCK_SKEW, SignedKind, Statement, parse_statement
from rigwright.signing.strict_json import parse_strict_json
from rigwright.signing.trusted_signers import TrustedSigners, require_may_sign


def last_serials_path(inventory: Path) -> Path:
    """The file with the serials that were published last for an inventory: next to its lock, not in the folder."""
    return inventory.parent / "locks" / f"{inventory.stem}.published.json"


@dataclass(frozen=True)
class LastSerials:
    """Serials below which no publication goes."""

    timestamp: int = 0
    boxes: Mapping[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write them.

        Raises:
            click.ClickException: the file is not written.
        """
        table = {"timestamp": self.timestamp, "boxes": dict(self.boxes)}
        try:
            write_atomically(path, json.dumps(table, indent=1, sort_keys=True) + "\n", makes_folder=True)
        except OSError as error:
            raise click.ClickException(f"{path}: {error.strerror}") from None


def load_last_serials(path: Path, now: datetime) -> LastSerials:
    """The serials that were published last; none without the file.

    Args:
        path: The file.
        now: The present time.

    Raises:
        click.ClickException: it is malformed.
    """
    if not path.exists():
        return LastSerials()
    try:
        table = parse_strict_json(local_files.read_content(path, MOST_TIMESTAMP), "the file", MOST_TIMESTAMP)
        if not isinstance(table, dict) or set(table) != {"timestamp", "boxes"} or not isinstance(table["boxes"], dict):
            raise ValueError("has other keys than timestamp and boxes")
        serials = [table["timestamp"], *table["boxes"].values()]
        if not all(type(one) is int and one >= 0 and not is_serial_ahead(one, now) for one in serials):
            raise ValueError("has a serial that is no whole number, or ahead of the clock")
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}: restore it, or remove it") from None
    return LastSerials(table["timestamp"], table["boxes"])


@dataclass(frozen=True)
class PublishedStatement:
    """A verified statement of a box."""

    path: Path
    content: bytes
    statement: Statement

    @property
    def entry(self) -> PublishedEntry:
        """Its row of a timestamp."""
        sha256 = hashlib.sha256(self.content).hexdigest()
        return PublishedEntry(self.statement.serial, len(self.content), sha256)


class PublishedFiles:
    """The folder's files, of which those that no present signer has signed do not count."""

    def __init__(self, folder: Path, signers: TrustedSigners, now: datetime) -> None:
        self.folder, self.signers, self.now = folder, signers, now

    def read_timestamp(self) -> tuple[dict[str, PublishedEntry], int]:
        """The rows and the serial of the timestamp, which may have expired; none without the file.

        Raises:
            click.ClickException: it is refused.
        """
        path = self.folder / TIMESTAMP_FILE
        if not path.exists():
            return {}, 0
        try:
            statement = self._verify(local_files.read_content(path, MOST_TIMESTAMP), "timestamp")
            return parse_entries(statement), statement.serial
        except ValueError as error:
            text = f"{path} is not a timestamp of these signers: {error}; remove it to publish anew"
            raise click.ClickException(text) from None

    def list_statements(self, box: str) -> Iterator[PublishedStatement]:
        """The verified statements of a box, the newest first."""
        form = re.compile(rf"{re.escape(box)}\.([0-9]{{1,17}})\.json")
        folder = (self.folder / metadata_file(box, 0)).parent
        found = {int(match[1]): path for path in folder.glob("*.json") if (match := form.fullmatch(path.name))}
        for serial, path in sorted(found.items(), reverse=True):
            with suppress(ValueError):
                content = local_files.read_content(path, MOST_METADATA)
                statement = self._verify(content, "generation")
                if (statement.serial, statement.details.get("box")) == (serial, box):
                    yield PublishedStatement(path, content, statement)

    def _verify(self, content: bytes, kind: SignedKind) -> Statement:
        """Verify a file as a box does, but for its expiry.

        Raises:
            SignatureRefused: with its reason.
        """
        envelope, signer = verify_signature(content, kind, self.signers, self.now)
        statement = parse_statement(envelope, kind)
        require_may_sign(signer, kind, statement.signed)
        require_inventory(statement, self.signers, f"the {kind}")
        if statement.signed > self.now + CLOCK_SKEW or is_serial_ahead(statement.serial, self.now):
            raise SignatureRefused("statement_in_future", "its serial or its time is ahead of the clock")
        return statement

    def find_payload(self, statement: Statement) -> Path:
        """The payload of a statement.

        Raises:
            KeyError: the statement has none.
        """
        return self.folder / payload_file(dict(statement.subjects)[PAYLOAD])

    def load_bases(self, box: str, most: int) -> list[BaseGeneration]:
        """The generations that were published for a box, the newest first.

        Args:
            box: Its name.
            most: Their number.
        """
        found = []
        for one in islice(self.list_statements(box), most):
            # one whose payload was removed or replaced is no base
            with suppress(ValueError, KeyError):
                content = local_files.read_content(self.find_payload(one.statement), MOST_PAYLOAD)
                if hashlib.sha256(content).hexdigest() == dict(one.statement.subjects)[PAYLOAD]:
                    found.append(base_of_payload(parse_published(content)))
        return found

    def prune(self, boxes: Mapping[str, PublishedEntry], kept: int) -> None:
        """Remove statements that no box needs any more, and payloads that no statement has.

        Args:
            boxes: The rows of the timestamp.
            kept: Statements of each box that stay.
        """
        needed = set()
        for box in boxes:
            for at, one in enumerate(self.list_statements(box)):
                if at < kept:
                    with suppress(KeyError):
                        needed.add(self.find_payload(one.statement))
                else:
                    one.path.unlink(missing_ok=True)
        for path in (self.folder / payload_file("x")).parent.glob("*.json"):
            if path not in needed:
                path.unlink(missing_ok=True)
