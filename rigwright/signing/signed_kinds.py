"""Kinds of signed statements, and the forms of names of keys. Loading an inventory without signers needs no more."""

from __future__ import annotations

import re
from typing import Literal

SignedKind = Literal["lock", "bundle", "verdict", "generation", "timestamp"]
KINDS: tuple[SignedKind, ...] = ("lock", "bundle", "verdict", "generation", "timestamp")
DEFAULT_KINDS: tuple[SignedKind, ...] = ("lock", "bundle", "verdict")
"""Of a signer without declared kinds: boxes that pull follow the others without a deploy."""
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""A signer's name. In other characters ssh-keygen reads patterns and options."""


def signature_namespace(kind: SignedKind) -> str:
    """The namespace of signatures of a kind: a signature of one kind does not count for another."""
    return f"{kind}@rigwright"
