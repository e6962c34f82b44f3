"""Answers of any kind, byte for byte: texts of a hostile server, and a server that sends them."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from hypothesis import strategies as st

PATIENCE = 10.0  # seconds for one client
LONG, ENDLESS = 2 << 20, 64 << 20
"""Bytes of an answer that is far too long, and of one that does not end: a client that takes them all has no bound."""
STATUSES = (
    *("200 OK", "200 OK", "206 Partial Content", "204 No Content", "301 M", "302 F", "307 T", "308 P", "304 N"),
    *("401 U", "403 F", "404 N", "408 T", "416 R", "429 T", "500 E", "503 S", "999 ?", "099 ?", "200", "", "-1 x"),
)
LENGTHS = ("0", "1", "-1", "99999999999999999999", "9" * 5000, "5, 6", "0x10", "²", "")
TIMES = ("0", "-1", "1e400", "nan", "9" * 5000, "Mon, 01 Jan 99999999999999 00:00:00 GMT", "soon", "")
PLACES = (
    *("/", "/x", "//", "?", "x", "file:///etc/passwd", "ftp://127.0.0.1/x", "http://[", "http://[::1", "http://a b/"),
    *("http://127.0.0.1:99999/", "http://127.0.0.1:0x50/", "http://\xff/", "/\xff\xfe", "gopher://x", "http://@/"),
    *("http://169.254.169.254/", "{canary}", "{canary}", "http://user:pw@127.0.0.1:1/", "/" + "a" * 70000, "\x1b[2J"),
)
TYPES = (
    *("application/vnd.pypi.simple.v1+json", "text/html", "text/html; charset=utf-16", "application/json", "\x9b", "a"),
    *("text/html; charset*" + "9" * 5000 + "*=x", "text/html; charset*=unicode_escape''%5cx1b%5b2J", "text/html; =;"),
)
WAYS_IN = (
    *("Basic", "Bearer", 'Bearer realm="/token"', 'Bearer realm="{canary}",service="x"', 'Bearer realm="http://["'),
    *('Bearer realm="{own}/token",service="\x9b"', 'bearer realm="file:///etc/passwd"', "Digest x=", "", "\x9b"),
)
HEADERS = {
    "Content-Length": LENGTHS,
    "Content-Range": ("bytes 0-", "bytes 5-9/10", "bytes */5", "bytes 1-0/-5", "lines 0-1/2", "9" * 5000, ""),
    "ETag": ('"a"', "W/" + '"a"', "a" * 64, '"' + "b" * 64 + '"', "\x1b[2J", ""),
    "Last-Modified": ("now", "Sat, 01 Nov 2025 00:00:00 GMT"),
    "Retry-After": TIMES,
    "Location": PLACES,
    "Content-Type": TYPES,
    "Content-Encoding": ("gzip", "br", "identity", "x"),
    "Transfer-Encoding": ("chunked", "chunked, gzip", "x"),
    "WWW-Authenticate": WAYS_IN,
    "X-Error-Code": ("GatedRepo", "EntryNotFound", "\x9b"),
    "X-Error-Message": ("Because.", "\x9b2J\x1b[2J", "\x85HTTP/1.1 200", "m" * 9000),
    "X": ("y" * 70000, "\0", "a\x0bb"),
}
BODIES = (
    *(b"", b"0", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"-1\r\nx", b"{}", b"[]", b"null", b"[" * 9000),
    *(
        b'{"token": "a\\n"}',
        b'{"token": {}}',
        b'{"files": [{"path": []}]}',
        b"\xff" * 50,
        b"\n\xc2\xb2 ",
        b"<a href=x>",
    ),
    *(b'{"meta": {"api-version": "1.0"}, "files": [{"filename": "a", "url": "{canary}"}]}', b"\n" + b"9" * 9000),
    *(b'{"meta": {"api-version": "1.0"}, "files": [{"filename": "a", "url": "\\ud800"}]}', b'<a href="http://[">a</a>'),
)
header = st.sampled_from([*HEADERS]).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(HEADERS[name])))


@dataclass(frozen=True)
class HostileAnswer:
    """The answer to one request."""

    head: str
    body: bytes
    more: int = 0
    """Bytes of nothing that follow."""


def _make_answer(status: str, headers: list[tuple[str, str]], body: bytes, right: bool, more: int) -> HostileAnswer:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    lines += [f"Content-Length: {len(body)}"] if right else []
    return HostileAnswer("\r\n".join([*lines, "", ""]), body, more)


def answer_strategy(content: bytes) -> st.SearchStrategy[list[HostileAnswer]]:
    """Answers to one request after the other, of a server that has some bytes, or parts of them, or others."""
    part = st.tuples(st.integers(0, len(content)), st.integers(0, len(content))).map(lambda at: content[at[0] : at[1]])
    body = st.just(content) | part | st.sampled_from(BODIES) | st.binary(max_size=200)
    sent = st.builds(
        _make_answer,
        st.sampled_from(STATUSES),
        st.lists(header, max_size=4),
        body,
        st.booleans(),
        st.sampled_from([0, 0, 0, LONG]),
    )
    return st.lists(sent, min_size=1, max_size=4)


@dataclass
class HostileServer:
    """Answers connection by connection; the last answer stays. None is kept open."""

    url: str = ""
    canary: str = ""
    """A port that no client has to use."""
    said: Sequence[HostileAnswer] = ()
    asked: int = 0
    taken: int = 0
    """The most bytes that one client took of an answer."""
    canaries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def set_answers(self, said: Sequence[HostileAnswer]) -> None:
        """Answer so from now on."""
        with self.lock:
            self.said, self.asked, self.taken, self.canaries = said, 0, 0, 0

    def answer_client(self, client: socket.socket) -> None:
        """Answer one client."""
        with client, suppress(OSError):
            client.settimeout(PATIENCE)
            asked = b""
            while b"\r\n\r\n" not in asked and (more := client.recv(65536)):
                asked += more
            with self.lock:
                one = self.said[min(self.asked, len(self.said) - 1)]
                self.asked += 1
            told = self.fill_addresses(one.head.encode("latin-1")) + self.fill_addresses(one.body)
            client.sendall(told)
            sent = len(told)
            while sent < len(told) + one.more:
                sent += client.send(bytes(1 << 16))
                self.taken = max(self.taken, sent)

    def fill_addresses(self, text: bytes) -> bytes:
        """With the addresses that are there now."""
        return text.replace(b"{canary}", f"{self.canary}/x".encode()).replace(b"{own}", self.url.encode())

    def record_canary(self, client: socket.socket) -> None:
        """Record that a client asks where none has to."""
        client.close()
        self.canaries += 1


@contextmanager
def run_hostile_server() -> Iterator[HostileServer]:
    """A server, and the canary beside it, while the block runs."""
    made = HostileServer()
    with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("127.0.0.1", 0)) as canary:
        made.url, made.canary = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in (own, canary))
        threads = [
            threading.Thread(target=_accept_connections, args=(own, made.answer_client), daemon=True),
            threading.Thread(target=_accept_connections, args=(canary, made.record_canary), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield made
        finally:
            for one in (own, canary):
                one.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _accept_connections(listening: socket.socket, answer: object) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            threading.Thread(target=answer, args=(client,), daemon=True).start()  # type: ignore[arg-type]
