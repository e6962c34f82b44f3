"""How quick weights are: fetched and verified, verified alone, found to be unchanged, and fetched once for four boxes.

Servers and clients run on this machine, on loopback, with made data: programs are measured, not a network. The compared
runs take turns, so trust the ratios. The hub is the lab's stand-in; peers are served by a static file server.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from benchmarks.table_row import Row
from benchmarks.weights_fixtures import REPOSITORY, World, end, shared, start, timed
from rigwright.weights.verification import RecordedFile, render_verified_test
from tests.stand_ins.hub import StandInHub

SHARDS = 8
MIB = 1 << 20
GIGABIT = 125_000_000  # bytes a second
SPARSE = (50, 2 * 10**9)  # files and bytes each of what is only looked at: 100 GB


@dataclass
class Report:
    """All figures of a run."""

    date: str
    cpus: int
    data_bytes: int
    rows: list[Row]
    uplink: float
    """Bytes that four boxes drew from the hub, in terms of the model's."""

    def as_json(self) -> str:
        """For programs."""
        rows = [{**asdict(row), "ratio": row.ratio} for row in self.rows]
        return json.dumps({**asdict(self), "rows": rows}, indent=2) + "\n"


def measure(folder: Path, mebibytes: int, runs: int, say: Callable[[str], None]) -> Report:
    """Measure everything.

    Args:
        folder: Of this machine's disk, with room for six times the data.
        mebibytes: How much data there is.
        runs: How often each is timed.
        say: Reports the present step.

    Raises:
        BenchmarkFailed: a program failed.
    """
    say(f"making {mebibytes} MiB of data")
    data = folder / "data"
    data.mkdir(parents=True)
    size = mebibytes * MIB // SHARDS
    files = {}
    for number in range(1, SHARDS + 1):
        name = f"model-{number:05}-of-{SHARDS:05}.safetensors"
        content = hashlib.sha256()
        with (data / name).open("wb") as file:
            for _ in range(size // MIB):
                part = os.urandom(MIB)
                content.update(part)
                file.write(part)
        files[name] = content.hexdigest()
    os.sync()  # data that is still on its way to the disk would add to the time of the next run
    size = size // MIB * MIB
    with StandInHub() as hub:
        commit = hub.add_commit(REPOSITORY, {name: data / name for name in files})
        world = World(folder, commit, files, size)
        rows = [
            *_fetching(world, hub, runs, say, None, "unlimited"),
            *_fetching(world, hub, runs, say, GIGABIT, "1 Gbit/s"),
            _verifying(world, hub, runs, say),
            _unchanged(folder / "sparse", runs, say),
        ]
        fleet, uplink = _fleet(world, hub, runs, say)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return Report(date, os.cpu_count() or 1, size * SHARDS, [*rows, fleet], uplink)


def _fetching(
    world: World, hub: StandInHub, runs: int, say: Callable[[str], None], rate: int | None, line: str
) -> Iterator[Row]:
    hub.bytes_a_second = rate
    curl = Row(f"fetch and verify, {line}", "curl alone", "at most 1.1")
    hf = Row(f"fetch and verify, {line}", "hf download, then sha256sum", "")
    for run in range(1 if rate else runs):
        say(f"fetching, {line}, run {run + 1}")
        world.clear("ours")
        curl.ours.append(timed(world.fetch(world.spec("ours", hub))))
        world.clear("ours")
        world.clear("curl")
        (world.folder / "curl").mkdir()
        urls = [f"{hub.url}/{REPOSITORY}/resolve/{world.commit}/{name}" for name in world.files]
        curl.theirs.append(
            timed(["curl", "--fail", "--silent", "--location", "--remote-name-all", *urls], world.folder / "curl")
        )
        world.clear("curl")
        world.clear("hf")
        hf.theirs.append(timed(_hf(world, hub)))
        world.clear("hf")
    hf.ours = curl.ours
    hub.bytes_a_second = None
    yield from (curl, hf)


def _hf(world: World, hub: StandInHub) -> list[str]:
    program = Path(sys.executable).with_name("hf")
    target = world.folder / "hf"
    download = f"HF_HUB_DISABLE_XET=1 HF_HOME={target}/home HF_ENDPOINT={hub.url} {program} download {REPOSITORY}"
    hashing = f"cd {target}/model && sha256sum *.safetensors"
    return ["sh", "-c", f"{download} --revision {world.commit} --local-dir {target}/model >/dev/null && {hashing}"]


def _verifying(world: World, hub: StandInHub, runs: int, say: Callable[[str], None]) -> Row:
    """Files that lie there and have no record, beside as many `openssl dgst` at once as there are processors."""
    row = Row("verify files that are there", "openssl dgst, one a processor", "at most 1.11")
    for run in range(runs):
        say(f"verifying, run {run + 1}")
        world.clear("ours")
        spec = world.spec("ours", hub)
        place = world.folder / "ours" / "models" / REPOSITORY / world.commit
        place.mkdir(parents=True)
        for name in world.files:
            os.link(world.data / name, place / name)
        row.ours.append(timed(world.fetch(spec)))
        names = "\\n".join(str(world.data / name) for name in world.files)
        each = f"printf '{names}' | xargs -P {os.cpu_count()} -n 1 openssl dgst -sha256"
        row.theirs.append(timed(["sh", "-c", each]))
    world.clear("ours")
    return row


def _unchanged(folder: Path, runs: int, say: Callable[[str], None]) -> Row:
    """The condition that a deploy asks, of 100 GB that were verified."""
    count, size = SPARSE
    say(f"looking at {count * size / 1e9:.0f} GB that are unchanged")
    (folder / "records").mkdir(parents=True)
    wanted = []
    for number in range(count):
        one = RecordedFile(str(folder), f"{number:05}.safetensors", hashlib.sha256(b"%d" % number).hexdigest())
        with open(one.absolute, "wb") as file:
            file.truncate(size)
        wanted.append(one)
    asked = ["stat", "-c", "%s %.9Y %.9Z %i %n", *(one.absolute for one in wanted)]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines(keepends=True)
    for one, line in zip(wanted, lines, strict=True):
        (folder / "records" / one.record).write_text(line)
    row = Row(f"{count} files of {size / 1e9:.0f} GB, unchanged", "", "at most 0.2 s")
    test = render_verified_test(str(folder / "records"), wanted)
    row.ours = [timed(["sh", "-c", test]) for _ in range(runs * 5)]
    return row


def _fleet(world: World, hub: StandInHub, runs: int, say: Callable[[str], None]) -> tuple[Row, float]:
    """Four boxes, three of which ask the first one, beside one box alone; the hub's line has 1 Gbit/s."""
    row = Row("four boxes through one, hub at 1 Gbit/s", "one box alone", "at most 1.3")
    hub.bytes_a_second = GIGABIT
    drawn: list[float] = []
    for run in range(max(1, runs // 2)):
        say(f"four boxes, run {run + 1}")
        row.theirs.append(timed(world.fetch(world.spec("box1", hub))))
        world.clear("box1")
        before, started = hub.sent_bytes, time.monotonic()
        specs = [world.spec("box1", hub)]
        models = world.folder / "box1" / "models"
        models.mkdir(parents=True)
        with shared(models, world.folder) as base:
            specs += [world.spec(f"box{number}", hub, (base,)) for number in (2, 3, 4)]
            # as a deploy starts them: at once, and those that ask may be first
            running = [start(world.fetch(spec)) for spec in reversed(specs)]
            for process in running:
                end(process)
        row.ours.append(time.monotonic() - started)
        drawn.append((hub.sent_bytes - before) / (world.size * SHARDS))
        for spec in specs:
            world.clear(spec.parent.name)
    return row, median(drawn)
