"""Certificates between boxes: a record of those that were issued, and a list of those that are revoked.

Both lie beside the authority, on the operator's machine. nginx refuses a certificate in the list.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509

from rigwright import local_files
from rigwright.gateway.certificate_authority import Authority, BrokenAuthority
from rigwright.gateway.certificates import CertificatePair, certificate_names
from rigwright.model.fleet_schema import front_certificate_name, lender_certificate_name

RECORD, REVOCATIONS = "issued.txt", "revoked.crl"
MAXIMUM = 16 * 1024 * 1024  # bytes of a file
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_LINE = re.compile(r"([0-9a-f]{1,40}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) ([a-z0-9.-]{1,64})")


def record_issued(folder: Path, pair: CertificatePair) -> None:
    """Record a certificate before a box gets it.

    Raises:
        OSError: it cannot be written.
    """
    issued = x509.load_pem_x509_certificate(pair.certificates.encode())
    (name,) = certificate_names(issued)
    line = f"{issued.serial_number:x} {issued.not_valid_after_utc:{_TIME}} {name}\n"
    # one write: runs beside each other mix no lines
    file = os.open(folder / RECORD, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)


def load_revocations(folder: Path, authority: Authority, now: datetime) -> str:
    """The list in PEM; an empty one, which is not written, where there is none.

    Raises:
        BrokenAuthority: the file is not a list of this authority.
    """
    if not (folder / REVOCATIONS).exists():
        return authority.sign_revocations({}, now)
    return _parse_revocations(folder, authority)[0]


def ensure_revocations(folder: Path, authority: Authority, now: datetime) -> str:
    """The same, and the empty one is written.

    Raises:
        BrokenAuthority: as `load_revocations`.
        OSError: it cannot be written.
    """
    if not (folder / REVOCATIONS).exists():
        local_files.write_atomically(folder / REVOCATIONS, authority.sign_revocations({}, now), private=True)
    return load_revocations(folder, authority, now)


def revoke_box(folder: Path, authority: Authority, box: str, now: datetime) -> int:
    """Revoke all certificates of a box that are still valid; their number.

    Raises:
        BrokenAuthority: a file is not as it should be.
        OSError: the list cannot be written.
    """
    names = {front_certificate_name(box), lender_certificate_name(box)}
    found = {serial for serial, until, name in _parse_record(folder) if name in names and until > now}
    before = _parse_revocations(folder, authority)[1] if (folder / REVOCATIONS).exists() else {}
    if new := found - before.keys():
        text = authority.sign_revocations(before | dict.fromkeys(new, now), now)
        local_files.write_atomically(folder / REVOCATIONS, text, private=True)
    return len(new)


def recorded_names(folder: Path) -> set[str]:
    """The names in all certificates between boxes that were issued.

    Raises:
        BrokenAuthority: the record is not as it should be.
    """
    return {name for _, _, name in _parse_record(folder)}


def _parse_record(folder: Path) -> list[tuple[int, datetime, str]]:
    path = folder / RECORD
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        if not (part := _LINE.fullmatch(line)):
            raise BrokenAuthority(f"{path}: line {number} is not SERIAL TIME NAME: restore the file")
        found.append((int(part[1], 16), datetime.strptime(part[2], _TIME).replace(tzinfo=timezone.utc), part[3]))
    return found


def _parse_revocations(folder: Path, authority: Authority) -> tuple[str, dict[int, datetime]]:
    path = folder / REVOCATIONS
    text = _read_text(path)
    try:
        found = x509.load_pem_x509_crl(text.encode())
        is_ours = found.is_signature_valid(authority.certificate.public_key())  # type: ignore[arg-type] # P-256
    except (ValueError, TypeError):
        is_ours = False
    if not is_ours:
        raise BrokenAuthority(f"{path} is not a list of revoked certificates that this CA has signed: restore it")
    return text, {one.serial_number: one.revocation_date_utc for one in found}


def _read_text(path: Path) -> str:
    try:
        return local_files.read_content(path, MAXIMUM).decode()
    except ValueError as error:
        raise BrokenAuthority(f"{path} {error}") from None
