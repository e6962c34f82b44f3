"""vLLM, in an environment that is put together of locked packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rigwright.engines.abilities import Ability
from rigwright.engines.api_paths import COMPLETIONS, MESSAGES, released_paths
from rigwright.engines.fit import Memory
from rigwright.engines.kind import Kind, Service
from rigwright.engines.log import Begun
from rigwright.engines.metrics import Names
from rigwright.engines.offline import Offline, Wanted
from rigwright.engines.rule import Placed, Rule
from rigwright.engines.vllm import (
    able,
    command,
    judge,
    launched,
    log_patterns,
    model,
    offline,
    reserved,
    rules,
    snapshot,
    told,
)
from rigwright.engines.vllm.keys import Engine, Variant
from rigwright.engines.vllm.own import OWN_FLAGS
from rigwright.engines.vllm.snapshot import Snapshot, Value
from rigwright.envs.env import Environment
from rigwright.model.catalog import Catalog, Model
from rigwright.model.engines.keys import EngineKeys
from rigwright.model.entry import Roots
from rigwright.model.installation import Installation
from rigwright.model.models import Missing, Selection
from rigwright.model.rig import Instance, Part, Rig
from rigwright.supply.lock import Artefact

DISTRIBUTION = "vllm"
# What the version of a build for the CPU ends in.
CPU = "+cpu"
# The rules for request fields are made for vllm/entrypoints/anthropic of 0.20.2, 0.21.0 and 0.33.0; releases from
# 0.28 to 0.33 and before 0.20.2 count as having no member beyond those.
# 0.33.0 makes `thinking.budget_tokens` a `thinking_token_budget`, which up to 0.27 changes the answers of other clients
# (GHSA-fpch-3xrf-7q96).
_JUDGED = "<0.34,!=0.22.*,!=0.23.*,!=0.24.*,!=0.25.*,!=0.26.*,!=0.27.*"
# The first releases with that folder and with its token counting.
MESSAGES_RELEASES = {
    "messages": SpecifierSet(f">=0.11.1,{_JUDGED}"),
    "messages/count_tokens": SpecifierSet(f">=0.17,{_JUDGED}"),
}


class Vllm(Kind):
    """`vllm serve`."""

    name = "vllm"
    engine_keys = Engine
    variant_keys = Variant
    # Triton compiles for the card at the first request, with the system's compiler
    packages = ("g++",)

    causes = log_patterns.CAUSES
    log_marker = log_patterns.MARKER
    counts = told.COUNTS
    marks = told.MARKS
    judges_names = True
    salts_prompts = True
    # vllm/entrypoints/anthropic/protocol.py: 0.21.0 has no cache_salt; 0.33.0 has one, but not where tokens are counted
    unsalted_paths = MESSAGES

    def rules(self) -> tuple[Rule, ...]:
        """rigwright/engines/vllm/cautions.py."""
        # few verbs judge
        from rigwright.engines.vllm.cautions import RULES

        return RULES

    def memory(self, one: Placed) -> Memory | None:
        """The same."""
        from rigwright.engines.vllm.cautions import memory

        return memory(one)

    def begun(self, lines: Iterable[str]) -> Begun:
        """Its KV cache, attention backend and times."""
        return told.begun(lines)

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """By its keys, flags, plugin and weights."""
        return able.abilities(instance)

    def steps(self, instance: Instance) -> tuple[str, Names]:
        """It always counts."""
        return command.METRICS, self.counts

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """OpenAI's, and Anthropic's with the releases of `MESSAGES_RELEASES`."""
        return (*COMPLETIONS, *released_paths(MESSAGES_RELEASES, self.release(instance.engine, instance.artefacts)))

    def parts(self, model_: Model, selection: Selection) -> tuple[Part, ...]:
        """A folder of safetensors."""
        return model.parts(model_, selection)

    def release(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> str:
        """vLLM's version in it; empty where it has none."""
        return version(artefacts)

    def known(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Snapshot | None:
        """What this version's own parser takes, if the catalogue has it."""
        path = catalog.snapshots.get(snapshot.file_name(self.release(engine, artefacts)))
        return snapshot.read(path) if path else None

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """What this vLLM would not start with, be it the variant's or what its keys become."""
        variant, known = cast("Variant", instance.variant), cast("Snapshot | None", instance.known)
        found_version = self.release(instance.engine, instance.artefacts)
        if not found_version:
            return [f"{instance.engine_name} cannot be started: its environment does not contain {DISTRIBUTION}"]
        if known is None:
            path = folder / "catalog" / "flags" / snapshot.file_name(found_version)
            made = f"run `python -m lab.vllm_snapshot > {path}` in its environment"
            return [f"the options of vLLM {found_version} are unknown: {made}"]
        found = []
        if found_version.endswith(CPU) == bool(instance.cards):
            built = "the CPU: it cannot use cards" if instance.cards else "cards: it needs at least one"
            found.append(f"vLLM {found_version} is built for {built}")
        ours = command.options(instance, roots)
        found += [
            f"{option.replace('-', '_')} {wrong}" if option in variant.options else f"--{option} {wrong}"
            for option, wrong in judge.judge(known, ours).items()
        ]
        flags, variables = launched.flags(instance), launched.variables(instance)
        judged = judge.judge(known, flags, own=OWN_FLAGS.keys() | ours.keys())
        found += [f"flags.{flag} {wrong}" for flag, wrong in judged.items()]
        judged = judge.variables(known, variables)
        found += [f"environment.{name} {wrong}" for name, wrong in judged.items()]
        found += launched.refusals(instance, known, ours)
        return found or self._beyond(instance, known, {**ours, **flags}, capabilities)

    def _beyond(
        self, instance: Instance, known: Snapshot, options: Mapping[str, Value], capabilities: frozenset[str]
    ) -> list[str]:
        """What the engine refuses once it has read the model; nothing where that is only being locked."""
        try:
            served, draft = model.of(instance.parts), model.of(instance.parts, model.DRAFT)
        except Missing:
            return []
        found = [
            f"its config.json refers to code from {place}, which is not locked"
            for place in (served.foreign_code if served and "trust-remote-code" in options else ())
        ]
        environment = launched.variables(instance)
        if served is None:
            return found
        return found + rules.refusals(known, options, served, capabilities, len(instance.cards), environment, draft)

    def reserved(self, instance: Instance) -> dict[str, str]:
        """Options and variables of vLLM's, and code that comes with a model."""
        variant, known = cast("Variant", instance.variant), cast("Snapshot | None", instance.known)
        if known is None:
            return {}
        found = {f"flags.{name}": why for name, why in reserved.flags(known, launched.flags(instance)).items()}
        variables = reserved.variables(known, launched.variables(instance))
        found |= {f"environment.{name}": why for name, why in variables.items()}
        keys = reserved.flags(known, variant.options)
        return found | {f"variant.{name.replace('-', '_')}": why for name, why in keys.items()}

    def shared_memory(self, instance: Instance) -> str:
        """By its key: its processes hand each other tensors there."""
        return cast("Variant", instance.variant).shm_size

    def notes(self, instance: Instance) -> list[str]:
        """What starts it, and code that comes with the model."""
        variant, found = cast("Variant", instance.variant), []
        if plugin := launched.plugin(instance):
            mode = f" in mode {variant.mode}" if variant.mode else ""
            found.append(f"is started by {plugin.keys.launcher} of plugin {plugin}{mode}")
        doctors = [one.keys.doctor.command for one in instance.plugins if one.keys.doctor]
        found += [f"is switched to once {name} passes" for name in doctors]
        if variant.trust_remote_code:
            files = [row.path for row in instance.weights if row.path.endswith(".py")]
            said = ", ".join(files) or "none, so trust_remote_code is not needed"
            found.append(f"runs Python code from its model's folder: {said}")
        return found

    def service(self, rig: Rig, instance: Instance, made: Installation) -> Service:
        """vLLM's command line."""
        return command.service(rig, instance, cast("Environment", made))

    def offline(self, rig: Rig, instance: Instance, made: Installation, wanted: Wanted) -> Offline | None:
        """vLLM's own benches."""
        return offline.offline(rig, instance, self.service(rig, instance, made), wanted)


def version(artefacts: tuple[Artefact, ...]) -> str:
    """vLLM's among the packages of an environment; empty where it is not among them."""
    return next((one.version for one in artefacts if canonicalize_name(one.name) == DISTRIBUTION), "")


KIND = Vllm()
