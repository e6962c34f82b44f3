"""The attacks that TUF names, on a box that pulls: each is refused by the service that fetches, and again by root.

ssh-keygen and the web server are real.
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from rigwright.pull.publication import MOST_PAYLOAD, PublishedEntry, PullPayload, metadata_file, payload_file
from rigwright.signing.dsse import parse_envelope
from rigwright.signing.trusted_signers import Signer, TrustedSigners
from rigwright.signing.wire_format import WireReader
from roles.pull.host import run, transfer
from tests.unit.published_boxes import DAY, NOW, PLAIN, Attack, PublishedWorld, PublisherKeys, served_folder
from tests.unit.signing_keys import make_key, public_key

SEEN, NEWER = 20261129100000, 20261129110000
OTHER = PullPayload({"manifest.json": '{"other": 1}'}, {}, {}, {})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> PublisherKeys:
    return PublisherKeys(tmp_path_factory.mktemp("keys"))


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


def replay_timestamp(world: PublishedWorld) -> None:
    world.write_timestamp(SEEN - 1)


def list_older_generation(world: PublishedWorld) -> None:
    world.add_generation(SEEN - 1)
    world.write_timestamp(NEWER)


def list_box_of_others(world: PublishedWorld) -> None:
    world.add_generation(NEWER, details={"box": "other"})
    world.write_timestamp(NEWER)


def list_same_name_elsewhere(world: PublishedWorld) -> None:
    world.add_generation(NEWER, details={"machine": "f" * 64})
    world.write_timestamp(NEWER)


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


def swap_generation(world: PublishedWorld) -> None:
    world.add_generation(NEWER, PLAIN, generation=OTHER.digest)
    world.write_timestamp(NEWER)


def list_statement_of_another_serial(world: PublishedWorld) -> None:
    world.add_generation(NEWER, inner=SEEN)
    world.write_timestamp(NEWER)


def sign_lock_as_timestamp(world: PublishedWorld) -> None:
    content = world.sign("lock", {"lock": "a" * 64}, NEWER, {"inventory": "rig"})
    world.write("timestamp.json", content)


def give_statement_as_timestamp(world: PublishedWorld) -> None:
    world.add_generation(NEWER)
    world.write("timestamp.json", (world.published / metadata_file("box", NEWER)).read_bytes())


def sign_generation_by(name: str) -> Attack:
    def attack(world: PublishedWorld) -> None:
        world.add_generation(NEWER, key=getattr(world.keys, name))
        world.write_timestamp(NEWER)

    return attack


def sign_timestamp_by(name: str) -> Attack:
    def attack(world: PublishedWorld) -> None:
        world.add_generation(NEWER)
        world.write_timestamp(NEWER, key=getattr(world.keys, name))

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
    def attack(world: PublishedWorld) -> None:
        world.publish(NEWER, replace(OTHER, files={**OTHER.files, path: "x"}))

    return attack


def announce_large_payload(world: PublishedWorld) -> None:
    world.add_generation(NEWER, details={"payload_size": MOST_PAYLOAD + 1})
    world.write_timestamp(NEWER)


def announce_large_statement(world: PublishedWorld) -> None:
    world.add_generation(NEWER)
    world.write_timestamp(NEWER, PublishedEntry(NEWER, 1 << 40, world.entry.sha256))


def sign_far_serial(world: PublishedWorld) -> None:
    world.publish(99991231235959)


def sign_far_generation(world: PublishedWorld) -> None:
    world.add_generation(99991231235959)
    world.write_timestamp(NEWER)


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        pytest.param(replay_timestamp, "older_serial", id="rollback: an older timestamp"),
        pytest.param(list_older_generation, "older_serial", id="rollback: a newer timestamp with an older generation"),
        pytest.param(lambda w: w.write_timestamp(NEWER, expires=NOW), "statement_expired", id="freeze: the timestamp"),
        pytest.param(
            lambda w: (w.add_generation(NEWER, expires=NOW), w.write_timestamp(NEWER)),
            *("statement_expired",),
            id="freeze: an expired generation under a renewed timestamp",
        ),
        pytest.param(swap_statement, "other_subject", id="mix: the statement of another serial"),
        pytest.param(sign_statement_again, "other_subject", id="mix: another statement of the same serial"),
        pytest.param(list_statement_of_another_serial, "other_subject", id="mix: an old statement listed as new"),
        pytest.param(swap_payload, "other_subject", id="mix: the payload of another generation"),
        pytest.param(swap_generation, "other_subject", id="mix: a payload with other files than its statement"),
        pytest.param(lambda w: w.write_timestamp(SEEN, expires=NOW + 2 * DAY), "other_subject", id="two timestamps"),
        pytest.param(list_box_of_others, "other_box", id="foreign: the generation of another box"),
        pytest.param(list_same_name_elsewhere, "other_box", id="foreign: another machine with the same name"),
        pytest.param(lambda w: w.write_timestamp(NEWER, box="other"), "other_box", id="foreign: not listed"),
        pytest.param(
            lambda w: w.write_timestamp(NEWER, inventory="berlin"),
            *("other_subject",),
            id="foreign: the timestamp of another inventory",
        ),
        pytest.param(
            lambda w: (w.add_generation(NEWER, inventory="berlin"), w.write_timestamp(NEWER)),
            *("other_subject",),
            id="foreign: the generation of another inventory",
        ),
        pytest.param(sign_lock_as_timestamp, "wrong_kind", id="foreign: the signature of a lock"),
        pytest.param(give_statement_as_timestamp, "wrong_kind", id="foreign: a statement in place of the timestamp"),
        pytest.param(sign_timestamp_by("mallory"), "unknown_signer", id="arbitrary software: an unknown signer"),
        pytest.param(sign_generation_by("mallory"), "unknown_signer", id="arbitrary software: of the generation"),
        pytest.param(sign_generation_by("clock"), "wrong_kind", id="stolen key of timestamps signs a generation"),
        pytest.param(sign_timestamp_by("gone"), "revoked", id="a revoked key"),
        pytest.param(sign_timestamp_by("former"), "key_expired", id="an expired key"),
        pytest.param(change_byte, "changed", id="a changed signature"),
        pytest.param(sign_far_serial, "statement_in_future", id="fast-forward: the timestamp"),
        pytest.param(sign_far_generation, "statement_in_future", id="fast-forward: the generation"),
        pytest.param(
            lambda w: w.write_timestamp(NEWER, signed=NOW + DAY, expires=NOW + 2 * DAY),
            *("statement_in_future",),
            id="a timestamp of tomorrow",
        ),
        pytest.param(publish_escape("../../../etc/passwd"), "malformed", id="a path outside of the folder"),
        pytest.param(publish_escape("manifest.json/x"), "malformed", id="a file in the place of a folder"),
        pytest.param(announce_large_payload, "too_large", id="endless data: a large payload"),
        pytest.param(announce_large_statement, "too_large", id="endless data: a large statement"),
    ],
)
def test_an_attack_is_refused(world: PublishedWorld, attack: Attack, reason: str) -> None:
    before = sorted(path for path in (world.box / "etc").rglob("*"))
    attack(world)
    found = world.fetch()
    if found:
        assert found == reason
    # root verifies for itself: the service that fetches may be another's
    world.place()
    again = world.verify()
    assert again == reason or (reason == "too_large" and again == "other_subject")
    assert world.record["outcome"] == "refused"
    assert sorted(path for path in (world.box / "etc").rglob("*")) == before
    # and a valid one is taken afterwards
    world.publish(NEWER + 100)
    world.place()
    assert (world.fetch(), world.verify()) == ("", "needs_deploy")


class EndlessHandler(SimpleHTTPRequestHandler):
    """Sends more than any limit."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(1 << 16):
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass

    def log_message(self, *words: object) -> None:
        """Say nothing."""


class DrippingHandler(EndlessHandler):
    """Sends a byte now and then, in its headers."""

    def do_GET(self) -> None:
        try:
            while True:
                self.wfile.write(b"H")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass


class DrippingBodyHandler(EndlessHandler):
    """Sends a byte now and then, of an answer that is announced as a short one."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        DrippingHandler.do_GET(self)  # type: ignore[arg-type]


class EndlessTrailersHandler(EndlessHandler):
    """Sends a short answer in chunks, and trailers without end."""

    def do_GET(self) -> None:
        self.protocol_version = "HTTP/1.1"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.wfile.write(b"1\r\nx\r\n0\r\n")
            while True:
                self.wfile.write(b"A: b\r\n")
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass


class AnnouncingHandler(EndlessHandler):
    """Announces a long answer."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()


class CuttingHandler(EndlessHandler):
    """Ends within an answer."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)


class RedirectingHandler(EndlessHandler):
    """Leads elsewhere."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        pytest.param(EndlessHandler, "more than 1048576 bytes", id="endless data"),
        pytest.param(AnnouncingHandler, "1099511627776 bytes are announced", id="endless data, announced"),
        pytest.param(DrippingHandler, "not whole within", id="slow retrieval"),
        pytest.param(DrippingBodyHandler, "not whole within", id="slow retrieval: the body"),
        pytest.param(EndlessTrailersHandler, "not whole within", id="slow retrieval: trailers"),
        pytest.param(CuttingHandler, "", id="a cut answer"),
        pytest.param(RedirectingHandler, "the server answers 302", id="a redirect"),
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
    world.publish(NEWER + 1000000 - 20000)
    world.place()
    assert world.verify() == "needs_deploy"
    world.publish(NEWER)
    world.place()
    assert world.verify() == "older_serial"
    signers = TrustedSigners(keys.signers.signers, keys.signers.revoked | {public_key(keys.mallory).fingerprint})
    world.set_url("http://127.0.0.1:1", signers)
    assert world.verify() == "needs_deploy"
