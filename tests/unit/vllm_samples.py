"""An instance of vLLM and the environment that it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigwright.engines.vllm.keys import Engine, Variant
from rigwright.engines.vllm.snapshot import file_name, read
from rigwright.envs.env import Environment
from rigwright.model.envs.keys import EnvKeys
from rigwright.model.rig import DeclaredEnv, Instance, Part, Rig
from rigwright.paths import ROOT
from rigwright.supply.lock import Artefact
from tests.unit import samples
from tests.unit.checkpoints import QWEN3, WHOLE, rows
from tests.unit.env_samples import conda, made
from tests.unit.samples import card, wheel

KNOWN = read(ROOT / "catalog/flags" / file_name("0.21.0"))
ENV = DeclaredEnv(
    "vllm",
    EnvKeys(python="py", packages="pk", distribution="vllm", imports=("vllm",), cuda=True),
    (conda(),),
    (wheel("vllm", version="0.21.0", group="pk"),),
)


def model(config: Mapping[str, Any] = QWEN3, *more: Part) -> tuple[Part, ...]:
    """A checkpoint, and what goes with it."""
    return (Part("model", tuple(rows(WHOLE, config))), *more)


def vllm(name: str = "chat", *, cards: tuple[int, ...] = (0,), **changes: object) -> Instance:
    """An instance; keys of its variant may be changed beside its own."""
    own = {key: changes.pop(key) for key in tuple(changes) if key in Instance.__dataclass_fields__}
    recipe = {"engine": "vllm", "model": "big", "cards": len(cards)} | changes
    packages: tuple[Artefact, ...] = ENV.packages
    given = {
        "cards": cards,
        "engine_name": "vllm",
        "engine": Engine(kind="vllm", env="vllm"),
        "variant": Variant.model_validate(recipe),
        "variant_name": "vllm/sample",
        "model_name": "big",
        "parts": model(),
        "artefacts": packages,
        "known": KNOWN,
    }
    return samples.instance(name, **(given | own))  # type: ignore[arg-type] # fields, and no keys of a variant


def rig(*instances: Instance, capability: str = "8.6", cards: int = 4, **changes: object) -> Rig:
    """Their rig."""
    return samples.rig(
        *instances, cards=(card(capability),) * cards, envs=(ENV,), cuda_root="/usr/local/cuda", **changes
    )


def environment(rig_: Rig) -> Environment:
    """What they run in."""
    return made(rig_, ENV)
