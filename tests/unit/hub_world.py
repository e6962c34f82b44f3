"""A box's folder with models to lock, a hub on the loopback interface, and `rigwright lock`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from huggingface_hub import close_session

from cli.lock_resolver import downloads
from rigwright.supply.lock import Artefact, Lock
from tests.stand_ins.hub import StandInHub
from tests.unit import tls_certificates
from tests.unit.gguf_files import gguf_file
from tests.unit.lock_folder import LockFolder

NAME = "org/name"
GGUF = gguf_file(bytes(range(256)) * 100)
CONFIG = b'{"a": 1}'
FILES: dict[str, bytes | Path] = {
    ".gitattributes": b"*.gguf filter=lfs",
    "README.md": b"# Name",
    "q4/model.gguf": GGUF,
    "config.json": CONFIG,
    "mmproj.gguf": gguf_file(b"projector"),
}
CATALOG = """
[inputs.model]
kind = "weight"
repository = "org/name"
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {keys!r}}})
"""
TOKEN = "hf_" + "t" * 34


class HubLockFixture(LockFolder):
    """A box's folder, a hub, and `rigwright lock` over them."""

    def __init__(self, folder: Path, hub: StandInHub) -> None:
        self.folder, self.hub = folder, hub
        (folder / "catalog").mkdir(parents=True)
        self.write_catalog()
        self.write_rig()
        self.commit = hub.add_commit(NAME, FILES, licence="apache-2.0")

    def write_catalog(self, *more: str, text: str = CATALOG) -> None:
        """The input, with more keys."""
        (self.folder / "catalog" / "mine.toml").write_text("\n".join([text, *more]))

    def write_rig(self, **more: object) -> None:
        """The inventory, whose hub is ours, with more keys or other values."""
        keys = {"mirrors": {"hub": [f"{self.hub.url}/"]}, "redirects": [self.hub.cdn_url], **more}
        (self.folder / "rig.py").write_text(INVENTORY.format(keys={"ssh_hostname": "127.0.0.1", **keys}))

    def write_token(self, token: str = TOKEN) -> None:
        """The inventory, with a token."""
        (self.folder / "hub.token").write_text(f"{token}\n")
        self.write_rig(hub_token_file="hub.token", hub_token_origin=self.hub.url)

    def lock_error(self, *options: str) -> str:
        """Its error when it does not; nothing is written then."""
        before = self.lock_text
        done = self.run_lock(*options)
        assert (done.exit_code, self.lock_text) == (1, before), done.output
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("lock: ")]
        found = re.fullmatch(rf"Error: {re.escape(str(self.folder))}/catalog/mine\.toml: inputs\.model: (.*)", line)
        assert found, line
        return found[1].replace(self.hub.url, "URL").replace(str(self.folder), "FOLDER")

    def check_lines(self, code: int) -> list[str]:
        """The output of `--check`."""
        before, sent = self.lock_text, self.hub.sent_bytes
        done = self.run_lock("--check")
        assert (done.exit_code, self.lock_text, self.hub.sent_bytes) == (code, before, sent), done.output
        return done.output.replace(self.hub.url, "URL").splitlines()

    @property
    def locked_rows(self) -> dict[str, Artefact]:
        """The locked rows, by path."""
        return {row.path: row for row in Lock.load([self.folder / "locks"]).groups["model"]}


@contextmanager
def make_hub_fixture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    """A world while the block runs, in which nothing but its hub is asked."""
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    monkeypatch.setenv("HF_TOKEN", "of-another-hub")
    for name, value in tls_certificates.trusting_environment().items():
        monkeypatch.setenv(name, value)
    close_session()  # the client keeps the authorities that it was first given
    with StandInHub(certificate=tls_certificates.server_certificate()) as hub:
        yield HubLockFixture(folder, hub)
    close_session()
