"""The checks of weights, on real folders: each is red for what it is about, and for nothing that is harmless."""

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checks import test_weights
from checks.survey.answers import SurveyAnswers
from checks.survey.host import weights
from checks.survey.section import SurveyScope
from checks.survey.trees import PathPermissions
from checks.survey.weights import FEW, SERVICE, TIMER, WEIGHTS
from roles.weights.host import records
from roles.weights.host.records import LockedFile
from tests.unit.check_runner import red_checks
from tests.unit.samples import COMMIT, sample_instance, sample_parts
from tests.unit.survey_samples import empty_answer
from tests.unit.weight_host import WeightHost
from tests.unit.weight_shelf import DAY, NOW

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="weights are root's")


def mount_at(point: str, kind: str, root: str, boot: bool) -> dict[str, object]:
    """A row of the answer about mounts."""
    return {"point": point, "root": root, "kind": kind, "source": "x", "options": ["rw"], "boot": boot}


class WeightCheckHost(WeightHost):
    """A host with one file of weights that is looked at, and one beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.chmod(0o755)
        self.few = 0
        self.mounts: list[dict[str, object]] = []
        self.small = self.add_fetched_file(f"small/{COMMIT}/a.gguf", b"a" * 5000)
        self.path = self.root / self.small.path
        self.path.chmod(0o444)
        records.write_record(self.records, self.root, self.small)
        self.units = {
            TIMER: {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "Result": "success"},
            SERVICE: {"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "static", "Result": "success"},
        }
        self.units[TIMER] |= {"ActiveEnterTimestamp": f"@{NOW - 40 * DAY:.0f}", "NextElapseUSecRealtime": _day(1800)}
        self.units[SERVICE] |= {"ConditionTimestamp": "", "ConditionResult": "no"}
        self.deep_look = False

    def survey_weights(self) -> SurveyAnswers:
        """The survey of it."""
        rig = self.rig_with(sample_instance("i", parts=sample_parts(self.locked_row(self.small))))
        asked: Any = WEIGHTS.asks(SurveyScope(rig, None, self.deep_look))  # type: ignore[arg-type]
        told = weights.look(asked | {"few": self.few})
        return SurveyAnswers(
            {
                "weights": {"told": told},
                "path_permissions": {"told": empty_answer(PathPermissions) | {"mounts": self.mounts}},
            }
        )

    def red(self) -> dict[str, str]:
        """Check -> what it says, of those that are red."""
        row = self.locked_row(self.small)
        rig = self.rig_with(sample_instance("i", parts=sample_parts(row)))
        return red_checks(
            test_weights, self.survey_weights(), rig=rig, weight=row, record_property=lambda name, value: None
        )


def _day(ahead: float) -> str:

    return time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(NOW + ahead))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightCheckHost:
    made = WeightCheckHost(tmp_path)
    monkeypatch.setattr(weights.systemd_properties, "read_properties", lambda *_: made.units)
    monkeypatch.setattr(weights, "STAMPS", made.folder)
    return made


def test_weights_that_are_in_order_are(place: WeightCheckHost) -> None:
    assert place.red() == {}
    (file,) = place.survey_weights().read(WEIGHTS).files.values()
    assert (file.is_untouched, file.read) == (True, "")


def test_few_bytes_are_read_each_time_and_all_of_them_by_a_deep_look(place: WeightCheckHost) -> None:
    place.few = FEW
    assert [file.read for file in place.survey_weights().read(WEIGHTS).files.values()] == [place.small.sha256]
    place.few, place.deep_look = 0, True
    assert [file.read for file in place.survey_weights().read(WEIGHTS).files.values()] == [place.small.sha256]


def touched(place: WeightCheckHost) -> None:
    place.path.chmod(0o644)
    place.path.chmod(0o444)


def flipped(place: WeightCheckHost) -> None:
    """A byte, with the times that the file had."""
    before = place.path.stat()
    with place.path.open("r+b") as file:
        file.write(b"b")
    os.utime(place.path, ns=(before.st_atime_ns, before.st_mtime_ns))


def copied(place: WeightCheckHost) -> None:
    shutil.copy2(place.path, place.path.with_name("copy"))
    place.path.with_name("copy").rename(place.path)


HARMLESS: dict[str, Callable[[WeightCheckHost], object]] = {
    "a mode that is given again": touched,
    "a backup by hard links": lambda place: place.path.with_name("backup").hardlink_to(place.path),
    "a time that is given anew": lambda place: place.path.touch(),
    "the same bytes in another file": copied,
    "a file that waits for its turn": lambda place: os.utime(place.deep_record(place.small), (NOW - 14.9 * DAY,) * 2),
    "a box that was just switched on": lambda place: (
        place.set_last_run(24 * 30),
        place.units[TIMER].update(ActiveEnterTimestamp=f"@{NOW - 60:.0f}"),
    ),
    "a run that takes long": lambda place: (
        place.set_last_run(24),
        place.units[SERVICE].update(ActiveState="activating"),
        place.units[TIMER].update(NextElapseUSecRealtime=""),
    ),
    "a file of somebody's beside it": lambda place: place.path.with_name("b.gguf").write_bytes(b"b"),
    "a disk for a model": lambda place: place.mounts.append(mount_at(str(place.path.parent), "ext4", "/", True)),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_harmless_states_turn_nothing_red(place: WeightCheckHost, what: str) -> None:
    HARMLESS[what](place)
    assert place.red() == {}


def linked(place: WeightCheckHost) -> None:
    place.path.parent.rename(place.folder / "elsewhere")
    place.path.parent.symlink_to(place.folder / "elsewhere")


def timer(**changes: str) -> Callable[[WeightCheckHost], object]:
    return lambda place: place.units[TIMER].update(changes)


def service(**changes: str) -> Callable[[WeightCheckHost], object]:
    return lambda place: place.units[SERVICE].update(changes)


def mounted(kind: str, shown: str, boot: bool) -> Callable[[WeightCheckHost], object]:
    return lambda place: place.mounts.append(mount_at(str(place.path), kind, shown, boot))


DRIFTS: dict[str, tuple[Callable[[WeightCheckHost], object], set[str], str]] = {
    "a byte": (flipped, {"W01"}, "deploy INVENTORY"),
    "no record": (
        lambda place: (place.records / records.record_name(place.small)).unlink(),
        {"W06"},
        "expected a record of",
    ),
    "a record of something else": (
        lambda place: (place.records / records.record_name(place.small)).write_text("1 2 3 4 /etc/passwd\n"),
        {"W06"},
        "found a record of /etc/passwd",
    ),
    "an empty record": (
        lambda place: (place.records / records.record_name(place.small)).write_text(""),
        {"W06"},
        "no record",
    ),
    "gone": (lambda place: place.path.unlink(), {"W01", "W02"}, "found no file"),
    "cut": (lambda place: os.truncate(place.path, 4000), {"W01"}, "found 4000 bytes"),
    "writable": (lambda place: place.path.chmod(0o664), {"W02"}, "found -rw-rw-r-- of user 0"),
    "unreadable": (lambda place: place.path.chmod(0o400), {"W02"}, "found -r-------- of user 0"),
    "somebody else's": (lambda place: os.chown(place.path, 1234, -1), {"W02"}, "of user 1234"),
    "a link": (
        lambda place: (place.path.rename(place.path.with_name("c")), place.path.symlink_to("c")),
        {"W01", "W02"},
        "found a link",
    ),
    "a pipe": (
        lambda place: (place.path.unlink(), os.mkfifo(place.path, 0o444)),
        {"W01", "W02"},
        "found a device, pipe or socket",
    ),
    "wrong": (
        lambda place: records.withdraw_record(
            place.records, records.record_name(place.small), "cd" * 32 + " 2026-11-22"
        ),
        {"W03", "W06"},
        f"found {'cd' * 32} 2026-11-22; deploy INVENTORY",
    ),
    "late": (
        lambda place: os.utime(place.deep_record(place.small), (NOW - 15.1 * DAY,) * 2),
        {"W03"},
        "less than 15 days ago",
    ),
    "never hashed": (lambda place: place.deep_record(place.small).unlink(), {"W03"}, "found never"),
    "hashed in a time to come": (
        lambda place: os.utime(place.deep_record(place.small), (NOW + 30 * DAY,) * 2),
        {"W03"},
        "not in the future",
    ),
    "a folder for all": (lambda place: place.path.parent.chmod(0o777), {"W04"}, f"{COMMIT} drwxrwxrwx of user 0"),
    "a folder of a group": (lambda place: place.path.parent.parent.chmod(0o775), {"W04"}, "small drwxrwxr-x"),
    "a folder that is shut": (lambda place: place.path.parent.chmod(0o700), {"W04"}, "drwx------"),
    "somebody else's folder": (lambda place: os.chown(place.path.parent, 1234, -1), {"W04"}, "of user 1234"),
    "a folder elsewhere": (linked, {"W04"}, f"{COMMIT}: a link"),
    "a timer that is off": (
        timer(UnitFileState="disabled"),
        {"W05"},
        "expected enabled and active, found disabled and active",
    ),
    "no timer": (
        timer(LoadState="not-found", UnitFileState="", ActiveState="inactive"),
        {"W05"},
        "found not-found and inactive",
    ),
    "a timer that does not go off": (
        lambda place: place.set_last_run(4),
        {"W05"},
        "expected a run less than 3 hours ago",
    ),
    "a timer that has gone off in a time to come": (
        lambda place: place.set_last_run(-24),
        {"W05"},
        "expected a past run",
    ),
    "a timer that goes off next year": (timer(NextElapseUSecRealtime=_day(300 * DAY)), {"W05"}, "next run within"),
    "a timer that goes off no more": (timer(NextElapseUSecRealtime=""), {"W05"}, "found never"),
    "a service that is masked": (
        service(LoadState="masked"),
        {"W05"},
        "expected loaded, found masked; deploy INVENTORY",
    ),
    "a run that failed": (
        service(ActiveState="failed", Result="exit-code"),
        {"W05"},
        "found a run that ended with exit-code; as root on the host: systemctl reset-failed rigwright_rehash.service",
    ),
    "a run without records": (
        service(ConditionTimestamp="@1700000000", ConditionResult="no"),
        {"W05"},
        "found a run without a records directory",
    ),
    "a file over it": (mounted("tmpfs", "/x", True), {"W08"}, "found /x of a tmpfs at "),
    "a disk that no boot mounts": (mounted("ext4", "/", False), {"W08"}, "found / of a ext4 at "),
    "a folder of a disk over it": (mounted("ext4", "/x", True), {"W08"}, "found /x of a ext4 at "),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_drift_is_seen(place: WeightCheckHost, drift: str) -> None:
    change, expected, text = DRIFTS[drift]
    change(place)
    found = place.red()
    assert set(found) == expected, found
    assert text in " ".join(found.values())


def test_bytes_that_only_the_disk_has_changed_are_seen_where_they_are_few(place: WeightCheckHost) -> None:
    place.path.chmod(0o644)
    place.corrupt_file(place.small, b"A" * 5000)
    place.path.chmod(0o444)
    (place.records / records.record_name(place.small)).write_text(f"{records.file_state(place.path)} {place.path}\n")
    assert place.red() == {}
    place.few = FEW
    (said,) = place.red().values()
    wrong = hashlib.sha256(b"A" * 5000).hexdigest()
    cure = f"as root on the host: touch -- {place.path}; then deploy"
    assert f"expected {place.small.sha256} at {place.path}, found {wrong}; {cure}" in said


def test_beside_a_model_that_is_read_whole_nothing_lies_that_an_engine_would_take(place: WeightCheckHost) -> None:
    place.small = LockedFile(f"small/{COMMIT}/a.safetensors", place.small.sha256, 5000)
    place.path.rename(place.root / place.small.path)
    records.write_record(place.records, place.root, place.small)
    place.path.with_name("README").write_text("x")
    assert place.red() == {}
    place.path.with_name("tokenizer_config.json").write_text("{}")
    assert set(place.red()) == {"W07"}


def test_many_bytes_are_read_at_once(place: WeightCheckHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "MANY", 1)
    place.deep_look = True
    assert place.red() == {}


def test_a_disk_that_does_not_answer_is_reported(place: WeightCheckHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(path: Path) -> None:

        signal.raise_signal(signal.SIGALRM)

    monkeypatch.setattr(weights, "_mtime", hang)
    with pytest.raises(TimeoutError, match="a disk gives nothing for 30 s"):
        place.survey_weights()


def test_moments_of_units_are_of_no_zone(place: WeightCheckHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setattr(
        weights.systemd_properties,
        "read_properties",
        lambda *words: {"TZ": {"said": os.environ["TZ"], "how": words[2]}},
    )
    assert place.survey_weights().read(WEIGHTS).units == {"TZ": {"said": "UTC", "how": "--timestamp=unix"}}
