"""`rigwright show compose`: a compose file that runs podman's own command line."""

import asyncio
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli import main
from rigwright.engines.engine_interface import Kind
from rigwright.engines.image import KIND, compose_port
from rigwright.engines.image.compose_export import CACHE, COMPOSE, PORT_PROGRAM, SOCKETS
from rigwright.engines.image.container_command import KEY
from rigwright.engines.vllm.command import LAUNCHER, PROGRAM
from tests.unit.image_samples import SITE, image_instance, image_rig, image_rows, unpacked_image
from tests.unit.patch_samples import AFTER, BEFORE, sample_patch
from tests.unit.samples import sample_entry


def both(**changes: Any) -> tuple[dict[str, Any], list[str]]:
    """A service of the file, and podman's words."""
    box = image_rig(image_instance(**changes))
    (instance,) = box.instances
    document = yaml.safe_load(KIND.compose(box, instance)[COMPOSE])
    assert document["name"] == "rigwright-chat"
    return document["services"]["chat"], list(KIND.service(box, instance, unpacked_image(box)).command)


def option_values(words: list[str], option: str) -> list[str]:
    return [word.partition("=")[2] for word in words if word.startswith(f"--{option}=")]


CASES: list[dict[str, Any]] = [
    {},
    {"cards": ()},
    {"cards": (0, 2), "tensor_parallel_size": 2},
    {"shm_size": "512M", "flags": {"enable-prefix-caching": True}},
    {"environment": {"VLLM_LOGGING_LEVEL": "a $HOME ${X} %n 'b' \"c\" \\ # ünï"}},
    # outside of the plane that JSON's escapes reach with one of them, and a backslash before what looks like two
    {"environment": {"VLLM_LOGGING_LEVEL": "\U0001f600 \\ud83d\\ude00"}},
]


@pytest.mark.parametrize("changes", CASES)
def test_a_compose_file_is_equal_in_effect_to_the_unit(changes: dict[str, Any]) -> None:
    service, words = both(**changes)
    at = next(index for index, word in enumerate(words) if re.fullmatch("[0-9a-f]{64}", word))
    plain = [word.replace("$$", "$") for word in service["command"]]
    assert [*service["entrypoint"], *plain] == [*option_values(words, "entrypoint"), *words[at + 1 :]]
    environment = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
    assert sorted(f"{name}={value}" for name, value in environment.items()) == sorted(option_values(words, "env"))
    assert service.get("devices", []) == option_values(words, "device")
    assert [service["network_mode"]] == option_values(words, "network")
    assert [service["ipc"]] == option_values(words, "ipc")
    assert [service["shm_size"]] == option_values(words, "shm-size")
    assert {"--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--no-healthcheck"} <= {*words}
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"] == {"disable": True}
    assert not {"ports", "privileged", "volumes_from", "pid", "cap_add"} & service.keys()


@pytest.mark.parametrize("changes", CASES)
def test_its_view_of_the_host_is_the_same(changes: dict[str, Any]) -> None:
    service, words = both(**changes)
    told = {
        target: (source, mode) for source, target, mode in (one.split(":") for one in option_values(words, "volume"))
    }
    beside = set()
    for volume in service["volumes"]:
        source, mode = told.pop(volume["target"])
        assert volume["read_only"] == (mode == "ro")
        # podman makes no folder in the place of a missing one
        assert volume["bind"] == {"create_host_path": False}
        if volume["source"] != source:
            beside.add(volume["source"].removeprefix("./"))
    assert (told, beside) == ({}, {SOCKETS, CACHE, KEY, PROGRAM})


def test_its_image_is_the_locked_one_by_digest() -> None:
    service, _ = both()
    digest = next(row.sha256 for row in image_rows() if row.name == "manifest")
    assert service["image"] == f"docker.io/vllm/vllm-openai@sha256:{digest}"


def test_an_image_of_a_registry_of_ones_own_is_named_by_its_address() -> None:
    own = tuple(row.model_copy(update={"sources": ("lan:vllm/own",)}) for row in image_rows())
    mirrors = {"lan": ("https://registry.lan:5000/",), "docker-hub": ("https://elsewhere.lan",)}
    box = image_rig(image_instance(), engine_artefacts={"vllm-image": own}, mirrors=mirrors)
    document = yaml.safe_load(KIND.compose(box, box.instances[0])[COMPOSE])
    assert document["services"]["chat"]["image"].startswith("registry.lan:5000/vllm/own@sha256:")
    # one that everybody knows is called as everybody calls it
    box = image_rig(image_instance(), mirrors=mirrors)
    document = yaml.safe_load(KIND.compose(box, box.instances[0])[COMPOSE])
    assert document["services"]["chat"]["image"].startswith("docker.io/vllm/vllm-openai@sha256:")


def test_facts_that_only_the_host_knows_are_asked_for() -> None:
    service, _ = both()
    assert service["user"].startswith("${RW_USER:?")
    assert service["mem_limit"].startswith("${RW_MEMORY:?")


def test_files_that_compose_cannot_put_into_a_container_lie_next_to_its_file() -> None:
    # a file whose content is in compose's own is written into the container, whose root is read-only
    service, _ = both()
    assert not {"configs", "secrets"} & service.keys()
    box = image_rig(image_instance())
    files = KIND.compose(box, box.instances[0])
    assert (files.keys(), files[PROGRAM]) == ({COMPOSE, PROGRAM, PORT_PROGRAM}, LAUNCHER)


def test_its_port_is_carried_to_its_socket_by_a_container_that_has_nothing_else() -> None:
    box = image_rig(image_instance())
    (instance,) = box.instances
    services = yaml.safe_load(KIND.compose(box, instance)[COMPOSE])["services"]
    assert services.keys() == {"chat", "chat-port"}
    engine, port = services["chat"], services["chat-port"]
    (published,) = port["ports"]
    assert published == {
        "target": instance.port,
        "published": str(instance.port),
        "host_ip": "${RW_ADDRESS:-127.0.0.1}",
        "protocol": "tcp",
    }
    assert port["command"][1:] == [port["volumes"][1]["target"], str(instance.port), instance.socket]
    assert [(one["source"], one["read_only"]) for one in port["volumes"]] == [("./run", True), ("./port.py", True)]
    assert port["volumes"][0]["target"] == engine["volumes"][0]["target"] == str(Path(instance.socket).parent)
    for key in ("image", "user", "read_only", "cap_drop", "security_opt", "healthcheck", "restart"):
        assert port[key] == engine[key], key
    assert "network_mode" not in port and not {"devices", "environment", "privileged"} & port.keys()


def test_patched_files_are_made_of_the_image_and_mounted_over_it(tmp_path: Path) -> None:
    box = image_rig(image_instance(patches=(sample_patch(),)))
    files = KIND.compose(box, box.instances[0])
    services = yaml.safe_load(files[COMPOSE])["services"]
    assert "# Once, before it starts, to fill changed: docker compose run --rm chat-patch\n" in files[COMPOSE]
    (mounted,) = (one for one in services["chat"]["volumes"] if one["source"].startswith("./changed"))
    assert mounted == {
        "type": "bind",
        "source": "./changed/demo/words.py",
        "target": f"{SITE}/demo/words.py",
        "read_only": True,
        "bind": {"create_host_path": False},
    }
    patch = services["chat-patch"]
    assert (patch["profiles"], patch["network_mode"], patch["restart"]) == (["patch"], "none", "no")
    assert [one["source"] for one in patch["volumes"] if not one["read_only"]] == ["./changed"]
    # the command that the container would run, here: the root of the image is a folder
    command = patch["command"][0].replace(f" / - {SITE} ", f" / - {tmp_path}/site ").replace("python3", sys.executable)
    for one in patch["volumes"]:
        place = tmp_path / one["source"]
        command = command.replace(one["target"], str(place))
        if place.name in files:
            place.write_text(files[place.name])
    (tmp_path / "changed").mkdir()
    (tmp_path / "site/demo").mkdir(parents=True)
    (tmp_path / "site/demo/words.py").write_text(BEFORE)
    # the second time, files of the first are in its way
    for _ in range(2):
        done = subprocess.run([*patch["entrypoint"], command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "patched demo/words.py\n"), done
        assert (tmp_path / "changed/demo/words.py").read_text() == AFTER
    (tmp_path / "site/demo/words.py").write_text("another version")
    done = subprocess.run([*patch["entrypoint"], command], capture_output=True, text=True, check=False)
    assert (done.returncode, "the patch is for another version" in done.stdout) == (1, True)


def test_without_patches_there_is_nothing_to_make() -> None:
    box = image_rig(image_instance())
    assert "patch" not in KIND.compose(box, box.instances[0])[COMPOSE]


async def _exchange_bytes(folder: Path) -> None:
    path, received = str(folder / "api.sock"), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        text = await reader.readline()
        if text == b"gone\n":
            received.set()
            await reader.read()
        else:
            # more than all buffers on the way hold
            writer.write(text * (1 << 21))
            await writer.drain()
        writer.close()
        received.clear()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = await asyncio.create_subprocess_exec(sys.executable, "-I", compose_port.__file__, str(port), path)
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        await asyncio.sleep(0.01)
    # no engine yet
    assert await reader.read() == b""
    writer.close()
    async with await asyncio.start_unix_server(answer, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"words\n")
        assert await reader.read() == b"words\n" * (1 << 21)
        writer.close()
        # a client that goes away is gone for its engine
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"gone\n")
        await received.wait()
        writer.transport.abort()
        while received.is_set():
            await asyncio.sleep(0.01)
        # a client that stays does not hold up its end
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"gone\n")
        await received.wait()
        program.terminate()
        assert await program.wait() == 0
        writer.close()


def test_a_connection_to_its_port_is_one_to_its_socket(tmp_path: Path) -> None:
    asyncio.run(asyncio.wait_for(_exchange_bytes(tmp_path), 30))


def test_a_stop_and_what_is_written_to_memory_are_as_podman_has_them() -> None:
    service, _ = both()
    assert service["stop_grace_period"] == "30s"
    # podman's may be executed from, and Docker's only where an option has it
    assert service["tmpfs"] == ["/run:exec,mode=755", "/tmp:exec", "/var/tmp:exec"]


def test_it_is_written_with_all_that_lies_beside_it(box, tmp_path, monkeypatch):
    box.inventory.write_text(INVENTORY.format(entries={"one": sample_entry()}))
    monkeypatch.setattr(Kind, "compose", lambda kind, rig, instance: {COMPOSE: "a: b\n", PROGRAM: "c"})
    words = ["show", "compose", str(box.inventory), "chat"]
    assert CliRunner().invoke(main, words).output == "a: b\n"
    done = CliRunner().invoke(main, [*words, "--into", str(tmp_path / "new/folder")])
    assert done.exit_code == 0, done.output
    assert {path.name: path.read_text() for path in (tmp_path / "new/folder").iterdir()} == {
        COMPOSE: "a: b\n",
        PROGRAM: "c",
    }
    (tmp_path / "file").touch()
    done = CliRunner().invoke(main, [*words, "--into", str(tmp_path / "file/folder")])
    assert (done.exit_code, "--into" in done.output) == (2, True)


INVENTORY = "from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n"


@pytest.mark.parametrize(
    ("hosts", "words", "said"),
    [
        (["one"], ["chat"], "chat is served by llama.cpp, which does not run in a container"),
        (["one"], ["chta"], 'there is no instance "chta"; did you mean "chat"?'),
        (["one", "two"], ["chat"], "chat is on one, two: choose one with --limit"),
        (["one", "two"], ["chat", "--limit", "two"], "served by llama.cpp"),
    ],
)
def test_an_instance_that_cannot_be_rendered_is_reported_in_one_line(box, hosts, words, said):
    entries = {name: sample_entry(ssh_hostname=f"192.0.2.{number}") for number, name in enumerate(hosts, start=1)}
    box.inventory.write_text(INVENTORY.format(entries=entries))
    done = CliRunner().invoke(main, ["show", "compose", str(box.inventory), *words])
    assert done.exit_code == 2
    assert said in done.output
    assert len(done.output.splitlines()) == 1
