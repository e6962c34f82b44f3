"""Signed metadata of published generations: a timestamp for all boxes, a statement and a payload for each.

The publisher writes them, and a box verifies them with this file: it needs the standard library and ssh-keygen only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from rigwright.host.generation_layout import digest_generation
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import verify_envelope
from rigwright.signing.statements import Statement
from rigwright.signing.strict_json import parse_strict_json, render_canonical_json
from rigwright.signing.trusted_signers import TrustedSigners

TIMESTAMP_FILE = "timestamp.json"
MOST_TIMESTAMP = 1 << 20  # bytes
MOST_METADATA = 16 << 10
MOST_PAYLOAD = 8 << 20
MOST_AHEAD = timedelta(days=1)
"""The time by which a serial, which is the clock of a signature, may be ahead: no signature can exhaust the serials."""
SERIAL_FORM = "%Y%m%d%H%M%S"
INVENTORY = "inventory"
GENERATION, PAYLOAD = "generation", "payload"
"""Subjects of a box's statement."""
_BOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._+@-]{0,199}){0,5}")
_TARGET = re.compile(r"/[^\x00-\x1f\x7f]{1,1000}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_TEXT = re.compile(".*", re.DOTALL)
_JOB = re.compile(r"rw-job-[a-z0-9-]{1,60}")


def metadata_file(box: str, serial: int) -> str:
    """The path of a box's statement in the published folder."""
    return f"boxes/{box}.{serial}.json"


def payload_file(sha256: str) -> str:
    """The path of a payload there."""
    return f"payloads/{sha256}.json"


@dataclass(frozen=True)
class PublishedEntry:
    """The row of one box in the timestamp."""

    serial: int
    size: int
    sha256: str


@dataclass(frozen=True)
class SeenSerials:
    """The serials that a box has verified; it refuses earlier ones."""

    timestamp: int = 0
    timestamp_sha256: str = ""
    generation: int = 0


@dataclass(frozen=True)
class PublishedGeneration:
    """A box's verified statement."""

    serial: int
    digest: str
    payload_sha256: str
    payload_size: int
    declaration: str
    """SHA-256 of the declaration of the box's check of itself: it covers all that a deploy installs beside."""
    signer: str


def render_timestamp_details(inventory: str, entries: Mapping[str, PublishedEntry]) -> dict[str, object]:
    """The details of the timestamp's statement; its subjects have the digests.

    Args:
        inventory: The name of the inventory: a signer may publish several.
        entries: Box -> its row.
    """
    return {INVENTORY: inventory, "boxes": {box: [one.serial, one.size] for box, one in entries.items()}}


def render_generation_details(
    inventory: str, box: str, machine: str, declaration: str, lock: str, size: int
) -> dict[str, object]:
    """The details of a box's statement.

    Args:
        inventory: As in `render_timestamp_details`.
        box: Its name.
        machine: SHA-256 of its machine id.
        declaration: As in `PublishedGeneration`.
        lock: The digest of lock and bundle.
        size: Bytes of the payload.
    """
    return {
        **{INVENTORY: inventory, "box": box, "machine": machine},
        **{"declaration": declaration, "lock": lock, "payload_size": size},
    }


def parse_entries(statement: Statement) -> dict[str, PublishedEntry]:
    """Box -> its row in a timestamp.

    Raises:
        SignatureRefused: malformed.
    """
    rows = statement.details.get("boxes")
    digests = dict(statement.subjects)
    if set(statement.details) != {INVENTORY, "boxes"} or not isinstance(rows, dict) or set(rows) != set(digests):
        raise SignatureRefused(
            "malformed", "the timestamp does not have the same boxes in its subjects and its details"
        )
    entries = {}
    for box, row in rows.items():
        if not _BOX.fullmatch(box) or not isinstance(row, list) or len(row) != 2 or not all(map(_is_positive, row)):
            raise SignatureRefused("malformed", "a box of the timestamp is malformed")
        entries[box] = PublishedEntry(row[0], row[1], digests[box])
    return entries


def verify_timestamp(
    data: bytes, box: str, signers: TrustedSigners, seen: SeenSerials, now: datetime
) -> tuple[SeenSerials, PublishedEntry]:
    """Verify the timestamp; returns the serials that the box has now seen, and its row.

    The serial of the generation stays as it is until its statement is verified, too.

    Args:
        data: The file.
        box: The box's name.
        signers: The keys that may sign, and the name of the inventory that they sign for.
        seen: The serials that the box has seen before.
        now: The present time.

    Raises:
        SignatureRefused: with its reason.
    """
    if len(data) > MOST_TIMESTAMP:
        raise SignatureRefused("too_large", f"the timestamp has more than {MOST_TIMESTAMP} bytes")
    statement = verify_envelope(data, "timestamp", signers, now).statement
    require_inventory(statement, signers, "the timestamp")
    # of the statement: a signature has several valid spellings
    digest = hashlib.sha256(statement.render()).hexdigest()
    _require_newer(statement.serial, seen.timestamp, "the timestamp", now)
    if statement.serial == seen.timestamp and digest != seen.timestamp_sha256:
        text = f"another timestamp with the serial {statement.serial} was accepted before"
        raise SignatureRefused("other_subject", text)
    entry = parse_entries(statement).get(box)
    if entry is None:
        raise SignatureRefused("other_box", f"the timestamp has no generation of {box}")
    _require_newer(entry.serial, seen.generation, "the generation in the timestamp", now)
    return SeenSerials(statement.serial, digest, seen.generation), entry


def verify_generation(
    data: bytes, entry: PublishedEntry, box: str, machine: str, signers: TrustedSigners, now: datetime
) -> PublishedGeneration:
    """Verify a box's statement.

    Args:
        data: The file.
        entry: The row of the box in the verified timestamp.
        box: Its name.
        machine: SHA-256 of its machine id.
        signers: The keys that may sign.
        now: The present time.

    Raises:
        SignatureRefused: with its reason.
    """
    if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise SignatureRefused("other_subject", "the statement of the box is another one than the timestamp has")
    verified = verify_envelope(data, "generation", signers, now)
    statement, details, subjects = verified.statement, verified.statement.details, dict(verified.statement.subjects)
    if statement.serial != entry.serial:
        text = f"the statement has the serial {statement.serial}, and the timestamp has {entry.serial}"
        raise SignatureRefused("other_subject", text)
    keys = {INVENTORY, "box", "machine", "declaration", "lock", "payload_size"}
    if set(details) != keys or set(subjects) != {GENERATION, PAYLOAD}:
        raise SignatureRefused("malformed", "the statement of the box has other keys than those of a generation")
    size, declaration = details["payload_size"], details["declaration"]
    if not _is_positive(size) or not isinstance(declaration, str) or not _SHA256.fullmatch(declaration):
        raise SignatureRefused("malformed", "the statement of the box is malformed")
    require_inventory(statement, signers, "the generation")
    if (details["box"], details["machine"]) != (box, machine):
        same = details["box"] == box
        text = f"the generation is for {'another machine with the name' if same else 'another box than'} {box}"
        raise SignatureRefused("other_box", text)
    if not isinstance(size, int) or size > MOST_PAYLOAD:
        raise SignatureRefused("too_large", f"the payload has more than {MOST_PAYLOAD} bytes")
    return PublishedGeneration(
        *(statement.serial, subjects[GENERATION], subjects[PAYLOAD], size, declaration, verified.signer.principal)
    )


def require_inventory(statement: Statement, signers: TrustedSigners, name: str) -> None:
    """Refuse a statement for another inventory of the same signers.

    Raises:
        SignatureRefused: other_subject.
    """
    if statement.details.get(INVENTORY) != signers.signed_as:
        found = statement.details.get(INVENTORY)
        text = f"{name} is for the inventory {str(found)[:60]}, and not for {signers.signed_as}"
        raise SignatureRefused("other_subject", text)


def _require_newer(serial: int, seen: int, name: str, now: datetime) -> None:
    if serial < seen:
        text = f"{name} has the serial {serial}, and this box has seen {seen}: an older one may lack fixes"
        raise SignatureRefused("older_serial", text)
    if is_serial_ahead(serial, now):
        raise SignatureRefused("statement_in_future", f"{name} has the serial {serial}, which is ahead of the clock")


def is_serial_ahead(serial: int, now: datetime) -> bool:
    """Whether a serial is later than the clock of its signer can be."""
    return serial > int((now + MOST_AHEAD).strftime(SERIAL_FORM))


def _is_positive(value: object) -> bool:
    return type(value) is int and value > 0


@dataclass(frozen=True)
class RootJob:
    """A job of root's, as a deploy has it: it runs unless its test succeeds."""

    unit: str
    script: str
    test: str


@dataclass(frozen=True)
class PullPayload:
    """All that an activation needs."""

    files: Mapping[str, str]
    links: Mapping[str, str]
    activate: Mapping[str, str]
    """Digest of a generation that the box may serve -> the script that activates this one; its argument is the number
    of its folder."""
    restore: Mapping[str, str]
    """The same -> the script that activates that generation again; its argument is the number of that."""
    paths: tuple[str, ...] = ()
    """Paths that a deploy has brought: the box needs all of them."""
    users: tuple[str, ...] = ()
    """System users, likewise."""
    fetch: RootJob | None = None
    """Fetches weights; None where those need a deploy."""
    record: RootJob | None = None
    """Records what is installed, after the activation."""

    @property
    def digest(self) -> str:
        """The generation's."""
        return digest_generation(self.files, self.links)

    def render(self) -> bytes:
        """The file: canonical JSON."""
        jobs = {"fetch": self.fetch, "record": self.record}
        table = {
            **{"files": dict(self.files), "links": dict(self.links)},
            **{"activate": dict(self.activate), "restore": dict(self.restore)},
            **{"paths": [*self.paths], "users": [*self.users]},
            **{name: [job.unit, job.script, job.test] if job else [] for name, job in jobs.items()},
        }
        return render_canonical_json(table)


def parse_payload(data: bytes, published: PublishedGeneration) -> PullPayload:
    """Parse and verify a payload.

    Args:
        data: The file.
        published: The box's verified statement.

    Raises:
        SignatureRefused: it is another one, or malformed.
    """
    if len(data) != published.payload_size or hashlib.sha256(data).hexdigest() != published.payload_sha256:
        raise SignatureRefused("other_subject", "the payload is another one than the statement of the box has")
    table = parse_strict_json(data, "the payload", MOST_PAYLOAD)
    if not isinstance(table, dict) or set(table) != {
        *("files", "links", "activate", "restore", "paths", "users", "fetch", "record")
    }:
        raise SignatureRefused("malformed", "the payload has other keys than those of a generation")
    payload = PullPayload(
        _parse_texts(table["files"], "files", _PATH),
        _parse_texts(table["links"], "links", _PATH, _TARGET),
        _parse_texts(table["activate"], "activate", _SHA256),
        _parse_texts(table["restore"], "restore", _SHA256),
        _parse_list(table["paths"], "paths", _TARGET),
        _parse_list(table["users"], "users", _USER),
        _parse_job(table["fetch"], "fetch"),
        _parse_job(table["record"], "record"),
    )
    names = {*payload.files, *payload.links}
    folders = {path[:at] for path in names for at, letter in enumerate(path) if letter == "/"}
    if names & folders or payload.files.keys() & payload.links.keys():
        raise SignatureRefused("malformed", "the payload has a file in the place of a folder")
    if payload.digest != published.digest:
        raise SignatureRefused("other_subject", "the payload has another generation than the statement of the box")
    return payload


def _parse_job(value: object, name: str) -> RootJob | None:
    words = _parse_list(value, name, _TEXT)
    if not words:
        return None
    if len(words) != 3 or not _JOB.fullmatch(words[0]):
        raise SignatureRefused("malformed", f"{name} of the payload is malformed")
    return RootJob(*words)


def _parse_texts(
    value: object, name: str, keys: re.Pattern[str], values: re.Pattern[str] | None = None
) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SignatureRefused("malformed", f"{name} of the payload is malformed")
    for key, text in value.items():
        if not keys.fullmatch(key) or not isinstance(text, str) or (values and not values.fullmatch(text)):
            raise SignatureRefused("malformed", f"{name} of the payload is malformed")
    return value


def _parse_list(value: object, name: str, form: re.Pattern[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and form.fullmatch(one) for one in value):
        raise SignatureRefused("malformed", f"{name} of the payload is malformed")
    return tuple(value)
