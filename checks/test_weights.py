"""Weights."""

import stat
from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.supply.lock import Artefact
from rigwright.weights.records import DUE_DAYS, recorded
from rigwright.weights.stored import SERVICE, TIMER, Stored

LATE_DAYS = 2 * DUE_DAYS + 1  # a box that is busy or off for days is no reason for alarm yet
LATE_HOURS = 3  # the timer goes off each hour, up to half an hour late
OTHERS = stat.S_IWGRP | stat.S_IWOTH


@check("W01", "its bytes are the locked ones", severity="critical", why="a model with one wrong byte still answers")
def test_bytes(
    rig: Rig,
    stored: Stored,
    weight: Artefact,
    bytes_now: dict[str, str] | None,
    record_property: Callable[[str, object], None],
) -> None:
    file = recorded(rig, weight)
    if bytes_now is None:
        record_property("how", "verified before and not touched since; --deep reads them")
        expect(stored.found(file), "verified", DEPLOY)
        return
    record_property("how", "all of them were read")
    expect(
        bytes_now.get(file.absolute, "no bytes that can be read"), weight.sha256, f"touch {file.absolute} and {DEPLOY}"
    )


@check(
    "W02", "the service can read it and nobody can write it", severity="high", why="a service could change its weights"
)
def test_mode(rig: Rig, stored: Stored, weight: Artefact) -> None:
    path = rig.weight_path(weight)
    entry = stored.entries.get(path)
    found = f"{stat.filemode(entry.mode)} of user {entry.owner}" if entry else "no file"
    expect(found, "-r--r--r-- of user 0", f"chown root and chmod 444 {path}")


@check("W03", "its bytes were read again in time", severity="high", why="disks lose bits, and no size or time tells")
def test_hashed_again(rig: Rig, stored: Stored, weight: Artefact) -> None:
    file = recorded(rig, weight)
    mark = stored.wrong.get(file.record)
    expect(mark or weight.sha256, weight.sha256, "deploy again: it is fetched anew; then look at the disk (smartctl)")
    hashed = stored.hashed.get(file.record)
    days = (stored.now - hashed) / 86_400 if hashed is not None else None
    at = datetime.fromtimestamp(hashed, timezone.utc).strftime("%Y-%m-%d") if hashed is not None else "never"
    expect(
        at,
        f"less than {LATE_DAYS} days ago",
        f"`systemctl start {SERVICE}`, and see in `journalctl -u {SERVICE}` what has kept it",
        holds=days is not None and days < LATE_DAYS,
    )


@check(
    "W04",
    "nobody but root can put another file in its place",
    severity="high",
    why="who can write a folder can replace every file in it, whatever their modes are",
)
def test_folders(rig: Rig, stored: Stored, weight: Artefact) -> None:
    odd = []
    for path in stored.above(recorded(rig, weight)):
        entry = stored.entries.get(path)
        if entry is None or not stat.S_ISDIR(entry.mode) or entry.owner != 0 or entry.mode & OTHERS:
            odd.append(f"{path} {stat.filemode(entry.mode)} of user {entry.owner}" if entry else f"no {path}")
    expect(", ".join(odd) or "root's folders", "root's folders", "chown root and chmod 755 what is named")


@check(
    "W05",
    "weights are hashed again every now and then",
    severity="high",
    why="without it, nobody notices what a disk has lost",
)
def test_timer(host: Host, rig: Rig, stored: Stored) -> None:
    if not rig.weights:
        pytest.skip("the rig has no weights")
    timer, service = stored.units.get(TIMER, {}), stored.units.get(SERVICE, {})
    expect([timer.get("UnitFileState"), timer.get("ActiveState")], ["enabled", "active"], DEPLOY)
    expect(service.get("LoadState"), "loaded", DEPLOY)
    failed = service.get("ActiveState") == "failed"
    expect(
        "failed" if failed else "success",
        "success",
        f"see `journalctl -u {SERVICE}`, deploy again, and `systemctl start {SERVICE}`",
    )
    # while a run lasts, the timer begins none
    expect(
        f"{stored.waited:.1f} hours",
        f"a run less than {LATE_HOURS} hours ago",
        f"see `systemctl list-timers {TIMER}`, and what `systemctl cat {TIMER}` has beside our file",
        holds=stored.waited < LATE_HOURS or service.get("ActiveState") == "activating",
    )
