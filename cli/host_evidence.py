"""Evidence of a host's faults: its logs, its state and failed checks; log files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import shlex
import subprocess
import sys
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from checks import Drift
from checks.connections import ConnectedHost
from checks.results import Report, describe_waivers
from checks.survey.health import read_health
from cli.exit_codes import InvalidRequest
from rigwright.engines import kind_of, kinds
from rigwright.engines.log_causes import Cause, CheckRequests
from rigwright.engines.log_patterns import COMMON_CAUSES
from rigwright.model.instance import Instance
from rigwright.operate.diagnosis_findings import FailedCheck, HostEvidence
from rigwright.operate.instance_health import HealthFacts, assess_health, parse_card_uses
from rigwright.operate.root_cause_analysis import KERNEL
from rigwright.problems import printable
from rigwright.project_root import ROOT
from rigwright.safe_text import mask_secrets
from roles import root_shell
from roles.progress import progress

MAX_LOG_LINES = 2000  # of an instance's journal
MAX_KERNEL_MESSAGES = 500  # of the kernel's
WIDTH = 4000  # bytes of a line: an engine writes what it likes
MAX_LOG_BYTES = 8 << 20  # bytes of either, and of a file
DRIVER = "cat /sys/module/nvidia/version 2>/dev/null || true"


def collect_evidence(
    inventory: str, box: ConnectedHost, instances: Sequence[Instance], red: Sequence[FailedCheck]
) -> tuple[HostEvidence, list[str]]:
    """Read a host's logs and take a look at it; returns what was seen, and what could not be.

    Args:
        inventory: The inventory, as commands about it name it.
        box: The host.
        instances: Those of it that matter.
        red: The checks that do not hold there.

    Raises:
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    driver = "".join(root_shell.run_command(box.target, DRIVER, limit=20, most=100).lines[:1])
    journal, cut = "journalctl --no-pager --quiet --output=cat", f"cut -b 1-{WIDTH}"
    kernel = _read_redacted_lines(
        box, f"{journal} -k -b --lines={MAX_KERNEL_MESSAGES} --grep={shlex.quote(KERNEL)} | {cut}"
    )
    logs = {one.name: _read_instance_log(box, one) for one in instances}
    facts, unseen = {}, []
    try:
        facts = _evidence_facts(box, read_health(box.target, box.rig), instances)
    except (ValueError, Drift, root_shell.ConnectionGone) as error:
        unseen.append(f"how its instances are: {printable(str(error))}")
    return HostEvidence(inventory, box.name, driver[:40], logs, kernel, red=red, **facts), unseen


def _read_instance_log(box: ConnectedHost, instance: Instance) -> list[str]:
    """Messages of an instance's journal, without refusals of checks' own requests."""
    journal = "journalctl --no-pager --quiet --output=short-iso --no-hostname --all"
    command = f"{journal} --lines={MAX_LOG_LINES} --unit={shlex.quote(instance.unit)} | cut -b 1-{WIDTH}"
    return CheckRequests(kind_of(instance).causes).without_own(_read_redacted_lines(box, command))


def _evidence_facts(box: ConnectedHost, seen: HealthFacts, instances: Sequence[Instance]) -> dict[str, Any]:
    """The facts of a look, as members of the evidence."""
    uses, cards_say = parse_card_uses(seen.cards)
    return {
        "healths": [assess_health(seen, one) for one in instances],
        "cards": {one.name: tuple(one.cards) for one in box.rig.instances},
        **{"uses": uses, "cards_say": cards_say, "reboot": seen.reboot},
    }


def _read_redacted_lines(box: ConnectedHost, command: str) -> list[str]:
    """The output of a command of root's, without what looks like a secret."""
    return [
        mask_secrets(line) for line in root_shell.run_command(box.target, command, limit=60, most=MAX_LOG_BYTES).lines
    ]


"""Bytes that are read of the end of a log."""
MOST_UNPACKED = 1 << 30
"""Bytes that a compressed log may unpack to; nvidia-bug-report.log.gz unpacks to 2 to 60 MB."""
PIECE = 1 << 20
SAMPLE = 64 << 10
"""Bytes that distinguish text from binary data."""
CONTROLS = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})

_OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_UNREADABLE = {b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"LPKSHHRH": "journald's own format"}
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


def read_log(path: Path) -> tuple[list[str], int]:
    """The last lines of a log, without secrets, and the number of bytes before them that were left out.

    Raises:
        InvalidRequest: the file cannot be read, is not text, or unpacks to more than 1 GiB.
    """
    try:
        with path.open("rb") as opened:
            start = opened.read(8)
        data, skipped = _read_end(path, start)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InvalidRequest(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if packed := next((name for magic, name in _UNREADABLE.items() if start.startswith(magic)), ""):
        raise InvalidRequest(f"{path}: is {packed}, not text: unpack it first")
    text = _decode_log(path, data, cut=skipped > 0)
    return [mask_secrets(line) for line in text.splitlines()], skipped


def _read_end(path: Path, start: bytes) -> tuple[bytes, int]:
    opener = next((one for magic, one in _OPENERS.items() if start.startswith(magic)), None)
    if opener is None:
        with path.open("rb") as opened:
            size = opened.seek(0, 2)
            # an even number of bytes, so that UTF-16 stays whole
            skipped = max(0, size - MAX_LOG_BYTES) & ~1
            opened.seek(skipped)
            return opened.read(MAX_LOG_BYTES + 1), skipped
    pieces: deque[bytes] = deque()
    kept = total = 0
    with opener(path) as unpacked:
        while piece := unpacked.read(PIECE):
            total += len(piece)
            if total > MOST_UNPACKED:
                raise InvalidRequest(f"{path}: unpacks to more than {MOST_UNPACKED >> 30} GiB")
            pieces.append(piece)
            kept += len(piece)
            while kept - len(pieces[0]) >= MAX_LOG_BYTES:
                kept -= len(pieces.popleft())
    return b"".join(pieces), total - kept


def _decode_log(path: Path, data: bytes, *, cut: bool) -> str:
    """Text of a log, by its byte order mark or by where its zero bytes are.

    Raises:
        InvalidRequest: it is not text.
    """
    sample = data[:SAMPLE]
    encoding = next((name for mark, name in _ENCODINGS.items() if data.startswith(mark)), "")
    zeros = sample.count(0)
    if not encoding and zeros:
        for order, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
            if sample[offset::2].count(0) * 10 >= len(sample[offset::2]) * 6 and sample[1 - offset :: 2].count(0) == 0:
                encoding = order
    if not encoding and len(sample) - len(sample.translate(None, CONTROLS)) > len(sample) // 100:
        raise InvalidRequest(f"{path}: is binary data, not a log")
    text = data.decode(encoding or "utf-8", errors="replace")
    # the first line lost its beginning
    return text.partition("\n")[2] if cut else text


COMMAND_TIMEOUT_S = 300.0  # seconds for all checks


def causes_for_log(lines: Sequence[str]) -> list[Cause]:
    """Known causes of the engines that wrote a log, by what only their logs contain; of all engines if none did.

    For a log without a mark, the common causes come first: their remedies fit every engine. Forms of messages come
    last.
    """
    text = "\n".join(lines)
    marked = [kind for kind in kinds().values() if kind.log_marker]
    found = [kind for kind in marked if re.search(kind.log_marker, text, re.MULTILINE)]
    causes = [cause for kind in found or marked for cause in kind.causes]
    causes += [
        cause for kind in kinds().values() if not kind.log_marker for cause in kind.causes if cause not in causes
    ]
    common = [] if found else COMMON_CAUSES
    return sorted(dict.fromkeys([*common, *causes]), key=lambda cause: (cause.broad, cause.general))


def collect_failed_checks(inventory: str, limit: str | None) -> dict[str, list[FailedCheck]] | None:
    """Host -> the checks that do not hold, waived or not; None where they did not run to their end."""
    words = [sys.executable, str(ROOT), "check", inventory, "--json", *([f"--limit={limit}"] if limit else [])]
    try:
        with progress.task("checks", f"running all checks: at most {COMMAND_TIMEOUT_S:.0f} s"):
            done = subprocess.run(words, capture_output=True, timeout=COMMAND_TIMEOUT_S, check=False)
        report = TypeAdapter(Report).validate_json(done.stdout)
    except (subprocess.TimeoutExpired, ValidationError):
        return None
    return {
        host.name: [
            FailedCheck(
                *(one.id, one.title, one.part, one.severity, one.expected, one.found, one.cure, one.cause),
                describe_waivers(one),
            )
            for one in host.checks
            if one.verdict in ("fail", "waived")
        ]
        for host in report.hosts
    }
