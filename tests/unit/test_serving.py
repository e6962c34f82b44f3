"""Serving: the exact command line, and a unit that changes when and only when the instance does."""

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest

from rigwright.engines.llama_cpp.command import server_command
from rigwright.engines.llama_cpp.option_table import LlamaSnapshot
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.serving import instance_units
from tests.unit.samples import (
    COMMIT,
    HELP,
    sample_artefact,
    sample_card,
    sample_installation,
    sample_instance,
    sample_parts,
    sample_rig,
)
from tests.unit.test_llama_cpp_flags import OLD

FOLDER = "plain-1.0-0123456789ab"
PATH = f"/opt/rigwright/engines/{FOLDER}"
CARDS = (sample_card("7.5"), sample_card("8.6"))
SOCKET = "/run/rigwright/instances/chat/api.sock"
FIXED = ["--fit", "off"]
CLOSED = [*FIXED, "--cors-origins", "localhost", "--no-cors-credentials"]
"""To browsers."""


def two_cards() -> Instance:
    return sample_instance(
        "chat",
        cards=(1, 0),
        context=65536,
        parallel=4,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        flash_attention="on",
        shares=(3, 5),
        flags={"metrics": True, "jinja": True},
        model_name="Qwen3.6-27B",
        port=8030,
    )


def unit(one: Instance, made: Rig | None = None, folder: str = FOLDER) -> instance_units.InstanceUnit:
    return instance_units.build_unit(made or sample_rig(one, cards=CARDS), one, sample_installation(folder))


def values(text: str, directive: str) -> list[str]:
    return re.findall(rf"^{directive}=(.*)$", text, re.MULTILINE)


def test_an_instance_on_the_cpu_is_started_with() -> None:
    box_rig = sample_rig(sample_instance())
    assert " ".join(server_command(box_rig.roots, box_rig.gateway, box_rig.monitoring, sample_instance(), PATH)) == (
        f"/opt/rigwright/engines/{FOLDER}/bin/llama-server"
        f" --model /srv/models/small/{COMMIT}/small-q4.gguf"
        " --alias small --host /run/rigwright/instances/chat/api.sock --ctx-size 4096 --parallel 1 --n-gpu-layers 0"
        " --cache-type-k f16 --cache-type-v f16 --flash-attn auto"
        " --api-key-file ${CREDENTIALS_DIRECTORY}/api-key --fit off --cors-origins localhost --no-cors-credentials"
    )


def test_an_instance_on_two_cards_is_started_with() -> None:
    one = two_cards()
    made = sample_rig(one, cards=CARDS, roots=Roots(models="/data/models", software="/data/sw"))
    assert " ".join(server_command(made.roots, made.gateway, made.monitoring, one, f"/data/sw/engines/{FOLDER}")) == (
        f"/data/sw/engines/{FOLDER}/bin/llama-server"
        f" --model /data/models/small/{COMMIT}/small-q4.gguf"
        " --alias Qwen3.6-27B --host /run/rigwright/instances/chat/api.sock --ctx-size 65536"
        " --parallel 4 --n-gpu-layers all"
        " --cache-type-k q8_0 --cache-type-v q4_0 --flash-attn on"
        " --api-key-file ${CREDENTIALS_DIRECTORY}/api-key --fit off --tensor-split 3,5"
        " --cors-origins localhost --no-cors-credentials --jinja --metrics"
    )


@pytest.mark.parametrize(
    ("snapshot", "changes", "words"),
    [
        (HELP, {}, CLOSED),
        (OLD, {}, []),
        (None, {}, []),
        (HELP, {"memory_lock": True}, ["--load-mode", "mmap+mlock", *CLOSED]),
        (OLD, {"memory_lock": True}, ["--mlock"]),
        (HELP, {"thinking": "off"}, [*CLOSED, "--reasoning", "off"]),
        (OLD, {"thinking": "auto"}, ["--reasoning", "auto"]),
        (HELP, {"memory_lock": True, "thinking": "on"}, ["--load-mode", "mmap+mlock", *CLOSED, "--reasoning", "on"]),
        # a variant's own value is the only one
        (HELP, {"flags": {"cors-origins": "*"}}, [*FIXED, "--cors-origins", "*"]),
        (HELP, {"flags": {"cors-credentials": True}}, [*FIXED, "--cors-credentials"]),
    ],
)
def test_keys_are_rendered_as_the_engines_version_has_them(
    snapshot: LlamaSnapshot | None, changes: dict[str, object], words: list[str]
) -> None:
    one = sample_instance(known=snapshot, **changes)
    box_rig = sample_rig()
    plain = server_command(box_rig.roots, box_rig.gateway, box_rig.monitoring, sample_instance(known=OLD), PATH)
    assert server_command(box_rig.roots, box_rig.gateway, box_rig.monitoring, one, PATH) == (*plain, *words)


def test_the_projector_is_loaded_beside_the_model() -> None:
    one = sample_instance(parts=sample_parts(mmproj=sample_artefact(name="eye", file="eye.gguf")))
    box_rig = sample_rig(one)
    words = server_command(box_rig.roots, box_rig.gateway, box_rig.monitoring, one, PATH)
    assert words[words.index("--mmproj") + 1] == f"/srv/models/eye/{COMMIT}/eye.gguf"
    assert [a.name for a in one.weights] == ["small", "eye"]
    box_rig = sample_rig(sample_instance())
    assert "--mmproj" not in server_command(box_rig.roots, box_rig.gateway, box_rig.monitoring, sample_instance(), PATH)


@pytest.mark.parametrize(
    ("context", "parallel", "flags", "tokens"),
    [
        (131072, 4, {}, 32768),
        (4096, 1, {}, 4096),
        (4096, 3, {}, 1536),  # 1365, rounded up to a multiple of 256
        (4097, 1, {}, 4352),
        (1, 4, {}, 256),
        (131072, 4, {"kv-unified": True}, 131072),
    ],
)
def test_the_unit_says_what_one_request_can_have(
    context: int, parallel: int, flags: dict[str, bool], tokens: int
) -> None:
    one = sample_instance(context=context, parallel=parallel, flags=flags)
    assert one.variant.context_per_sequence == tokens
    (line,) = values(unit(one).text, "Description")
    assert line.endswith(f": llamacpp/sample, {tokens} tokens a slot")


@pytest.mark.parametrize(("cards", "visible"), [((), ""), ((0,), "0"), ((1, 0), "1,0")])
def test_a_process_sees_its_own_cards_in_the_order_of_slots(cards: tuple[int, ...], visible: str) -> None:
    lines = unit(sample_instance(cards=cards)).environment.splitlines()
    assert f"CUDA_VISIBLE_DEVICES={visible}" in lines
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in lines


def test_nothing_in_the_unit_needs_quoting_or_escaping() -> None:
    for one in (sample_instance(), two_cards()):
        made = unit(one)
        (line,) = values(made.text, "ExecStart")
        box_rig = sample_rig(one, cards=CARDS)
        words = server_command(box_rig.roots, box_rig.gateway, box_rig.monitoring, one, PATH)
        assert line.split() == shlex.split(line) == list(words)
        # systemd reads % in every line but those of sizes; \ " ' and ; where words are split; $ in command lines
        read = [line for line in made.text.splitlines() if not line.startswith(("#", "MemoryMax="))]
        assert [line for line in read if set(line) & set("%\\\"';`")] == []
        assert [line.count("$") for line in read if "$" in line] == [line.count("${CREDENTIALS_DIRECTORY}")]


def test_devices_are_hidden_on_the_cpu_and_listed_with_cards() -> None:
    cpu, gpu = unit(sample_instance()).text, unit(two_cards()).text
    assert (values(cpu, "PrivateDevices"), values(cpu, "DeviceAllow")) == (["yes"], [])
    assert values(gpu, "PrivateDevices") == ["no"]
    assert values(cpu, "DevicePolicy") == values(gpu, "DevicePolicy") == ["closed"]
    assert values(gpu, "DeviceAllow") == ["char-nvidia rw", "char-nvidia-uvm rw"]


@pytest.mark.parametrize("one", [sample_instance(), two_cards()], ids=["cpu", "cards"])
def test_the_unit_has_no_network_and_no_port_but_a_socket_in_a_folder_of_its_own(one: Instance) -> None:
    text = unit(one).text
    assert values(text, "PrivateNetwork") == ["yes"]
    # CUDA cannot begin without it (cuInit: error 304)
    assert values(text, "RestrictAddressFamilies") == ["AF_UNIX"]
    (folder,) = values(text, "RuntimeDirectory")
    assert f"/run/{folder}/api.sock" == one.socket == SOCKET
    # only the user, the group and root come to the socket, which they may write to
    assert (values(text, "RuntimeDirectoryMode"), values(text, "UMask")) == (["0700"], ["0007"])
    assert str(one.port) not in text


@pytest.mark.parametrize("one", [sample_instance(), two_cards()], ids=["cpu", "cards"])
def test_its_files_fill_no_disk_of_the_host(one: Instance) -> None:
    text = unit(one).text
    (freed, before), (after,) = values(text, "ExecStartPre"), values(text, "ExecStopPost")
    # systemd refuses to read its units anew, and to run a job, where /run is full
    assert freed.split()[-1] == before.split()[-1] == after.split()[-1] == "/run/rigwright/instances/chat"
    (options,) = re.findall(r" mount -t tmpfs -o ([^ ]+) ", before)
    assert {"size", "nr_inodes"} < dict(one.partition("=")[::2] for one in options.split(",")).keys()
    # a process that was started from an earlier unit has none to give back
    assert after.startswith("-+")
    # PrivateTmp= is a folder of the host's own file systems
    assert values(text, "PrivateTmp") == []
    mounted = {one.partition(":")[0] for value in values(text, "TemporaryFileSystem") for one in value.split()}
    assert {"/tmp", "/var/tmp", "/dev/shm"} < mounted


def test_the_unit_may_have_as_much_as_is_declared() -> None:
    text = unit(sample_instance(memory_max="48G", tasks_max=77)).text
    assert (values(text, "MemoryMax"), values(text, "TasksMax")) == (["48G"], ["77"])


def test_the_unit_runs_as_a_user_of_its_own_after_its_file_systems_are_mounted() -> None:
    made = sample_rig(
        sample_instance(), accounts=ServiceAccounts("svc"), roots=Roots(models="/data/m", software="/data/s")
    )
    text = instance_units.build_unit(made, made.instances[0], sample_installation()).text
    assert values(text, "User") == values(text, "Group") == ["svc-chat"]
    assert values(text, "RequiresMountsFor") == ["/data/m /data/s"]


def test_the_unit_is_ready_after_a_completion_within_its_own_time() -> None:
    text = unit(sample_instance(ready_timeout=77)).text
    assert values(text, "TimeoutStartSec") == ["77"]
    (post,) = values(text, "ExecStartPost")
    key = "/etc/rigwright/credentials/chat.api-key"
    assert post.lstrip("+").split() == [
        *instance_units.ON_HOST.split(),
        *("/etc/rigwright/current/ready", "rigwright-chat.service", "rigwright-chat", key, "0"),
    ]
    (post,) = values(unit(two_cards()).text, "ExecStartPost")
    assert post.split()[-1] == "2"


def test_the_key_is_named_by_its_path_and_never_told(tmp_path: Any) -> None:
    path = tmp_path / "key"
    path.write_text("sk-secret-0123456789")
    text = unit(sample_instance(api_key_file=str(path))).text
    assert "sk-secret" not in text
    assert str(path) not in text
    assert values(text, "LoadCredential") == ["api-key:/etc/rigwright/credentials/chat.api-key"]


def test_the_unit_tells_its_own_digest_to_its_process() -> None:
    made = unit(sample_instance())
    assert f"{instance_units.DIGEST_VARIABLE}={made.digest}" in made.environment.splitlines()
    assert values(made.text, "EnvironmentFile") == ["/etc/rigwright/current/env/chat"]
    assert made.text.startswith(instance_units.OWNED_HEADER + "\n")
    assert made.name == "rigwright-chat.service"


OTHERS = {
    "name": lambda: unit(sample_instance("code")),
    "memory": lambda: unit(sample_instance(memory_max="1G")),
    "tasks": lambda: unit(sample_instance(tasks_max=9)),
    "context": lambda: unit(sample_instance(context=8192)),
    "parallel": lambda: unit(sample_instance(parallel=2)),
    "cache": lambda: unit(sample_instance(cache_type_v="q8_0")),
    "flash attention": lambda: unit(sample_instance(flash_attention="off")),
    "flag": lambda: unit(sample_instance(flags={"metrics": True})),
    "flag's value": lambda: unit(sample_instance(flags={"threads": "2"})),
    "timeout": lambda: unit(sample_instance(ready_timeout=60)),
    "alias": lambda: unit(sample_instance(model_name="other")),
    "cards": lambda: unit(sample_instance(cards=(0,))),
    "another card": lambda: unit(sample_instance(cards=(1,))),
    "weights": lambda: unit(sample_instance(parts=sample_parts(sample_artefact(sha256="c" * 64)))),
    "projector": lambda: unit(sample_instance(parts=sample_parts(mmproj=sample_artefact(name="eye")))),
    "projector's bytes": lambda: unit(
        sample_instance(parts=sample_parts(mmproj=sample_artefact(name="eye", sha256="c" * 64)))
    ),
    "memory lock": lambda: unit(sample_instance(memory_lock=True)),
    "thinking": lambda: unit(sample_instance(thinking="off")),
    "revision": lambda: unit(sample_instance(parts=sample_parts(sample_artefact(version="2")))),
    "engine": lambda: unit(sample_instance(), folder="plain-1.0-ffffffffffff"),
    "user": lambda: unit(sample_instance(), sample_rig(sample_instance(), accounts=ServiceAccounts("svc"))),
    "models": lambda: unit(sample_instance(), sample_rig(sample_instance(), roots=Roots(models="/data"))),
    "config": lambda: unit(sample_instance(), sample_rig(sample_instance(), roots=Roots(config="/etc/other"))),
}


def test_every_change_of_an_instance_is_another_unit() -> None:
    digests = {name: other().digest for name, other in OTHERS.items()} | {"none": unit(sample_instance()).digest}
    assert len(set(digests.values())) == len(digests), digests


def test_others_keys_leave_an_instances_unit_as_it_is() -> None:
    one = sample_instance()
    same = [
        sample_rig(one, name="other"),
        sample_rig(one, sample_instance("code", port=8021)),
        sample_rig(one, mirrors={"other": ("http://x",)}),
        sample_rig(one, cuda_root="/opt/cuda"),
        sample_rig(one, cards=CARDS),
        sample_rig(one, roots=Roots(state="/data")),
    ]
    assert {unit(one, made).text for made in same} == {unit(one).text}
    assert unit(replace(one, api_key_file="/elsewhere")).text == unit(one).text
    assert unit(replace(one, port=8021)) == unit(one)
    reordered = unit(sample_instance(flags={"b": "1", "a": "2"})), unit(sample_instance(flags={"a": "2", "b": "1"}))
    assert reordered[0] == reordered[1]


@pytest.mark.parametrize(
    "other",
    [
        sample_instance(context=8192),
        sample_instance(cards=(0,)),
        sample_instance(parts=sample_parts(sample_artefact(sha256="c" * 64))),
    ],
    ids=["text", "environment", "weights"],
)
def test_the_target_of_a_process_changes_with_unit_file_and_environment_file(other: Instance) -> None:
    before, after = unit(sample_instance()).unit_state, unit(other).unit_state
    assert before == unit(sample_instance()).unit_state
    assert (before.unit, after.unit) == ("rigwright-chat.service",) * 2
    assert before.started_from != after.started_from
    assert (after.port, after.cards) == (0, frozenset(other.cards))
