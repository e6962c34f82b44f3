"""Take packages away again: `python3 -m rigwright_weights.drop SPEC.json`, as root; SPEC.json is a fetching run's, or
has rows without a hash, of files that nothing locks any more.

Trees that were installed from them are separate. It may be ended at any moment, and the next run does the rest: the
ledger goes last. Other users of one of these files are not looked for here.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from . import records
from .fetch import hold_run_lock
from .place import ModelsRoot
from .progress import print_log_line, spell_count
from .records import DEEP, WRONG, LockedFile
from .spec import FetchRefused, FetchSpec, load_spec
from .verity import FOLDER

PAUSE, PATIENCE = 0.01, 30.0
"""Seconds between two looks at whether a ledger is still written to, and in all."""


def drop_files(spec: FetchSpec) -> None:
    """Remove the files of a run that are ours, what was fetched of them so far, and all that is known of them.

    Raises:
        FetchRefused: another run brings files, and does not end; or something else lies in the way to one.
        OSError: a file cannot be removed.
    """
    place = ModelsRoot(spec)
    gone: list[str] = []
    for file in (wanted.file for wanted in spec.files):
        path = place.file_path(file)
        part = place.part_path(path)
        ours = place.is_in_ledger(path) or not path.exists()
        for one in (path, part) if ours else (part,):
            one.unlink(missing_ok=True)
            gone.append(f"file {one}")
        if ours:
            _remove_record(spec.records, file)
        else:
            print_log_line(f"note: {path} stays, for another user placed it there")
        gone += _remove_empty_folders(spec.root, path.parent)
    _strike_ledger_lines(spec.ledger, frozenset(gone))
    print_log_line(f"==> removed {spell_count(len(spec.files), 'package')}")


def _remove_record(folder: Path, file: LockedFile) -> None:
    # a file that no lock has any more has no known hash; a name of Rigwright's has no wildcards in it
    name = records.record_name(file) if file.sha256 else f"*{records.record_name(file)}"
    for one in (folder, folder / DEEP, folder / WRONG, folder / FOLDER):
        for path in one.glob(name):
            path.unlink(missing_ok=True)


def _remove_empty_folders(root: Path, folder: Path) -> Iterator[str]:
    """Remove folders that hold nothing more, up to the root; the lines of those that are gone in the ledger."""
    while folder != root:
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass  # an earlier run has come to this
        except OSError:
            return
        yield f"dir {folder}"
        folder = folder.parent


def _strike_ledger_lines(ledger: Path, lines: frozenset[str]) -> None:
    """Take lines out of the ledger, in one step; jobs of other kinds may add theirs meanwhile."""
    try:
        before = ledger.open("rb")
    except FileNotFoundError:
        return
    with before:
        found = before.read().decode().splitlines(keepends=True)
        kept = [line for line in found if line.rstrip("\n") not in lines]
        if len(kept) == len(found):
            return
        records.replace_text(ledger, "".join(kept))
        # a process that had opened it before adds to the old one, which cannot be opened any more
        _wait_for_writers(before.fileno())
        late = before.read()
    if late:
        with ledger.open("ab") as after:
            after.write(late)
            after.flush()
            os.fsync(after.fileno())


def _wait_for_writers(handle: int) -> None:
    """Wait until no process has a file open to write to it; a lease tells that (roles/weights/host/hold.py)."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            time.sleep(PAUSE)
        except OSError:  # a file system without leases; a line is written within a moment
            return
        else:
            return


def main() -> int:
    """Run the file that is named."""
    try:
        spec = load_spec(Path(sys.argv[1]))
        with hold_run_lock(spec):
            drop_files(spec)
    except (FetchRefused, OSError) as error:
        print_log_line(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
