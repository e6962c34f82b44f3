"""One pull: verifies the fetched files, activates a newer generation, and returns to the earlier one if it fails.

`python3 FOLDER run SETTINGS`; each step is complete or repeated after a kill.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone

from rigwright.host.generation_layout import JOB
from rigwright.pull.publication import (
    MOST_METADATA,
    MOST_PAYLOAD,
    MOST_TIMESTAMP,
    parse_payload,
    verify_generation,
    verify_timestamp,
)
from rigwright.safe_text import printable
from rigwright.signing.refusals import SignatureRefused

from .fetch import PAYLOAD, REPORT, STATEMENT, TIMESTAMP
from .root_jobs import (
    JobStopped,
    StateUnreadable,
    download_limits,
    is_up,
    run_program,
    run_root_job,
    wait_for_job,
)
from .served_generation import (
    LOADING,
    GenerationFolders,
    describe_missing,
    describe_unsettled,
    find_new_faults,
    list_findings,
)
from .settings import PullRecord, PullSettings, RecordUnreadable, read_bounded, write_whole

TYPE_CHECKING = False  # as in settings.py
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from rigwright.pull.publication import PublishedGeneration, PullPayload

REASON = re.compile("[a-z_]{0,40}")
RESTORE = "restore"  # the script that activates the earlier generation again, during an attempt
SLOW = "slow"  # the reason of a job that was stopped at a limit
INTERRUPTED = "interrupted"  # the reason of an activation that ended before its last step
MOST_TRIES = 2  # of a generation whose activation was interrupted
MOST_TEXT = 400  # characters of a reason
OUTCOMES = ("current", "activated", "refused", "unreachable", "failed", "busy")


class PullEnded(Exception):
    """The end of a pull before an activation."""

    def __init__(self, outcome: str, reason: str, text: str) -> None:
        super().__init__(text)
        self.outcome, self.reason = outcome, reason


class BoxPull:
    """One run."""

    def __init__(self, settings: PullSettings, now: datetime) -> None:
        self.settings, self.now = settings, now
        self.record = PullRecord(settings)
        self.folders = GenerationFolders(settings)

    def run(self) -> None:
        """Pull once, and write down the outcome."""
        text = reason = ""
        try:
            outcome = self._pull()
        except SignatureRefused as error:
            outcome, reason, text = "refused", error.reason, str(error)
        except PullEnded as error:
            outcome, reason, text = error.outcome, error.reason, str(error)
        except StateUnreadable as error:
            # an attempt stays in the record: the next run reads from the box how it has ended
            outcome, reason, text = "busy", "systemd", f"{error}; the next pull continues"
        value = {"outcome": outcome, "reason": reason, "text": printable(text)[:MOST_TEXT]}
        self.record.value |= {"schema": 1, "run": int(time.time()), **value}
        if outcome == "busy":
            self.record.value.setdefault("busy", int(time.time()))
        else:
            self.record.value.pop("busy", None)
        self.record.write()

    def _pull(self) -> str:
        if self.record.value.get("attempt"):
            with self._hold_deploy_lock("end of an interrupted pull"):
                return self._continue_attempt()
        reason, text = self._read_report()
        if reason == "unreachable":
            # the last verified timestamp holds until it expires
            self._verify_fetched_timestamp()
            raise PullEnded("unreachable", reason, text)
        try:
            published, payload = self._verify()
        except SignatureRefused:
            if reason:
                # the service that fetches has refused a file: the next ones are missing
                raise PullEnded("refused", reason, text) from None
            raise
        if published is None or payload is None:
            number = self.folders.read_current()
            if self.folders.read_digest(number) != self.record.value.get("digest"):
                raise self._describe_replaced(number)
            return "current"
        with self._hold_deploy_lock(f"pull of generation {published.serial}"):
            return self._activate(published, payload)

    def _describe_replaced(self, number: int) -> PullEnded:
        text = f"generation {number} serves, by a deploy or a rollback, until the next publication"
        return PullEnded("current", "replaced", text)

    def _read(self, name: str, most: int) -> bytes:
        return read_bounded(f"{self.settings.fetched}/{name}", most) or b""

    def _read_report(self) -> tuple[str, str]:
        """The reason and the text of the service that fetches; the reason is empty where it has refused nothing."""
        try:
            found = os.lstat(f"{self.settings.fetched}/{REPORT}")
            report = json.loads(self._read(REPORT, 8192))
            reason, text = report["reason"], str(report["text"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "unreachable", "nothing was fetched"
        # each run of that service writes another file: the clock may be set between two of them
        mark, earlier = [found.st_ino, found.st_mtime_ns], self.record.value.get("report")
        self.record.value["report"] = mark
        if mark == earlier:
            return "unreachable", "the service that fetches has not run"
        if not isinstance(reason, str) or not REASON.fullmatch(reason):
            return "unreachable", "the report of the service that fetches is malformed"
        return reason, text

    def _verify_fetched_timestamp(self) -> Any:
        settings = self.settings
        data = self._read(TIMESTAMP, MOST_TIMESTAMP)
        if not data:
            return None
        self.record.serials, entry = verify_timestamp(
            data, settings.box, settings.signers, self.record.serials, self.now
        )
        self.record.write()
        return entry

    def _verify(self) -> tuple[PublishedGeneration | None, PullPayload | None]:
        """The verified generation; none where the box serves it."""
        settings = self.settings
        entry = self._verify_fetched_timestamp()
        if entry is None:
            raise SignatureRefused("missing", "there is no timestamp")
        self.record.value["verified"] = int(self.now.timestamp())
        if entry.serial in self.record.failed:
            raise PullEnded("failed", "failed_before", f"generation {entry.serial} failed, and is not tried again")
        if entry.serial == self.record.serial:
            return None, None
        data = self._read(STATEMENT, MOST_METADATA)
        published = verify_generation(data, entry, settings.box, settings.read_machine(), settings.signers, self.now)
        self.record.serials = replace(self.record.serials, generation=published.serial)
        return published, parse_payload(self._read(PAYLOAD, MOST_PAYLOAD), published)

    def _activate(self, published: PublishedGeneration, payload: PullPayload) -> str:
        settings, folders = self.settings, self.folders
        number = folders.read_current()
        base = folders.read_digest(number) if number else ""
        if missing := describe_missing(payload, published.declaration, settings):
            raise PullEnded("refused", "needs_deploy", f"needs a deploy: {missing}")
        if base == published.digest and not folders.is_activating() and folders.is_proven(number):
            self._accept(published.serial, published.digest)
            return "current"
        if not base or base not in payload.activate or base not in payload.restore:
            text = f"needs a deploy: no way from generation {number} of this box is published"
            raise PullEnded("refused", "needs_deploy", text)
        if folders.is_activating() or not folders.is_proven(number):
            raise PullEnded("refused", "unsettled", f"generation {number} is not completely active: deploy, or restart")
        unsettled = describe_unsettled(settings, f"{folders.folder}/{number}")
        if unsettled.endswith(LOADING):
            raise PullEnded("busy", "loading", unsettled)
        if unsettled:
            raise PullEnded("refused", "unsettled", f"{unsettled}: start it, or deploy")
        self._fetch_weights(payload)
        tries = self.record.value.get("tries") or [0, 0]
        tries = [published.serial, tries[1] + 1 if tries[0] == published.serial else 1]
        if tries[1] > MOST_TRIES:
            self.record.add_failed(published.serial)
            raise PullEnded("failed", INTERRUPTED, f"its activation was interrupted {MOST_TRIES} times")
        new = folders.write(payload)
        attempt = {
            **{"serial": published.serial, "number": new, "base": number, "before": list_findings(settings)},
            **{"digest": published.digest, "proof": folders.read_proof(new)},
            "record": [payload.record.unit, payload.record.script, payload.record.test] if payload.record else [],
        }
        # not in the record, which `status` and the checks read
        write_whole(f"{settings.state}/{RESTORE}", payload.restore[base], 0o600)
        self.record.value |= {"attempt": attempt, "tries": tries}
        self.record.write()
        limits = folders.activation_limits(number, new)
        try:
            served, text = run_root_job(settings, JOB, payload.activate[base], str(new), limits=limits)
        except JobStopped as error:
            raise self._end_interrupted(attempt, SLOW, f"its activation: {error}") from None
        return self._end_attempt(attempt, served, text)

    def _fetch_weights(self, payload: PullPayload) -> None:
        if payload.fetch and not self._is_done(payload.fetch.test):
            limits = download_limits(self.settings)
            try:
                fetched, text = run_root_job(self.settings, payload.fetch.unit, payload.fetch.script, limits=limits)
            except JobStopped as error:
                # its files stay: the next run continues from there, and other runs get the deploy lock in between
                raise PullEnded("failed", SLOW, f"weights are not fetched: {error}; the next pull continues") from None
            if not fetched or not self._is_done(payload.fetch.test):
                raise PullEnded("unreachable", "weights", f"weights are not fetched: {text}")

    def _is_done(self, test: str) -> bool:
        return run_program("/bin/sh", "-c", test)[0] == 0

    def _continue_attempt(self) -> str:
        """End an attempt that was interrupted: whether its generation serves is read from the box."""
        attempt, folders = self.record.value["attempt"], self.folders
        try:
            wait_for_job(self.settings, JOB, folders.activation_limits(attempt["base"], attempt["number"]))
        except JobStopped as error:
            attempt.setdefault("fault", f"its activation: {error}")
            attempt.setdefault("reason", SLOW)
        number, found = folders.read_current(), folders.read_digest(attempt["number"])
        if "fault" in attempt:
            raise self._return_to_base(attempt)
        if found == attempt["digest"] and number == attempt["number"]:
            # one that fails its proof has moved the link back: this one was cut off before it
            return self._end_attempt(attempt, True, "it was cut off")
        if found == attempt["digest"] and folders.read_proof(attempt["number"]) != attempt["proof"]:
            # its activation has ended: a deploy or an operator has replaced it since
            self._accept(attempt["serial"], attempt["digest"])
            raise self._describe_replaced(number)
        # the earlier generation serves, or that of a deploy meanwhile: the next run begins anew
        self.record.value["attempt"] = None
        raise PullEnded("busy", INTERRUPTED, "the activation was interrupted; the next run repeats it")

    def _end_attempt(self, attempt: dict[str, Any], served: bool, text: str) -> str:
        settings, folders, number = self.settings, self.folders, self.folders.read_current()
        if served and (number != attempt["number"] or folders.is_activating() or not folders.is_proven(number)):
            # its unit has not failed: a stop, or a reset of its state, has ended the job
            raise self._end_interrupted(attempt, INTERRUPTED, f"its activation ended early: {text}")
        faults = [text] if not served else find_new_faults(settings, attempt["before"])
        if not faults:
            if attempt["record"] and not self._is_done(attempt["record"][2]):
                # where it fails, a check says so, and the next deploy repeats it
                with suppress(JobStopped):
                    run_root_job(settings, *attempt["record"][:2], limits=folders.activation_limits(number))
            self._accept(attempt["serial"], attempt["digest"])
            return "activated"
        # first: no kill during the return lets the generation be tried again
        attempt["fault"] = "; ".join(faults[:3])
        self.record.add_failed(attempt["serial"])
        self.record.write()
        raise self._return_to_base(attempt)

    def _end_interrupted(self, attempt: dict[str, Any], reason: str, text: str) -> PullEnded:
        """Return from an activation that was stopped before its end: the generation may be tried again."""
        attempt |= {"fault": text, "reason": reason}
        self.record.write()
        return self._return_to_base(attempt)

    def _return_to_base(self, attempt: dict[str, Any]) -> PullEnded:
        """Activate the earlier generation again, unless it serves; returns the end of the pull."""
        folders, number, fault = self.folders, self.folders.read_current(), ""
        # a changed folder has no digest
        moved = number == attempt["number"] and folders.read_digest(number) in (attempt["digest"], "")
        # an activation that was stopped may have stopped units before it moved the link
        if moved or (number == attempt["base"] and folders.is_activating()):
            script = (read_bounded(f"{self.settings.state}/{RESTORE}", MOST_PAYLOAD) or b"").decode()
            limits = folders.activation_limits(attempt["base"], attempt["number"])
            try:
                run_root_job(self.settings, JOB, script, str(attempt["base"]), limits=limits)
            except JobStopped as error:
                fault = f": {error}"
            number = folders.read_current()
        self.record.value["attempt"] = None
        is_back = number == attempt["base"] and not folders.is_activating()
        back = f"generation {number} serves" if is_back else f"the earlier generation did not come back{fault}"
        return PullEnded("failed", attempt.get("reason", "gate"), f"{attempt['fault']} ({back})")

    def _accept(self, serial: int, digest: str) -> None:
        self.record.value |= {"serial": serial, "digest": digest, "attempt": None, "tries": None}
        self.record.write()

    @contextmanager
    def _hold_deploy_lock(self, doing: str) -> Iterator[None]:
        """Hold the deploy lock, as a controller does for a deploy."""
        path = self.settings.deploy_lock
        folder = os.path.dirname(path)
        os.makedirs(folder, 0o700, exist_ok=True)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
            raise PullEnded("refused", "lock", f"{folder} has to be a folder that root alone can open: remove it")
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    raise
                raise PullEnded("busy", "busy", "another run holds the deploy lock") from None
            if is_up("rw-job-remove.service"):
                raise PullEnded("busy", "busy", "a removal is running")
            since = self.now.strftime("%Y-%m-%d %H:%M:%S UTC")
            holder = {"who": f"pull@{os.uname().nodename}", "pid": os.getpid(), "since": since, "doing": doing}
            os.ftruncate(opened, 0)
            os.pwrite(opened, f"{json.dumps(holder)}\n".encode(), 0)
            yield
        finally:
            os.close(opened)


def render_pull_metrics(value: dict[str, Any]) -> str:
    """The record in Prometheus' text format."""
    reason = "".join(one for one in str(value["reason"]) if one.isalnum() or one == "_")[:40]
    lines = [
        "# TYPE rigwright_pull_run_seconds gauge",
        f"rigwright_pull_run_seconds {int(value['run'])}",
        "# TYPE rigwright_pull_verified_seconds gauge",
        f"rigwright_pull_verified_seconds {int(value.get('verified') or 0)}",
        "# TYPE rigwright_pull_serial gauge",
        f"rigwright_pull_serial {int(value.get('serial') or 0)}",
        "# TYPE rigwright_pull_outcome gauge",
        f'rigwright_pull_outcome{{outcome="{value["outcome"]}",reason="{reason}"}} 1',
    ]
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Pull once; exit status 0 also where a generation is refused: the record has the reason."""
    settings = PullSettings(words[0])
    os.makedirs(settings.state, 0o755, exist_ok=True)
    pull_once(settings, datetime.now(timezone.utc).replace(microsecond=0))
    return 0


def pull_once(settings: PullSettings, now: datetime) -> tuple[str, str]:
    """Pull once; returns the outcome and its reason."""
    value: dict[str, Any]
    try:
        pull = BoxPull(settings, now)
    except RecordUnreadable as error:
        # it stays as it is
        value = {"outcome": "refused", "reason": "record", "text": printable(str(error)), "run": int(now.timestamp())}
    else:
        pull.run()
        value = pull.record.value
    outcome, reason, text = (str(value[name]) for name in ("outcome", "reason", "text"))
    print(": ".join(filter(None, (outcome, reason, text))))
    if settings.metrics:
        with suppress(OSError):
            write_whole(settings.metrics, render_pull_metrics(value))
    return outcome, reason
