"""What to compile for a rig: a pure function of its engine, cards and the host's distribution."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from rigwright.declaration.catalog import Engine, cuda_architecture
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.nvidia.cuda.toolkit import Toolkit, toolkit
from rigwright.supply.lock import Artefact

# Raised when the build's steps change in a way that changes what they install.
RECIPE = 1


@dataclass(frozen=True)
class Build:
    """One compiled engine: its inputs, and the folder that their digest names."""

    name: str
    source: Artefact
    subtree: str
    options: dict[str, str]
    digest: str
    """First 12 hexadecimal digits of the SHA-256 of all inputs."""
    toolkit: Toolkit | None = None
    """The CUDA toolkit that it is compiled with; None for the CPU."""

    @property
    def folder(self) -> str:
        """The folder's name below engines/."""
        return f"{self.name}-{self.source.version}-{self.digest}"

    @property
    def cuda(self) -> bool:
        """Whether it is built for cards."""
        return "CMAKE_CUDA_ARCHITECTURES" in self.options


def cuda_architectures(rig: Rig, engine: str) -> tuple[str, ...]:
    """CMAKE_CUDA_ARCHITECTURES of the cards that the engine's instances run on, and of what the rig is built for beside
    them; none means a CPU build.
    """
    used = {rig.cards[index].capability for i in rig.instances if i.engine_name == engine for index in i.cards}
    wanted = {*used, *rig.also_build_for} if used else set()
    return tuple(cuda_architecture(one) for one in sorted(wanted, key=lambda one: tuple(map(int, one.split(".")))))


def flash_attention_pairs(rig: Rig, engine: str) -> tuple[str, ...]:
    """The K-V cache type pairs that need a flash-attention kernel on a card, as GGML_CUDA_FA_QUANTS wants them.

    A pair that is not built falls back to an f16 kernel with one warning in the log. f16-f16, the default, is
    always among them.
    """
    used = {
        f"{i.variant.cache_type_k}-{i.variant.cache_type_v}"
        for i in rig.instances
        if i.engine_name == engine and i.cards and i.variant.flash_attention != "off"
    }
    return tuple(sorted(used | {"f16-f16"}))


def build(rig: Rig, name: str, engine: Engine, facts: HostFacts) -> Build:
    """The build of one engine on one host.

    The distribution's release and the CUDA toolkit are inputs, for what is compiled links against them.
    """
    cuda = toolkit(rig, facts)
    options = dict(engine.options)
    # without .git the version would be read from whatever repository lies around the build
    options |= {"LLAMA_BUILD_COMMIT": engine.commit[:7], "LLAMA_BUILD_NUMBER": "1"}
    architectures = cuda_architectures(rig, name)
    if cuda and architectures:
        options |= {
            "GGML_CUDA": "ON",
            "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures),
            "CMAKE_CUDA_COMPILER": f"{cuda.root}/bin/nvcc",
            "CUDAToolkit_ROOT": cuda.root,
            # cmake leaves the compiler's own folders out of what it writes into a binary; not every toolkit's are in
            # the dynamic linker's cache
            "CMAKE_BUILD_RPATH": f"{cuda.root}/lib64",
            "GGML_CUDA_FA_QUANTS": ";".join(flash_attention_pairs(rig, name)),
            # on, it links whatever NCCL happens to be installed, which no digest knows
            "GGML_CUDA_NCCL": "OFF",
        }
    source = rig.sources[name]
    inputs = {
        "recipe": RECIPE,
        "source": source.sha256,
        "subtree": engine.subtree,
        "options": options,
        "system": [facts.os_id, facts.os_version, facts.architecture],
        "cuda": cuda.identity if cuda and architectures else None,
    }
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]
    return Build(name, source, engine.subtree, options, digest, cuda if architectures else None)


def record(plan: Build) -> dict[str, object]:
    """The part of the build record that is known before the build."""
    return {
        "engine": plan.name,
        "digest": plan.digest,
        "options": plan.options,
        "source": plan.source.model_dump(mode="json"),
    }
