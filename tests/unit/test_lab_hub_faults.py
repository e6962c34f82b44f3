"""What goes wrong with the local hub's answers when it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import requests
from huggingface_hub import constants, get_hf_file_metadata
from huggingface_hub.utils._xet import refresh_xet_connection_info

from lab.hub import Hub
from lab.hub.faults import (
    Changed,
    Cut,
    Damaged,
    Expired,
    Fault,
    IgnoreRange,
    Length,
    Stall,
    Xet,
    emptied,
    extended,
    flipped,
    swapped,
    too_many,
    truncated,
)
from tests.unit.test_lab_hub import FILES, LARGE, NAME, got, url


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as made:
        made.repository(NAME, FILES, licence="mit")
        yield made


def test_a_signed_address_runs_out_and_cannot_be_made_up(hub: Hub):
    hub.fault(Expired(), NAME, times=1)
    assert requests.get(url(hub), timeout=10).status_code == 403
    answer = requests.get(url(hub), timeout=10)
    assert answer.content == LARGE
    assert requests.get(answer.url, timeout=10).status_code == 200
    assert requests.get(answer.url.replace("expires=", "expires=1"), timeout=10).status_code == 403


def test_the_client_goes_on_where_the_connection_was_cut(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 50_000)  # it forgets a part that it has not whole
    hub.fault(Cut(300_000), NAME, "x.gguf", times=1)
    assert got(hub, tmp_path) == LARGE
    ranges = [one.range for one in hub.asked if one.method == "GET" and one.path.startswith("/cdn/")]
    assert ranges == [None, "bytes=300000-"]
    assert hub.sent_bytes == len(LARGE)


def test_nothing_comes_while_it_stalls(hub: Hub):
    stall = Stall(1000)
    hub.fault(stall, NAME, times=1)
    content: list[bytes] = []
    fetching = threading.Thread(target=lambda: content.append(requests.get(url(hub), timeout=30).content))
    fetching.start()
    assert stall.met.wait(20)
    assert (hub.sent_bytes, content) == (1000, [])
    stall.released.set()
    fetching.join()
    assert content == [LARGE]


def test_closing_ends_what_stalls_and_what_is_kept_alive():
    stall = Stall(0)
    with Hub() as hub, requests.Session() as kept:
        hub.repository(NAME, FILES)
        hub.fault(stall)
        assert kept.get(f"{hub.url}/api/models/{NAME}", timeout=10).ok
        failed: list[BaseException] = []

        def fetch() -> None:
            try:
                _ = requests.get(url(hub), timeout=30).content
            except requests.RequestException as error:
                failed.append(error)

        fetching = threading.Thread(target=fetch)
        fetching.start()
        assert stall.met.wait(20)
        hub.close()
        fetching.join()
        assert failed
        with pytest.raises(requests.ConnectionError):
            kept.get(f"{hub.url}/api/models/{NAME}", timeout=10)


def test_ranges_can_be_ignored(hub: Hub):
    hub.fault(IgnoreRange())
    answer = requests.get(url(hub), headers={"Range": "bytes=5-"}, timeout=10)
    assert (answer.status_code, answer.content) == (200, LARGE)


def test_the_file_changes_between_two_requests(hub: Hub):
    hub.fault(Changed(b"new" * 9999), NAME, "x.gguf", skip=1)
    first, second = (requests.get(url(hub), timeout=10) for _ in range(2))
    assert (first.content, second.content) == (LARGE, b"new" * 9999)
    assert first.headers["ETag"] != second.headers["ETag"]


@pytest.mark.parametrize(("by", "fails"), [(7, True), (-7, False)])
def test_the_length_can_be_a_lie(hub: Hub, by: int, fails: bool):
    hub.fault(Length(by))
    with requests.get(url(hub), timeout=10, stream=True) as answer:
        assert answer.headers["Content-Length"] == str(len(LARGE) + by)
        if fails:
            with pytest.raises(requests.exceptions.ChunkedEncodingError):
                _ = answer.content
        else:
            assert answer.content == LARGE[:by]


@pytest.mark.parametrize(
    ("fault", "served"),
    [
        (flipped("first"), b"\xff" + LARGE[1:]),
        (flipped("middle"), LARGE[:512_000] + b"\xff" + LARGE[512_001:]),
        (flipped("last"), LARGE[:-1] + b"\0"),
        (truncated(3), LARGE[:-3]),
        (extended(b"++"), LARGE + b"++"),
        (emptied(), b""),
        (swapped(b"another"), b"another"),
        (Damaged(lambda content: content[::-1]), LARGE[::-1]),
    ],
)
def test_bytes_that_are_not_the_files(hub: Hub, fault: Fault, served: bytes):
    hub.fault(fault, NAME, "x.gguf", times=1)
    answer = requests.get(url(hub), timeout=10)
    assert (answer.content, answer.headers["Content-Length"]) == (served, str(len(served)))
    assert requests.get(url(hub), timeout=10).content == LARGE
    assert fault.met.is_set()


def test_faults_end(hub: Hub):
    hub.fault(emptied())
    assert requests.get(url(hub), timeout=10).content == b""
    hub.heal()
    assert requests.get(url(hub), timeout=10).content == LARGE


def test_what_stalls_when_faults_end_is_cut_off(hub: Hub):
    stall = Stall(1000)
    hub.fault(stall, times=1)
    with requests.get(url(hub), timeout=30, stream=True) as answer:
        assert stall.met.wait(20)
        hub.heal()
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            _ = answer.content
    assert hub.sent_bytes == 1000


def test_it_can_be_asked_too_often(hub: Hub):
    hub.fault(too_many(3, "api"), times=1)
    answer = requests.get(f"{hub.url}/api/models/{NAME}", timeout=10)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "3")
    assert requests.get(f"{hub.url}/api/models/{NAME}", timeout=10).ok


@pytest.mark.parametrize(("cas", "error"), [("dead", requests.ConnectionError), ("stalled", requests.ReadTimeout)])
def test_files_are_said_to_be_had_by_xet(hub: Hub, cas: Literal["dead", "stalled"], error: type[Exception]):
    hub.fault(Xet(cas), NAME)
    metadata = get_hf_file_metadata(url(hub), token=False, endpoint=hub.url)
    assert metadata.xet_file_data is not None
    there = refresh_xet_connection_info(file_data=metadata.xet_file_data, headers={})
    with pytest.raises(error):
        requests.get(there.endpoint, timeout=(10, 0.2))


def test_a_hub_is_as_slow_as_it_is_told():
    with Hub(bytes_a_second=1_000_000) as hub:
        hub.repository(NAME, {"x.gguf": b"0" * 300_000})
        before = time.monotonic()
        assert len(requests.get(url(hub), timeout=30).content) == 300_000
        assert time.monotonic() - before >= 0.3  # never less, however fast the machine is
