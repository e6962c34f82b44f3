"""Signed statements: in-toto statements (v1) about files by SHA-256, each with its kind, serial number and expiry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from rigwright.signing.dsse import IN_TOTO, Envelope
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.strict_json import LARGEST_INTEGER, parse_strict_json, render_canonical_json
from rigwright.signing.timestamps import parse_time, render_time

SignedKind = Literal["lock", "bundle", "verdict"]
KINDS: tuple[SignedKind, ...] = ("lock", "bundle", "verdict")
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPES: Mapping[SignedKind, str] = {kind: f"urn:rigwright:{kind}:v1" for kind in KINDS}
CLOCK_SKEW = timedelta(minutes=5)
"""The time by which the signer's clock may be ahead."""
MOST_SUBJECTS = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/+@-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMON = ("kind", "serial", "signed", "expires")


def signature_namespace(kind: SignedKind) -> str:
    """The namespace of signatures of a kind: a signature of one kind does not count for another."""
    return f"{kind}@rigwright"


@dataclass(frozen=True)
class Statement:
    """A statement about files."""

    kind: SignedKind
    subjects: tuple[tuple[str, str], ...]
    """Name and SHA-256 of each subject."""
    serial: int
    """Increases with each signature; a box refuses a serial below the last one that it accepted."""
    signed: datetime
    expires: datetime
    details: Mapping[str, object] = field(default_factory=dict)
    """Further keys of the predicate."""

    def render(self) -> bytes:
        """The payload of its envelope: canonical JSON.

        Raises:
            ValueError: a detail has the name of a common key, or is no plain value.
        """
        if clash := sorted(set(self.details) & {*_COMMON}):
            raise ValueError(f"the details have the common key {clash[0]}")
        predicate = {
            "kind": self.kind,
            "serial": self.serial,
            "signed": render_time(self.signed),
            "expires": render_time(self.expires),
            **self.details,
        }
        return render_canonical_json(
            {
                "_type": STATEMENT_TYPE,
                "subject": [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in self.subjects],
                "predicateType": PREDICATE_TYPES[self.kind],
                "predicate": predicate,
            }
        )


def parse_statement(envelope: Envelope, kind: SignedKind) -> Statement:
    """Parse the statement in an envelope. Only `verify_envelope` makes it trustworthy.

    Args:
        envelope: The envelope.
        kind: The expected kind.

    Raises:
        SignatureRefused: malformed, or of another kind.
    """
    if envelope.payload_type != IN_TOTO:
        raise SignatureRefused("wrong_kind", f"the payload has the type {envelope.payload_type}, and not {IN_TOTO}")
    table = parse_strict_json(envelope.payload, "the statement")
    if not isinstance(table, dict) or set(table) != {"_type", "subject", "predicateType", "predicate"}:
        raise SignatureRefused("malformed", "the statement has other keys than an in-toto statement")
    if table["_type"] != STATEMENT_TYPE:
        raise SignatureRefused("malformed", f"_type of the statement is not {STATEMENT_TYPE}")
    predicate = table["predicate"]
    if not isinstance(predicate, dict) or not {*_COMMON} <= set(predicate):
        raise SignatureRefused("malformed", f"the predicate lacks one of {', '.join(_COMMON)}")
    if predicate["kind"] != kind or table["predicateType"] != PREDICATE_TYPES[kind]:
        raise SignatureRefused("wrong_kind", f"the statement is not about a {kind}")
    serial = predicate["serial"]
    if type(serial) is not int or not 1 <= serial <= LARGEST_INTEGER:
        raise SignatureRefused("malformed", "serial of the statement is not a whole number from 1")
    statement = Statement(
        kind,
        _parse_subjects(table["subject"]),
        serial,
        parse_time(predicate["signed"], "signed of the statement"),
        parse_time(predicate["expires"], "expires of the statement"),
        {name: value for name, value in predicate.items() if name not in _COMMON},
    )
    if statement.expires <= statement.signed:
        raise SignatureRefused("malformed", "the statement expires before it is signed")
    if statement.render() != envelope.payload:
        raise SignatureRefused("malformed", "the statement is not canonical JSON")
    return statement


def _parse_subjects(rows: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_SUBJECTS:
        raise SignatureRefused("malformed", f"subject of the statement is not a list of 1 to {MOST_SUBJECTS}")
    subjects = []
    for row in rows:
        digests = row.get("digest") if isinstance(row, dict) and set(row) == {"name", "digest"} else None
        sha256 = digests.get("sha256") if isinstance(digests, dict) and set(digests) == {"sha256"} else None
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise SignatureRefused("malformed", "a subject of the statement has no SHA-256")
        if not isinstance(row["name"], str) or not _NAME.fullmatch(row["name"]):
            raise SignatureRefused("malformed", "a subject of the statement has a malformed name")
        subjects.append((row["name"], sha256))
    if len({name for name, _ in subjects}) < len(subjects):
        raise SignatureRefused("malformed", "a subject of the statement is there twice")
    return tuple(subjects)


def require_current(statement: Statement, now: datetime) -> None:
    """Refuse a statement before its time and after its expiry.

    Raises:
        SignatureRefused: statement_in_future or statement_expired.
    """
    if statement.signed > now + CLOCK_SKEW:
        text = f"it is signed at {render_time(statement.signed)}, and now is {render_time(now)}: compare the clocks"
        raise SignatureRefused("statement_in_future", text)
    if statement.expires <= now:
        raise SignatureRefused("statement_expired", f"it expired at {render_time(statement.expires)}: sign it again")


def require_subject(statement: Statement, name: str, sha256: str) -> None:
    """Refuse a statement about other bytes.

    Raises:
        SignatureRefused: other_subject.
    """
    known = dict(statement.subjects)
    if name not in known:
        raise SignatureRefused("other_subject", f"it is about {', '.join([*known][:3])}, and not about {name}")
    if known[name] != sha256:
        text = f"it is about {name} with SHA-256 {known[name]}, and the present one has {sha256}"
        raise SignatureRefused("other_subject", text)
