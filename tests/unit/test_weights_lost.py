"""Weights whose disk has lost bytes: what the deep re-hash has found has to be fetched anew by the next deploy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.weights.host import bringing, direct, fetch, records, spec
from tests.unit.file_server import whole
from tests.unit.weights_world import CONTENT, World, file, world

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[World]:
    """A host that has fetched the file, and whose record was taken back."""
    with world(tmp_path) as made:
        assert made.run(made.server.serve("m", whole(CONTENT))).returncode == 0
        (record,) = made.records.glob("*-*")
        record.unlink()
        made.server.asked.clear()
        yield made


def again(host: World) -> int:
    """The program's exit status, run in here."""
    host.command({file(): host.url(host.server.serve("m", whole(CONTENT)))})
    return fetch.Run(spec.read(host.folder / "spec.json")).run()


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN, errno.EBADMSG], ids=errno.errorcode.get)
def test_a_file_with_blocks_that_cannot_be_read_is_fetched_anew(
    host: World, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def lost(path: Path, seen: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(bringing, "digest", lost)
    assert again(host) == 0
    assert [one.range for one in host.server.asked] == [None]
    assert host.there(file())


def test_a_file_that_may_not_be_read_is_left_alone(host: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, seen: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(bringing, "digest", refused)
    assert again(host) == 1
    assert host.server.asked == []
    assert host.path().read_bytes() == CONTENT


def test_a_good_copy_in_memory_does_not_hide_what_was_found_on_the_disk(
    host: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a served model has one; adopted, it would be red again a week later, and never fetched."""
    records.withdraw(host.records, records.name(file()), "other bytes")
    monkeypatch.setattr(direct, "digest", lambda path, seen: "0" * 64, raising=False)
    assert again(host) == 0
    assert [one.range for one in host.server.asked] == [None]
    assert host.there(file())
    assert list((host.records / records.WRONG).iterdir()) == []


def test_what_was_found_wrong_and_is_right_by_now_is_taken(host: World) -> None:
    records.withdraw(host.records, records.name(file()), "other bytes")
    assert again(host) == 0
    assert host.server.asked == []
    assert host.there(file())
    assert list((host.records / records.WRONG).iterdir()) == []
