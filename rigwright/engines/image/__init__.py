"""Engines that come as container images: fetched by digest, run by podman in the control group of their unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from packaging.utils import canonicalize_name

from rigwright.engines.abilities import Ability
from rigwright.engines.fit import Memory
from rigwright.engines.image import compose, install, run
from rigwright.engines.image.keys import Engine, Variant
from rigwright.engines.image.start import by
from rigwright.engines.kind import InstallingKind, Service
from rigwright.engines.log import Begun, Cause
from rigwright.engines.metrics import Names
from rigwright.engines.rule import Placed, Rule
from rigwright.engines.vllm import Vllm
from rigwright.model.catalog import Catalog, Model
from rigwright.model.containers.tables import REFRESH_UNIT, SPEC
from rigwright.model.engines.keys import EngineKeys
from rigwright.model.entry import Roots
from rigwright.model.installation import Installation, Job
from rigwright.model.models import Selection
from rigwright.model.rig import Instance, Part, Rig
from rigwright.supply import lock
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.model.facts import HostFacts


class _Inside(Vllm):
    """vLLM whose version the catalogue says: no lock knows what is in an image."""

    def release(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> str:
        return cast("Engine", engine).version


INSIDE = _Inside()


# What podman says, and crun by it.
CAUSES = (
    Cause(
        "unresolvable-cdi-devices",
        "unresolvable CDI devices",
        f"{SPEC} does not list its cards: see `journalctl -u {REFRESH_UNIT}`, and re-run deploy to regenerate it",
        check="C05",
    ),
    Cause(
        "failed-to-stat-cdi-host-device",
        "failed to stat CDI host device",
        f"{SPEC} is for another driver: re-run deploy to regenerate it",
        check="C05",
    ),
    Cause(
        "waits-for-cdi-spec",
        f"waits for {re.escape(SPEC)}",
        f"it does not exist because the cards do not respond: see `journalctl -u {REFRESH_UNIT}`",
    ),
)


class Image(InstallingKind):
    """A container image."""

    name = "image"
    engine_keys = Engine
    variant_keys = Variant
    packages = ("crun", "podman", "skopeo")
    pieces = "layers"
    contained_by = "podman"
    # podman alone starts it, and its messages are those above; a missing device file has a cause of its own
    causes = (*CAUSES, *(one for one in INSIDE.causes if one.id != "container-device"))
    marks = INSIDE.marks
    judges_names = INSIDE.judges_names
    salts_prompts = INSIDE.salts_prompts
    unsalted_paths = INSIDE.unsalted_paths
    counts = INSIDE.counts

    def rules(self) -> tuple[Rule, ...]:
        """Those of what is in it."""
        return INSIDE.rules()

    def memory(self, one: Placed) -> Memory | None:
        """That of what is in it."""
        return INSIDE.memory(one)

    def begun(self, lines: Iterable[str]) -> Begun:
        """What is in it says the same as elsewhere."""
        return INSIDE.begun(lines)

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """Those of what is in it."""
        return INSIDE.abilities(instance)

    def steps(self, instance: Instance) -> tuple[str, Names]:
        """Those of what is in it."""
        return INSIDE.steps(instance)

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """Those of what is in it."""
        return INSIDE.paths(instance)

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.Kind]:
        """The image."""
        return {cast("Engine", engine).image: "image"}

    def patchable(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Mapping[str, str]:
        """What the catalogue says that is in it: no lock knows."""
        return {canonicalize_name(cast("Engine", engine).serves): cast("Engine", engine).version}

    def parts(self, model: Model, selection: Selection) -> tuple[Part, ...]:
        """Those of what is in it."""
        return INSIDE.parts(model, selection)

    def known(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> object:
        """What the version in it takes, if the catalogue has it."""
        return INSIDE.known(catalog, engine, artefacts)

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """What the version in it would not start with, and patches that a mount over a file is none for."""
        brought = [
            f"patch {one} adds {target.path}: in an image, patches can only change existing files"
            for one in instance.patches
            for target in one.keys.targets
            if target.before is None
        ]
        return [*brought, *INSIDE.refusals(instance, roots, folder, capabilities)]

    def reserved(self, instance: Instance) -> dict[str, str]:
        """What of its options and variables a catalogue may not say by itself."""
        return INSIDE.reserved(instance)

    def needs(self, system: str) -> tuple[str, ...]:
        """What unpacks an image there, and what starts it."""
        return tuple(name for name in self.packages if name != "podman" or by(system) == name)

    def shared_memory(self, instance: Instance) -> str:
        """That of its container."""
        return INSIDE.shared_memory(instance)

    def notes(self, instance: Instance) -> list[str]:
        """As for what is in it."""
        return INSIDE.notes(instance)

    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> Installation:
        """The image, unpacked."""
        return install.installation(rig, name, cast("Engine", engine), facts.system)

    def script(self, rig: Rig, made: Installation, job: Job) -> str:
        """templates/image/install.sh.j2."""
        return install.script(rig, made, job)

    def service(self, rig: Rig, instance: Instance, made: Installation) -> Service:
        """The command line that starts its container."""
        return run.service(rig, instance, made)

    def compose(self, rig: Rig, instance: Instance) -> dict[str, str]:
        """The same container."""
        made = install.installation(rig, instance.engine_name, cast("Engine", instance.engine))
        service = run.service(rig, instance, made)
        return compose.compose(instance, service, run.container(rig, instance, made), made)


KIND = Image()
