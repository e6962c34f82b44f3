"""Reasons to refuse a signature."""

from __future__ import annotations

from typing import Literal

RefusalReason = Literal[
    "malformed",
    "wrong_kind",
    "unknown_signer",
    "revoked",
    "key_expired",
    "key_not_yet_valid",
    "changed",
    "no_touch",
    "statement_expired",
    "statement_in_future",
    "other_subject",
    "older_serial",
    "other_box",
    "too_large",
    "missing",
    "no_program",
]
"""`wrong_kind` includes another namespace; `changed` is a signature that does not fit the signed bytes."""


class SignatureRefused(ValueError):
    """A signature that does not count."""

    def __init__(self, reason: RefusalReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        """Its reason, for programs; the text is for people."""
