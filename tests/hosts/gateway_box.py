"""A host with a gateway: equal instances of a model whose answers take a while, and clients of all kinds."""

import json
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

from cli.lock_resolver.downloads import hash_file
from lab import tiny_model
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import PORT, wait_until, write_inventory
from tests.lock_files import render_sealed_lock

LAN, TLS = 8000, 8443
LOG = "/var/log/rigwright_gateway/access.log"
NAME = "llm.example.org"
SLOW = "slow-rig"
# Some 100 tokens a second on one core: an answer of its whole context takes minutes.
SIZE = tiny_model.LlamaSize(layers=12, width=512, heads=8, kv_heads=4, feed_forward=2048, context=16384)
DEMO: dict[str, object] = {"variant": "llamacpp/demo", "port": PORT}
INSTANCES = {"chat": DEMO, "chat2": {**DEMO, "port": 8021}, "slow": {"variant": "llamacpp/slow", "port": 8022}}
CATALOG = f"""
[inputs.{SLOW}]
kind = "weight"
version = "1"
sources = ["shelf:{SLOW}.gguf"]

[models.{SLOW}]
file = "{SLOW}"

[variants."llamacpp/slow"]
engine = "llama.cpp"
model = "{SLOW}"
context = 16384
parallel = 4

[variants."llamacpp/slow".flags]
threads = "1"
metrics = true
"""
QUESTION: Any = [{"role": "user", "content": "Are you there?"}]
ENDLESS: dict[str, object] = {"ignore_eos": True}


def run_rigwright(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, as an operator runs it from anywhere."""
    return subprocess.run([sys.executable, "-m", "cli", *words], capture_output=True, text=True, cwd="/")


@dataclass(frozen=True)
class GatewayBox:
    """The host, and its operator's folder."""

    lab: ThrowawayLab
    host: LabHost
    folder: Path

    @property
    def address(self) -> str:
        """Where its network reaches it."""
        return str(self.host.inventory_keys["ssh_hostname"])

    def gateway_entry(self, **changes: object) -> dict[str, object]:
        """Its declaration, with some of it changed."""
        every = "0.0.0.0"
        return {
            "listeners": {
                "lan": {"address": every, "port": LAN, "keys": False},
                "office": {"address": every, "port": TLS, "tls": True, "names": [NAME, self.address]},
            },
            "aliases": {"gpt-4o": "tiny-rig"},
            "origins": ["chrome-extension://abc"],
            # the test's own side of the lab's network
            "scrapers": ["127.0.0.1/32", f"{self.lab.gateway}/32"],
        } | changes

    def write_gateway_inventory(self, instances: dict[str, Any] | None = None, **changes: object) -> Path:
        """Its inventory, written anew."""
        served = INSTANCES if instances is None else instances
        return write_inventory(
            self.folder, self.lab, self.host, instances=served, gateway=self.gateway_entry(**changes)
        )

    def prepare(self) -> None:
        """Put the slow model where the host fetches from, and into catalogue and lock."""
        weight = self.lab.shelf_folder / f"{SLOW}.gguf"
        if not weight.exists():
            tiny_model.write_model(weight, size=SIZE)
        content = hash_file(weight, lambda done, total: None)
        row = {"kind": "weight", "name": SLOW, "version": "1", "file": weight.name, "sha256": content.sha256}
        lines = [f'{key} = "{value}"' for key, value in row.items()]
        lines += [f"size = {content.size}", f'sources = ["shelf:{weight.name}"]']
        for name, text in (
            ("catalog/slow.toml", CATALOG),
            ("locks/slow.lock.toml", render_sealed_lock("\n".join(["[[artefact]]", *lines, ""]))),
        ):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def plain_client(self, key: str = "ignored") -> OpenAI:
        """A client on the address that takes no key."""
        return OpenAI(base_url=self.url(""), api_key=key, max_retries=0)

    def url(self, path: str = "chat/completions") -> str:
        """A path of the address that takes no key."""
        return f"http://{self.address}:{LAN}/v1/{path}"

    def tls_client(self, key: str) -> OpenAI:
        """A client on the one with TLS, which trusts what the operator gives out."""
        said = run_rigwright("key", "ca", str(self.folder / "rig.py"))
        context = ssl.create_default_context(cadata=said.stdout)
        return OpenAI(
            base_url=f"https://{self.address}:{TLS}/v1",
            api_key=key,
            max_retries=0,
            http_client=httpx2.Client(verify=context, timeout=600),
        )


def ask_question(client: OpenAI, model: str = "tiny-rig") -> str:
    """A model's answer to the question."""
    reply = client.chat.completions.create(model=model, messages=QUESTION)
    return (reply.choices[0].message.content or "").strip()


def active_requests(box: GatewayBox) -> dict[str, int]:
    """Requests under way by instance, as the gateway counts them."""
    said = box.host.run("curl -s --unix-socket /run/rigwright_gateway/admin.sock http://localhost/state")
    return {name: one["under_way"] for name, one in json.loads(said)["instances"].items()}


def count_stream_pieces(client: OpenAI, model: str, tokens: int) -> int:
    """Pieces of a stream that was read to its end."""
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, stream=True, max_tokens=tokens, extra_body=ENDLESS
    )
    reasons = [chunk.choices[0].finish_reason for chunk in stream if chunk.choices]
    assert reasons[-1] == "length"
    return len(reasons)


def make_key(box: GatewayBox, name: str, *limits: str) -> str:
    """A new key."""
    done = run_rigwright("key", "make", str(box.folder / "rig.py"), name, *limits)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def access_log(box: GatewayBox) -> list[dict[str, Any]]:
    """The lines of the access log."""
    return [json.loads(line) for line in box.host.run(f"cat {LOG}").splitlines()]


def new_log_lines(box: GatewayBox, before: int, number: int = 1) -> list[dict[str, Any]]:
    """As many lines as come after so many: each is written when its request has ended, after its client has all."""
    found: list[dict[str, Any]] = wait_until(
        lambda: (lines := access_log(box)[before:])[number - 1 :] and lines, "all logged"
    )
    assert len(found) == number
    return found
