"""The attacks that TUF names, on a box that pulls: each is refused by the service that fetches, and again by root.

ssh-keygen and the web server are real.
"""

# ruff: noqa: F811 (a fixture of another file)

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import pytest

from rigwright.pull.publication import MOST_PAYLOAD, PublishedEntry, PullPayload, metadata_file, payload_file
from rigwright.signing.dsse import parse_envelope
from rigwright.signing.trusted_signers import Signer, TrustedSigners
from rigwright.signing.wire_format import WireReader
from roles.pull.host import run, transfer
from tests.unit.published_boxes import (  # noqa: F401 (a fixture)
    DAY,
    NOW,
    PLAIN,
    Attack,
    PublishedWorld,
    PublisherKeys,
    keys,
    served_folder,
)
from tests.unit.signing_keys import make_key, public_key

SEEN, NEWER, FAR = 20261129100000, 20261129110000, 99991231235959
OTHER = PullPayload({"manifest.json": '{"other": 1}'}, {}, {}, {})


@pytest.fixture
def world(tmp_path: Path, keys: PublisherKeys, monkeypatch: pytest.MonkeyPatch) -> Iterator[PublishedWorld]:
    """A box that has seen a generation, and whose publisher has a newer one; no removal runs there."""
    monkeypatch.setattr(run, "is_up", lambda unit: False)
    made = PublishedWorld(tmp_path, keys)
    with served_folder(made.published) as url:
        made.set_url(url)
        made.publish(SEEN)
        assert made.fetch() == ""
        made.place()
        # all is valid: the box lacks a generation to begin from
        assert made.verify() == "needs_deploy"
        yield made


def replace_timestamp(serial: int = NEWER, **keys: Any) -> Attack:
    """Another timestamp of the same generation."""
    return lambda world: world.write_timestamp(serial, **keys)


def list_generation(serial: int = NEWER, *payload: PullPayload, **keys: Any) -> Attack:
    """A newer timestamp that lists this generation."""

    def attack(world: PublishedWorld) -> None:
        world.add_generation(serial, *payload, **keys)
        world.write_timestamp(NEWER)

    return attack


def swap_statement(world: PublishedWorld) -> None:
    old = (world.published / metadata_file("box", SEEN)).read_bytes()
    world.publish(NEWER, OTHER)
    world.write(metadata_file("box", NEWER), old)


def sign_statement_again(world: PublishedWorld) -> None:
    world.publish(NEWER, OTHER)
    entry = world.entry
    world.add_generation(NEWER, PLAIN)
    world.entry = entry


def swap_payload(world: PublishedWorld) -> None:
    world.publish(NEWER, OTHER)
    sha256 = hashlib.sha256(OTHER.render()).hexdigest()
    world.write(payload_file(sha256), PLAIN.render()[: len(OTHER.render())])


def sign_lock_as_timestamp(world: PublishedWorld) -> None:
    content = world.sign("lock", {"lock": "a" * 64}, NEWER, {"inventory": "rig"})
    world.write("timestamp.json", content)


def give_statement_as_timestamp(world: PublishedWorld) -> None:
    world.add_generation(NEWER)
    world.write("timestamp.json", (world.published / metadata_file("box", NEWER)).read_bytes())


def sign_by(name: str, *, timestamp: bool) -> Attack:
    """A generation and its timestamp, one of them signed by another key."""

    def attack(world: PublishedWorld) -> None:
        key = getattr(world.keys, name)
        world.add_generation(NEWER, **({} if timestamp else {"key": key}))
        world.write_timestamp(NEWER, **({"key": key} if timestamp else {}))

    return attack


def change_byte(world: PublishedWorld) -> None:
    world.publish(NEWER)
    path = world.published / "timestamp.json"
    table = json.loads(path.read_bytes())
    signature = table["signatures"][0]["sig"]
    table["signatures"][0]["sig"] = (
        signature[:-12] + ("AAAA" if signature[-12:-8] != "AAAA" else "BBBB") + signature[-8:]
    )
    world.write("timestamp.json", json.dumps(table, sort_keys=True, separators=(",", ":")).encode() + b"\n")


def publish_escape(path: str) -> Attack:
    return lambda world: world.publish(NEWER, replace(OTHER, files={**OTHER.files, path: "x"}))


def announce_large_statement(world: PublishedWorld) -> None:
    world.add_generation(NEWER)
    world.write_timestamp(NEWER, PublishedEntry(NEWER, 1 << 40, world.entry.sha256))


ATTACKS: dict[str, tuple[Attack, str]] = {
    "rollback: an older timestamp": (replace_timestamp(SEEN - 1), "older_serial"),
    "rollback: a newer timestamp with an older generation": (list_generation(SEEN - 1), "older_serial"),
    "freeze: the timestamp": (replace_timestamp(expires=NOW), "statement_expired"),
    "freeze: an expired generation under a renewed timestamp": (list_generation(expires=NOW), "statement_expired"),
    "mix: the statement of another serial": (swap_statement, "other_subject"),
    "mix: another statement of the same serial": (sign_statement_again, "other_subject"),
    "mix: an old statement listed as new": (list_generation(inner=SEEN), "other_subject"),
    "mix: the payload of another generation": (swap_payload, "other_subject"),
    "mix: a payload with other files than its statement": (
        *(list_generation(NEWER, PLAIN, generation=OTHER.digest), "other_subject"),
    ),
    "two timestamps": (replace_timestamp(SEEN, expires=NOW + 2 * DAY), "other_subject"),
    "foreign: the generation of another box": (list_generation(details={"box": "other"}), "other_box"),
    "foreign: another machine with the same name": (list_generation(details={"machine": "f" * 64}), "other_box"),
    "foreign: not listed": (replace_timestamp(box="other"), "other_box"),
    "foreign: the timestamp of another inventory": (replace_timestamp(inventory="berlin"), "other_subject"),
    "foreign: the generation of another inventory": (list_generation(inventory="berlin"), "other_subject"),
    "foreign: the signature of a lock": (sign_lock_as_timestamp, "wrong_kind"),
    "foreign: a statement in place of the timestamp": (give_statement_as_timestamp, "wrong_kind"),
    "arbitrary software: an unknown signer": (sign_by("mallory", timestamp=True), "unknown_signer"),
    "arbitrary software: of the generation": (sign_by("mallory", timestamp=False), "unknown_signer"),
    "stolen key of timestamps signs a generation": (sign_by("clock", timestamp=False), "wrong_kind"),
    "a revoked key": (sign_by("gone", timestamp=True), "revoked"),
    "an expired key": (sign_by("former", timestamp=True), "key_expired"),
    "a changed signature": (change_byte, "changed"),
    "fast-forward: the timestamp": (lambda world: world.publish(FAR), "statement_in_future"),
    "fast-forward: the generation": (list_generation(FAR), "statement_in_future"),
    "a timestamp of tomorrow": (replace_timestamp(signed=NOW + DAY, expires=NOW + 2 * DAY), "statement_in_future"),
    "a path outside of the folder": (publish_escape("../../../etc/passwd"), "malformed"),
    "a file in the place of a folder": (publish_escape("manifest.json/x"), "malformed"),
    "endless data: a large payload": (list_generation(details={"payload_size": MOST_PAYLOAD + 1}), "too_large"),
    "endless data: a large statement": (announce_large_statement, "too_large"),
}


@pytest.mark.parametrize(("attack", "reason"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_refused(world: PublishedWorld, attack: Attack, reason: str) -> None:
    before = sorted((world.box / "etc").rglob("*"))
    attack(world)
    found = world.fetch()
    if found:
        assert found == reason
    # root verifies for itself: the service that fetches may be another's
    world.place()
    again = world.verify()
    assert again == reason or (reason == "too_large" and again == "other_subject")
    assert world.record["outcome"] == "refused"
    assert sorted((world.box / "etc").rglob("*")) == before
    # and a valid one is taken afterwards
    world.offer(NEWER + 100)
    assert (world.fetch(), world.verify()) == ("", "needs_deploy")


def drip(opened: BufferedIOBase, piece: bytes) -> None:
    """Send a piece now and then."""
    while True:
        opened.write(piece)
        time.sleep(0.05)


def answer_by(send: Callable[[BufferedIOBase], object], status: int = 200, **headers: str) -> type[AnswerHandler]:
    """A handler that answers each request with this head and body."""
    return type("AnswerBy", (AnswerHandler,), {"send": staticmethod(send), "status": status, "headers_sent": headers})


class AnswerHandler(SimpleHTTPRequestHandler):
    """Answers in another way than a web server of files; `status` 0 sends no head."""

    protocol_version, wbufsize = "HTTP/1.1", 0
    send: Callable[[BufferedIOBase], object]
    status: int
    headers_sent: Mapping[str, str]

    def do_GET(self) -> None:
        if self.status:
            self.send_response(self.status)
            for name, value in self.headers_sent.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
        with suppress(OSError):
            self.send(self.wfile)
        self.close_connection = True

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def send_endlessly(opened: BufferedIOBase) -> None:
    for _ in range(1 << 16):
        opened.write(b"x" * 65536)


def send_trailers(opened: BufferedIOBase) -> None:
    opened.write(b"1\r\nx\r\n0\r\n")
    drip(opened, b"A: b\r\n")


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        pytest.param(answer_by(send_endlessly), "more than 1048576 bytes", id="endless data"),
        pytest.param(
            answer_by(lambda _: None, Content_Length=str(1 << 40)),
            *("1099511627776 bytes are announced",),
            id="endless data, announced",
        ),
        pytest.param(answer_by(partial(drip, piece=b"H"), 0), "not whole within", id="slow retrieval"),
        pytest.param(
            answer_by(partial(drip, piece=b"H"), Content_Length="100000"),
            *("not whole within",),
            id="slow retrieval: the body",
        ),
        pytest.param(
            answer_by(send_trailers, Transfer_Encoding="chunked"), "not whole within", id="slow retrieval: trailers"
        ),
        pytest.param(answer_by(lambda opened: opened.write(b"x" * 10), Content_Length="1000"), "", id="a cut answer"),
        pytest.param(
            answer_by(lambda _: None, 302, Location="http://127.0.0.1:1/"), "the server answers 302", id="a redirect"
        ),
    ],
)
def test_an_answer_without_bounds_ends(
    world: PublishedWorld, handler: type[SimpleHTTPRequestHandler], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "HEAD_S", 0.5)
    monkeypatch.setattr(transfer, "LEAST_RATE", 8 << 20)
    with served_folder(world.published, handler) as url:
        world.set_url(url)
        found = world.fetch()
    assert found.startswith("unreachable: timestamp.json: ")
    assert text in found


@pytest.mark.parametrize("handshake", [False, True])
def test_a_tls_server_that_drips_is_left(tmp_path: Path, handshake: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "HEAD_S", 0.5)
    monkeypatch.setattr(transfer, "LEAST_RATE", 8 << 20)
    listener = socket.create_server(("127.0.0.1", 0))
    pair = make_certificate(tmp_path)

    def serve() -> None:
        opened = listener.accept()[0]
        try:
            if handshake:
                opened.recv(1)
                opened.sendall(b"\x16\x03\x03\x40\x00")
            else:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pair)
                opened = context.wrap_socket(opened, server_side=True)
                opened.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
            while True:
                opened.sendall(b"\x00")
                time.sleep(0.05)
        except OSError:
            opened.close()

    threading.Thread(target=serve, daemon=True).start()
    folder = transfer.PublishedFolder(f"https://127.0.0.1:{listener.getsockname()[1]}", str(tmp_path / "crt.pem"))
    with listener, pytest.raises(transfer.TransferFailed, match="not whole within"):
        folder.fetch("timestamp.json", 1000)


def make_certificate(folder: Path) -> Path:
    """A key and its certificate in one file; crt.pem has the certificate."""
    pair = folder / "pair.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    words += ["-subj", "/CN=web", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*words, "-keyout", str(pair), "-out", str(folder / "crt.pem")], check=True, capture_output=True)
    pair.write_text(pair.read_text() + (folder / "crt.pem").read_text())
    return pair


def test_a_web_server_needs_a_trusted_certificate(world: PublishedWorld, tmp_path: Path) -> None:
    pair = make_certificate(tmp_path)
    with served_folder(world.published, certificate=pair) as url:
        world.set_url(url)
        assert "CERTIFICATE_VERIFY_FAILED" in world.fetch()
        path = world.box / "settings.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "certificates": str(tmp_path / "crt.pem")}))
        assert world.fetch() == ""


def test_an_unchanged_timestamp_is_not_sent_again_and_expires_all_the_same(world: PublishedWorld) -> None:
    tag = (world.box / "run/rigwright_pull/timestamp").stat().st_mtime_ns
    assert world.fetch() == ""
    assert world.fetch(NOW + 2 * DAY) == "statement_expired"
    assert world.verify(NOW + 2 * DAY) == "statement_expired"
    assert tag


def test_a_refused_file_sets_no_serial(world: PublishedWorld) -> None:
    """A box would refuse each genuine serial below it."""
    seen = world.record["seen"]
    later = NEWER + 400
    world.add_generation(later, details={"machine": "f" * 64})
    world.write_timestamp(NEWER, inventory="berlin")
    world.place()
    assert world.verify() == "other_subject"
    assert world.record["seen"] == seen
    world.write_timestamp(NEWER)
    world.place()
    assert world.verify() == "other_box"
    world.add_generation(NEWER)
    world.write_timestamp(NEWER + 1)
    world.place()
    assert (world.fetch(), world.verify()) == ("", "needs_deploy")


def test_a_respelt_signature_blocks_no_genuine_timestamp(
    world: PublishedWorld, tmp_path: Path, keys: PublisherKeys
) -> None:
    key = make_key(tmp_path, "token", "ecdsa")
    signers = replace(keys.signers, signers=(*keys.signers.signers, Signer("token", public_key(key), ("timestamp",))))
    world.set_url("http://127.0.0.1:1", signers)
    world.write_timestamp(NEWER, key=key)
    path = world.published / "timestamp.json"
    genuine = path.read_bytes()
    path.write_bytes(respell_ecdsa(genuine))
    assert path.read_bytes() != genuine
    world.place()
    assert world.verify() == "needs_deploy"
    path.write_bytes(genuine)
    world.place()
    assert world.verify() == "needs_deploy"


P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the curve: with s, a signature is also valid with the order minus s."""


def respell_ecdsa(data: bytes) -> bytes:
    """The same statement with the other spelling of its signature."""
    envelope = parse_envelope(data)
    blob = envelope.signature
    at = blob.rindex(b"ecdsa-sha2-nistp256") + len("ecdsa-sha2-nistp256")
    inner = WireReader(blob[at:], "the signature").read_bytes()
    reader = WireReader(inner, "the signature")
    r, s = reader.read_bytes(), int.from_bytes(reader.read_bytes(), "big")
    other = (P256 - s).to_bytes(33, "big").lstrip(b"\x00")
    other = b"\x00" + other if other[0] & 0x80 else other
    pair = b"".join(len(one).to_bytes(4, "big") + one for one in (r, other))
    signature = len(pair).to_bytes(4, "big") + pair
    name = len(b"ecdsa-sha2-nistp256").to_bytes(4, "big") + b"ecdsa-sha2-nistp256"
    head = blob[: at - len(name) - 4]
    whole = name + signature
    return replace(envelope, signature=head + len(whole).to_bytes(4, "big") + whole).render()


def test_other_signers_begin_anew_after_a_fast_forward(world: PublishedWorld, keys: PublisherKeys) -> None:
    """As TUF recovers: a deploy that revokes the key makes the box forget the serials that it has signed."""
    # a stolen key may use serials up to a day ahead
    world.offer(NEWER + 1000000 - 20000)
    assert world.verify() == "needs_deploy"
    world.offer(NEWER)
    assert world.verify() == "older_serial"
    signers = TrustedSigners(keys.signers.signers, keys.signers.revoked | {public_key(keys.mallory).fingerprint})
    world.set_url("http://127.0.0.1:1", signers)
    assert world.verify() == "needs_deploy"
