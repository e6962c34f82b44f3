"""Hash recorded weights again, those first that were hashed longest ago: disks lose bits, and no record sees that.

Run as `python3 -m rigwright_weights.rehash RECORDS LOCKS`. It does its work while the box has little to do, and may be
ended at any time: sound files are noted one by one, and a damaged one before anything else is done about it.
Exit status 1 when a file's bytes are wrong: its record is taken back then, and the next deploy fetches that file anew.
"""

from __future__ import annotations

import argparse
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

from . import direct, locks, records, verity
from .load import SystemLoad
from .progress import spell_count
from .records import DEEP, VerifiedRecord
from .spec import FetchRefused

DUE_DAYS = 7.0
MAX_LOAD = 0.5  # load average a CPU, without this program's own share
STRETCH = 4 << 30  # bytes between two looks at the load
PATIENCE = 3600.0  # seconds that a file half read waits for calm; then the run ends, and the next one begins it anew
DAY = 86_400.0  # seconds
LOCK = "rehash"


class BoxBusy(Exception):
    """The box has better things to do."""


def list_due_records(folder: Path, days: float, now: float) -> list[VerifiedRecord]:
    """The records whose files were touched, or last hashed more than this many days ago, oldest first."""
    found = [(_hashed_at(folder, record), record) for record in records.list_records(folder)]
    # a time to come is that of a clock that was wrong
    late = [one for one in found if one[0] > now or now - one[0] >= days * DAY or _only_touched(one[1])]
    return [record for _, record in sorted(late, key=lambda one: (one[0], one[1].name))]


def _hashed_at(folder: Path, record: VerifiedRecord) -> float:
    try:
        return (folder / DEEP / record.name).stat().st_mtime
    except OSError:
        return 0.0


def _only_touched(record: VerifiedRecord) -> bool:
    """Whether a file is another than the recorded one by its times or its inode, and still one without a writer.

    So it is after a backup by hard links, a `chmod` of the mode that it has, or a copy in its place.
    """
    try:
        there = record.path.lstat()
    except OSError:
        return False
    ours = stat.S_ISREG(there.st_mode) and there.st_uid == 0 and not there.st_mode & 0o222
    return (
        ours and records.format_file_state(there) != record.state and str(there.st_size) == record.state.split(" ")[0]
    )


def digest_recorded_file(record: VerifiedRecord, load: SystemLoad | None) -> str:
    """SHA-256 of a recorded file; empty when it is not the one any more that was recorded.

    Raises:
        OSError: it cannot be read.
        BoxBusy: the box has become busy, and stays so.
    """
    looked = 0

    def note_progress(done: int) -> None:
        nonlocal looked
        if load and done - looked >= STRETCH:
            looked = done
            _wait_for_calm(load)

    return direct.digest_from_disk(
        record.path,
        note_progress,
        around=not _has_verity(record.path),
        right=lambda found: records.format_file_state(found) == record.state,
    )


def _has_verity(path: Path) -> bool:
    # a file system reads these through the page cache, whatever it is asked
    try:
        return bool(verity.measure_verity(path))
    except OSError:
        return False


def _wait_for_calm(load: SystemLoad) -> None:
    """Wait for calm in the middle of a file: to read it from its beginning again would cost more."""
    load.begun = True
    end = time.monotonic() + PATIENCE
    while why := load.describe_busy():
        if time.monotonic() > end:
            raise BoxBusy(why)
        time.sleep(load.pause)


def rehash_record(folder: Path, record: VerifiedRecord, load: SystemLoad | None) -> bool:
    """Hash one file, note what was found, and say what is not right; returns False when its bytes are wrong.

    Raises:
        BoxBusy: as `digest`.
    """
    wrong = verity.describe_verity_violation(folder, record.name, record.path)
    try:
        found = "" if wrong else digest_recorded_file(record, load)
    except OSError as error:
        if error.errno not in direct.LOST:
            print(f"note: {record.path} was verified, and cannot be read: {error.strerror}")
            return True
        found = f"no bytes ({error.strerror})"
    if found == record.sha256:
        records.mark_hashed(folder, record.name)
        return True
    if not (found or wrong):
        _recheck_touched(folder, record, load)
        return True
    wrong = wrong or f"expected {record.sha256}, found {found}"
    print(f"{record.path}: {wrong}; deploy again: this file is fetched anew", flush=True)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    records.withdraw_record(folder, record.name, f"{found or 'another file'} {at}")
    return False


def _recheck_touched(folder: Path, record: VerifiedRecord, load: SystemLoad | None) -> None:
    """The new state of a record whose file differs.

    Raises:
        BoxBusy: as `digest`.
    """
    state = records.file_state(record.path)
    current = {one.name for one in records.list_records(folder) if one.path == record.path and one.state == state}
    if record.name in current:
        # a deploy has hashed it since the run began: there is nothing to say
        return
    if current:
        # another version of it lies in its place by now, and has a record of its own
        (folder / record.name).unlink(missing_ok=True)
    elif _only_touched(record) and digest_recorded_file(replace(record, state=state), load) == record.sha256:
        records.replace_text(folder / record.name, f"{state} {record.path}\n")
        records.mark_hashed(folder, record.name)
        print(f"{record.path} was touched, and has the right bytes: it is recorded as it is now")
    else:
        print(f"note: {record.path} was touched since it was verified: the next deploy hashes it")


def rehash_due(folder: Path, days: float, load: SystemLoad | None) -> int:
    """Hash what is due; returns how many files are wrong.

    Args:
        folder: Where the records lie.
        days: Age of a hash, from which on it is due.
        load: Whether the box is busy; None to go on in any case.
    """
    listed = list_due_records(folder, days, time.time())
    wrong = looked = 0
    try:
        for record in listed:
            if load and (why := load.describe_busy()):
                raise BoxBusy(why)
            wrong += not rehash_record(folder, record, load)
            looked += 1
            if load:
                load.begun = True
    except BoxBusy as busy:
        print(f"stopped: {busy}; the next run goes on")
    print(f"{spell_count(looked, 'file')} hashed, {wrong} wrong; {len(listed) - looked} still due")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="rehash", description="Hash recorded weights again.")
    parser.add_argument("records", type=Path, help="folder of the records")
    parser.add_argument("locks", type=Path, help="folder of the locks")
    parser.add_argument("--due-days", type=float, default=DUE_DAYS, help="hash what was not hashed for so long")
    parser.add_argument("--max-load", type=float, default=MAX_LOAD, help="wait above this load average a CPU")
    parser.add_argument("--now", action="store_true", help="hash all files, due or not, whatever the load is")
    asked = parser.parse_args(arguments)
    if not asked.records.is_dir():
        print("nothing was verified here yet")
        return 0
    days = 0.0 if asked.now else asked.due_days
    try:
        with locks.hold_lock(asked.locks, LOCK):
            return 1 if rehash_due(asked.records, days, None if asked.now else SystemLoad(asked.max_load)) else 0
    except locks.LockHeldElsewhere as error:
        print(f"another run is at it: {error}")
        return 0
    except FetchRefused as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
