"""HTTP as the router reads it: one request in, one request out, however it comes in pieces."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.gateway.host.router.connection import Connection, Room
from roles.gateway.host.router.http import Answer, Malformed, Reader, Request

MOST = 1000
GET = b"GET /models HTTP/1.1\r\nHost: x\r\n\r\n"


def requests(*pieces: bytes) -> list[Request]:
    """All that a reader makes of them."""
    reader, found = Reader(MOST), []
    for piece in pieces:
        reader.add(piece)
        while reader.begin() is not None and (request := reader.finish()):
            found.append(request)
    return found


def test_a_request_is_what_was_sent() -> None:
    (found,) = requests(
        b"POST /route/x?a=1 HTTP/1.1\r\nX-Rw-Key:  k \r\ncontent-length: 3\r\nX-Two: 1\r\nX-Two: 2\r\n\r\nabc"
    )
    assert (found.method, found.target, found.body, found.keeps) == ("POST", "/route/x?a=1", b"abc", True)
    assert (found.header("x-rw-key"), found.header("x-none")) == ("k", None)
    with pytest.raises(Malformed, match="more than once"):
        found.header("x-two")


def test_requests_follow_each_other() -> None:
    post = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n00A\r\n0123456789\r\n0\r\n\r\n"
    bodies = [request.body for request in requests(post + chunked + GET + post)]
    assert bodies == [b"ab", b"ab0123456789", b"", b"ab"]


@pytest.mark.parametrize(
    ("line", "header", "keeps"),
    [
        ("1.1", "", True),
        ("1.1", "Connection: close\r\n", False),
        ("1.0", "", False),
        ("1.0", "Connection: keep-alive\r\n", True),
    ],
)
def test_a_connection_is_kept_as_its_request_says(line: str, header: str, keeps: bool) -> None:
    (found,) = requests(f"GET / HTTP/{line}\r\n{header}\r\n".encode())
    assert found.keeps is keeps


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: x\r\n\r\n", 400),
        (b"GET /\x80 HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: \0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nnothing\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 201 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * (64 << 10), 431),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 64, 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n", 400),
    ],
)
def test_requests_that_nginx_would_not_send_are_refused(sent: bytes, status: int) -> None:
    with pytest.raises(Malformed) as malformed:
        requests(sent)
    assert malformed.value.status == status


def test_an_invalid_header_is_not_sent() -> None:
    for value in ("a\r\nX: y", "é", "\x7f"):
        with pytest.raises(ValueError, match="not printable"):
            Answer(204, (("X-A", value),)).encoded()


class WriteOnlyConnection(asyncio.Transport):
    """A connection that only writes."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False


def test_a_failure_is_an_answer_and_the_log_has_nothing_of_the_request(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(request: Request) -> Answer:
        raise ValueError(f"secret {bytes(request.body)!r}")

    wire, connection = WriteOnlyConnection(), Connection(fail, Room(MOST), MOST)
    connection.connection_made(wire)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\nsecret" + GET)
    assert wire.sent.count(b"HTTP/1.1 500 ") == 2
    said = capfd.readouterr().err
    assert said.count("router: failed with ValueError in line ") == 2 and "secret" not in said


pieces = st.sampled_from(
    [
        GET,
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"3\r\nabc\r\n",
        b"POST /route/a HTTP/1.1\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"\r\n",
        b"abc",
        b"3\r\n",
        b"0\r\n\r\n",
        b"\n",
        b" ",
        b"\0",
    ]
) | st.binary(max_size=5)


def outcome(*parts: bytes) -> tuple[list[tuple[str, bytes]], int]:
    """The bodies that were read, and the status of a refused one."""
    reader, found = Reader(MOST), []
    try:
        for part in parts:
            reader.add(part)
            while reader.begin() is not None and (request := reader.finish()):
                found.append((request.target, bytes(request.body)))
    except Malformed as malformed:
        return found, malformed.status
    return found, 0


@given(st.lists(pieces, max_size=12), st.data())
def test_where_it_is_cut_makes_no_difference(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    cut = [whole[first:end] for first, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert outcome(*cut) == outcome(whole) == outcome(*(whole[at : at + 1] for at in range(len(whole))))
