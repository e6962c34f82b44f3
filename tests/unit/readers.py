"""All that reads what hosts, registries, mirrors, engines and others' files say: as data, which a test holds whole."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rigwright.baseline import book
from rigwright.containers import daemon
from rigwright.declaration import host_key
from rigwright.engines import kinds, metrics
from rigwright.engines.llama_cpp import flags
from rigwright.engines.vllm import snapshot
from rigwright.host import deploy_lock
from rigwright.model import registries
from rigwright.nvidia.cards import reports, smi
from rigwright.nvidia.driver import openpgp, record
from rigwright.nvidia.modules import options
from rigwright.operate import reply
from rigwright.patches import apply
from rigwright.plugins import verdict
from rigwright.problems import Invalid
from rigwright.serving import manifest
from rigwright.supply import archives, bundle, images, machine_code
from rigwright.toml import plain
from rigwright.weights import gguf, safetensors
from roles import progress
from roles.envs.host import lists
from roles.gateway.host.router import http, settings
from roles.weights.host import peers, simple
from tests.unit import ggufs, libraries
from tests.unit.checkpoints import safetensors as safetensors_file
from tests.unit.test_gateway_router_settings import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = Path(__file__).with_name("captures")
SHA = "a" * 64


@dataclass(frozen=True)
class Reader:
    """What takes bytes that somebody else has made."""

    read: Callable[[bytes, Path], object]
    """Of the bytes, with an empty file to put them in; what it returns does not matter."""
    good: tuple[bytes, ...]
    """Some that it takes, of which others are made."""
    refuses: tuple[type[Exception], ...] = (ValueError,)
    """Its own way to say that it does not take them; nothing else leaves it."""
    taken: bool = True
    """Whether the good ones are: a whole key takes gpg to make."""
    costs: int = 1
    """How many times as long as others it takes."""


def text(read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    """Of a reader of text: a host's has no NUL's way out, and whatever is no UTF-8 is replaced before."""
    return lambda content, _: read(content.decode(errors="replace"))


def of_file(read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """Of a reader of a file."""

    def written(content: bytes, file: Path) -> object:
        file.write_bytes(content)
        return read(file)

    return written


def told(content: bytes) -> reply.Reply:
    """An engine's answer."""
    said = content.decode(errors="replace")
    return reply.Reply(200, "", "application/json", said, (), 0.1, 0.5, 0, 0.5)


def js(value: object) -> bytes:
    """JSON."""
    return json.dumps(value).encode()


BLOB = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{SHA}", "size": 5}
MANIFEST = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": {**BLOB, "mediaType": "application/vnd.oci.image.config.v1+json"},
    "layers": [{**BLOB, "digest": f"sha256:{SHA[1:]}b"}],
}
INDEX = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [{**BLOB, "mediaType": MANIFEST["mediaType"], "platform": {"os": "linux", "architecture": "amd64"}}],
}
CHAT = {
    "choices": [{"message": {"content": "a", "tool_calls": [{"index": 0, "function": {"name": "a"}}]}}],
    "usage": {},
}
WHOLE = json.loads(next((ROOT / "catalog/flags").glob("vllm-0.21*.json")).read_bytes())
# without an option that its keys become it is none
SMALLER = WHOLE | {"models": {}, "variables": {}}
ROW = {"path": "a", "from": "b", "state": "fetching", "size": 5, "done": 1}
PROGRESS = {"files": [ROW], "done": 1, "total": 5}
PAGE = b'<html><base href="x"><a href="a#sha256=' + SHA.encode() + b'">a</a></html>'
SIMPLE = {
    "meta": {"api-version": "1.0"},
    "files": [{"filename": "a", "url": "a#sha256=" + SHA, "hashes": {"sha256": SHA}}],
}
SSH = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0 " + b"k" * 32)
RELEASE = f"Suite: stable\nCodename: trixie\nDate: Sat, 01 Aug 2026 10:00:00 UTC\nSHA256:\n {SHA} 5 a/Packages\n"
DIFF = b"--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
SEEN = {
    part.partition("\n")[0].partition(",")[0]: part.partition("\n")[2].encode()
    for part in (CAPTURES / "nvidia-smi.txt").read_text().split("== ")
}
ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQENBA==\n=AAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
GPU = b"0, 00000000:01:00.0, GPU-1, 580.1, 8.6, 24576, 12, Enabled, 4, 4, 16, 16, 350, 350, 100, 390, 90.02, Odd, One\n"
PLAN = {"doctor": "d", "seconds": 60, "largest": 65536, "lines": {"python": {"says": "Python", "kind": "verdict"}}}
WHEEL = b"a/b.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\na.dist-info/RECORD,,\n"


def _login(file: Path) -> object:
    file.chmod(0o600)
    return registries.login(str(file))


READERS: dict[str, Reader] = {
    "rigwright/baseline/book.py": Reader(of_file(book.read), (js({}),), (book.Unreadable,)),
    "rigwright/containers/daemon.py": Reader(
        text(lambda said: (daemon.options(said), daemon.record(said))),
        (js({"log-driver": "journald", "features": {"a": True}, "cdi-spec-dirs": ["/etc/cdi"]}),),
    ),
    "rigwright/declaration/host_key.py": Reader(text(host_key.parse), (b"ssh-ed25519 " + SSH,)),
    "rigwright/model/registries.py": Reader(of_file(_login), (base64.b64encode(b"user:password") + b"\n",)),
    "rigwright/engines/kind.py": Reader(
        text(lambda said: [kind.answered(said) for kind in kinds().values()]),
        (js({"usage": {"completion_tokens": 1}}),),
        (),
    ),
    "rigwright/engines/metrics.py": Reader(
        text(lambda said: metrics.samples(said).all("a")),
        (b'# HELP a b\na{x="y"} 1.5\na_bucket{le="+Inf"} 2 170\n',),
        (),
    ),
    "rigwright/engines/llama_cpp/flags.py": Reader(
        text(flags.parse), (next((ROOT / "catalog/flags").glob("llama.cpp-*.txt")).read_bytes()[:6000],)
    ),
    "rigwright/engines/vllm/snapshot.py": Reader(of_file(snapshot.read), (js(SMALLER),), (Invalid,), costs=50),
    "rigwright/host/deploy_lock.py": Reader(text(deploy_lock.holder), (js({"who": "a", "since": 1, "host": "b"}),)),
    "rigwright/nvidia/cards/smi.py": Reader(
        text(lambda said: [smi.gpus(0, said), smi.those_that_answer(0, said)]),
        (SEEN["gpus"], SEEN["busy"], GPU),
    ),
    "rigwright/nvidia/cards/smi.py of recoveries": Reader(
        text(lambda said: smi.recovery(0, said)), (b"00000000:01:00.0, None\n",)
    ),
    "rigwright/nvidia/cards/smi.py of processes": Reader(
        text(lambda said: smi.apps(0, said)), (b"123, 00000000:01:00.0, 512\n",)
    ),
    "rigwright/nvidia/cards/reports.py": Reader(
        text(lambda said: reports.sections(0, said)), (SEEN["memory"], SEEN["temperature"])
    ),
    "rigwright/nvidia/cards/reports.py of a topology": Reader(
        text(lambda said: reports.joined(0, said)), (SEEN["topology"],)
    ),
    "rigwright/nvidia/driver/openpgp.py": Reader(text(openpgp.read), (ARMOUR,), taken=False),
    "rigwright/nvidia/driver/record.py": Reader(
        text(record.parse), (js({"kernel": "6", "module": "580", "packages": {"a": "1"}, "cards": []}),), ()
    ),
    "rigwright/nvidia/modules/options.py": Reader(text(options.parameters), (b"NVreg_A: 1\nB: 2\n",)),
    "rigwright/operate/reply.py": Reader(lambda content, _: reply.message(told(content)), (js(CHAT),)),
    "rigwright/patches/apply.py": Reader(lambda content, _: apply.parse(content), (DIFF,), (apply.Refused,)),
    "rigwright/plugins/verdict.py": Reader(
        lambda content, _: verdict.verdict(PLAN, content, 0, 3),
        (b"\x1b[32mPython 3.10: PASS\x1b[0m\n",),
        (verdict.Refused,),
    ),
    "rigwright/serving/manifest.py": Reader(text(lambda said: manifest.read(said, {})), (js({"instances": {}}),)),
    "rigwright/supply/archives.py": Reader(text(archives.release), (RELEASE.encode(),)),
    "rigwright/supply/bundle.py": Reader(
        lambda content, file: (file.with_name("bundle.json").write_bytes(content), bundle.read(file.parent)),
        (bundle.text("2026-08-01T10:00:00Z", ["debian-13"], [], []).encode(),),
        (ValueError, Invalid),
    ),
    "rigwright/supply/images.py": Reader(
        lambda content, _: images.chosen(content, ""), (js(MANIFEST), js(INDEX)), (images.Unfit,)
    ),
    "rigwright/supply/images.py of a manifest": Reader(
        lambda content, _: images.parts(content), (js(MANIFEST),), (images.Unfit,)
    ),
    "rigwright/supply/machine_code.py": Reader(
        lambda content, _: machine_code.targets(io.BytesIO(content)),
        (libraries.library("sm_86", "compute_90"),),
        (machine_code.Unreadable,),
    ),
    "rigwright/toml.py": Reader(text(plain), (b"[a]\nb = 1\nc = [1.5, 'x']\n",), ()),
    "rigwright/weights/gguf.py": Reader(
        lambda content, _: gguf.read(content, len(content) + 64),
        (ggufs.gguf(64, {"general.architecture": "llama", "llama.block_count": 2}),),
        (safetensors.Broken, gguf.Short),
    ),
    "rigwright/weights/safetensors.py": Reader(
        lambda content, _: safetensors.hold(content, len(content)), (safetensors_file(200),), (safetensors.Broken,)
    ),
    "rigwright/weights/safetensors.py of shards": Reader(
        lambda content, _: safetensors.shards(content),
        (js({"weight_map": {"a": "a.safetensors"}}),),
        (safetensors.Broken,),
    ),
    "roles/progress.py": Reader(text(progress.document), (js(PROGRESS),)),
    "roles/envs/host/lists.py": Reader(text(lambda said: lists.rows(said, "a")), (WHEEL,), (lists.Refused,)),
    "roles/gateway/host/router/http.py": Reader(
        lambda content, _: requested(content),
        (b"POST /v1/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        (http.Malformed,),
    ),
    "roles/gateway/host/router/settings.py": Reader(
        of_file(settings.read_settings), (js(SETTINGS),), (settings.Broken,)
    ),
    "roles/weights/host/peers.py": Reader(
        lambda content, _: peers._read(content), (js({"files": [{"path": "a"}]}),), ()
    ),
    "roles/weights/host/simple.py": Reader(
        lambda content, _: simple.listed(simple.JSON, content, "http://h/simple/a/", {"a"}),
        (js(SIMPLE),),
        (simple.Refused,),
    ),
    "roles/weights/host/simple.py of a page": Reader(
        lambda content, _: simple.listed("text/html", content, "http://h/simple/a/", {"a"}),
        (PAGE,),
        (simple.Refused,),
    ),
}


def requested(content: bytes) -> None:
    """A request, as the router reads one that comes in."""
    reader = http.Reader(1 << 20)
    reader.add(content)
    if reader.begin() is not None:
        reader.finish()
