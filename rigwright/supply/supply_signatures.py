"""Signatures of locks and bundles: their places, their verification, and the serials that a host has accepted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rigwright import local_files
from rigwright.problems import Problem, format_value
from rigwright.signing.signed_kinds import SignedKind
from rigwright.supply.bundle import INDEX, Bundle
from rigwright.supply.lock import Lock

if TYPE_CHECKING:
    from rigwright.signing.statements import Statement
    from rigwright.signing.trusted_signers import TrustedSigners

LOCK_SUBJECT, BUNDLE_SUBJECT = "lock", INDEX
INVENTORY = "inventory"
EXPIRES_SOON = 14 * 86_400  # seconds
LARGEST_SIGNATURE = 1 << 20  # bytes of a signed lock or bundle; one has some 1,000


def lock_signature_path(inventory: Path) -> Path:
    """The signature of an inventory's lock: of all rows, Rigwright's own among them."""
    return inventory.parent / "locks" / f"{inventory.stem}.lock.sig"


def bundle_signature_path(folder: Path) -> Path:
    """The signature of a bundle, inside of it."""
    return folder / f"{INDEX}.sig"


@dataclass(frozen=True)
class AcceptedSerial:
    """The serial of a signed lock or bundle, and what it is about."""

    serial: int
    sha256: str


@dataclass(frozen=True)
class SupplySignature:
    """A valid signature of a lock or bundle."""

    kind: SignedKind
    serial: int
    sha256: str
    signer: str
    expires: datetime


def verify_supply(
    inventory: Path, lock: Lock, bundle: Bundle | None, signers: TrustedSigners, now: datetime | None = None
) -> tuple[tuple[SupplySignature, ...], tuple[Problem, ...]]:
    """Verify the signatures of a rig's lock and bundle; returns the valid ones, and the problems of the others.

    Args:
        inventory: The inventory.
        lock: Its lock.
        bundle: The rig's bundle.
        signers: The keys that may sign.
        now: The present time.
    """
    # few inventories have signers
    from rigwright.signing.refusals import SignatureRefused
    from rigwright.signing.ssh_signatures import verify_envelope
    from rigwright.signing.statements import require_subject

    found: list[tuple[SignedKind, Path, str, str, str]] = [
        ("lock", lock_signature_path(inventory), LOCK_SUBJECT, lock.digest, str(inventory))
    ]
    if bundle:
        place = bundle_signature_path(bundle.folder)
        found.append(("bundle", place, BUNDLE_SUBJECT, bundle.index_sha256, str(bundle.folder)))
    valid, problems = list[SupplySignature](), list[Problem]()
    for kind, path, subject, sha256, target in found:
        try:
            verified = verify_envelope(_read_signature(path, target), kind, signers, now)
            _require_inventory(verified.statement, name_inventory(inventory, signers))
            require_subject(verified.statement, subject, sha256)
            if LOCK_SUBJECT in dict(verified.statement.subjects):  # a bundle that is signed for one lock
                require_subject(verified.statement, LOCK_SUBJECT, lock.digest)
        except SignatureRefused as error:
            problems.append(Problem(str(path), "", f"the {kind} is refused: {error}"))
        else:
            one = verified.statement
            valid.append(SupplySignature(kind, one.serial, sha256, verified.signer.principal, one.expires))
    return tuple(valid), tuple(problems)


def name_inventory(inventory: Path, signers: TrustedSigners) -> Mapping[str, str]:
    """The key of a statement by which it counts for one inventory."""
    return {INVENTORY: signers.signed_as or inventory.stem.encode("utf-8", "replace").decode()}


def _require_inventory(statement: Statement, named: Mapping[str, str]) -> None:
    """Refuse a statement for another inventory, whose owner may renew the signature of an older lock."""
    from rigwright.signing.refusals import SignatureRefused

    if unknown := sorted({*statement.details} - {INVENTORY}):
        raise SignatureRefused("malformed", f"its statement has the unknown key {unknown[0]}")
    # `sign BUNDLE` signs a folder for all inventories
    is_shared = statement.kind == "bundle" and LOCK_SUBJECT not in dict(statement.subjects)
    if statement.details != named and not (is_shared and not statement.details):
        found = format_value(statement.details[INVENTORY]) if statement.details else "none"
        own = format_value(named[INVENTORY])
        text = f"its statement is for the inventory {found}, and not for {own}: sign it again"
        raise SignatureRefused("other_subject", text)


def _read_signature(path: Path, target: str) -> bytes:
    from rigwright.signing.refusals import SignatureRefused

    if not os.path.lexists(path):
        text = f"its signature is missing: `rigwright sign {shlex.quote(target)}` writes it"
        raise SignatureRefused("missing", text)
    try:
        return local_files.read_content(path, LARGEST_SIGNATURE)
    except ValueError as error:
        raise SignatureRefused("malformed", f"its signature {error}") from None


def find_older_signatures(
    signatures: Iterable[SupplySignature], accepted: Mapping[str, AcceptedSerial], consent: int = 0
) -> list[str]:
    """Refusals of locks and bundles that are older than those which a host has accepted.

    Args:
        signatures: The valid ones.
        accepted: Kind -> the one that the host has accepted last.
        consent: The serial that the operator accepts although it is older, of a lock and the bundle that was signed
            together with it; 0 for none. It covers no other content with the serial that the host has accepted.
    """
    found = []
    for one in signatures:
        last = accepted.get(one.kind)
        if not last or one.serial > last.serial:
            continue
        if one.serial < last.serial and one.serial != consent:
            found.append(
                f"the {one.kind} is signed with serial {one.serial}, and this host has accepted {last.serial}: an "
                f"older one may lack fixes; `deploy --accept-older {one.serial}` returns to it"
            )
        elif one.serial == last.serial and one.sha256 != last.sha256:
            found.append(
                f"the {one.kind} is another than the one that this host has accepted with the same serial "
                f"{one.serial}: sign it again, which gives it another serial"
            )
    return found


def describe_expiring_signatures(signatures: Iterable[SupplySignature], now: float) -> list[str]:
    """Warnings of signatures that expire soon.

    Args:
        signatures: The valid ones.
        now: Seconds since the epoch.
    """
    return [
        f"the signature of the {one.kind} expires on {one.expires.date().isoformat()}: sign it again before"
        for one in signatures
        if one.expires.timestamp() - now < EXPIRES_SOON
    ]


def render_accepted_serials(signatures: Iterable[SupplySignature], accepted: Mapping[str, AcceptedSerial]) -> str:
    """The file on a host with the serials that it has accepted: those of this run, and of kinds that it lacks."""
    rows = dict(accepted)
    for one in signatures:
        rows[one.kind] = AcceptedSerial(one.serial, one.sha256)
    return "".join(f"{kind} {rows[kind].serial} {rows[kind].sha256}\n" for kind in sorted(rows))


def describe_statement(statement: Statement) -> str:
    """`serial 20261129131014, expires 2027-05-28, lock SHA-256 1f...`, with each digest that is signed."""
    digests = ", ".join(f"{name} SHA-256 {sha256}" for name, sha256 in statement.subjects)
    return f"serial {statement.serial}, expires {statement.expires.date().isoformat()}, {digests}"
