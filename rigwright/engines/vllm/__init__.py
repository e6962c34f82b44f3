"""vLLM, in an environment that is put together of locked packages."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from packaging.utils import canonicalize_name

from rigwright.declaration.catalog import Catalog, Model
from rigwright.declaration.entry import Roots
from rigwright.declaration.models import Selection
from rigwright.declaration.rig import Instance, Part, Rig
from rigwright.engines.keys import EngineKeys
from rigwright.engines.kind import Installation, Kind, Service
from rigwright.engines.vllm import command, model
from rigwright.engines.vllm.keys import Engine, Variant
from rigwright.envs.env import Environment
from rigwright.supply.lock import Artefact

DISTRIBUTION = "vllm"
# What the version of a build for the CPU ends in.
CPU = "+cpu"


class Vllm(Kind):
    """`vllm serve`."""

    name = "vllm"
    engine_keys = Engine
    variant_keys = Variant
    # Triton compiles for the card at the first request, with the system's compiler
    packages = ("g++",)

    def env(self, engine: EngineKeys) -> str:
        """The one that it names."""
        return cast(Engine, engine).env

    def parts(self, model_: Model, selection: Selection) -> tuple[Part, ...]:
        """A folder of safetensors."""
        return model.parts(model_, selection)

    def known(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> object:
        """What this version's own parser takes, if the catalogue has it."""
        return None

    def refusals(self, instance: Instance, roots: Roots, folder: Path) -> list[str]:
        """What this vLLM would not start with, be it the variant's or what its keys become."""
        return []

    def service(self, rig: Rig, instance: Instance, made: Installation) -> Service:
        """vLLM's command line."""
        return command.service(rig, instance, cast(Environment, made))


def version_of(artefacts: tuple[Artefact, ...]) -> str:
    """vLLM's version among the packages of an environment; empty where it is not among them."""
    return next((one.version for one in artefacts if canonicalize_name(one.name) == DISTRIBUTION), "")


KIND = Vllm()
