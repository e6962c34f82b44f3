"""Weights after data loss on their disk: the next deploy fetches the files anew that the deep re-hash has found."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roles.weights.host import bringing, direct, fetch, records, spec
from tests.unit.file_server import complete_file
from tests.unit.weights_world import CONTENT, WeightsFixture, make_weights_fixture, wanted_file

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the program gives what it fetches to root")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[WeightsFixture]:
    """A host that has fetched the file, and whose record was taken back."""
    with make_weights_fixture(tmp_path) as made:
        made.fetch_file(made.server.serve("m", complete_file(CONTENT)))
        (record,) = made.records.glob("*-*")
        record.unlink()
        made.server.asked.clear()
        yield made


def again(host: WeightsFixture) -> int:
    """The program's exit status, run in here."""
    host.fetch_command({wanted_file(): host.url_sources(host.server.serve("m", complete_file(CONTENT)))})
    return fetch.FetchRun(spec.load_spec(host.folder / "spec.json")).run()


@pytest.mark.parametrize("number", [errno.EIO, errno.EUCLEAN, errno.EBADMSG], ids=errno.errorcode.get)
def test_a_file_with_blocks_that_cannot_be_read_is_fetched_anew(
    host: WeightsFixture, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def lost(path: Path, seen: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(bringing, "digest_file", lost)
    assert again(host) == 0
    assert [one.range for one in host.server.asked] == [None]
    assert host.is_fetched(wanted_file())


def test_a_file_that_may_not_be_read_is_left_alone(host: WeightsFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, seen: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(bringing, "digest_file", refused)
    assert again(host) == 1
    assert host.server.asked == []
    assert host.file_path().read_bytes() == CONTENT


def test_a_good_copy_in_memory_does_not_hide_what_was_found_on_the_disk(
    host: WeightsFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a served model has one; adopted, it would be red again a week later, and never fetched."""
    records.withdraw_record(host.records, records.record_name(wanted_file()), "other bytes")
    monkeypatch.setattr(direct, "digest_from_disk", lambda path, seen: "0" * 64, raising=False)
    assert again(host) == 0
    assert [one.range for one in host.server.asked] == [None]
    assert host.is_fetched(wanted_file())
    assert list((host.records / records.WRONG).iterdir()) == []


def test_a_repaired_file_is_taken(host: WeightsFixture) -> None:
    records.withdraw_record(host.records, records.record_name(wanted_file()), "other bytes")
    assert again(host) == 0
    assert host.server.asked == []
    assert host.is_fetched(wanted_file())
    assert list((host.records / records.WRONG).iterdir()) == []
