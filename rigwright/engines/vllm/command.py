"""The command line of an instance of vLLM, and the rest of how it is run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import cast

from rigwright.engines.engine_interface import KEY_FILE, Sandbox, ServiceSpec
from rigwright.engines.instance_request import ONE_TOKEN, InstanceRequest
from rigwright.engines.vllm import plugin_launch
from rigwright.engines.vllm.catalog_keys import VllmVariant
from rigwright.engines.vllm.forbidden_keys import FAMILIES
from rigwright.engines.vllm.model_files import DRAFT, MODEL, TEMPLATE
from rigwright.engines.vllm.option_snapshot import OptionSetting, VllmOption, VllmSnapshot
from rigwright.envs import environment
from rigwright.envs.environment import Environment
from rigwright.model.catalog_schema import Card
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED, Instance
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.roots import Roots

# The launcher, as text.
LAUNCHER = Path(__file__).with_name("launcher.py").read_text()
PROGRAM = f"vllm-{hashlib.sha256(LAUNCHER.encode()).hexdigest()[:12]}.py"
# The name by which vLLM imports its door where another program starts it.
DOOR = f"{PROGRAM.removesuffix('.py')}.Door"
# `systemd-analyze security` was seen to say 0.8 on the CPU (systemd 257) and 1.0 with two cards (252).
EXPOSURE = 1.2
LOOPBACK = "127.0.0.1"
METRICS = "/metrics"
# Variables of every instance. There is no network: its libraries are not to ask it for anything, and its processes find
# each other on the loopback interface: without its address and the interfaces' names a start hangs (two H200).
OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": LOOPBACK,
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
}
# Where its libraries keep what they have compiled: variable -> folder in the cache.
CACHES = {
    "HOME": "",
    "XDG_CACHE_HOME": "",
    "CUDA_CACHE_PATH": "cuda",
    "FLASHINFER_WORKSPACE_BASE": "",
    "HF_HOME": "huggingface",
    "NUMBA_CACHE_DIR": "numba",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
}
# How NVIDIA's boards for players are called.
GEFORCE = "NVIDIA GeForce "
# Where programs are that compile beside the toolkit's: g++ and what it starts.
SYSTEM_PATHS = ("/usr/bin", "/bin")


def nccl_variables(cards: tuple[Card, ...], driver_entry: DriverEntry, instance: Instance) -> dict[str, str]:
    """NCCL's settings for several cards: GeForce boards read each other's memory only over bridges.

    Of each pair without one their driver says `chipset not supported` (nvidia-smi topo -p2p r, in write-ups of eight
    5090 and of two 3090, which set this). Some boxes have a changed driver: a variant's own NCCL_P2P_DISABLE counts.
    """
    pairs = set(combinations(sorted(instance.cards), 2))
    bridged = {(min(pair), max(pair)) for pair in driver_entry.nvlinks}
    apart = pairs and all(cards[index].name.startswith(GEFORCE) for index in instance.cards) and not pairs & bridged
    return {"NCCL_P2P_DISABLE": "1"} if apart else {}


def key_options(instance: Instance, roots: Roots) -> dict[str, OptionSetting]:
    """The options that an instance's keys set: option without its dashes -> value, or True for a bare one."""
    variant = cast("VllmVariant", instance.variant)
    made: dict[str, OptionSetting] = {
        "served-model-name": instance.model_name,
        "uds": instance.socket,
        **variant.options,
    }
    if variant.tool_call_parser:
        made["enable-auto-tool-choice"] = True
    if variant.thinking:
        made["default-chat-template-kwargs"] = {"enable_thinking": variant.thinking == "on"}
    for part in instance.parts:
        if part.option == TEMPLATE:
            made["chat-template"] = roots.weight_path(part.files[0])
        if part.option == DRAFT:
            model = f"{roots.models}/{part.files[0].weight_folder}"
            made["speculative-config"] = {**(variant.speculative_config or {}), "model": model}
    if "allowed-origins" not in plugin_launch.plugin_flags(instance):
        # by itself it tells browsers that any page may ask
        made["allowed-origins"] = []
    return made


def server_command(roots: Roots, instance: Instance, python: str, launcher: str, key_file: str) -> tuple[str, ...]:
    """The command line, one word an item.

    Args:
        roots: Directories on the host.
        instance: The instance.
        python: The Python that has vLLM.
        launcher: Where it finds `LAUNCHER`, or what starts a plugin's.
        key_file: Where that finds the key.
    """
    # -I: nothing of HOME or of PYTHON* variables comes into it, nor into the processes that it starts
    words = [python, "-I", launcher, key_file]
    if plugin := plugin_launch.find_launch_plugin(instance):
        words += [DOOR, str(plugin.keys.launcher)]
    return (*words, *serve_arguments(instance, key_options(instance, roots), roots))


def serve_arguments(instance: Instance, set_: Mapping[str, OptionSetting], roots: Roots) -> tuple[str, ...]:
    """The arguments of `serve`, one word an item: the model's folder, options that keys set, and those of `flags`."""
    model = next(part for part in instance.parts if part.option == MODEL)
    known = cast("VllmSnapshot", instance.known)
    words = [f"{roots.models}/{model.files[0].weight_folder}"]
    for option, value in (*set_.items(), *sorted(plugin_launch.plugin_flags(instance).items())):
        words += cast("VllmOption", known.find(option)).render_words(option, value)
    return tuple(words)


def compile_cache_folder(cards: tuple[Card, ...], instance: Instance, made: Installation) -> str:
    """The folder of what it compiles: another one for another installation, or another card."""
    capabilities = sorted({cards[index].capability for index in instance.cards}) or ["cpu"]
    return f"{instance.cache_folder}/{made.folder}-{'-'.join(capabilities)}"


def service_variables(
    cards: tuple[Card, ...], driver_entry: DriverEntry, instance: Instance, given: Mapping[str, str]
) -> dict[str, str]:
    """The variables of its environment.

    Args:
        cards: The declared cards by GPU index.
        driver_entry: The declared driver.
        instance: The instance.
        given: Its installation's values, over which only the variant has a say.
    """
    caches = {name: f"{COMPILED}/{place}".rstrip("/") for name, place in CACHES.items()}
    return {
        **OFFLINE,
        **nccl_variables(cards, driver_entry, instance),
        **caches,
        **given,
        **plugin_launch.plugin_variables(instance),
    }


def environment_service(
    roots: Roots, cards: tuple[Card, ...], driver_entry: DriverEntry, instance: Instance, made: Environment
) -> ServiceSpec:
    """How an instance is run in an environment."""
    folder = roots.installation_path(made.folder)
    path = ":".join((*environment.program_folders(made, folder), *SYSTEM_PATHS))
    program = plugin_launch.PROGRAM if plugin_launch.find_launch_plugin(instance) else PROGRAM
    words = server_command(
        roots, instance, f"{environment.prefix_folder(folder)}/bin/python", roots.program_path(program), KEY_FILE
    )
    given = service_variables(cards, driver_entry, instance, {**environment.activation_variables(made), "PATH": path})
    private = {
        name: given.pop(name) for name in plugin_launch.plugin_variables(instance) if not FAMILIES.fullmatch(name)
    }
    # where it listens is no doctor's matter
    served_by = {name: value for name, value in key_options(instance, roots).items() if name != "uds"}
    service_ = build_service(cards, instance, made, words, given)
    return replace(service_, asked=serve_arguments(instance, served_by, roots), private=private)


def build_service(
    cards: tuple[Card, ...],
    instance: Instance,
    made: Installation,
    words: tuple[str, ...],
    variables: Mapping[str, str],
) -> ServiceSpec:
    """How an instance is run.

    Args:
        cards: The declared cards by GPU index.
        instance: The instance.
        made: Its installation.
        words: Its command line.
        variables: Its environment.
    """
    variant = cast("VllmVariant", instance.variant)
    warmup = variant.warmup
    warm = (
        InstanceRequest(ONE_TOKEN.path, {**(ONE_TOKEN.body or {}), "max_tokens": warmup.max_tokens})
        if warmup
        else ONE_TOKEN
    )
    return ServiceSpec(
        command=words,
        environment=variables,
        sandbox=Sandbox(
            exposure=EXPOSURE,
            exposure_with_cards=EXPOSURE,
            # gloo asks for the interfaces that there are, and its processes speak by TCP; ZeroMQ by sockets with names
            families=("AF_INET", "AF_NETLINK", "AF_UNIX"),
            # libzmq ends where it may not set the order in which its threads run
            calls=("sched_setscheduler",),
            # psutil reads /proc/meminfo
            reads_proc=True,
            shared_memory=variant.shm_size,
        ),
        about=f"{variant.capacity_text} tokens" if variant.capacity_text else "",
        warm_up=(warm,) * (warmup.requests if warmup else 0),
        metrics=METRICS,
        programs={PROGRAM: LAUNCHER}
        | ({plugin_launch.PROGRAM: plugin_launch.LAUNCHER} if plugin_launch.find_launch_plugin(instance) else {}),
        cache=compile_cache_folder(cards, instance, made),
    )
