"""Where this copy of Rigwright lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder with deploy.py, the catalogue, locks and templates."""
