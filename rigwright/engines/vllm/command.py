"""The command line of an instance of vLLM, and the rest of how it is run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import cast

from rigwright.engines.kind import KEY_FILE, Sandbox, Service
from rigwright.engines.request import ONE_TOKEN, Request
from rigwright.engines.vllm import launched
from rigwright.engines.vllm.keys import Variant
from rigwright.engines.vllm.model import DRAFT, MODEL, TEMPLATE
from rigwright.engines.vllm.reserved import FAMILIES
from rigwright.engines.vllm.snapshot import Option, Snapshot, Value
from rigwright.envs import env
from rigwright.envs.env import Environment
from rigwright.model.entry import Roots
from rigwright.model.installation import Installation
from rigwright.model.rig import COMPILED, Instance, Rig

# What is started, as text.
LAUNCHER = Path(__file__).with_name("launcher.py").read_text()
PROGRAM = f"vllm-{hashlib.sha256(LAUNCHER.encode()).hexdigest()[:12]}.py"
# What vLLM imports its door by where another program starts it.
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


def peers(rig: Rig, instance: Instance) -> dict[str, str]:
    """What NCCL is told of several cards: GeForce boards read each other's memory over bridges alone.

    Of each pair without one their driver says `chipset not supported` (nvidia-smi topo -p2p r, in write-ups of eight
    5090 and of two 3090, which set this). Some boxes have a changed driver: a variant's own NCCL_P2P_DISABLE counts.
    """
    pairs = set(combinations(sorted(instance.cards), 2))
    bridged = {(min(pair), max(pair)) for pair in rig.driver.nvlinks}
    apart = pairs and all(rig.cards[index].name.startswith(GEFORCE) for index in instance.cards) and not pairs & bridged
    return {"NCCL_P2P_DISABLE": "1"} if apart else {}


def options(instance: Instance, roots: Roots) -> dict[str, Value]:
    """What an instance's keys set: option without its dashes -> value, or True for a bare one."""
    variant = cast("Variant", instance.variant)
    made: dict[str, Value] = {"served-model-name": instance.model_name, "uds": instance.socket, **variant.options}
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
    if "allowed-origins" not in launched.flags(instance):
        # by itself it tells browsers that any page may ask
        made["allowed-origins"] = []
    return made


def command(rig: Rig, instance: Instance, python: str, launcher: str, key_file: str) -> tuple[str, ...]:
    """The command line, one word an item.

    Args:
        rig: The instance's rig.
        instance: The instance.
        python: The Python that has vLLM.
        launcher: Where it finds `LAUNCHER`, or what starts a plugin's.
        key_file: Where that finds the key.
    """
    # -I: nothing of HOME or of PYTHON* variables comes into it, nor into the processes that it starts
    words = [python, "-I", launcher, key_file]
    if plugin := launched.plugin(instance):
        words += [DOOR, str(plugin.keys.launcher)]
    return (*words, *asked(instance, options(instance, rig.roots), rig.roots))


def asked(instance: Instance, set_: Mapping[str, Value], roots: Roots) -> tuple[str, ...]:
    """What is served, and how, one word an item: the model's folder, options that keys set, and those of `flags`."""
    model = next(part for part in instance.parts if part.option == MODEL)
    known = cast("Snapshot", instance.known)
    words = [f"{roots.models}/{model.files[0].weight_folder}"]
    for option, value in (*set_.items(), *sorted(launched.flags(instance).items())):
        words += cast("Option", known.find(option)).words(option, value)
    return tuple(words)


def cache(rig: Rig, instance: Instance, made: Installation) -> str:
    """The folder of what it compiles: another one for another installation, or another card."""
    capabilities = sorted({rig.cards[index].capability for index in instance.cards}) or ["cpu"]
    return f"{rig.cache(instance)}/{made.folder}-{'-'.join(capabilities)}"


def environment(rig: Rig, instance: Instance, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of its environment.

    Args:
        rig: The instance's rig.
        instance: The instance.
        given: What its installation gives to it, over which only the variant has a say.
    """
    caches = {name: f"{COMPILED}/{place}".rstrip("/") for name, place in CACHES.items()}
    return {**OFFLINE, **peers(rig, instance), **caches, **given, **launched.variables(instance)}


def service(rig: Rig, instance: Instance, made: Environment) -> Service:
    """How an instance is run in an environment."""
    folder = rig.installed(made.folder)
    path = ":".join((*env.paths(made, folder), *SYSTEM_PATHS))
    program = launched.PROGRAM if launched.plugin(instance) else PROGRAM
    words = command(rig, instance, f"{env.prefix(folder)}/bin/python", rig.program(program), KEY_FILE)
    given = environment(rig, instance, {**env.variables(made), "PATH": path})
    private = {name: given.pop(name) for name in launched.variables(instance) if not FAMILIES.fullmatch(name)}
    # where it listens is no doctor's matter
    served_by = {name: value for name, value in options(instance, rig.roots).items() if name != "uds"}
    service_ = served(rig, instance, made, words, given)
    return replace(service_, asked=asked(instance, served_by, rig.roots), private=private)


def served(
    rig: Rig, instance: Instance, made: Installation, words: tuple[str, ...], variables: Mapping[str, str]
) -> Service:
    """How an instance is run.

    Args:
        rig: Its rig.
        instance: The instance.
        made: What it is run from.
        words: Its command line.
        variables: Its environment.
    """
    variant = cast("Variant", instance.variant)
    warmup = variant.warmup
    warm = Request(ONE_TOKEN.path, {**(ONE_TOKEN.body or {}), "max_tokens": warmup.max_tokens}) if warmup else ONE_TOKEN
    return Service(
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
        about=f"{variant.sized} tokens" if variant.sized else "",
        warm_up=(warm,) * (warmup.requests if warmup else 0),
        metrics=METRICS,
        programs={PROGRAM: LAUNCHER} | ({launched.PROGRAM: launched.LAUNCHER} if launched.plugin(instance) else {}),
        cache=cache(rig, instance, made),
    )
