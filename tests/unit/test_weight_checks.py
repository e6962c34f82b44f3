"""The checks of weights as `rigwright check` runs them, on real folders: each is red for what it is about."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from checks import Drift, test_weights
from rigwright.inventory import ROOT
from rigwright.weights.stored import SERVICE, TIMER
from roles.weights.host import records
from roles.weights.host.records import File
from tests.unit.samples import COMMIT
from tests.unit.shelf import DAY, NOW
from tests.unit.weight_host import IN_ORDER, WeightHost

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="weights are root's")

ALL = {"W01", "W02", "W03", "W04", "W05"}
Place = tuple[WeightHost, File, Path]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    host = WeightHost(tmp_path)
    tmp_path.chmod(0o755)
    (host.root / f"small/{COMMIT}").mkdir(parents=True)
    host.fetched(f"other/{COMMIT}/b.gguf", b"b")
    path = host.root / f"small/{COMMIT}/a.gguf"
    path.write_bytes(b"a")
    file = host.fetched(f"small/{COMMIT}/a.gguf", b"a")
    for one in host.root.rglob("*.gguf"):
        one.chmod(0o444)
    records.write(host.records, host.root, file)
    records.write(host.records, host.root, other(host))
    for unit, text in IN_ORDER.items():
        host.says(unit, text)
    return host, file, path


def other(host: WeightHost) -> File:
    return File(f"other/{COMMIT}/b.gguf", "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d", 1)


def lines(place: Place, *options: str, files: tuple[File, ...] | None = None) -> list[tuple[str, str, str]]:
    """(verdict, id, the rest) of each line."""
    host, file, _ = place
    wanted = (file, other(host)) if files is None else files
    command = [sys.executable, "-m", "pytest", "-p", "tests.unit.weights_plugin", "--inventory", "x", *options]
    environment = os.environ | {"FOLDER": str(host.folder), "FILES": json.dumps([asdict(one) for one in wanted])}
    done = subprocess.run(
        [*command, "-c", "checks/pytest.ini", "checks/test_weights.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^ *(ok|FAIL|skip) +box +([A-Z][0-9]{2}) +(.*(?:\n {8}.*)*)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return found


def red(place: Place) -> dict[str, str]:
    """What fails without --deep, by id; asked in this process, which takes a second less."""
    host, file, _ = place
    row = host.locked(file)
    values = {"host": None, "rig": host.rig, "stored": host.stored(), "weight": row, "bytes_now": None}
    values["record_property"] = lambda name, value: None
    found = {}
    for one in vars(test_weights).values():
        marks = [mark for mark in getattr(one, "pytestmark", ()) if mark.name == "check"]
        for mark in marks:
            try:
                one(**{name: values[name] for name in inspect.signature(one).parameters})
            except Drift as drift:
                found[mark.kwargs["identifier"]] = str(drift)
    return found


def test_weights_that_are_in_order_are_and_one_look_is_enough(place: Place) -> None:
    found = lines(place)
    assert {(word, identifier) for word, identifier, _ in found} == {("ok", identifier) for identifier in ALL}
    assert len(found) == 9
    assert all("verified before and not touched since" in rest for _, identifier, rest in found if identifier == "W01")
    assert (place[0].folder / "asked").read_text() == "x"


def test_a_deep_check_reads_all_bytes_in_one_more_command(place: Place) -> None:
    found = lines(place, "--deep")
    assert {word for word, _, _ in found} == {"ok"}
    assert all("all of them were read" in rest for _, identifier, rest in found if identifier == "W01")
    assert (place[0].folder / "asked").read_text() == "xx"


def touched(host: WeightHost, file: File, path: Path) -> None:
    path.chmod(0o644)
    path.chmod(0o444)


def linked(host: WeightHost, file: File, path: Path) -> None:
    path.parent.rename(host.folder / "elsewhere")
    path.parent.symlink_to(host.folder / "elsewhere")


def late(host: WeightHost, file: File, path: Path) -> None:
    os.utime(host.deep(file), (NOW - 15.1 * DAY, NOW - 15.1 * DAY))


def timer(was: str, now: str) -> Callable[[WeightHost, File, Path], object]:
    """Another answer about the timer."""
    return lambda host, file, path: host.says(TIMER, re.sub(was, now, IN_ORDER[TIMER]))


DRIFTS: dict[str, tuple[Callable[[WeightHost, File, Path], object], set[str], str]] = {
    "touched": (touched, {"W01"}, "found a file that was touched since its bytes were verified; deploy again"),
    "no record": (
        lambda host, file, path: (host.records / records.name(file)).unlink(),
        {"W01"},
        "expected verified, found no record",
    ),
    "gone": (lambda host, file, path: path.unlink(), {"W01", "W02"}, "found no file"),
    "writable": (lambda host, file, path: path.chmod(0o664), {"W01", "W02"}, "found -rw-rw-r-- of user 0"),
    "somebody else's": (lambda host, file, path: os.chown(path, 1234, -1), {"W01", "W02"}, "of user 1234"),
    "a link": (
        lambda host, file, path: (path.rename(path.with_name("c")), path.symlink_to("c")),
        {"W01", "W02"},
        "found lrwxrwxrwx",
    ),
    "wrong": (
        lambda host, file, path: records.withdraw(host.records, records.name(file), "cd" * 32 + " 2026-11-22"),
        {"W01", "W03"},
        f"found {'cd' * 32} 2026-11-22; deploy again",
    ),
    "late": (late, {"W03"}, "expected less than 15 days ago, found 20"),
    "never hashed": (lambda host, file, path: host.deep(file).unlink(), {"W03"}, "found never"),
    "a folder for all": (lambda host, file, path: path.parent.chmod(0o777), {"W04"}, f"{COMMIT} drwxrwxrwx of user 0"),
    "a folder of a group": (lambda host, file, path: path.parent.parent.chmod(0o775), {"W04"}, "small drwxrwxr-x"),
    "a root for all": (lambda host, file, path: host.root.chmod(0o757), {"W04"}, "models drwxr-xrwx"),
    "somebody else's folder": (lambda host, file, path: os.chown(path.parent, 1234, -1), {"W04"}, "of user 1234"),
    "a folder elsewhere": (linked, {"W01", "W02", "W04"}, f"{COMMIT} lrwxrwxrwx"),
    "a timer that is off": (
        timer("=enabled", "=disabled"),
        {"W05"},
        "expected ['enabled', 'active'], found ['disabled', 'active']",
    ),
    "a timer that is masked": (
        timer(r"=active(\s.*)=enabled", r"=inactive\1=masked"),
        {"W05"},
        "expected ['enabled', 'active'], found ['masked', 'inactive']",
    ),
    "a timer that does not go off": (
        lambda host, file, path: host.went_off(4),
        {"W05"},
        "expected a run less than 3 hours ago, found 4",
    ),
    "a timer that has never gone off": (
        lambda host, file, path: host.stamp.unlink(),
        {"W05"},
        "expected a run less than 3 hours ago, found 960",
    ),
    "a service that is masked": (
        lambda host, file, path: host.says(SERVICE, "LoadState=masked\nActiveState=inactive\nUnitFileState=masked\n"),
        {"W05"},
        "expected loaded, found masked; deploy again",
    ),
    "no timer": (
        lambda host, file, path: host.says(TIMER, "LoadState=not-found\nActiveState=inactive\nUnitFileState=\n"),
        {"W05"},
        "found ['', 'inactive']",
    ),
    "a run that failed": (
        lambda host, file, path: host.says(SERVICE, IN_ORDER[SERVICE].replace("inactive", "failed")),
        {"W05"},
        "expected success, found failed; see `journalctl -u rigwright_rehash.service`",
    ),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_what_drifts_is_seen(place: Place, drift: str) -> None:
    change, expected, text = DRIFTS[drift]
    change(*place)
    found = red(place)
    assert set(found) == expected
    assert text in " ".join(found.values())


QUIET = {
    "a file that waits for its turn": lambda host: os.utime(
        host.deep(other(host)), (NOW - 14.9 * DAY, NOW - 14.9 * DAY)
    ),
    "a box that was just switched on": lambda host: (
        host.went_off(24 * 30),
        host.says(TIMER, IN_ORDER[TIMER].replace(f"{NOW - 40 * DAY:.0f}", f"{NOW - 60:.0f}")),
    ),
    "a run that takes long": lambda host: (
        host.went_off(24),
        host.says(SERVICE, IN_ORDER[SERVICE].replace("inactive", "activating")),
    ),
}


@pytest.mark.parametrize("what", QUIET)
def test_what_is_no_reason_for_alarm_is_none(place: Place, what: str) -> None:
    QUIET[what](place[0])
    assert red(place) == {}


def test_a_byte_that_only_the_disk_has_changed_is_seen_by_a_deep_check(place: Place) -> None:
    host, file, path = place
    path.chmod(0o644)
    host.rot(file, b"A")
    path.chmod(0o444)
    (host.records / records.name(file)).write_text(f"{records.state(path)} {path}\n")
    assert red(place) == {}
    (said,) = [rest for word, identifier, rest in lines(place, "--deep") if word == "FAIL"]
    assert f"expected {file.sha256}, found {hashlib.sha256(b'A').hexdigest()}; touch {path} and deploy" in said


def test_a_rig_without_weights_skips(place: Place) -> None:
    ((word, identifier, rest),) = lines(place, files=())
    assert (word, identifier) == ("skip", "W05")
    assert rest.endswith("(the rig has no weights)")
