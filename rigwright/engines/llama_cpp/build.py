"""The build for a rig: a pure function of its engine, cards and the host's distribution."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rigwright.engines.llama_cpp.catalog_keys import LlamaEngine, LlamaVariant
from rigwright.model.catalog_schema import Card
from rigwright.model.engine_schema import VariantKeys
from rigwright.model.installation import FILES, MARKER, Installation, InstallJob
from rigwright.model.instance import Instance, patches_by_target
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.nvidia.cuda_toolkit import plan_toolkit
from rigwright.patches.patch import APPLY_PROGRAM_TEXT, Patch, collect_digests, describe_patches
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import below_models

if TYPE_CHECKING:
    from rigwright.model.fact_types import HostFacts

# Raised when the build's steps change in a way that changes what they install.
RECIPE = 1
# Measured: source, objects and binaries of a CPU build take 0.6 GiB; CUDA for three architectures 3 GiB.
WORK_KIB = {False: 1 * 1024 * 1024, True: 6 * 1024 * 1024}


@dataclass(frozen=True)
class Build(Installation):
    """One compiled engine."""

    subtree: str = ""
    options: dict[str, str] = field(default_factory=dict)
    patches: tuple[Patch, ...] = ()
    """The changes to its source."""

    @property
    def source(self) -> Artefact:
        """The archive that it is compiled from."""
        return self.artefacts[0]

    @property
    def cuda(self) -> bool:
        """Whether it is built for cards."""
        return "CMAKE_CUDA_ARCHITECTURES" in self.options


def cuda_architecture(capability: str) -> str:
    """A compute capability as CMAKE_CUDA_ARCHITECTURES has it: machine code for it alone, no PTX.

    12.x gets the `a` suffix: llama.cpp needs it for FP4 tensor cores and rewrites a plain 120 to it.
    """
    major, _, minor = capability.partition(".")
    return f"{major}{minor}{'a' if major == '12' else ''}-real"


def cuda_architectures(
    cards: tuple[Card, ...], instances: tuple[Instance, ...], also_build_for: tuple[str, ...], engine: str
) -> tuple[str, ...]:
    """CMAKE_CUDA_ARCHITECTURES of the cards that the engine's instances run on, and of what the rig is built for beside
    them; none means a CPU build.
    """
    used = {cards[index].capability for i in instances if i.engine_name == engine for index in i.cards}
    wanted = {*used, *also_build_for} if used else set()
    return tuple(cuda_architecture(one) for one in sorted(wanted, key=lambda one: tuple(map(int, one.split(".")))))


def flash_attention_pairs(
    instances: tuple[Instance, ...], variants: tuple[VariantKeys, ...], engine: str
) -> tuple[str, ...]:
    """The K-V cache type pairs that need a flash-attention kernel on a card, as GGML_CUDA_FA_QUANTS wants them.

    Of all variants of the engine in the catalogue: which of them a box serves compiles nothing anew. A pair that is not
    built falls back to an f16 kernel with one warning in the log. f16-f16, the default, is always among them.
    """
    recipes = (*variants, *(one.variant for one in instances))
    on_cards = [one for one in recipes if isinstance(one, LlamaVariant) and one.engine == engine and one.cards]
    used = {f"{one.cache_type_k}-{one.cache_type_v}" for one in on_cards if one.flash_attention != "off"}
    return tuple(sorted(used | {"f16-f16"}))


def plan_build(rig: Rig, name: str, engine: LlamaEngine, facts: HostFacts) -> Build:
    """The build of one engine on one host.

    The distribution's release and the CUDA toolkit are inputs, for what is compiled links against them.
    """
    cuda = plan_toolkit(rig.roots, rig.cards, rig.instances, rig.envs, rig.toolkit, facts)
    options = dict(engine.options)
    # without .git the version would be read from whatever repository lies around the build
    options |= {"LLAMA_BUILD_COMMIT": engine.commit[:7], "LLAMA_BUILD_NUMBER": "1"}
    architectures = cuda_architectures(rig.cards, rig.instances, rig.also_build_for, name)
    if cuda and architectures:
        options |= {
            "GGML_CUDA": "ON",
            "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures),
            "CMAKE_CUDA_COMPILER": f"{cuda.root}/bin/nvcc",
            "CUDAToolkit_ROOT": cuda.root,
            # cmake leaves the compiler's own folders out of what it writes into a binary; not every toolkit's are in
            # the dynamic linker's cache
            "CMAKE_BUILD_RPATH": f"{cuda.root}/lib64",
            "GGML_CUDA_FA_QUANTS": ";".join(flash_attention_pairs(rig.instances, rig.variants, name)),
            # on, it links whatever NCCL happens to be installed, which no digest knows
            "GGML_CUDA_NCCL": "OFF",
        }
    (source,) = rig.engine_artefacts[name]
    inputs: dict[str, object] = {
        "recipe": RECIPE,
        "source": source.sha256,
        "subtree": engine.subtree,
        "options": options,
        "system": [facts.os_id, facts.os_version, facts.architecture],
        "cuda": cuda.identity if cuda and architectures else None,
    }
    record = {"options": options, "source": source.identity}
    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches).get(name, ())
    if patches:
        inputs["patches"] = record["patches"] = collect_digests(patches)
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]
    for_ = f"cards sm {options['CMAKE_CUDA_ARCHITECTURES']}" if architectures else "the CPU"
    return Build(
        name=name,
        version=source.version,
        digest=digest,
        artefacts=(source,),
        what=f"compile {source} for {for_}{describe_patches(patches)}",
        record={"engine": name, "digest": digest, **record},
        toolkit=cuda if architectures else None,
        work_kib=WORK_KIB[bool(architectures)],
        subtree=engine.subtree,
        options=options,
        patches=patches,
    )


def render_compile_step(made: Build) -> str:
    """The step that compiles it, run as user `nobody`."""
    return render(
        "llama_cpp/compile.sh.j2",
        build=made,
        patching=APPLY_PROGRAM_TEXT if made.patches else "",
        patches=json.dumps({"patches": [one.plan for one in made.patches]}),
    )


def render_build_job(roots: Roots, made: Build, job: InstallJob) -> str:
    """The job that has it compiled and tried, and installs it."""
    return render(
        "llama_cpp/build.sh.j2",
        build=made,
        job=job,
        ledger=roots.ledger,
        fetched=f"{roots.models}/{below_models(made.source)}",
        compile=render_compile_step(made),
        trial=f"exec {shlex.quote(f'{job.target}/bin/llama-server')} --version",
        inputs=json.dumps(made.record),
        marker=MARKER,
        files=FILES,
    )
