"""An instance of vLLM and the environment that it runs in."""

from collections.abc import Mapping
from typing import Any

from rigwright.engines.vllm.catalog_keys import VllmEngine, VllmVariant
from rigwright.engines.vllm.option_snapshot import load_snapshot, snapshot_file_name
from rigwright.envs.environment import Environment
from rigwright.model.catalog_schema import EnvKeys
from rigwright.model.instance import EnvSpec, Instance, ModelPart
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact
from tests.unit import samples
from tests.unit.checkpoints import CHECKPOINT_PATHS, QWEN3, checkpoint_rows
from tests.unit.env_samples import conda_row, env_installation
from tests.unit.samples import sample_card, sample_wheel

KNOWN = load_snapshot(ROOT / "catalog/flags" / snapshot_file_name("0.21.0"))
ENV = EnvSpec(
    "vllm",
    EnvKeys(python="py", packages="pk", distribution="vllm", imports=("vllm",), cuda=True),
    (conda_row(),),
    (sample_wheel("vllm", version="0.21.0", group="pk"),),
)


def checkpoint_parts(config: Mapping[str, Any] = QWEN3, *more: ModelPart) -> tuple[ModelPart, ...]:
    """A checkpoint, and what goes with it."""
    return (ModelPart("model", tuple(checkpoint_rows(CHECKPOINT_PATHS, config))), *more)


def vllm_instance(name: str = "chat", *, cards: tuple[int, ...] = (0,), **changes: object) -> Instance:
    """An instance; keys of its variant may be changed beside its own."""
    own = {key: changes.pop(key) for key in tuple(changes) if key in Instance.__dataclass_fields__}
    recipe = {"engine": "vllm", "model": "big", "cards": len(cards)} | changes
    packages: tuple[Artefact, ...] = ENV.packages
    given = {
        "cards": cards,
        "engine_name": "vllm",
        "engine": VllmEngine(kind="vllm", env="vllm"),
        "variant": VllmVariant.model_validate(recipe),
        "variant_name": "vllm/sample",
        "model_name": "big",
        "parts": checkpoint_parts(),
        "artefacts": packages,
        "known": KNOWN,
    }
    return samples.sample_instance(name, **(given | own))  # type: ignore[arg-type] # fields, and no keys of a variant


def vllm_rig(*instances: Instance, capability: str = "8.6", cards: int = 4, **changes: object) -> Rig:
    """Their rig."""
    return samples.sample_rig(
        *instances, cards=(sample_card(capability),) * cards, envs=(ENV,), cuda_root="/usr/local/cuda", **changes
    )


def vllm_environment(rig_: Rig) -> Environment:
    """Their environment."""
    return env_installation(rig_, ENV)
