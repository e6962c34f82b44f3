"""The ledger on disk, its metrics, and lines for the journal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress

from .observation import boot_id, read_json
from .state import AWAKE, LEAVING, Entry, LedgerState, parse_entries

METRICS = (
    ("rigwright_residency_awake", "gauge", lambda entry: int(entry.phase in (AWAKE, LEAVING))),
    ("rigwright_residency_failed_starts", "gauge", lambda entry: bool(entry.reason) * entry.failures),
    ("rigwright_residency_load_seconds", "gauge", lambda entry: round(entry.load_seconds, 1)),
)


def notify_operator(text: str) -> None:
    """Write a line to the journal, at the level of a notice."""
    with suppress(OSError):  # a journal that starts again
        print(f"<5>{ascii(text)[1:-1]}", flush=True)


def write_durably(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file beside its place, have the disk keep it, and rename it."""
    folder, _, name = path.rpartition("/")
    opened = os.open(f"{folder}/.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(opened, mode)
        file.flush()
        os.fsync(opened)
    os.replace(f"{folder}/.{name}", path)
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


class ResidencyFiles:
    """The file of the ledger, and that of its metrics."""

    def __init__(self, path: str, metrics: str) -> None:
        self.path, self.metrics = path, metrics
        self.boot = boot_id()
        self.written = ""
        self.is_unwritten = False
        """Whether the disk takes no ledger."""

    def load(self) -> dict[str, Entry]:
        """The entries of an earlier process; none of a file that is cut off."""
        kept = read_json(self.path)
        with suppress(TypeError, ValueError, AttributeError):
            same = bool(self.boot) and kept.get("boot") == self.boot
            return parse_entries(kept.get("instances", {}), same_boot=same)
        return {}

    def save(self, state: LedgerState) -> None:
        """Write the ledger down where it changed."""
        value = {"schema": 1, "boot": self.boot, "instances": state.to_json()}
        text = json.dumps(value, sort_keys=True) + "\n"
        # the time of the last request alone is not worth a write
        compared = re.sub(r'"(last_used|unknown_since)": ([0-9.e+-]+|null)', "", text)
        if compared == self.written:
            return
        try:
            write_durably(self.path, text)
        except OSError as error:
            # instances are served all the same: after a crash, systemd's states correct an older ledger
            if not self.is_unwritten:
                notify_operator(f"the ledger is not written: {error}")
            self.is_unwritten = True
            return
        self.written, self.is_unwritten = compared, False
        self.write_metrics(state.entries)

    def write_metrics(self, entries: Mapping[str, Entry]) -> None:
        """The state in Prometheus' text format."""
        if not self.metrics:
            return
        lines: list[str] = []
        for name, kind, value in METRICS:
            lines.append(f"# TYPE {name} {kind}")
            lines += [f'{name}{{instance="{instance}"}} {value(entry)}' for instance, entry in sorted(entries.items())]
        with suppress(OSError):  # a full disk
            write_durably(self.metrics, "\n".join(lines) + "\n")
