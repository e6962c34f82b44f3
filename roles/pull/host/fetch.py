"""The part of a pull that talks to the network. It has no rights: `run` verifies each of its files again."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from datetime import datetime, timezone

from rigwright.pull.publication import (
    MOST_METADATA,
    MOST_PAYLOAD,
    MOST_TIMESTAMP,
    TIMESTAMP_FILE,
    metadata_file,
    payload_file,
    verify_generation,
    verify_timestamp,
)
from rigwright.signing.refusals import SignatureRefused

from .settings import PullRecord, PullSettings, RecordUnreadable, read_bounded, write_whole
from .transfer import PublishedFolder, TransferFailed

TYPE_CHECKING = False  # as in settings.py
if TYPE_CHECKING:
    from rigwright.pull.publication import PublishedGeneration

REPORT, TIMESTAMP, STATEMENT, PAYLOAD, TAG = "report.json", "timestamp", "statement", "payload", "tag"


def fetch_published(settings: PullSettings, now: datetime) -> PublishedGeneration | None:
    """Fetch what is new, and stop at the first file that is refused; returns the box's statement, None for a known one.

    Args:
        settings: The box's.
        now: The present time.

    Raises:
        TransferFailed: a file does not come.
        SignatureRefused: a file is refused.
    """
    record, published = PullRecord(settings), PublishedFolder(settings.url, settings.certificates)
    timestamp, place = read_bounded(f"{settings.fetched}/{TIMESTAMP}", MOST_TIMESTAMP), settings.fetched
    tag = (read_bounded(f"{place}/{TAG}", 200) or b"").decode("ascii", "ignore") if timestamp else ""
    data, tag = published.fetch(TIMESTAMP_FILE, MOST_TIMESTAMP, tag if tag.isprintable() else "")
    if data is not None:
        with suppress(FileNotFoundError):
            # a kill between both files must not give an old timestamp a new tag
            write_whole(f"{place}/{TAG}", "")
        write_whole(f"{place}/{TIMESTAMP}", data)
        write_whole(f"{place}/{TAG}", tag.encode("ascii", "ignore"))
        timestamp = data
    _, entry = verify_timestamp(timestamp or b"", settings.box, settings.signers, record.serials, now)
    if entry.serial == record.serial or entry.serial in record.failed:
        return None
    if entry.size > MOST_METADATA:
        raise SignatureRefused("too_large", f"the statement of the box has more than {MOST_METADATA} bytes")
    statement = read_bounded(f"{place}/{STATEMENT}", entry.size)
    if statement is None or hashlib.sha256(statement).hexdigest() != entry.sha256:
        statement, _ = published.fetch(metadata_file(settings.box, entry.serial), entry.size)
        write_whole(f"{place}/{STATEMENT}", statement or b"")
    wanted = verify_generation(statement or b"", entry, settings.box, settings.read_machine(), settings.signers, now)
    payload = read_bounded(f"{place}/{PAYLOAD}", wanted.payload_size)
    if payload is None or hashlib.sha256(payload).hexdigest() != wanted.payload_sha256:
        payload, _ = published.fetch(payload_file(wanted.payload_sha256), min(wanted.payload_size, MOST_PAYLOAD))
        write_whole(f"{place}/{PAYLOAD}", payload or b"")
    return wanted


def write_report(settings: PullSettings, reason: str, text: str) -> None:
    """Tell root why nothing comes; both empty where all has come."""
    write_whole(f"{settings.fetched}/{REPORT}", json.dumps({"reason": reason, "text": text}))


def main(words: list[str]) -> int:
    """Fetch once; the report has the reason where a file is refused or does not come."""
    settings = PullSettings(words[0])
    reason = text = ""
    # a kill or an error leaves the report of no success
    write_report(settings, "unreachable", "the service that fetches did not end")
    try:
        fetch_published(settings, datetime.now(timezone.utc).replace(microsecond=0))
    except TransferFailed as error:
        reason, text = "unreachable", str(error)
    except SignatureRefused as error:
        reason, text = error.reason, str(error)
    except RecordUnreadable as error:
        reason, text = "record", str(error)
    write_report(settings, reason, text)
    return 0
