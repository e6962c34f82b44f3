"""All that reads what hosts, registries, mirrors, engines and others' files say: as data, which a test holds whole."""

import base64
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rigwright import memory_records, speed_baselines
from rigwright.containers import daemon_json
from rigwright.declaration import connection
from rigwright.declaration.host_file_formats import parse_host_file
from rigwright.declaration.host_groups import rig_entries
from rigwright.engines import kinds, metrics
from rigwright.engines.llama_cpp import option_table
from rigwright.engines.vllm import option_snapshot
from rigwright.gateway import token_usage
from rigwright.host import deploy_lock_state
from rigwright.inventory import RIG_KEYS
from rigwright.model import download_origins
from rigwright.monitoring import self_check_history
from rigwright.nvidia.cards import smi, smi_text_reports
from rigwright.nvidia.driver import driver_facts, driver_files, openpgp
from rigwright.operate import chat_reply
from rigwright.patches import apply
from rigwright.plugins import verdict
from rigwright.problems import Invalid
from rigwright.pull.publication import PublishedGeneration, parse_payload
from rigwright.rollout import box_marker, state_file
from rigwright.serving import generation
from rigwright.signing import dsse, public_keys, ssh_signatures, statements, strict_json
from rigwright.supply import apt_release, bundle, cuda_machine_code, image_manifest
from rigwright.toml import parse_lock_text
from rigwright.weights import gguf, safetensors
from roles import download_progress
from roles.envs.host import lists
from roles.gateway.host.router import http, settings
from roles.weights.host import peers, simple
from tests.unit import cuda_libraries, gguf_files
from tests.unit.checkpoints import safetensors_bytes
from tests.unit.published_boxes import PLAIN
from tests.unit.test_gateway_router_settings import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = Path(__file__).with_name("captures")
SHA = "a" * 64
START_RECORD = {
    **{"schema": 1, "fingerprint": SHA, "seconds": 1.5, "moment": "2026-06-10T12:00:00Z", "invocation": "1" * 32},
    **{"cards": {"GPU-12345678": {"peak": 2, "settled": 1, "name": "RTX"}}, "host": {"peak": 2, "settled": 1}},
    **{"driver": "595.91", "lines": ["n_slots = 1, n_ctx_slot = 4096"], "history": []},
}


def published_as(content: bytes) -> PublishedGeneration:
    """The verified statement of a payload."""
    return PublishedGeneration(1, PLAIN.digest, hashlib.sha256(content).hexdigest(), len(content), SHA, "alice")


@dataclass(frozen=True)
class ReaderRow:
    """Functions that take foreign bytes."""

    read: Callable[[bytes, Path], object]
    """Of the bytes, with an empty file to put them in; its result does not matter."""
    good: tuple[bytes, ...]
    """Some that it takes, of which others are made."""
    refuses: tuple[type[Exception], ...] = (ValueError,)
    """Its own way to say that it does not take them; nothing else leaves it."""
    taken: bool = True
    """Whether the good ones are: a whole key takes gpg to make."""
    costs: int = 1
    """How many times as long as others it takes."""


def text_reader(read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    """Of a reader of text: a host's has no NUL's way out, and whatever is no UTF-8 is replaced before."""
    return lambda content, _: read(content.decode(errors="replace"))


def file_reader(read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """Of a reader of a file."""

    def written(content: bytes, file: Path) -> object:
        file.write_bytes(content)
        return read(file)

    return written


def _read_rollout_state(file: Path) -> object:
    file.chmod(0o600)
    return state_file.load_state(file)


ROLLOUT_STATE = {
    **{
        "identifier": SHA[:12],
        "started": "2026-11-29T07:00:00Z",
        "inventory_digest": SHA,
        "supply_digest": SHA,
        "phase": "paused",
    },
    **{"settings": {"reboot": False, "soak_minutes": 5}, "batches": [["one"]], "boxes": {"one": {"state": "done"}}},
}


ROLLOUT_MARKER = {
    **{"rollout": SHA[:12], "started": "2026-11-29T07:00:00Z", "moment": "2026-11-29T07:00:00Z"},
    **{"controller": "a@b:/c", "record": {"state": "done"}},
}


def engine_reply(content: bytes) -> chat_reply.Reply:
    """An engine's answer."""
    said = content.decode(errors="replace")
    return chat_reply.Reply(200, "", "application/json", said, (), 0.1, 0.5, 0, 0.5)


def host_file_reader(form: str) -> Callable[[bytes, Path], object]:
    """Of an inventory in one of Ansible's formats."""
    return lambda content, _: rig_entries(parse_host_file("hosts", content, form), "all", (), RIG_KEYS)


def json_bytes(value: object) -> bytes:
    """JSON."""
    return json.dumps(value).encode()


SIGNED_LOCK = (CAPTURES / "signed-lock.json").read_bytes()
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
VLLM_SNAPSHOT = json.loads(next((ROOT / "catalog/flags").glob("vllm-0.21*.json")).read_bytes())
# without an option that its keys become it is invalid
SMALLER = VLLM_SNAPSHOT | {"models": {}, "variables": {}}
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
SMI_CAPTURES = {
    part.partition("\n")[0].partition(",")[0]: part.partition("\n")[2].encode()
    for part in (CAPTURES / "nvidia-smi.txt").read_text().split("== ")
}
ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQENBA==\n=AAAA\n-----END PGP PUBLIC KEY BLOCK-----\n"
GPU = b"0, 00000000:01:00.0, GPU-1, 580.1, 8.6, 24576, 12, Enabled, 4, 4, 16, 16, 350, 350, 100, 390, 90.02, Odd, One\n"
PLAN = {"doctor": "d", "seconds": 60, "largest": 65536, "lines": {"python": {"says": "Python", "kind": "verdict"}}}
WHEEL = b"a/b.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\na.dist-info/RECORD,,\n"


def _read_login(file: Path) -> object:
    file.chmod(0o600)
    return download_origins.load_login(str(file))


READERS: dict[str, ReaderRow] = {
    "rigwright/rollout/box_marker.py": ReaderRow(text_reader(box_marker.read_marker), (json_bytes(ROLLOUT_MARKER),)),
    "rigwright/rollout/state_file.py": ReaderRow(
        file_reader(_read_rollout_state), (json_bytes(ROLLOUT_STATE),), (state_file.UnreadableState,)
    ),
    "rigwright/memory_records.py": ReaderRow(
        text_reader(memory_records.parse_host_records),
        (json_bytes(START_RECORD),),
        (memory_records.UnreadableRecords,),
    ),
    "rigwright/speed_baselines.py": ReaderRow(
        file_reader(speed_baselines.load_history), (json_bytes({}),), (speed_baselines.UnreadableHistory,)
    ),
    "rigwright/containers/daemon_json.py": ReaderRow(
        text_reader(lambda said: (daemon_json.parse_options(said), daemon_json.parse_record(said))),
        (json_bytes({"log-driver": "journald", "features": {"a": True}, "cdi-spec-dirs": ["/etc/cdi"]}),),
    ),
    "rigwright/declaration/connection.py": ReaderRow(text_reader(connection.parse_host_key), (b"ssh-ed25519 " + SSH,)),
    "rigwright/model/download_origins.py": ReaderRow(
        file_reader(_read_login), (base64.b64encode(b"user:password") + b"\n",)
    ),
    "rigwright/engines/engine_interface.py": ReaderRow(
        text_reader(lambda said: [kind.count_answer_tokens(said) for kind in kinds().values()]),
        (json_bytes({"usage": {"completion_tokens": 1}}),),
        (),
    ),
    "rigwright/engines/metrics.py": ReaderRow(
        text_reader(lambda said: metrics.parse_samples(said).total_of("a")),
        (b'# HELP a b\na{x="y"} 1.5\na_bucket{le="+Inf"} 2 170\n',),
        (),
    ),
    "rigwright/engines/llama_cpp/option_table.py": ReaderRow(
        text_reader(option_table.parse_help),
        (next((ROOT / "catalog/flags").glob("llama.cpp-*.txt")).read_bytes()[:6000],),
    ),
    "rigwright/engines/vllm/option_snapshot.py": ReaderRow(
        file_reader(option_snapshot.load_snapshot), (json_bytes(SMALLER),), (Invalid,), costs=50
    ),
    "rigwright/host/deploy_lock_state.py": ReaderRow(
        text_reader(deploy_lock_state.parse_holder), (json_bytes({"who": "a", "since": 1, "host": "b"}),)
    ),
    "rigwright/nvidia/cards/smi.py": ReaderRow(
        text_reader(lambda said: [smi.gpus(0, said), smi.those_that_answer(0, said)]),
        (SMI_CAPTURES["gpus"], SMI_CAPTURES["busy"], GPU),
    ),
    "rigwright/nvidia/cards/smi.py of recoveries": ReaderRow(
        text_reader(lambda said: smi.recovery(0, said)), (b"00000000:01:00.0, None\n",)
    ),
    "rigwright/nvidia/cards/smi.py of processes": ReaderRow(
        text_reader(lambda said: smi.apps(0, said)), (b"123, 00000000:01:00.0, 512\n",)
    ),
    "rigwright/nvidia/cards/smi_text_reports.py": ReaderRow(
        text_reader(lambda said: smi_text_reports.parse_sections(0, said)),
        (SMI_CAPTURES["memory"], SMI_CAPTURES["temperature"]),
    ),
    "rigwright/nvidia/cards/smi_text_reports.py of a topology": ReaderRow(
        text_reader(lambda said: smi_text_reports.parse_topology_matrix(0, said)), (SMI_CAPTURES["topology"],)
    ),
    "rigwright/nvidia/driver/openpgp.py": ReaderRow(text_reader(openpgp.parse_openpgp_key), (ARMOUR,), taken=False),
    "rigwright/nvidia/driver/driver_files.py": ReaderRow(
        text_reader(driver_files.parse_driver_record),
        (json_bytes({"kernel": "6", "module": "580", "packages": {"a": "1"}, "cards": []}),),
        (),
    ),
    "rigwright/nvidia/driver/driver_facts.py": ReaderRow(
        text_reader(driver_facts.parse_parameters), (b"NVreg_A: 1\nB: 2\n",)
    ),
    "rigwright/operate/chat_reply.py": ReaderRow(
        lambda content, _: chat_reply.parse_message(engine_reply(content)), (json_bytes(CHAT),)
    ),
    "rigwright/patches/apply.py": ReaderRow(lambda content, _: apply.parse(content), (DIFF,), (apply.PatchRefused,)),
    "rigwright/plugins/verdict.py": ReaderRow(
        lambda content, _: verdict.verdict(PLAN, content, 0, 3),
        (b"\x1b[32mPython 3.10: PASS\x1b[0m\n",),
        (verdict.Refused,),
    ),
    "rigwright/monitoring/self_check_history.py": ReaderRow(
        text_reader(self_check_history.parse_event),
        (json_bytes({"time": 1.5, "outcome": "ok", "reason": "", "generation": None, "failed": [], "recovered": []}),),
    ),
    "rigwright/serving/generation.py": ReaderRow(
        text_reader(lambda said: generation.parse_manifest(said, {})), (json_bytes({"instances": {}}),)
    ),
    "rigwright/pull/publication.py": ReaderRow(
        lambda content, _: parse_payload(content, published_as(content)), (PLAIN.render(),)
    ),
    "rigwright/signing/dsse.py": ReaderRow(lambda content, _: read_signed_lock(content), (SIGNED_LOCK,)),
    "rigwright/signing/public_keys.py": ReaderRow(
        text_reader(public_keys.parse_public_key), (b"ssh-ed25519 " + SSH + b" a comment",)
    ),
    "rigwright/signing/strict_json.py": ReaderRow(
        lambda content, _: strict_json.parse_strict_json(content, "it"), (json_bytes(MANIFEST),)
    ),
    "rigwright/signing/wire_format.py": ReaderRow(
        lambda content, _: ssh_signatures.parse_ssh_signature(content),
        (dsse.parse_envelope(SIGNED_LOCK).signature,),
    ),
    "rigwright/supply/apt_release.py": ReaderRow(text_reader(apt_release.parse_release), (RELEASE.encode(),)),
    "rigwright/supply/bundle.py": ReaderRow(
        lambda content, file: (file.with_name("bundle.json").write_bytes(content), bundle.load_bundle(file.parent)),
        (bundle.render_index("2026-08-01T10:00:00Z", ["debian-13"], [], []).encode(),),
        (ValueError, Invalid),
    ),
    "rigwright/supply/image_manifest.py": ReaderRow(
        lambda content, _: image_manifest.select_manifest(content, ""),
        (json_bytes(MANIFEST), json_bytes(INDEX)),
        (image_manifest.UnlockableImage,),
    ),
    "rigwright/supply/image_manifest.py of a manifest": ReaderRow(
        lambda content, _: image_manifest.parse_manifest_blobs(content),
        (json_bytes(MANIFEST),),
        (image_manifest.UnlockableImage,),
    ),
    "rigwright/supply/cuda_machine_code.py": ReaderRow(
        lambda content, _: cuda_machine_code.find_targets(io.BytesIO(content)),
        (cuda_libraries.cuda_library("sm_86", "compute_90"),),
        (cuda_machine_code.UnreadableLibrary,),
    ),
    "rigwright/declaration/host_file_formats.py INI": ReaderRow(
        host_file_reader("INI"),
        (
            b"[g]\nb[01:03] ansible_user=ops ansible_become=true driver=\"{'managed': False}\"\n"
            b"[g:vars]\nfs_verity=True\nno_proxy=['a.example']\n",
        ),
        (Invalid,),
    ),
    "rigwright/declaration/host_file_formats.py YAML": ReaderRow(
        host_file_reader("YAML"),
        (b"all: {children: {g: {vars: {ansible_user: ops}, hosts: {'b[1:3]': {keep_generations: 3, cards: [a]}}}}}\n",),
        (Invalid,),
    ),
    "rigwright/declaration/host_file_formats.py JSON": ReaderRow(
        host_file_reader("JSON"),
        (json_bytes({"_meta": {"hostvars": {"b": {"ansible_host": "192.0.2.7"}}}, "g": {"hosts": ["b"], "vars": {}}}),),
        (Invalid,),
    ),
    "rigwright/toml.py": ReaderRow(text_reader(parse_lock_text), (b"[a]\nb = 1\nc = [1.5, 'x']\n",), ()),
    "rigwright/weights/gguf.py": ReaderRow(
        lambda content, _: gguf.parse_header(content, len(content) + 64),
        (gguf_files.gguf_file(64, {"general.architecture": "llama", "llama.block_count": 2}),),
        (safetensors.BrokenSafetensors, gguf.ShortHeader),
    ),
    "rigwright/weights/safetensors.py": ReaderRow(
        lambda content, _: safetensors.check_header(content, len(content)),
        (safetensors_bytes(200),),
        (safetensors.BrokenSafetensors,),
    ),
    "rigwright/weights/safetensors.py of shards": ReaderRow(
        lambda content, _: safetensors.parse_shards(content),
        (json_bytes({"weight_map": {"a": "a.safetensors"}}),),
        (safetensors.BrokenSafetensors,),
    ),
    "rigwright/gateway/token_usage.py": ReaderRow(
        text_reader(lambda said: token_usage.parse_usage_file("2026-11-01", said)),
        (b"- tiny 1 7 3 0 0\nalice tiny 12 84 36 4 1\nend\n",),
    ),
    "roles/download_progress.py": ReaderRow(
        text_reader(download_progress.parse_progress_document), (json_bytes(PROGRESS),)
    ),
    "roles/envs/host/lists.py": ReaderRow(
        text_reader(lambda said: lists.parse_record_rows(said, "a")), (WHEEL,), (lists.EnvironmentRejected,)
    ),
    "roles/gateway/host/router/http.py": ReaderRow(
        lambda content, _: read_request(content),
        (b"POST /v1/a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        (http.Malformed,),
    ),
    "roles/gateway/host/router/settings.py": ReaderRow(
        file_reader(settings.read_settings), (json_bytes(SETTINGS),), (settings.Broken,)
    ),
    "roles/weights/host/peers.py": ReaderRow(
        lambda content, _: peers._parse_progress(content), (json_bytes({"files": [{"path": "a"}]}),), ()
    ),
    "roles/weights/host/simple.py": ReaderRow(
        lambda content, _: simple.parse_index_page(simple.JSON, content, "http://h/simple/a/", {"a"}),
        (json_bytes(SIMPLE),),
        (simple.FetchRefused,),
    ),
    "roles/weights/host/simple.py of a page": ReaderRow(
        lambda content, _: simple.parse_index_page("text/html", content, "http://h/simple/a/", {"a"}),
        (PAGE,),
        (simple.FetchRefused,),
    ),
}


def read_request(content: bytes) -> None:
    """A request, as the router reads one that comes in."""
    reader = http.Reader(1 << 20)
    reader.add(content)
    if reader.begin() is not None:
        reader.finish()


def read_signed_lock(content: bytes) -> None:
    """The statement of a signed file, with its signature."""
    envelope = dsse.parse_envelope(content)
    statements.parse_statement(envelope, "lock")
    ssh_signatures.parse_ssh_signature(envelope.signature)
