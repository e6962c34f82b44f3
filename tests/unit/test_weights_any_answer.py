"""Whatever a server answers: fetchers refuse in their own way, write nowhere else, ask nobody else, and keep bounds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from roles.weights.host import http
from roles.weights.host.answers import passing, sentence, wait_for
from roles.weights.host.packages import Packages
from roles.weights.host.peers import Peer
from roles.weights.host.records import File
from roles.weights.host.registry import Registries
from roles.weights.host.simple import listed
from roles.weights.host.spec import Pace, Refused, Source, Spec
from tests.unit.any_answer import ENDLESS, HEADERS, LONG, TIMES, TYPES, Sent, Server, answers, server
from tests.unit.examples import some_of
from tests.unit.file_server import Handler, file_server

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(100))
WANTED = File("a/b/small-q4.gguf", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
MOST = 1 << 16
"""Bytes of a document here, so that what has no bound is seen soon."""
# of what a socket and two buffers may hold that nobody has taken
ON_THE_WAY = 24 << 20
PACE = Pace(tries=2, pause=0.0, retry_after=0.0, connect=2, seconds=1, longest=1, stall=0.0, begin=0.0)
hostile = settings(
    max_examples=some_of(100),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def there() -> Iterator[Server]:
    with server() as made:
        yield made


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.weights.host.packages.MOST", MOST)
    monkeypatch.setattr("roles.weights.host.registry.MOST_WITHOUT_BYTES", MOST)


def spec() -> Spec:
    """What indexes and registries are told of a run."""
    source = Source("index", file="a")
    return cast(
        "Spec",
        SimpleNamespace(
            package_python="", pace=PACE, redirects=frozenset(), files=[SimpleNamespace(sources=(source,))]
        ),
    )


def kept(one: Server, error: Refused | None) -> None:
    """Assert that nobody else was asked, and that a refusal can be printed."""
    assert one.canaries == 0
    assert str(error or "").isprintable(), str(error)


@hostile
@given(said=answers(CONTENT), before=st.integers(0, len(CONTENT) + 5), last=st.booleans(), hub=st.booleans())
def test_a_download_ends_in_a_part_or_a_refusal(
    there: Server, tmp_path: Path, said: list[Sent], before: int, last: bool, hub: bool
) -> None:
    there.say(said)
    part = tmp_path / "x.part"
    part.write_bytes((CONTENT + bytes(5))[:before])
    refused = None
    try:
        http.download(f"{there.url}/m", part, WANTED.size, PACE, last=last, hub=hub)
    except Refused as error:
        refused = error
    kept(there, refused)
    assert http.size_of(part) <= max(before, WANTED.size + 1)
    assert {path.name for path in tmp_path.iterdir()} <= {part.name}


@hostile
@given(said=answers(b"x" * 5000))
def test_a_document_has_its_bound(there: Server, said: list[Sent]) -> None:
    there.say(said)
    answer, refused = None, None
    try:
        answer = http.get(f"{there.url}/m", PACE, most=4000)
    except Refused as error:
        refused = error
    kept(there, refused)
    assert answer is None or len(answer.body) <= 4000


def of_index(one: Server, part: Path) -> None:
    source = Source("index", base=f"{one.url}/simple", project="a", file="a")
    address = Packages(spec()).address(source, WANTED)
    http.download(address, part, WANTED.size, PACE, last=True)


def of_registry(one: Server, part: Path) -> None:
    source = Source("registry", base=one.url, repository="a/b")
    Registries(spec(), "").fetch(source, WANTED, part, last=True)


def of_peer(one: Server, part: Path) -> None:
    peer = Peer(one.url, "me", PACE)
    peer.reach()
    while peer.wait(WANTED.path, lambda behind: None):
        pass


@pytest.mark.parametrize("ask", [of_index, of_registry, of_peer])
@hostile
@given(data=st.data())
def test_whoever_is_asked_for_more_than_bytes_answers_or_is_refused(
    there: Server, tmp_path: Path, ask: Any, data: st.DataObject
) -> None:
    there.say(data.draw(answers(CONTENT)))
    part = tmp_path / "x.part"
    part.unlink(missing_ok=True)
    refused = None
    try:
        ask(there, part)
    except Refused as error:
        refused = error
    kept(there, refused)
    assert http.size_of(part) <= WANTED.size + 1
    assert {path.name for path in tmp_path.iterdir()} <= {part.name}


@pytest.mark.parametrize("body", [b"\n\xc2\xb2 x", b"\n" + b"9" * 9000, b"\n404 x"])
def test_what_is_cut_off_says_nothing_of_its_answer(there: Server, body: bytes) -> None:
    """The last line is then the server's, and not the one that curl writes."""
    there.say([Sent(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 20}\r\n\r\n", b"x" * (8000 - len(body)) + body, LONG)])
    answer = http.get(f"{there.url}/m", PACE, most=8000)
    assert (answer.exit in http.CUT_OFF, answer.status) == (True, 0)


@pytest.mark.parametrize("ask", [of_index, of_registry, of_peer])
def test_an_answer_without_end_is_not_taken(there: Server, tmp_path: Path, ask: Any) -> None:
    there.say([Sent("HTTP/1.1 200 OK\r\n\r\n", b"", ENDLESS)])
    with suppress(Refused):
        ask(there, tmp_path / "x.part")
    assert there.taken <= ON_THE_WAY


def dripping(handler: Handler, start: int) -> None:
    """Says that there is no more, at length: curl takes what it does not write at any length (7.88)."""
    handler.begin(416, 1 << 40)
    began = time.monotonic()
    with suppress(OSError):
        while time.monotonic() < began + 60:
            handler.wfile.write(bytes(1 << 16))
            time.sleep(0.05)


def test_an_answer_that_is_quick_enough_and_brings_nothing_ends(tmp_path: Path) -> None:
    part = tmp_path / "x.part"
    part.write_bytes(CONTENT[:10])
    with file_server() as files:
        url = files.serve("m", dripping)
        began = time.monotonic()
        with pytest.raises(Refused):
            http.download(url, part, WANTED.size, PACE, last=False)
        assert time.monotonic() - began < 40


@hostile
@given(when=st.sampled_from(TIMES) | st.text(), pause=st.floats(0, 5), most=st.floats(5, 500))
@example(when="Mon, 01 Jan 2020 00:00:00 +99999999999999999999", pause=1, most=2)
def test_no_wish_to_wait_is_beyond_its_bounds(when: str, pause: float, most: float) -> None:
    assert pause <= wait_for(when, pause, most) <= most


@hostile
@given(status=st.integers(0, 999), code=st.sampled_from(HEADERS["X-Error-Code"]), message=st.text())
def test_what_a_server_says_of_itself_is_one_line_that_can_be_printed(status: int, code: str, message: str) -> None:
    said = sentence(status, code, message, hub=True)
    assert said.isprintable()
    assert len(said) < 600
    assert passing(status) in (True, False)


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_of_any_kind_is_taken_or_refused(kind: str) -> None:
    with suppress(Refused):
        listed(kind, b"<a href=a>a</a>", "http://h/", {"a"})
