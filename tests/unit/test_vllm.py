"""vLLM: the exact command line, its environment, its unit, and the launcher's door."""

import asyncio
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.vllm import launcher
from rigwright.engines.vllm.command import PROGRAM
from rigwright.host.systemd import render_command_line
from rigwright.model.instance import COMPILED, Instance, ModelPart
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.plan.preflight import find_warnings
from rigwright.serving import instance_units
from rigwright.serving.instance_units import build_unit
from rigwright.system_calls import FORBIDDEN
from tests.unit.checkpoints import checkpoint_row, checkpoint_rows
from tests.unit.samples import sample_artefact, sample_facts, sample_wheel
from tests.unit.vllm_samples import checkpoint_parts, vllm_environment, vllm_instance, vllm_rig

MODEL = "/srv/models/owner/big/" + checkpoint_rows()[0].version
SOCKET = "/run/rigwright/instances/chat/api.sock"


def service(instance: Instance, rig_: Rig | None = None) -> ServiceSpec:
    whole = rig_ or vllm_rig(instance)
    return kind_of(instance).service(whole, instance, vllm_environment(whole))


def command_options(instance: Instance) -> dict[str, str | bool]:
    """Option -> value of its command line; a value in a word of its own is the last option's."""
    found: dict[str, str | bool] = {}
    for word in map(str, service(instance).command[5:]):
        if word.startswith("--"):
            name, has, value = word[2:].partition("=")
            found[name] = value if has else True
        else:
            found[list(found)[-1]] = word
    return found


def text(instance: Instance, node: int | None = None) -> str:
    whole = vllm_rig(instance)
    return build_unit(whole, instance, vllm_environment(whole), node).text


def test_programs_that_root_runs_for_it_are_not_of_its_environment() -> None:
    """The environment's folder is the first of its PATH, and may have a `mount`."""
    whole = vllm_rig(vllm_instance())
    made = build_unit(whole, whole.instances[0], vllm_environment(whole))
    given = dict(line.split("=", 1) for line in made.environment.splitlines() if line)
    for line in re.findall(r"^Exec\w+=-?[+]/usr/bin/nsenter --mount=\S+ (.*)$", made.text, re.MULTILINE):
        # the words before the program, and one that tells how it would have been found
        before = re.match(r"(/usr/bin/env |\S+=\S+ )*", line)[0].split()  # type: ignore[index] # matches nothing, too
        done = subprocess.run([*before, "/usr/bin/printenv", "PATH"], env=given, capture_output=True, text=True)
        assert done.stdout == "/usr/sbin:/usr/bin:/sbin:/bin\n", line


# Variables that the dynamic loader, the C library, shells, Python and curl read before a program has a say.
OBEYED = ("LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "BASH_ENV", "ENV", "PYTHONPATH", "SSL_CERT_FILE")


def test_a_variable_of_any_name_is_the_processs_alone() -> None:
    """An inventory may allow it; root's commands of the unit would load what it names."""
    one = vllm_instance(environment=dict.fromkeys(OBEYED, "/var/cache/x y.so") | {"VLLM_LOGGING_LEVEL": "DEBUG"})
    whole = vllm_rig(one)
    made = build_unit(whole, one, vllm_environment(whole))
    assert "VLLM_LOGGING_LEVEL=DEBUG\n" in made.environment
    assert not [name for name in OBEYED if re.search(rf"^{name}=", made.environment, re.MULTILINE)]
    (line,) = values(made.text, "ExecStart")
    words = shlex.split(line)
    begin = words[: len(OBEYED) + 1]
    assert begin == ["/usr/bin/env", *(f"{name}=/var/cache/x y.so" for name in sorted(OBEYED))]
    assert words[len(begin) :] == shlex.split(render_command_line(service(one).command))
    # the values that a check compares the process with
    assert (
        instance_units.instance_variables(one, service(one)).items()
        >= dict.fromkeys(OBEYED, "/var/cache/x y.so").items()
    )
    assert (
        made.digest
        != build_unit(vllm_rig(vllm_instance()), vllm_instance(), vllm_environment(vllm_rig(vllm_instance()))).digest
    )


def values(of: str, directive: str) -> list[str]:
    return re.findall(rf"^{directive}=(.*)$", of, re.MULTILINE)


def test_an_instance_is_started_with() -> None:
    one = vllm_instance()
    folder = vllm_environment(vllm_rig(one)).folder
    assert " ".join(service(one).command) == (
        f"/opt/rigwright/engines/{folder}/env/bin/python -I /etc/rigwright/current/programs/{PROGRAM}"
        f" ${{CREDENTIALS_DIRECTORY}}/api-key {MODEL} --served-model-name=big --uds={SOCKET}"
        " --tensor-parallel-size=1 --pipeline-parallel-size=1 --data-parallel-size=1 --allowed-origins=[]"
    )


def test_every_key_becomes_an_option_of_its_name() -> None:
    draft = ModelPart("draft", tuple(checkpoint_rows()))
    template = ModelPart("chat-template", (sample_artefact(name="talk", file="talk.jinja", version="1"),))
    one = vllm_instance(
        cards=(0, 1, 2, 3),
        parts=checkpoint_parts(json.loads(checkpoint_rows()[0].text or ""), draft, template),
        pipeline_parallel_size=2,
        max_model_len="auto",
        max_num_seqs=8,
        gpu_memory_utilization=0.9,
        tool_call_parser="qwen3_coder",
        thinking="off",
        trust_remote_code=True,
        speculative_config={"method": "draft_model", "num_speculative_tokens": 3},
        compilation_config={"cudagraph_mode": "PIECEWISE"},
        flags={"enable-prefix-caching": True, "additional-config": {"a": [1]}, "allowed-origins": ["http://a"]},
    )
    assert command_options(one) == {
        "served-model-name": "big",
        "uds": SOCKET,
        "tensor-parallel-size": "2",
        "pipeline-parallel-size": "2",
        "data-parallel-size": "1",
        "max-model-len": "auto",
        "max-num-seqs": "8",
        "gpu-memory-utilization": "0.9",
        "tool-call-parser": "qwen3_coder",
        "enable-auto-tool-choice": True,
        "default-chat-template-kwargs": '{"enable_thinking": false}',
        "trust-remote-code": True,
        "chat-template": f"/srv/models/talk/1/{template.files[0].file}",
        "speculative-config": json.dumps({"method": "draft_model", "num_speculative_tokens": 3, "model": MODEL}),
        "compilation-config": '{"cudagraph_mode": "PIECEWISE"}',
        "enable-prefix-caching": True,
        "additional-config": '{"a": [1]}',
        "allowed-origins": '["http://a"]',
    }


def test_caches_are_another_folder_for_another_card_and_known_to_the_generation() -> None:
    one = vllm_instance()
    found = {capability: service(one, vllm_rig(one, capability=capability)) for capability in ("7.5", "8.6")}
    assert found["7.5"].cache != found["8.6"].cache
    for made in found.values():
        assert made.cache.startswith("/var/cache/rigwright/instances/chat/vllm-0.21.0-")
        kept = [value for name, value in made.environment.items() if name.endswith(("CACHE_DIR", "CACHE_ROOT", "HOME"))]
        assert [value for value in kept if not value.startswith(("/usr/local/cuda", COMPILED))] == []
    (folder,) = values(text(one), "CacheDirectory")
    assert f"/var/cache/{folder}" == found["8.6"].cache
    assert values(text(one), "BindPaths")[-1] == f"/var/cache/{folder}:{COMPILED}"


def test_the_cards_libraries_find_each_other_on_the_loopback_interface_alone() -> None:
    made = text(vllm_instance(cards=(0, 1), shm_size="8G"))
    assert values(made, "PrivateNetwork") == ["yes"]
    assert (values(made, "IPAddressDeny"), values(made, "IPAddressAllow")) == (["any"], ["localhost"])
    assert values(made, "RestrictAddressFamilies") == ["AF_INET AF_NETLINK AF_UNIX"]
    assert values(made, "ProcSubset") == []
    assert values(made, "SystemCallFilter")[-2:] == ["sched_setscheduler", f"~{' '.join(FORBIDDEN)}"]
    assert "/dev/shm:mode=1777,size=8G /tmp:mode=1777 /var/tmp:mode=1777" in values(made, "TemporaryFileSystem")


@pytest.mark.parametrize(
    ("name", "bridges", "wanted"),
    [
        ("NVIDIA GeForce RTX 5090", (), "1"),
        ("NVIDIA GeForce RTX 3090", ((1, 0),), None),
        ("NVIDIA RTX A6000", (), None),
    ],
)
def test_boards_for_players_read_each_others_memory_over_bridges_alone(
    name: str, bridges: tuple[tuple[int, int], ...], wanted: str | None
) -> None:
    one = vllm_instance(cards=(0, 1))
    whole = vllm_rig(one, driver=DriverEntry(nvlinks=bridges))
    boards = tuple(card.model_copy(update={"name": name}) for card in whole.cards)
    whole = Rig(**{**vars(whole), "cards": boards})
    assert service(one, whole).environment.get("NCCL_P2P_DISABLE") == wanted
    own = vllm_instance(cards=(0, 1), environment={"NCCL_P2P_DISABLE": "0"})
    assert service(own, whole).environment["NCCL_P2P_DISABLE"] == "0"


def test_a_unit_is_bound_to_the_node_of_its_cards() -> None:
    assert values(text(vllm_instance()), "NUMA.*") == []
    bound = text(vllm_instance(), node=1)
    assert [values(bound, key) for key in ("NUMAPolicy", "NUMAMask", "CPUAffinity")] == [["bind"], ["1"], ["numa"]]


def test_warming_up_is_as_many_requests_as_are_asked_for() -> None:
    made = service(vllm_instance(warmup={"requests": 3, "max_tokens": 7}))
    assert [one.body["max_tokens"] for one in made.warm_up if one.body] == [7, 7, 7]


KEY = "a-key-of-the-tests"
RIGHT = (b"authorization", f"Bearer {KEY}".encode())


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> launcher.Door:
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv(launcher.KEY_FILE, str(tmp_path / "key"))

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        status = 405 if scope.get("method") == "HEAD" else 200
        await send({"type": "http.response.start", "status": status, "headers": []})

    return launcher.Door(inside)


def status(
    door: launcher.Door, path: str, *headers: tuple[bytes, bytes], method: str = "POST", kind: str = "http"
) -> Any:
    """The first answer to a client."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a refusal waits for nothing")

    scope = {"type": kind, "path": path, "method": method, "headers": list(headers)}
    asyncio.run(door(scope, receive, send))
    return sent[0].get("status", sent[0]["type"])


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/invocations", "/tokenize", "/docs", "//v1/models", "/health/x"]
)
def test_every_path_asks_for_the_key(door: launcher.Door, path: str) -> None:
    assert status(door, path, RIGHT) == 200
    for wrong in ([], [(b"authorization", b"Bearer x")], [(b"authorization", KEY.encode())], [RIGHT, RIGHT]):
        assert status(door, path, *wrong) == 401
    assert status(door, path, kind="websocket") == "websocket.close"


@pytest.mark.parametrize("path", ["/health", "/metrics", "/version", "/ping"])
def test_health_paths_ask_for_no_key(door: launcher.Door, path: str) -> None:
    assert [status(door, path, method=method) for method in ("GET", "HEAD")] == [200, 200]


def test_head_works_where_get_does_and_needs_the_same_key(door: launcher.Door) -> None:
    assert [status(door, "/v1/models", *headers, method="HEAD") for headers in ([RIGHT], [])] == [200, 401]
    scope = {"type": "http", "path": "/health", "method": "HEAD", "headers": []}

    async def send(_: object) -> None:
        pass

    asyncio.run(door(scope, send, send))
    # by the server's own, it sends no body
    assert scope["method"] == "HEAD"


def test_a_browser_may_ask_which_origins_are_allowed(door: launcher.Door) -> None:
    assert status(door, "/v1/chat/completions", method="OPTIONS") == 200


def test_an_empty_key_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("\n")
    monkeypatch.setenv(launcher.KEY_FILE, str(tmp_path / "key"))
    with pytest.raises(SystemExit, match="contains no key"):
        launcher.Door(None)  # type: ignore[arg-type] # the code does not get so far


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown flag": (
        {"flags": {"max-modle-len": 5}},
        'flags.max-modle-len is not an option of vLLM 0.21.0; did you mean "max-model-len"?',
    ),
    "one of ours": (
        {"flags": {"port": 8000}},
        "flags.port is not allowed in flags: an instance listens where its unit says",
    ),
    "a key's": (
        {"flags": {"dtype": "half"}, "dtype": "half"},
        "flags.dtype is not allowed in flags: other keys set it",
    ),
    "a value": ({"kv_cache_dtype": "fp9"}, 'kv_cache_dtype does not accept "fp9"; did you mean "fp8"?'),
    "JSON": ({"speculative_config": {"methd": "mtp"}}, 'speculative_config has no key methd; did you mean "method"?'),
    "a parser": ({"reasoning_parser": "qwen"}, 'reasoning_parser does not know "qwen"; did you mean "qwen3"?'),
    "a variable": (
        {"environment": {"VLLM_USE_V1": "1"}},
        "environment.VLLM_USE_V1 is no longer a variable of vLLM 0.21.0",
    ),
    "the key": ({"environment": {"VLLM_API_KEY": "x" * 20}}, "environment.VLLM_API_KEY is not allowed in a catalogue"),
    "no cards": ({"cards": ()}, "vLLM 0.21.0 is built for cards: it needs at least one"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_settings_that_vllm_would_not_start_with_are_refused(why: str) -> None:
    changes, text = REFUSED[why]
    one = vllm_instance(**changes)
    (line,) = kind_of(one).refusals(one, Roots(), Path("/home/ops"))
    assert line.startswith(text)


def test_a_build_for_the_cpu_takes_no_cards() -> None:
    built = (sample_wheel("vllm", version="0.21.0+cpu"),)
    one = vllm_instance(artefacts=built)
    assert kind_of(one).refusals(one, Roots(), Path()) == ["vLLM 0.21.0+cpu is built for the CPU: it cannot use cards"]
    one = vllm_instance(cards=(), artefacts=built)
    assert kind_of(one).refusals(one, Roots(), Path()) == []


def test_an_unknown_version_is_refused_with_a_remedy() -> None:
    one = vllm_instance(known=None)
    (line,) = kind_of(one).refusals(one, Roots(), Path("/home/ops"))
    assert "/home/ops/catalog/flags/vllm-0.21.0.json" in line


def test_code_of_a_models_and_files_are_the_inventorys_to_allow() -> None:
    one = vllm_instance(
        trust_remote_code=True, flags={"tool-parser-plugin": "/x.py"}, environment={"LD_PRELOAD": "/x.so"}
    )
    assert sorted(kind_of(one).forbidden_keys(one)) == [
        "environment.LD_PRELOAD",
        "flags.tool-parser-plugin",
        "variant.trust_remote_code",
    ]


def test_weights_that_are_more_than_the_hosts_memory_and_code_of_a_models_are_reported_beforehand() -> None:
    big = sample_artefact(name="big", size=20 * 1024**3)
    one = vllm_instance(
        parts=(ModelPart("model", (*checkpoint_rows(), big, checkpoint_row("own.py"))),), trust_remote_code=True
    )
    slow, code, shared = find_warnings(vllm_rig(one), sample_facts(memory_kib=9 * 1024**2))
    assert slow.startswith("chat: 9.0 GiB of memory, and 20.0 GiB of weights")
    assert code == "chat: runs Python code from its model's folder: own.py"
    assert shared.startswith("chat: /dev/shm may take 16.0 GiB, and the host has 9.0 GiB")
    assert find_warnings(vllm_rig(vllm_instance()), sample_facts()) == []
