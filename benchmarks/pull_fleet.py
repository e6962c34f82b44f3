"""Many simulated boxes that pull their signed generations from one nginx: its requests, bytes and processor time."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed, JsonReport
from benchmarks.weights_fixtures import shared
from rigwright.pull.publication import (
    GENERATION,
    MOST_PAYLOAD,
    PAYLOAD,
    TIMESTAMP_FILE,
    PublishedEntry,
    PullPayload,
    metadata_file,
    parse_payload,
    payload_file,
    render_generation_details,
    render_timestamp_details,
)
from rigwright.signing.public_keys import parse_public_key
from rigwright.signing.ssh_signatures import sign_statement
from rigwright.signing.statements import SignedKind, Statement
from rigwright.signing.timestamps import current_time
from roles.pull.host.fetch import PAYLOAD as PAYLOAD_NAME
from roles.pull.host.fetch import fetch_published
from roles.pull.host.settings import PullRecord, PullSettings, read_bounded

AT_ONCE = 8  # boxes that pull at the same time: a random delay spreads 1000 over five minutes
FILES, FILE_BYTES = 30, 2500
"""Of a generation with one instance and a gateway, and of each file."""
TICKS = os.sysconf("SC_CLK_TCK")
DAYS = timedelta(days=1)


@dataclass(frozen=True)
class PullRow:
    """One round: each box pulls once."""

    round: str
    boxes: int
    seconds: float
    requests: int
    sent_bytes: int
    processor: float
    """Seconds of nginx's processor."""
    verified: int


@dataclass(frozen=True)
class PullReport(JsonReport):
    """All rounds."""

    date: str
    cpus: int
    load: float
    rows: list[PullRow]


class SimulatedFleet:
    """A published folder, and the folders of boxes."""

    def __init__(self, folder: Path, boxes: int) -> None:
        self.folder, self.published, self.key = folder, folder / "published", folder / "key"
        self.names = [f"box{number}" for number in range(boxes)]
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True)
        self.now, self.serial = current_time(), int(current_time().strftime("%Y%m%d%H%M%S"))

    def publish(self) -> None:
        """Sign a generation for each box, and the timestamp."""
        files = {f"env/file{number}": str(number % 10) * FILE_BYTES for number in range(FILES)}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            entries = dict(
                zip(self.names, pool.map(lambda name: self._publish_box(name, files), self.names), strict=True)
            )
        subjects = tuple((name, one.sha256) for name, one in sorted(entries.items()))
        self._write(TIMESTAMP_FILE, self._sign("timestamp", subjects, render_timestamp_details("fleet", entries)))

    def _publish_box(self, name: str, files: dict[str, str]) -> PublishedEntry:
        payload = PullPayload({**files, "manifest.json": json.dumps({"rig": name})}, {}, {}, {})
        content = payload.render()
        sha256, machine = (hashlib.sha256(one).hexdigest() for one in (content, name.encode()))
        details = render_generation_details("fleet", name, machine, "0" * 64, "0" * 64, len(content))
        statement = self._sign("generation", ((GENERATION, payload.digest), (PAYLOAD, sha256)), details)
        self._write(payload_file(sha256), content)
        self._write(metadata_file(name, self.serial), statement)
        return PublishedEntry(self.serial, len(statement), hashlib.sha256(statement).hexdigest())

    def _sign(self, kind: SignedKind, subjects: tuple[tuple[str, str], ...], details: dict[str, object]) -> bytes:
        statement = Statement(kind, subjects, self.serial, self.now, self.now + DAYS, details)
        return sign_statement(statement, self.key).render()

    def _write(self, name: str, content: bytes) -> None:
        path = self.published / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def add_settings(self, url: str) -> list[PullSettings]:
        """Make the folders of the boxes."""
        key = parse_public_key(self.key.with_suffix(".pub").read_text().rstrip("\n"))
        signer = {"name": "alice", "key": str(key), "signs": ["generation", "timestamp"]}
        found = []
        for name in self.names:
            root = self.folder / name
            for path in ("etc", "run", "state"):
                (root / path).mkdir(parents=True)
            (root / "etc/machine-id").write_text(name)
            value = {
                **dict.fromkeys(("config", "declaration", "self_check", "deploy_lock", "jobs", "started_from"), "/etc"),
                **{
                    "inventory": "fleet",
                    "box": name,
                    "url": url,
                    "certificates": "",
                    "state": "/state",
                    "fetched": "/run",
                    "metrics": "",
                },
                **{"signers": [{**signer, "valid_after": "", "valid_before": ""}], "revoked": []},
            }
            (root / "settings.json").write_text(json.dumps(value))
            found.append(PullSettings(str(root / "settings.json"), str(root)))
        return found

    def pull(self, settings: PullSettings) -> int:
        """Pull once, with all verifications of a box; returns the serial of the generation that the box has then."""
        published = fetch_published(settings, self.now)
        record = PullRecord(settings)
        if published:
            parse_payload(read_bounded(f"{settings.fetched}/{PAYLOAD_NAME}", MOST_PAYLOAD) or b"", published)
            record.value["serial"] = published.serial
            record.write()
        return record.serial


def _read_processor(scratch: Path) -> float:
    """Seconds of the processor that nginx and its worker have taken."""
    main = (scratch / "nginx.pid").read_text().strip()
    workers = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split() for pid in (main, *workers)]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS


def measure(boxes: int, say: Callable[[str], None]) -> PullReport:
    """Publish for so many boxes, and have each pull twice: a new generation, and an unchanged one.

    Args:
        boxes: How many.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: a box does not get its generation.
    """
    rows = []
    with TemporaryDirectory(prefix="rigwright-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        fleet, log = SimulatedFleet(folder, boxes), folder / "access.log"
        say(f"signing {boxes} generations")
        fleet.publish()
        with shared(fleet.published, folder, str(log)) as url:
            settings = fleet.add_settings(url)
            for title in ("a new generation", "an unchanged one"):
                say(f"{boxes} boxes pull {title}")
                log.write_text("")
                before, began = _read_processor(folder), time.monotonic()
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    serials = list(pool.map(fleet.pull, settings))
                took, used = time.monotonic() - began, _read_processor(folder) - before
                verified = serials.count(fleet.serial)
                if verified != boxes:
                    raise BenchmarkFailed(f"{boxes - verified} of {boxes} boxes did not get their generation")
                requests = [line.split() for line in log.read_text().splitlines()]
                sent = sum(int(size) for _, size in requests)
                rows.append(PullRow(title, boxes, took, len(requests), sent, used, verified))
    return PullReport(date.today().isoformat(), os.cpu_count() or 1, os.getloadavg()[1], rows)
