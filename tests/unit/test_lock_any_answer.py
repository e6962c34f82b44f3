"""Whatever a server answers `rigwright lock`: what it asks refuses in its own way, and takes no more than its bound."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from cli.resolving import hub, index, ranged, registry, web
from cli.resolving.folders import Wanted
from cli.resolving.web import Unavailable
from rigwright.supply.inputs import Input
from tests.unit.any_answer import ENDLESS, Sent, Server, answers, server
from tests.unit.examples import some_of

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(100))
hostile = settings(
    max_examples=some_of(150),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
IMAGE = Wanted("served", Input(kind="image", version="v1", sources=("docker-hub:a/b",)), Path("/"))


@pytest.fixture(scope="module")
def there() -> Iterator[Server]:
    with server() as made:
        yield made


def session() -> Any:
    """One that asks once: how often a busy server is asked again is another test's."""
    made = web.session()
    for scheme in ("http://", "https://"):
        made.mount(scheme, HTTPAdapter())
    return made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSES", (0.0,))
    monkeypatch.setattr(web, "TIMEOUT", (2.0, 2.0))


def fetched(one: Server) -> None:
    kept = io.BytesIO()
    try:
        web.fetch(session(), f"{one.url}/m", lambda done, total: None, kept, len(CONTENT))
    finally:
        assert len(kept.getvalue()) <= len(CONTENT)


def beginning(one: Server) -> None:
    assert len(web.beginning(session(), f"{one.url}/m", 50)) == 50


def ranges(one: Server) -> None:
    with ranged.opened(session(), f"{one.url}/m", len(CONTENT), lambda done, total: None) as file:
        ranged.of_wheel(file).__enter__()


def tag(one: Server) -> None:
    place = registry.Place(one.url, "a/b")
    registry.Registries(session(), lambda source: [place]).rows(IMAGE)


def page(one: Server) -> None:
    made = index.Index(session(), f"{one.url}/simple/")
    made.wheels("a", "1.0")
    made.source("a", "1.0")


ASK = {
    "a file's size and hash": lambda one: web.look(session(), f"{one.url}/m"),
    "a file": fetched,
    "a file's beginning": beginning,
    "parts of a wheel": ranges,
    "an image's tag": tag,
    "an index's page": page,
    "a hub's list": lambda one: hub.Place(one.url).listing("a/b", "main"),
}


@pytest.mark.parametrize("name", ASK)
@hostile
@given(said=answers(CONTENT))
def test_whatever_is_asked_answers_or_is_not_to_be_had(there: Server, name: str, said: list[Sent]) -> None:
    there.say(said)
    try:
        ASK[name](there)
    except Unavailable as error:
        assert str(error).isprintable(), str(error)


@pytest.mark.parametrize("name", ["a file", "an image's tag", "an index's page"])
def test_an_answer_without_end_is_not_taken(there: Server, name: str) -> None:
    there.say([Sent("HTTP/1.1 200 OK\r\n\r\n", b"", ENDLESS)])
    with pytest.raises(Unavailable):
        ASK[name](there)
    assert there.taken < ENDLESS


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("200 OK", b"<![foo[", "the index does not answer with a file list for a"),
        ("302 F\r\nLocation: http://[", b"", "the index leads to an invalid address"),
    ],
)
def test_what_is_no_page_of_an_index_is_said(there: Server, head: str, body: bytes, said: str) -> None:
    there.say([Sent(f"HTTP/1.1 {head}\r\nContent-Type: text/html\r\n\r\n", body)])
    with pytest.raises(Unavailable, match=f"^{said}$"):
        page(there)


def test_a_server_that_wants_years_is_not_waited_for() -> None:
    answer = HTTPResponse(headers={"Retry-After": str(10**9)}, status=503)
    (retry,) = {one.max_retries for one in web.session().adapters.values()}
    assert retry.get_retry_after(answer) == web.RETRY_AFTER
