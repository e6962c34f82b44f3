"""vLLM, in an environment that is put together of locked packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rigwright.engines.api_paths import COMPLETIONS, MESSAGES, released_paths
from rigwright.engines.capabilities import Ability
from rigwright.engines.engine_interface import Kind, ServiceSpec
from rigwright.engines.known_issue_rule import KnownIssue, PlacedInstance
from rigwright.engines.log_causes import StartupFacts
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.engines.metrics import MetricNames
from rigwright.engines.offline_bench import OfflineBench, OfflineBenchSpec
from rigwright.engines.vllm import (
    capabilities,
    command,
    engine_constraints,
    forbidden_keys,
    log_patterns,
    model_files,
    offline_bench,
    option_snapshot,
    option_validation,
    plugin_launch,
    runtime_log,
)
from rigwright.engines.vllm.catalog_keys import VllmEngine, VllmVariant
from rigwright.engines.vllm.option_snapshot import OptionSetting, VllmSnapshot
from rigwright.engines.vllm.option_validation import MANAGED_FLAGS
from rigwright.envs.environment import Environment
from rigwright.model.catalog_schema import Catalog, MissingModelFile, ModelKeys, ModelSelection
from rigwright.model.engine_schema import EngineKeys
from rigwright.model.installation import Installation
from rigwright.model.instance import Instance, ModelPart
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.engines.reported_memory import ReportedMemory

DISTRIBUTION = "vllm"
# The suffix of the version of a build for the CPU.
CPU = "+cpu"
# The rules for request fields are made for vllm/entrypoints/anthropic of 0.20.2, 0.21.0 and 0.33.0; releases from
# 0.28 to 0.33 and before 0.20.2 count as having no member beyond those.
# 0.33.0 makes `thinking.budget_tokens` a `thinking_token_budget`, which up to 0.27 changes the answers of other clients
# (GHSA-fpch-3xrf-7q96).
_REVIEWED_VERSIONS = "<0.34,!=0.22.*,!=0.23.*,!=0.24.*,!=0.25.*,!=0.26.*,!=0.27.*"
# The first releases with that folder and with its token counting.
MESSAGES_RELEASES = {
    "messages": SpecifierSet(f">=0.11.1,{_REVIEWED_VERSIONS}"),
    "messages/count_tokens": SpecifierSet(f">=0.17,{_REVIEWED_VERSIONS}"),
}


class Vllm(Kind):
    """`vllm serve`."""

    name = "vllm"
    has_offline_bench = True
    engine_keys = VllmEngine
    variant_keys = VllmVariant
    # Triton compiles for the card at the first request, with the system's compiler
    packages = ("g++",)

    causes = log_patterns.CAUSES
    log_marker = log_patterns.MARKER
    metric_names = runtime_log.METRIC_NAMES
    startup_patterns = runtime_log.STARTUP_PATTERNS
    memory_patterns = runtime_log.MEMORY_PATTERNS
    validates_model_name = True
    salts_prompts = True
    has_stream_usage = True
    # vllm/entrypoints/anthropic/protocol.py: 0.21.0 has no cache_salt; 0.33.0 has one, but not where tokens are counted
    unsalted_paths = MESSAGES

    def rules(self) -> tuple[KnownIssue, ...]:
        """rigwright/engines/vllm/known_issues.py."""
        # few verbs judge
        from rigwright.engines.vllm.known_issues import RULES

        return RULES

    def memory(self, one: PlacedInstance) -> MemoryNeed | None:
        """The same."""
        from rigwright.engines.vllm.known_issues import estimate_memory

        return estimate_memory(one)

    def parse_memory(self, lines: Iterable[str]) -> ReportedMemory:
        """Its profile: weights, KV cache and graphs."""
        from rigwright.engines.reported_memory import parse_vllm_memory

        return parse_vllm_memory(lines)

    def parse_startup(self, lines: Iterable[str]) -> StartupFacts:
        """Its KV cache, attention backend and times."""
        return runtime_log.parse_startup(lines)

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """By its keys, flags, plugin and weights."""
        return capabilities.declared_abilities(instance)

    def progress_metric(self, instance: Instance) -> tuple[str, MetricNames]:
        """It always counts."""
        return command.METRICS, self.metric_names

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """OpenAI's, and Anthropic's with the releases of `MESSAGES_RELEASES`."""
        return (*COMPLETIONS, *released_paths(MESSAGES_RELEASES, self.release(instance.engine, instance.artefacts)))

    def parts(self, model_: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
        """A folder of safetensors."""
        return model_files.find_checkpoint_parts(model_, selection)

    def release(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> str:
        """vLLM's version in it; empty where it has none."""
        return locked_version(artefacts)

    def version_data(
        self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]
    ) -> VllmSnapshot | None:
        """The options that this version's own parser takes, if the catalogue has them."""
        path = catalog.snapshots.get(option_snapshot.snapshot_file_name(self.release(engine, artefacts)))
        return option_snapshot.load_snapshot(path) if path else None

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """Settings that this vLLM would not start with, of the variant or made from its keys."""
        variant, known = cast("VllmVariant", instance.variant), cast("VllmSnapshot | None", instance.known)
        found_version = self.release(instance.engine, instance.artefacts)
        if not found_version:
            return [f"{instance.engine_name} cannot be started: its environment does not contain {DISTRIBUTION}"]
        if known is None:
            path = folder / "catalog" / "flags" / option_snapshot.snapshot_file_name(found_version)
            made = f"run `python -m lab.vllm_snapshot > {path}` in its environment"
            return [f"the options of vLLM {found_version} are unknown: {made}"]
        found = []
        if found_version.endswith(CPU) == bool(instance.cards):
            built = "the CPU: it cannot use cards" if instance.cards else "cards: it needs at least one"
            found.append(f"vLLM {found_version} is built for {built}")
        ours = command.key_options(instance, roots)
        found += [
            f"{option.replace('-', '_')} {wrong}" if option in variant.options else f"--{option} {wrong}"
            for option, wrong in option_validation.find_option_problems(known, ours).items()
        ]
        flags, variables = plugin_launch.plugin_flags(instance), plugin_launch.plugin_variables(instance)
        judged = option_validation.find_option_problems(known, flags, own=MANAGED_FLAGS.keys() | ours.keys())
        found += [f"flags.{flag} {wrong}" for flag, wrong in judged.items()]
        judged = option_validation.find_variable_problems(known, variables)
        found += [f"environment.{name} {wrong}" for name, wrong in judged.items()]
        found += plugin_launch.find_plugin_refusals(instance, known, ours)
        return found or self._engine_refusals(instance, known, {**ours, **flags}, capabilities)

    def _engine_refusals(
        self,
        instance: Instance,
        known: VllmSnapshot,
        options: Mapping[str, OptionSetting],
        capabilities: frozenset[str],
    ) -> list[str]:
        """Settings that the engine refuses once it has read the model; empty where that is only being locked."""
        try:
            served, draft = (
                model_files.find_checkpoint(instance.parts),
                model_files.find_checkpoint(instance.parts, model_files.DRAFT),
            )
        except MissingModelFile:
            return []
        found = [
            f"its config.json refers to code from {place}, which is not locked"
            for place in (served.foreign_code if served and "trust-remote-code" in options else ())
        ]
        environment = plugin_launch.plugin_variables(instance)
        if served is None:
            return found
        return found + engine_constraints.find_constraint_violations(
            known, options, served, capabilities, len(instance.cards), environment, draft
        )

    def forbidden_keys(self, instance: Instance) -> dict[str, str]:
        """Options and variables of vLLM's, and code that comes with a model."""
        variant, known = cast("VllmVariant", instance.variant), cast("VllmSnapshot | None", instance.known)
        if known is None:
            return {}
        found = {
            f"flags.{name}": why
            for name, why in forbidden_keys.forbidden_flags(known, plugin_launch.plugin_flags(instance)).items()
        }
        variables = forbidden_keys.forbidden_variables(known, plugin_launch.plugin_variables(instance))
        found |= {f"environment.{name}": why for name, why in variables.items()}
        keys = forbidden_keys.forbidden_flags(known, variant.options)
        return found | {f"variant.{name.replace('-', '_')}": why for name, why in keys.items()}

    def shared_memory(self, instance: Instance) -> str:
        """By its key: its processes hand each other tensors there."""
        return cast("VllmVariant", instance.variant).shm_size

    def notes(self, instance: Instance) -> list[str]:
        """The program that starts it, and code that comes with the model."""
        variant, found = cast("VllmVariant", instance.variant), []
        if plugin := plugin_launch.find_launch_plugin(instance):
            mode = f" in mode {variant.mode}" if variant.mode else ""
            found.append(f"is started by {plugin.keys.launcher} of plugin {plugin}{mode}")
        selftests = [one.keys.selftest.command for one in instance.plugins if one.keys.selftest]
        found += [f"is switched to once {name} passes" for name in selftests]
        if variant.trust_remote_code:
            files = [row.path for row in instance.weights if row.path.endswith(".py")]
            said = ", ".join(files) or "none, so trust_remote_code is not needed"
            found.append(f"runs Python code from its model's folder: {said}")
        return found

    def service(self, rig: Rig, instance: Instance, made: Installation) -> ServiceSpec:
        """vLLM's command line."""
        return command.environment_service(rig.roots, rig.cards, rig.driver, instance, cast("Environment", made))

    def offline(
        self, rig: Rig, instance: Instance, made: Installation, wanted: OfflineBenchSpec
    ) -> OfflineBench | None:
        """vLLM's own benches."""
        return offline_bench.plan_offline_bench(instance, self.service(rig, instance, made), wanted)


def locked_version(artefacts: tuple[Artefact, ...]) -> str:
    """vLLM's among the packages of an environment; empty where it is not among them."""
    return next((one.version for one in artefacts if canonicalize_name(one.name) == DISTRIBUTION), "")


KIND = Vllm()
