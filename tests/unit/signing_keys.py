"""Keys of ssh-keygen, for tests of signatures."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

from rigwright.signing.public_keys import PublicKey, parse_public_key
from rigwright.signing.statements import KINDS, SignedKind, Statement
from rigwright.signing.trusted_signers import Signer, TrustedSigners

NOW = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)
SUBJECTS = (("lock", "a" * 64),)


def make_key(folder: Path, name: str, key_type: str = "ed25519") -> Path:
    """Make a private key; its .pub file is next to it."""
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", key_type, "-N", "", "-C", name, "-f", str(path)]
    subprocess.run(words, check=True)
    return path


def public_key(path: Path) -> PublicKey:
    return parse_public_key(path.with_name(f"{path.name}.pub").read_text().rstrip("\n"))


def trust(path: Path, kinds: tuple[SignedKind, ...] = KINDS, **validity: datetime) -> TrustedSigners:
    return TrustedSigners((Signer(path.name, public_key(path), kinds, **validity),))


def lock_statement(**changes: object) -> Statement:
    values = {"kind": "lock", "subjects": SUBJECTS, "serial": 7, "signed": NOW - DAY, "expires": NOW + 30 * DAY}
    return Statement(**{**values, "details": {"inventory": "rig"}, **changes})  # type: ignore[arg-type]
