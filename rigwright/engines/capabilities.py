"""Declared capabilities of an instance, in addition to answering."""

from __future__ import annotations

from typing import Literal

Ability = Literal["tools", "thinking", "drafts", "schema", "images"]
"""Calls tools; thinks before it answers; guesses tokens ahead; follows a JSON schema; sees images."""
