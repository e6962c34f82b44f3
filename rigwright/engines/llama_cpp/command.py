"""The llama-server command line of an instance, and the rest of how it is run."""

from __future__ import annotations

from typing import cast

from rigwright.engines.kind import KEY_FILE, Sandbox, ServiceSpec
from rigwright.engines.llama_cpp.keys import LlamaVariant
from rigwright.engines.llama_cpp.option_table import LlamaSnapshot
from rigwright.model.gateway.entry import Gateway
from rigwright.model.instance import Instance
from rigwright.model.monitoring.entry import Monitoring, metrics_readers
from rigwright.model.roots import Roots

SANDBOX = Sandbox(
    exposure=0.5,
    exposure_with_cards=1.0,
    hidden=(("/etc/llama.cpp", "read by llama-server before its arguments (common/arg.cpp), and known to no digest"),),
)
METRICS, SLOTS = "/metrics", "/slots"
# What browsers are told is closed, unless a variant says something of it.
CORS = frozenset({"cors-origins", "cors-methods", "cors-headers", "cors-credentials", "no-cors-credentials"})


def key_options(instance: Instance, roots: Roots) -> dict[str, str | bool]:
    """What an instance's keys set, as flags are written: option without its dashes -> value, or True for a bare one."""
    variant, snapshot = cast("LlamaVariant", instance.variant), cast("LlamaSnapshot | None", instance.known)
    made: dict[str, str | bool] = {part.option: roots.weight_path(part.files[0]) for part in instance.parts}
    made |= {
        "alias": instance.model_name,
        "host": instance.socket,
        "ctx-size": str(variant.context),
        "parallel": str(variant.parallel),
        "n-gpu-layers": "all" if instance.cards else "0",
        "cache-type-k": variant.cache_type_k,
        "cache-type-v": variant.cache_type_v,
        "flash-attn": variant.flash_attention,
        "api-key-file": KEY_FILE,
    }
    if variant.memory_lock:
        # one option became another (llama.cpp's pull request 20834): both map the file and lock what is mapped
        old = snapshot is not None and snapshot.find("mlock")
        made |= {"mlock": True} if old else {"load-mode": "mmap+mlock"}
    if snapshot and snapshot.find("fit"):
        # on, it changes what is not set, such as the context of a draft or what lies in RAM, by what a card has free
        made["fit"] = "off"
    if variant.split_mode:
        made["split-mode"] = variant.split_mode
    if variant.shares:
        made["tensor-split"] = ",".join(map(str, variant.shares))
    if snapshot and snapshot.find("cors-origins") and not CORS & variant.flags.keys():
        # by itself it tells browsers that any page may ask, with credentials
        made |= {"cors-origins": "localhost", "no-cors-credentials": True}
    if variant.thinking:
        made["reasoning"] = variant.thinking
    return made


def server_command(
    roots: Roots, gateway: Gateway | None, monitoring: Monitoring | None, instance: Instance, folder: str
) -> tuple[str, ...]:
    """The command line, one word an item.

    Args:
        roots: Directories on the host.
        gateway: The declared gateway.
        monitoring: The declared monitoring.
        instance: The instance.
        folder: The absolute path of its engine's installation.
    """
    words = [f"{folder}/bin/llama-server"]
    # asked for by name or not: an engine that somebody may ask for its figures tells them
    flags = dict(cast("LlamaVariant", instance.variant).flags) | (
        {"metrics": True} if metrics_readers(gateway, monitoring) else {}
    )
    for option, value in (*key_options(instance, roots).items(), *sorted(flags.items())):
        words += [f"--{option}"] if value is True else [f"--{option}", value if isinstance(value, str) else str(value)]
    return tuple(words)


def llama_service(
    roots: Roots, gateway: Gateway | None, monitoring: Monitoring | None, instance: Instance, folder: str
) -> ServiceSpec:
    """How an instance is run."""
    variant = cast("LlamaVariant", instance.variant)
    return ServiceSpec(
        command=server_command(roots, gateway, monitoring, instance, folder),
        environment={},
        sandbox=SANDBOX,
        # a line of the unit: other words would have every box start its instances anew
        about=f"{variant.context_per_sequence} tokens a slot",
        completions="/completion",
        metrics=METRICS if metrics_readers(gateway, monitoring) or "metrics" in variant.flags else None,
    )
