"""With every answer of a server, `rigwright lock` refuses in its own way, and takes no more than its bound."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from cli.lock_resolver import downloads, image_registry, model_hub, package_index, range_requests
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_files import LockInput
from rigwright.supply.lock_inputs import Input
from tests.unit.example_counts import example_count
from tests.unit.hostile_server import ENDLESS, HostileAnswer, HostileServer, answer_strategy, run_hostile_server

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(100))
hostile = settings(
    max_examples=example_count(150),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
IMAGE = LockInput("served", Input(kind="image", version="v1", sources=("docker-hub:a/b",)), Path("/"))


@pytest.fixture(scope="module")
def hostile_server() -> Iterator[HostileServer]:
    with run_hostile_server() as made:
        yield made


def session() -> Any:
    """One that asks once: how often a busy server is asked again is another test's."""
    made = downloads.open_session()
    for scheme in ("http://", "https://"):
        made.mount(scheme, HTTPAdapter())
    return made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    monkeypatch.setattr(downloads, "TIMEOUT", (2.0, 2.0))


def fetched(one: HostileServer) -> None:
    kept = io.BytesIO()
    try:
        downloads.fetch_file(session(), f"{one.url}/m", lambda done, total: None, kept, len(CONTENT))
    finally:
        assert len(kept.getvalue()) <= len(CONTENT)


def beginning(one: HostileServer) -> None:
    assert len(downloads.fetch_beginning(session(), f"{one.url}/m", 50)) == 50


def ranges(one: HostileServer) -> None:
    with range_requests.open_remote(session(), f"{one.url}/m", len(CONTENT), lambda done, total: None) as file:
        range_requests.open_wheel(file).__enter__()


def tag(one: HostileServer) -> None:
    place = image_registry.RegistryRepository(one.url, "a/b")
    image_registry.ImageResolver(session(), lambda source: [place]).resolve_rows(IMAGE)


def page(one: HostileServer) -> None:
    made = package_index.PackageIndex(session(), f"{one.url}/simple/")
    made.version_wheels("a", "1.0")
    made.source_distribution("a", "1.0")


ASK = {
    "a file's size and hash": lambda one: downloads.read_file_facts(session(), f"{one.url}/m"),
    "a file": fetched,
    "a file's beginning": beginning,
    "parts of a wheel": ranges,
    "an image's tag": tag,
    "an index's page": page,
    "a hub's list": lambda one: model_hub.HubEndpoint(one.url).read_listing("a/b", "main"),
}


@pytest.mark.parametrize("name", ASK)
@hostile
@given(said=answer_strategy(CONTENT))
def test_whatever_is_asked_answers_or_is_not_to_be_had(hostile_server, name, said):
    hostile_server.set_answers(said)
    try:
        ASK[name](hostile_server)
    except DownloadUnavailable as error:
        assert str(error).isprintable(), str(error)


@pytest.mark.parametrize("name", ["a file", "an image's tag", "an index's page"])
def test_an_answer_without_end_is_not_taken(hostile_server: HostileServer, name: str) -> None:
    hostile_server.set_answers([HostileAnswer("HTTP/1.1 200 OK\r\n\r\n", b"", ENDLESS)])
    with pytest.raises(DownloadUnavailable):
        ASK[name](hostile_server)
    assert hostile_server.taken < ENDLESS


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("200 OK", b"<![foo[", "the index does not answer with a file list for a"),
        ("302 F\r\nLocation: http://[", b"", "the index leads to an invalid address"),
    ],
)
def test_an_invalid_page_of_an_index_is_reported(
    hostile_server: HostileServer, head: str, body: bytes, said: str
) -> None:
    hostile_server.set_answers([HostileAnswer(f"HTTP/1.1 {head}\r\nContent-Type: text/html\r\n\r\n", body)])
    with pytest.raises(DownloadUnavailable, match=f"^{said}$"):
        page(hostile_server)


def test_a_server_that_wants_years_is_not_waited_for() -> None:
    answer = HTTPResponse(headers={"Retry-After": str(10**9)}, status=503)
    (retry,) = {one.max_retries for one in downloads.open_session().adapters.values()}
    assert retry.get_retry_after(answer) == downloads.RETRY_AFTER
