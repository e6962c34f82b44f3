"""A published folder behind a web server of this machine, and a folder that stands in for a box that pulls from it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rigwright.host.generation_layout import META, PROVEN, digest_generation
from rigwright.model.pull_schema import PullEntry
from rigwright.model.roots import Roots
from rigwright.pull.publication import (
    GENERATION,
    PAYLOAD,
    TIMESTAMP_FILE,
    PublishedEntry,
    PullPayload,
    metadata_file,
    payload_file,
    render_generation_details,
    render_timestamp_details,
)
from rigwright.pull.pull_units import FETCHED, pull_state, render_pull_settings
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_statement
from rigwright.signing.statements import SignedKind, Statement
from rigwright.signing.trusted_signers import Signer, TrustedSigners
from roles.pull.host.fetch import PAYLOAD as PAYLOAD_NAME
from roles.pull.host.fetch import REPORT, STATEMENT, TIMESTAMP, fetch_published
from roles.pull.host.run import BoxPull
from roles.pull.host.settings import PullRecord, PullSettings
from roles.pull.host.transfer import TransferFailed
from tests.unit.samples import sample_rig
from tests.unit.signing_keys import make_key, public_key

NOW = datetime.fromisoformat("2026-11-29T12:00:00+00:00")
DAY = timedelta(days=1)
INVENTORY_NAME = "rig"  # of the sample
MACHINE_ID = "0123456789abcdef0123456789abcdef"
MACHINE = hashlib.sha256(MACHINE_ID.encode()).hexdigest()
DECLARATION = '{"schema": 1}\n'
PLAIN = PullPayload(
    {"units/rigwright.target": "[Unit]\n", "manifest.json": "{}"}, {"tools": "/opt/rigwright/tools"}, {}, {}
)


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder, and counts requests."""

    requests = 0

    def log_message(self, *words: object) -> None:
        """Count."""
        QuietHandler.requests += 1


@contextmanager
def served_folder(
    folder: Path, handler: type[SimpleHTTPRequestHandler] = QuietHandler, certificate: Path | None = None
) -> Iterator[str]:
    """A web server's address; with a certificate and its key, by TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class PublisherKeys:
    """Keys of signers, and of others."""

    def __init__(self, folder: Path) -> None:
        self.alice, self.clock, self.mallory, self.gone, self.former = (
            make_key(folder, name) for name in ("alice", "clock", "mallory", "gone", "former")
        )
        kinds: tuple[SignedKind, ...] = ("generation", "timestamp")
        self.signers = TrustedSigners(
            (
                Signer("alice", public_key(self.alice), kinds),
                Signer("clock", public_key(self.clock), ("timestamp",)),
                Signer("gone", public_key(self.gone), kinds),
                Signer("former", public_key(self.former), kinds, valid_before=NOW - DAY),
            ),
            frozenset({public_key(self.gone).fingerprint}),
        )


class PublishedWorld:
    """The folder of a publisher, and a box."""

    def __init__(self, root: Path, keys: PublisherKeys, url: str = "http://127.0.0.1:1") -> None:
        self.keys, self.published, self.box = keys, root / "published", root / "box"
        for path in (FETCHED, pull_state(Roots()), "/etc/rigwright/generations", "/etc/rigwright/self_check"):
            (self.box / path[1:]).mkdir(parents=True)
        (self.box / "etc/machine-id").write_text(f"{MACHINE_ID}\n")
        (self.box / "etc/rigwright/self_check/declaration.json").write_text(DECLARATION)
        (self.box / "run/rigwright").mkdir()
        self.entry = PublishedEntry(1, 1, "0" * 64)
        self.age = 0
        """The time of the last report: each run of the service that fetches writes another one."""
        self.set_url(url)

    def set_url(self, url: str, signers: TrustedSigners | None = None) -> None:
        """Deploy the settings."""
        rig = replace(sample_rig(), pull=PullEntry(url=url), signers=signers or self.keys.signers)
        roots = rig.roots
        text = render_pull_settings(
            rig, f"{roots.config}/self_check", f"{roots.config}/self_check/declaration.json", ""
        )
        (self.box / "settings.json").write_text(text)

    def serve(self, files: dict[str, str]) -> None:
        """Have the box serve generation 1, proven, with these files."""
        folder = self.box / "etc/rigwright/generations/1"
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            (folder / path).chmod(0o644)
        (folder / META).write_text(f"{digest_generation(files, {})} 2026-11-29T10:00:00Z\n")
        (folder / PROVEN).touch()
        (self.box / "etc/rigwright/current").symlink_to("generations/1")

    @property
    def settings(self) -> PullSettings:
        """The box's."""
        return PullSettings(str(self.box / "settings.json"), str(self.box))

    def sign(
        self, kind: SignedKind, subjects: dict[str, str], serial: int, details: object, **changes: object
    ) -> bytes:
        """Sign a statement of a kind; changes are of its key and its times."""
        values = {"key": self.keys.alice, "signed": NOW - DAY / 24, "expires": NOW + DAY, **changes}
        statement = Statement(
            kind,
            tuple(subjects.items()),
            serial,
            values["signed"],
            values["expires"],
            details,  # type: ignore[arg-type]
        )
        return sign_statement(statement, values["key"]).render()  # type: ignore[arg-type]

    def write(self, name: str, content: bytes) -> None:
        """Publish a file."""
        path = self.published / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def add_generation(self, serial: int, payload: PullPayload | bytes = PLAIN, **changes: object) -> PublishedEntry:
        """Publish the statement and the payload of a box."""
        content = payload if isinstance(payload, bytes) else payload.render()
        generation = changes.pop("generation", PLAIN.digest if isinstance(payload, bytes) else payload.digest)
        declaration = hashlib.sha256(DECLARATION.encode()).hexdigest()
        inventory = str(changes.pop("inventory", INVENTORY_NAME))
        details = render_generation_details(inventory, "box", MACHINE, declaration, "0" * 64, len(content))
        details |= changes.pop("details", {})  # type: ignore[operator]
        sha256 = hashlib.sha256(content).hexdigest()
        subjects = {GENERATION: str(generation), PAYLOAD: sha256}
        statement = self.sign("generation", subjects, int(str(changes.pop("inner", serial))), details, **changes)
        self.write(payload_file(sha256), content)
        self.write(metadata_file("box", serial), statement)
        self.entry = PublishedEntry(serial, len(statement), hashlib.sha256(statement).hexdigest())
        return self.entry

    def write_timestamp(
        self, serial: int, entry: PublishedEntry | None = None, box: str = "box", **changes: object
    ) -> None:
        """Publish a timestamp."""
        one = entry or self.entry
        details = render_timestamp_details(str(changes.pop("inventory", INVENTORY_NAME)), {box: one})
        content = self.sign("timestamp", {box: one.sha256}, serial, details, **changes)
        self.write(TIMESTAMP_FILE, content)

    def publish(self, serial: int, payload: PullPayload = PLAIN, **changes: object) -> None:
        """Publish a generation and a timestamp."""
        self.add_generation(serial, payload, **changes)
        self.write_timestamp(serial)

    def offer(self, serial: int, payload: PullPayload = PLAIN, **changes: object) -> None:
        """Publish a generation, and have the box fetch it."""
        self.publish(serial, payload, **changes)
        self.place()

    def fetch(self, now: datetime = NOW) -> str:
        """Fetch as the service without rights does; the reason of a refusal, empty for none."""
        try:
            fetch_published(self.settings, now)
        except SignatureRefused as error:
            return error.reason
        except TransferFailed as error:
            return f"unreachable: {error}"
        return ""

    def place(self, name: str = "") -> None:
        """Put the published files where the service without rights puts them, as a hostile one does."""
        fetched = Path(self.settings.fetched)
        statement = self.published / metadata_file("box", self.entry.serial)
        shutil.copy(self.published / TIMESTAMP_FILE, fetched / TIMESTAMP)
        shutil.copy(statement, fetched / STATEMENT)
        newest = max((self.published / "payloads").iterdir(), key=os.path.getmtime)
        shutil.copy(self.published / name if name else newest, fetched / PAYLOAD_NAME)
        (fetched / "report.json").write_text('{"reason": "", "text": ""}')

    def verify(self, now: datetime = NOW, *, touch: bool = True) -> str:
        """Verify as root does after the service that fetches; the reason of a refusal."""
        if touch:
            self.age += 1
            with suppress(FileNotFoundError):
                os.utime(Path(self.settings.fetched) / REPORT, (self.age, self.age))
        BoxPull(self.settings, now).run()
        found: str = self.record["reason"]
        return found

    @property
    def record(self) -> dict[str, object]:
        """The box's record."""
        value: dict[str, object] = json.loads(Path(PullRecord(self.settings).path).read_text())
        return value


Attack = Callable[[PublishedWorld], object]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> PublisherKeys:
    return PublisherKeys(tmp_path_factory.mktemp("keys"))


class Killed(BaseException):
    """The end of the program at once."""


def outcome(world: PublishedWorld) -> tuple[object, object]:
    world.verify()
    return world.record["outcome"], world.record["reason"]


def die(*words: object, **limits: object) -> None:
    raise Killed


def verify_until_killed(world: PublishedWorld, name: str = "", program: Callable[..., object] = die) -> None:
    """Have the program of root end within a function of its modules, or by itself."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        if name:
            patch.setattr(f"roles.pull.host.{name}", program)
        world.verify()
