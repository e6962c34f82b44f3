"""`rigwright lock` of conda packages, against channels on the loopback interface."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.lock_resolver import conda
from tests.unit.conda_channel import LATE, LoopbackCondaChannel
from tests.unit.conftest import lock_fixture_box
from tests.unit.file_server import error_status, run_file_server
from tests.unit.lock_world import LockFixture

CATALOG = """
[inputs.py]
kind = "conda"
requirements = ["{spec}"]
channels = ["forge"]
{more}
"""
RIG = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "mirrors": {{"forge": {mirrors!r}}}}}}})
"""
PYTHON = "python-3.10.20-h1_cpython.tar.bz2"


class CondaLockBox(LockFixture):
    """A box that asks for a Python of a channel."""

    channel: LoopbackCondaChannel

    def asks(self, spec: str = "python ==3.10.20", more: str = "") -> None:
        self.write_catalog(CATALOG.format(spec=spec, more=more))

    def mirrors(self, *urls: str) -> None:
        (self.folder / "rig.py").write_text(RIG.format(mirrors=list(urls)))

    @property
    def rows(self) -> list[str]:
        return [f"{row.name} {row.version} {row.build} {row.sources[0]}" for row in self.read_lock.groups["py"]]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CondaLockBox]:
    with run_file_server() as files:
        box = lock_fixture_box(tmp_path, files, "json", monkeypatch, CondaLockBox)
        assert isinstance(box, CondaLockBox)
        box.channel = LoopbackCondaChannel(tmp_path / "channel", files)
        box.channel.publish_package("python", "3.10.20", "_lock", "__glibc >=2.17", "tz", build="h1_cpython")
        box.channel.publish_package("_lock", "0.1", build="forge")
        box.channel.publish_package("tz", "2026a", subdir="noarch")
        box.channel.publish()
        box.mirrors(box.channel.url)
        box.asks()
        yield box


def test_packages_are_solved_and_hashed_and_their_builds_told(box: CondaLockBox) -> None:
    lines = box.lock_lines()
    assert [line.partition("  ")[0] for line in lines] == [
        "+ conda py/_lock 0.1 forge",
        "+ conda py/python 3.10.20 h1_cpython",
        "+ conda py/tz 2026a 0",
    ]
    assert box.rows == [
        "_lock 0.1 forge forge:linux-64/_lock-0.1-forge.tar.bz2",
        f"python 3.10.20 h1_cpython forge:linux-64/{PYTHON}",
        "tz 2026a 0 forge:noarch/tz-2026a-0.tar.bz2",
    ]
    content = (box.channel.folder / "linux-64" / PYTHON).read_bytes()
    row = box.read_lock.groups["py"][1]
    assert (row.sha256, row.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert box.files.url not in box.lock_text


def test_locked_rows_stay_and_their_channel_is_not_asked(box: CondaLockBox) -> None:
    box.lock_lines()
    box.channel.publish_package("tz", "2026b", subdir="noarch")
    box.channel.publish()
    box.files.asked.clear()
    assert box.lock_lines() == ["no change"]
    assert not [one for one in box.files.asked if one.path.startswith("forge/")]
    assert "~ conda py/tz 2026a 0 -> 2026b 0" in box.run_lock("--refresh").stdout


def test_a_changed_requirement_moves_what_it_has_to(box: CondaLockBox) -> None:
    box.lock_lines()
    box.channel.publish_package("tz", "2026b", subdir="noarch")
    box.channel.publish_package("python", "3.10.21", "_lock", "tz", build="h1_cpython")
    box.channel.publish()
    box.asks("python ==3.10.21")
    lines = box.lock_lines()
    assert [line.partition("  ")[0] for line in lines] == ["~ conda py/python 3.10.20 h1_cpython -> 3.10.21 h1_cpython"]


def test_only_what_was_there_on_its_day_is_looked_at(box: CondaLockBox) -> None:
    box.channel.publish_package("python", "3.10.21", "_lock", when=LATE)
    box.channel.publish()
    box.asks("python >=3.10", 'as_of = "2026-06-10"')
    box.lock_lines()
    assert [row.version for row in box.read_lock.groups["py"] if row.name == "python"] == ["3.10.20"]
    box.asks("python >=3.10", 'as_of = "2026-10-02"')
    lines = box.lock_lines()
    assert lines[0] == "~ environment py as of 2026-06-10 -> 2026-10-02"
    assert any(line.startswith("~ conda py/python 3.10.20 h1_cpython -> 3.10.21 0") for line in lines)


@pytest.mark.parametrize("depends", ["__glibc >=2.36", "__cuda >=13", "__win", "gone"])
def test_packages_that_hosts_lack_are_no_solution(box: CondaLockBox, depends: str) -> None:
    box.channel.publish_package("python", "3.10.20", depends, build="h1_cpython")
    box.channel.publish()
    said = " ".join(box.run_lock().stderr.split())
    assert "inputs.py: cannot be locked" in said
    assert depends.partition(" ")[0] in said
    assert box.lock_text == ""


def test_the_next_mirror_is_asked_where_one_is_behind_or_away(box: CondaLockBox) -> None:
    box.mirrors(f"{box.files.url}/away", box.channel.url)
    box.lock_lines()
    assert box.rows[1].endswith(f"forge:linux-64/{PYTHON}")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sha256": None}, "has no SHA-256 in the channel's index"),
        ({"size": None}, "has a size that is refused"),
        ({"name": "python", "version": "3.10.20", "build": "h2_cpython"}, "is refused: the file of python-3.10.20-h2"),
        ({"subdir": "osx-64"}, "refused|No candidates|cannot be locked"),
        ({"build": "a b"}, "refused|cannot be locked"),
        ({"sha256": "f" * 12}, "cannot be locked"),
        ({"depends": "x"}, "cannot be locked"),
    ],
)
def test_a_record_that_says_what_cannot_be_is_refused(box: CondaLockBox, changes: dict[str, object], text: str) -> None:
    box.channel.changes[PYTHON] = changes
    box.channel.publish()
    said = box.run_lock()
    assert said.exit_code == 1
    assert any(one in " ".join(said.stderr.split()) for one in text.split("|")), said.stderr
    assert box.lock_text == ""


@pytest.mark.parametrize("name", [f"../{PYTHON}", f"../../noarch/{PYTHON}", f"/{PYTHON}", f"http://192.0.2.1/{PYTHON}"])
def test_a_path_that_leaves_the_channel_is_refused(box: CondaLockBox, name: str) -> None:
    box.channel.renamed[PYTHON] = name
    box.channel.publish()
    assert (box.run_lock().exit_code, box.lock_text) == (1, "")


def test_an_index_that_sends_elsewhere_is_refused(box: CondaLockBox) -> None:
    path = "linux-64/repodata.json"
    index = (box.channel.folder / path).read_text().replace('"subdir":"linux-64"}', '"subdir":"linux-64"}', 1)
    box.channel.serve(path, index.replace('"info":{', '"info":{"base_url":"http://192.0.2.1/other/",', 1).encode())
    said = box.run_lock()
    assert said.exit_code == 1, said.output
    assert "is not in the channel that lists it" in " ".join(said.stderr.split())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"<html></html>", b'{"packages": 1}', b"\xff" * 1000])
def test_an_index_that_is_invalid_is_refused(box: CondaLockBox, content: bytes) -> None:
    box.channel.serve("linux-64/repodata.json", content)
    assert "inputs.py: cannot be locked" in " ".join(box.run_lock().stderr.split())
    assert box.lock_text == ""


def test_an_index_that_does_not_come_to_an_end_is_left(box: CondaLockBox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conda, "SOLVER_TIMEOUT_S", 0.05)
    assert "no answer within 0.05 s" in " ".join(box.run_lock().stderr.split())


@pytest.mark.parametrize(("limit", "size"), [("DISK", 1 << 20), ("MEMORY", 1 << 20)])
def test_an_index_that_is_too_large_is_refused(box, monkeypatch, limit, size):
    index = (box.channel.folder / "linux-64/repodata.json").read_bytes()
    box.channel.serve("linux-64/repodata.json", index + b" " * (1 << 22))
    monkeypatch.setattr(conda, limit, size)
    assert "inputs.py: cannot be locked" in " ".join(box.run_lock().stderr.split())


def test_check_says_what_is_newer_and_what_is_gone(box: CondaLockBox) -> None:
    box.lock_lines()
    assert box.check_lines(0) == ["nothing changed"]
    box.channel.publish_package("tz", "2026b", subdir="noarch")
    box.channel.remove("linux-64", "_lock-0.1-forge.tar.bz2")
    box.channel.publish_package("_lock", "0.1", build="forge2")
    box.channel.publish()
    lines = box.check_lines(1)
    assert "_lock 0.1: _lock-0.1-forge.tar.bz2 is gone from channel forge, or is another one" in lines
    assert any(line.startswith("~ conda py/tz 2026a 0 -> 2026b 0") for line in lines)


def test_check_says_what_is_gone_where_nothing_fits_any_more(box: CondaLockBox) -> None:
    box.lock_lines()
    box.channel.remove("linux-64", PYTHON)
    box.channel.publish()
    lines = box.check_lines(3)
    assert f"python 3.10.20: {PYTHON} is gone from channel forge, or is another one" in lines
    assert any(line.startswith("could not check: py: ") for line in lines)


def test_check_says_that_a_file_became_another_one(box: CondaLockBox) -> None:
    box.lock_lines()
    box.channel.changes[PYTHON] = {"sha256": "f" * 64}
    box.channel.publish()
    assert any(line.startswith(f"python 3.10.20: {PYTHON} is gone") for line in box.check_lines(1))


def test_check_that_cannot_reach_the_channel_says_so(box: CondaLockBox) -> None:
    box.lock_lines()
    for subdir in ("linux-64", "noarch"):
        box.files.serve(f"forge/{subdir}/repodata.json", error_status(404))
    assert any(line.startswith("could not check: py: ") for line in box.check_lines(3))


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        (
            "Request failed after 2 retries\nCaused by: error sending request for url (http://127.0.0.1:9/forge/noarch/x)"
            "\nCaused by: client error (Connect)\nCaused by: Connection refused (os error 111)",
            "channel forge cannot be reached: Connection refused (http://127.0.0.1:9/forge/noarch/x). Check this "
            "machine's network and proxy, or name a mirror in the inventory: ",
        ),
        ("Cannot solve the request", "forge: py-rattler reports: Cannot solve the request"),
        ("a record is wrong\nCaused by: EOF", "forge: py-rattler reports: a record is wrong Caused by: EOF"),
    ],
)
def test_a_failure_of_the_solver_is_one_sentence(failed: str, message: str) -> None:
    assert conda._describe_failure(["forge"], failed).startswith(message)


def test_an_unreachable_channel_is_named_with_its_reason(box: CondaLockBox) -> None:
    box.mirrors("http://127.0.0.1:9/forge")
    done = box.run_lock()
    assert done.exit_code != 0
    assert "channel http://127.0.0.1:9/forge cannot be reached: Connection refused (http://127.0.0.1:9/" in done.output
    assert "Caused by" not in done.output
