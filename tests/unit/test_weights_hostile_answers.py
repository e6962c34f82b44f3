"""With every answer of a server, fetchers refuse in their own way, write nowhere else, ask no other server, and keep
bounds."""

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
from roles.weights.host.answers import describe_http_error, is_transient, retry_delay
from roles.weights.host.packages import PackageSources
from roles.weights.host.peers import PeerBox
from roles.weights.host.records import LockedFile
from roles.weights.host.registry import RegistryClient
from roles.weights.host.simple import parse_index_page
from roles.weights.host.spec import FetchRefused, FetchSpec, FileSource, TransferLimits
from tests.unit.example_counts import example_count
from tests.unit.file_server import FileServerHandler, run_file_server
from tests.unit.hostile_server import (
    ENDLESS,
    HEADERS,
    LONG,
    TIMES,
    TYPES,
    HostileAnswer,
    HostileServer,
    answer_strategy,
    run_hostile_server,
)

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(100))
WANTED = LockedFile("a/b/small-q4.gguf", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
MOST = 1 << 16
"""Bytes of a document here, so that what has no bound is seen soon."""
# bytes that a socket and two buffers may hold without a reader
ON_THE_WAY = 24 << 20
PACE = TransferLimits(tries=2, pause=0.0, retry_after=0.0, connect=2, seconds=1, longest=1, stall=0.0, begin=0.0)
hostile = settings(
    max_examples=example_count(100),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def hostile_server() -> Iterator[HostileServer]:
    with run_hostile_server() as made:
        yield made


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.weights.host.packages.MOST", MOST)
    monkeypatch.setattr("roles.weights.host.registry.MOST_WITHOUT_BYTES", MOST)


def spec() -> FetchSpec:
    """Indexes' and registries' settings of a run."""
    source = FileSource("index", file="a")
    return cast(
        "FetchSpec",
        SimpleNamespace(
            package_python="", pace=PACE, redirects=frozenset(), files=[SimpleNamespace(sources=(source,))]
        ),
    )


def assert_contained(one: HostileServer, error: FetchRefused | None) -> None:
    """Assert that no other server was asked, and that a refusal can be printed."""
    assert one.canaries == 0
    assert str(error or "").isprintable(), str(error)


@hostile
@given(said=answer_strategy(CONTENT), before=st.integers(0, len(CONTENT) + 5), last=st.booleans(), hub=st.booleans())
def test_a_download_ends_in_a_part_or_a_refusal(
    hostile_server: HostileServer, tmp_path: Path, said: list[HostileAnswer], before: int, last: bool, hub: bool
) -> None:
    hostile_server.set_answers(said)
    part = tmp_path / "x.part"
    part.write_bytes((CONTENT + bytes(5))[:before])
    refused = None
    try:
        http.download_part(f"{hostile_server.url}/m", part, WANTED.size, PACE, last=last, hub=hub)
    except FetchRefused as error:
        refused = error
    assert_contained(hostile_server, refused)
    assert http.file_size(part) <= max(before, WANTED.size + 1)
    assert {path.name for path in tmp_path.iterdir()} <= {part.name}


@hostile
@given(said=answer_strategy(b"x" * 5000))
def test_a_document_has_its_bound(hostile_server: HostileServer, said: list[HostileAnswer]) -> None:
    hostile_server.set_answers(said)
    answer, refused = None, None
    try:
        answer = http.get_document(f"{hostile_server.url}/m", PACE, most=4000)
    except FetchRefused as error:
        refused = error
    assert_contained(hostile_server, refused)
    assert answer is None or len(answer.body) <= 4000


def of_index(one: HostileServer, part: Path) -> None:
    source = FileSource("index", base=f"{one.url}/simple", project="a", file="a")
    address = PackageSources(spec()).resolve_package_address(source, WANTED)
    http.download_part(address, part, WANTED.size, PACE, last=True)


def of_registry(one: HostileServer, part: Path) -> None:
    source = FileSource("registry", base=one.url, repository="a/b")
    RegistryClient(spec(), "").fetch_blob(source, WANTED, part, last=True)


def of_peer(one: HostileServer, part: Path) -> None:
    peer = PeerBox(one.url, "me", PACE)
    peer.require_reachable()
    while peer.wait_for_file(WANTED.path, lambda behind: None, last=False):
        pass


@pytest.mark.parametrize("ask", [of_index, of_registry, of_peer])
@hostile
@given(data=st.data())
def test_a_request_for_more_than_bytes_is_answered_or_refused(
    hostile_server: HostileServer, tmp_path: Path, ask: Any, data: st.DataObject
) -> None:
    hostile_server.set_answers(data.draw(answer_strategy(CONTENT)))
    part = tmp_path / "x.part"
    part.unlink(missing_ok=True)
    refused = None
    try:
        ask(hostile_server, part)
    except FetchRefused as error:
        refused = error
    assert_contained(hostile_server, refused)
    assert http.file_size(part) <= WANTED.size + 1
    assert {path.name for path in tmp_path.iterdir()} <= {part.name}


@pytest.mark.parametrize("body", [b"\n\xc2\xb2 x", b"\n" + b"9" * 9000, b"\n404 x"])
def test_a_cut_off_answer_has_no_content(hostile_server: HostileServer, body: bytes) -> None:
    """The last line is then the server's, and not the one that curl writes."""
    hostile_server.set_answers(
        [HostileAnswer(f"HTTP/1.1 200 OK\r\nContent-Length: {1 << 20}\r\n\r\n", b"x" * (8000 - len(body)) + body, LONG)]
    )
    answer = http.get_document(f"{hostile_server.url}/m", PACE, most=8000)
    assert (answer.exit in http.CUT_OFF, answer.status) == (True, 0)


@pytest.mark.parametrize("ask", [of_index, of_registry, of_peer])
def test_an_answer_without_end_is_not_taken(hostile_server: HostileServer, tmp_path: Path, ask: Any) -> None:
    hostile_server.set_answers([HostileAnswer("HTTP/1.1 200 OK\r\n\r\n", b"", ENDLESS)])
    with suppress(FetchRefused):
        ask(hostile_server, tmp_path / "x.part")
    assert hostile_server.taken <= ON_THE_WAY


def dripping(handler: FileServerHandler, start: int) -> None:
    """Says that there is no more, at length: curl takes what it does not write at any length (7.88)."""
    handler.send_head(416, 1 << 40)
    began = time.monotonic()
    with suppress(OSError):
        while time.monotonic() < began + 60:
            handler.wfile.write(bytes(1 << 16))
            time.sleep(0.05)


def test_an_answer_that_is_quick_enough_and_brings_nothing_ends(tmp_path: Path) -> None:
    part = tmp_path / "x.part"
    part.write_bytes(CONTENT[:10])
    with run_file_server() as files:
        url = files.serve("m", dripping)
        began = time.monotonic()
        with pytest.raises(FetchRefused):
            http.download_part(url, part, WANTED.size, PACE, last=False)
        assert time.monotonic() - began < 40


@hostile
@given(when=st.sampled_from(TIMES) | st.text(), pause=st.floats(0, 5), most=st.floats(5, 500))
@example(when="Mon, 01 Jan 2020 00:00:00 +99999999999999999999", pause=1, most=2)
def test_no_wish_to_wait_is_beyond_its_bounds(when: str, pause: float, most: float) -> None:
    assert pause <= retry_delay(when, pause, most) <= most


@hostile
@given(status=st.integers(0, 999), code=st.sampled_from(HEADERS["X-Error-Code"]), message=st.text())
def test_a_servers_own_text_is_one_printable_line(status: int, code: str, message: str) -> None:
    said = describe_http_error(status, code, message, hub=True)
    assert said.isprintable()
    assert len(said) < 600
    assert is_transient(status) in (True, False)


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_of_any_kind_is_taken_or_refused(kind: str) -> None:
    with suppress(FetchRefused):
        parse_index_page(kind, b"<a href=a>a</a>", "http://h/", {"a"})
