"""Stand-ins for servers that hosts fetch from: one that dies half way, and mirrors that lie or are slow or private."""

import contextlib
import ipaddress
import os
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from packaging.utils import canonicalize_name


class InterruptingServer(ThreadingHTTPServer):
    """Sends half of the content and then nothing, until `go_on` is set; afterwards answers ranges like any server."""

    daemon_threads = True

    def __init__(self, address: str, content: bytes) -> None:
        super().__init__((address, 0), _InterruptingHandler)
        self.content = content
        self.half_sent = threading.Event()
        self.go_on = threading.Event()
        self.ranges: list[str | None] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


class _InterruptingHandler(BaseHTTPRequestHandler):
    server: InterruptingServer

    def do_GET(self) -> None:
        content, asked = self.server.content, self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not self.server.go_on.is_set():
            self.wfile.write(content[start : len(content) // 2])
            self.wfile.flush()
            self.server.half_sent.set()
            self.server.go_on.wait()
        else:
            self.wfile.write(content[start:])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class StandInMirror(ThreadingHTTPServer):
    """A stand-in for a mirror: its files, its faults, and its requests."""

    daemon_threads = True

    def __init__(
        self,
        address: str,
        have: Callable[[str], bytes | None],
        *,
        lies_about: str = "",
        bytes_a_second: int = 0,
        certificate: Path | None = None,
        leads_to: str = "",
    ) -> None:
        super().__init__((address, 0), _StandInMirrorHandler)
        self.have, self.lies_about, self.bytes_a_second = have, lies_about, bytes_a_second
        self.leads_to = leads_to
        self.asked: list[str] = []
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self.scheme}://{self.server_address[0]}:{self.server_address[1]}"


@contextlib.contextmanager
def internet_server(have: Callable[[str], bytes | None]) -> Iterator[StandInMirror]:
    """A stand-in for a server of the internet: it has a public address, which throwaway hosts reach by default route.

    The address is one of AS112's (RFC 7535), which nothing is served from but empty zones of DNS.
    """
    address = f"192.31.196.{os.getpid() % 250 + 2}"
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        with StandInMirror(address, have) as server:
            yield server
            server.shutdown()
    finally:
        subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)


class _StandInMirrorHandler(BaseHTTPRequestHandler):
    server: StandInMirror
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        # a proxy is asked for the whole address
        content = self.server.have(self.path if self.path.startswith("http") else self.path.lstrip("/"))
        if self.server.leads_to:
            self.send_response(302)
            self.send_header("Location", self.server.leads_to)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if content is None:
            self.send_error(404)
            return
        if self.server.lies_about and re.search(self.server.lies_about, self.path):
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        if start >= len(content) > 0:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if content.startswith(b"<!DOCTYPE html>"):
            self.send_header("Content-Type", "text/html")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self._send(content[start:])

    def do_HEAD(self) -> None:
        content = self.server.have(self.path.lstrip("/"))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes) -> None:
        rate = self.server.bytes_a_second
        with contextlib.suppress(OSError):  # given up, which is what a slow one is for
            if not rate:
                self.wfile.write(content)
                return
            for place in range(0, len(content), rate):
                self.wfile.write(content[place : place + rate])
                self.wfile.flush()
                time.sleep(1)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class DyingPeer(StandInMirror):
    """A stand-in for a box that shares, and is gone for good once half of a file of some size was sent."""

    LARGE = 100_000  # bytes

    def __init__(self, address: str, have: Callable[[str], bytes | None]) -> None:
        super().__init__(address, have)
        self.RequestHandlerClass = _DyingHandler
        self.died = threading.Event()

    def die(self) -> None:
        """Answer no request any more."""
        if not self.died.is_set():
            self.died.set()
            threading.Thread(target=self._end).start()

    def _end(self) -> None:
        self.shutdown()
        self.server_close()


class _DyingHandler(_StandInMirrorHandler):
    server: DyingPeer

    def _send(self, content: bytes) -> None:
        if len(content) < self.server.LARGE:
            super()._send(content)
            return
        super()._send(content[: len(content) // 2])
        self.close_connection = True
        self.server.die()


def folder_content(path: Path) -> Callable[[str], bytes | None]:
    """The files of a mirror of a folder."""

    def have(name: str) -> bytes | None:
        found = path / name
        return found.read_bytes() if found.is_file() else None

    return have


def upstream_content(base: str) -> Callable[[str], bytes | None]:
    """The files of a mirror of another server; with an empty base it is a proxy, asked for whole addresses."""

    def have(name: str) -> bytes | None:
        answer = requests.get(f"{base}{name}", timeout=60)
        return answer.content if answer.ok else None

    return have


def index_content(wheels: Path) -> Callable[[str], bytes | None]:
    """The files of a Python package index with the files of a folder (PEP 503)."""

    def have(name: str) -> bytes | None:
        project = name.strip("/")
        if (wheels / project.rpartition("/")[2]).is_file():
            return (wheels / project.rpartition("/")[2]).read_bytes()
        files = [f for f in wheels.iterdir() if canonicalize_name(re.split(r"-\d", f.name)[0]) == project]
        links = "".join(f'<a href="../files/{file.name}">{file.name}</a>\n' for file in sorted(files))
        return f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode() if files else None

    return have


def make_certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """An authority and a certificate that it gave to an address: the authority in PEM, the certificate with its key."""
    now = datetime.now(timezone.utc)
    until = now + timedelta(days=1)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("a test's authority", "a mirror")]
    authority = (
        x509.CertificateBuilder(names[0], names[0], authority_key.public_key(), 1, now, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    given = (
        x509.CertificateBuilder(names[0], names[1], key.public_key(), 2, now, until)
        .add_extension(alternative, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    (folder / "authority.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.pem").write_bytes(private + given.public_bytes(Encoding.PEM))
    return folder / "authority.pem", folder / "server.pem"
