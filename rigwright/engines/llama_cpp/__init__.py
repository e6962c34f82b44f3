"""llama.cpp, compiled from locked source for exactly the cards of a rig."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rigwright.engines.api_paths import COMPLETIONS, MESSAGES, released_paths
from rigwright.engines.capabilities import Ability
from rigwright.engines.engine_interface import InstallingKind, ServiceSpec
from rigwright.engines.known_issue_rule import KnownIssue, PlacedInstance
from rigwright.engines.llama_cpp import build, capabilities, command, log_patterns, model_files, option_table
from rigwright.engines.llama_cpp.catalog_keys import MANAGED_FLAGS, LlamaEngine, LlamaVariant
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.engines.metrics import MetricNames
from rigwright.model.catalog_schema import Catalog, ModelKeys, ModelSelection
from rigwright.model.engine_schema import EngineKeys
from rigwright.model.installation import Installation, InstallJob
from rigwright.model.instance import Instance, ModelPart, standalone_engines
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.patches.patch import LLAMA_CPP
from rigwright.supply import lock
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.engines.reported_memory import ReportedMemory
    from rigwright.model.fact_types import HostFacts


# llama-cpp-python's releases whose llama-server answers them.
MESSAGES_RELEASES = {path: SpecifierSet(">=0.3.17") for path in MESSAGES}


class LlamaCpp(InstallingKind):
    """llama-server."""

    name = "llama.cpp"
    engine_keys: ClassVar[type[EngineKeys]] = LlamaEngine
    variant_keys = LlamaVariant
    packages: ClassVar[tuple[str, ...]] = ("cmake", "g++", "ninja-build")
    program = "llama-server"
    has_stream_usage = True
    artefact_noun = "source"
    compiles = True
    causes = log_patterns.CAUSES
    request_log = log_patterns.REQUEST_LOG
    log_marker = log_patterns.MARKER
    metric_names = capabilities.METRIC_NAMES
    memory_patterns = log_patterns.MEMORY_PATTERNS

    def rules(self) -> tuple[KnownIssue, ...]:
        """rigwright/engines/llama_cpp/known_issues.py."""
        # few verbs judge
        from rigwright.engines.llama_cpp.known_issues import RULES

        return RULES

    def memory(self, one: PlacedInstance) -> MemoryNeed | None:
        """The same."""
        from rigwright.engines.llama_cpp.known_issues import estimate_memory

        return estimate_memory(one)

    def parse_memory(self, lines: Iterable[str]) -> ReportedMemory:
        """Its buffers, which it lists with the flag `verbosity = "4"`, and its slots."""
        from rigwright.engines.reported_memory import parse_llama_memory

        return parse_llama_memory(lines)

    def contention(self, instance: Instance) -> str:
        """By itself it starts a thread for each processor, which waits for all others at every step of a token."""
        if instance.cards or "threads" in cast("LlamaVariant", instance.variant).flags:
            return ""
        return "it takes all processors, as no flags.threads is set: clients of both would wait for minutes"

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """By its keys, flags, model and purpose."""
        return capabilities.declared_abilities(instance)

    def progress_metric(self, instance: Instance) -> tuple[str, MetricNames]:
        """It counts if its settings have it count, and else shows its slots."""
        flags = cast("LlamaVariant", instance.variant).flags
        if "metrics" in flags:
            return command.METRICS, self.metric_names
        return "" if "no-slots" in flags else command.SLOTS, MetricNames()

    def sleep_query(self, instance: Instance) -> tuple[str, str]:
        """Its properties, which do not wake it (llama.cpp, tools/server/README.md, "Sleeping on Idle")."""
        flags = cast("LlamaVariant", instance.variant).flags
        return (command.PROPERTIES, r'"is_sleeping":\s*true') if "sleep-idle-seconds" in flags else ("", "")

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """OpenAI's, and Anthropic's where its source has them."""
        return (*COMPLETIONS, *released_paths(MESSAGES_RELEASES, instance.artefacts[0].version))

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.ArtefactKind]:
        """The source."""
        return {cast("LlamaEngine", engine).source: "source"}

    def patchable(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Mapping[str, str]:
        """Its source tree."""
        return {canonicalize_name(LLAMA_CPP): artefacts[0].version}

    def parts(self, model_: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
        """GGUF files."""
        return model_files.find_gguf_parts(model_, selection)

    def version_data(
        self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]
    ) -> option_table.LlamaSnapshot | None:
        """The options of this version, if the catalogue has them."""
        path = catalog.snapshots.get(
            option_table.snapshot_file_name(artefacts[0].version, cast("LlamaEngine", engine).commit)
        )
        return option_table.load_snapshot(path) if path else None

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """Settings that this llama-server would not start with, of the variant or made from its keys."""
        variant, snapshot = (
            cast("LlamaVariant", instance.variant),
            cast("option_table.LlamaSnapshot | None", instance.known),
        )
        if snapshot is None:
            if variant.flags or variant.memory_lock or variant.thinking:
                engine = cast("LlamaEngine", instance.engine)
                name = option_table.snapshot_file_name(instance.artefacts[0].version, engine.commit)
                path = folder / "catalog" / "flags" / name
                made = f"run its `llama-server --help > {path}`"
                return [f"the options of {instance.engine_name} are unknown: {made}"]
            return []
        ours = command.key_options(instance, roots)
        found = [
            f"{instance.engine_name} cannot be started: --{option} {wrong}"
            for option, wrong in option_table.find_flag_problems(snapshot, ours).items()
        ]
        judged = option_table.find_flag_problems(snapshot, variant.flags, own=MANAGED_FLAGS | ours.keys())
        return found + [f"flags.{flag} {wrong}" for flag, wrong in judged.items()]

    def forbidden_keys(self, instance: Instance) -> dict[str, str]:
        """CMake options, and options of llama-server."""
        engine, variant = cast("LlamaEngine", instance.engine), cast("LlamaVariant", instance.variant)
        snapshot = cast("option_table.LlamaSnapshot | None", instance.known)
        found = {f"options.{name}": why for name, why in command.forbidden_cmake_options(engine.options).items()}
        if snapshot is not None:
            found |= {f"flags.{name}": why for name, why in command.forbidden_flags(snapshot, variant.flags).items()}
        return found

    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> Installation:
        """The build."""
        return build.plan_build(rig, name, cast("LlamaEngine", engine), facts)

    def script(self, rig: Rig, made: Installation, job: InstallJob) -> str:
        """templates/llama_cpp/build.sh.j2."""
        return build.render_build_job(rig.roots, cast("build.Build", made), job)

    def service(self, rig: Rig, instance: Instance, made: Installation) -> ServiceSpec:
        """llama-server's command line."""
        return command.llama_service(
            rig.roots, rig.gateway, rig.monitoring, instance, rig.roots.installation_path(made.folder)
        )

    def version(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], str]:
        """It says its commit."""
        engine = cast("LlamaEngine", standalone_engines(rig.instances)[made.name])
        return (f"{rig.roots.installation_path(made.folder)}/bin/llama-server", "--version"), engine.commit[:7]

    def machine_code(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], frozenset[str]]:
        """The machine code that cuobjdump finds in the library with its kernels."""
        architectures = build.cuda_architectures(rig.cards, rig.instances, rig.also_build_for, made.name)
        if not architectures or made.toolkit is None:
            return (), frozenset()
        library = f"{rig.roots.installation_path(made.folder)}/bin/libggml-cuda.so"
        command_ = (f"{made.toolkit.root}/bin/cuobjdump", "--list-elf", library)
        return command_, frozenset(f"sm_{one.removesuffix('-real')}" for one in architectures)


KIND = LlamaCpp()
