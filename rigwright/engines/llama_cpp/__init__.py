"""llama.cpp, compiled from locked source for exactly the cards of a rig."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rigwright.engines.abilities import Ability
from rigwright.engines.api_paths import COMPLETIONS, MESSAGES, released_paths
from rigwright.engines.fit import Memory
from rigwright.engines.kind import InstallingKind, Service
from rigwright.engines.llama_cpp import able, build, command, flags, log_patterns, model, reserved, told
from rigwright.engines.llama_cpp.keys import OWN_FLAGS, Engine, Variant
from rigwright.engines.metrics import Names
from rigwright.engines.rule import Placed, Rule
from rigwright.model.catalog import Catalog, Model
from rigwright.model.engines.keys import EngineKeys
from rigwright.model.entry import Roots
from rigwright.model.installation import Installation, Job
from rigwright.model.models import Selection
from rigwright.model.rig import Instance, Part, Rig
from rigwright.patches.keys import LLAMA_CPP
from rigwright.supply import lock
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.model.facts import HostFacts


# llama-cpp-python's releases whose llama-server answers them.
MESSAGES_RELEASES = {path: SpecifierSet(">=0.3.17") for path in MESSAGES}


class LlamaCpp(InstallingKind):
    """llama-server."""

    name = "llama.cpp"
    engine_keys = Engine
    variant_keys = Variant
    packages = ("cmake", "g++", "ninja-build")
    program = "llama-server"
    pieces = "source"
    causes = log_patterns.CAUSES
    log_marker = log_patterns.MARKER
    counts = told.COUNTS

    def rules(self) -> tuple[Rule, ...]:
        """rigwright/engines/llama_cpp/cautions.py."""
        # few verbs judge
        from rigwright.engines.llama_cpp.cautions import RULES

        return RULES

    def memory(self, one: Placed) -> Memory | None:
        """The same."""
        from rigwright.engines.llama_cpp.cautions import memory

        return memory(one)

    def crowds(self, instance: Instance) -> str:
        """By itself it starts a thread for each processor, which waits for all others at every step of a token."""
        if instance.cards or "threads" in cast("Variant", instance.variant).flags:
            return ""
        return "it takes all processors, as no flags.threads is set: clients of both would wait for minutes"

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """By its keys, flags, model and purpose."""
        return able.abilities(instance)

    def steps(self, instance: Instance) -> tuple[str, Names]:
        """It counts where it is told to, and else shows its slots."""
        flags = cast("Variant", instance.variant).flags
        if "metrics" in flags:
            return command.METRICS, self.counts
        return "" if "no-slots" in flags else command.SLOTS, Names()

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """OpenAI's, and Anthropic's where its source has them."""
        return (*COMPLETIONS, *released_paths(MESSAGES_RELEASES, instance.artefacts[0].version))

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.Kind]:
        """The source."""
        return {cast("Engine", engine).source: "source"}

    def patchable(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Mapping[str, str]:
        """Its source tree."""
        return {canonicalize_name(LLAMA_CPP): artefacts[0].version}

    def parts(self, model_: Model, selection: Selection) -> tuple[Part, ...]:
        """GGUF files."""
        return model.parts(model_, selection)

    def known(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> flags.Snapshot | None:
        """The options of this version, if the catalogue has them."""
        path = catalog.snapshots.get(flags.file_name(artefacts[0].version, cast("Engine", engine).commit))
        return flags.read(path) if path else None

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """What this llama-server would not start with, be it the variant's or what its keys become."""
        variant, snapshot = cast("Variant", instance.variant), cast("flags.Snapshot | None", instance.known)
        if snapshot is None:
            if variant.flags or variant.memory_lock or variant.thinking:
                engine = cast("Engine", instance.engine)
                name = flags.file_name(instance.artefacts[0].version, engine.commit)
                path = folder / "catalog" / "flags" / name
                made = f"run its `llama-server --help > {path}`"
                return [f"the options of {instance.engine_name} are unknown: {made}"]
            return []
        ours = command.options(instance, roots)
        found = [
            f"{instance.engine_name} cannot be started: --{option} {wrong}"
            for option, wrong in flags.judge(snapshot, ours).items()
        ]
        judged = flags.judge(snapshot, variant.flags, own=OWN_FLAGS | ours.keys())
        return found + [f"flags.{flag} {wrong}" for flag, wrong in judged.items()]

    def reserved(self, instance: Instance) -> dict[str, str]:
        """CMake options, and options of llama-server."""
        engine, variant = cast("Engine", instance.engine), cast("Variant", instance.variant)
        snapshot = cast("flags.Snapshot | None", instance.known)
        found = {f"options.{name}": why for name, why in reserved.options(engine.options).items()}
        if snapshot is not None:
            found |= {f"flags.{name}": why for name, why in reserved.flags(snapshot, variant.flags).items()}
        return found

    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> build.Build:
        """What is compiled."""
        return build.build(rig, name, cast("Engine", engine), facts)

    def script(self, rig: Rig, made: Installation, job: Job) -> str:
        """templates/llama_cpp/build.sh.j2."""
        return build.script(rig, cast("build.Build", made), job)

    def service(self, rig: Rig, instance: Instance, made: Installation) -> Service:
        """llama-server's command line."""
        return command.service(rig, instance, rig.installed(made.folder))

    def version(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], str]:
        """It says its commit."""
        engine = cast("Engine", rig.engines[made.name])
        return (f"{rig.installed(made.folder)}/bin/llama-server", "--version"), engine.commit[:7]

    def machine_code(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], frozenset[str]]:
        """What cuobjdump finds in the library with its kernels."""
        architectures = build.cuda_architectures(rig, made.name)
        if not architectures or made.toolkit is None:
            return (), frozenset()
        library = f"{rig.installed(made.folder)}/bin/libggml-cuda.so"
        command_ = (f"{made.toolkit.root}/bin/cuobjdump", "--list-elf", library)
        return command_, frozenset(f"sm_{one.removesuffix('-real')}" for one in architectures)


KIND = LlamaCpp()
