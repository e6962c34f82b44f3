"""The llama-server command line of an instance."""

from __future__ import annotations

from rigwright.declaration.entry import Roots
from rigwright.declaration.rig import Instance, Rig


def options(instance: Instance, roots: Roots) -> dict[str, str | bool]:
    """What an instance's keys set, as flags are written: option without its dashes -> value, or True for a bare one.

    systemd expands ${CREDENTIALS_DIRECTORY}.
    """
    variant = instance.variant
    made: dict[str, str | bool] = {part.option: roots.weight_path(part.files[0]) for part in instance.parts}
    made |= {
        "alias": instance.model_name,
        "host": "127.0.0.1",
        "port": str(instance.port),
        "ctx-size": str(variant.context),
        "parallel": str(variant.slots),
        "n-gpu-layers": "all" if instance.cards else "0",
        "cache-type-k": variant.cache_type_k,
        "cache-type-v": variant.cache_type_v,
        "flash-attn": variant.flash_attention,
        "api-key-file": "${CREDENTIALS_DIRECTORY}/api-key",
    }
    if variant.memory_lock:
        # one option became another (llama.cpp's pull request 20834): both map the file and lock what is mapped
        old = instance.snapshot is not None and instance.snapshot.find("mlock")
        made |= {"mlock": True} if old else {"load-mode": "mmap+mlock"}
    if variant.thinking:
        made["reasoning"] = variant.thinking
    return made


def command(rig: Rig, instance: Instance, engine_folder: str) -> list[str]:
    """The command line, one word an item."""
    words = [f"{rig.roots.software}/engines/{engine_folder}/bin/llama-server"]
    for option, value in (*options(instance, rig.roots).items(), *sorted(instance.variant.flags.items())):
        words += [f"--{option}"] if value is True else [f"--{option}", str(value)]
    return words
