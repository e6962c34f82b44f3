"""Engines that come as container images: fetched by digest, run by podman in the control group of their unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from packaging.utils import canonicalize_name

from rigwright.engines.capabilities import Ability
from rigwright.engines.engine_interface import InstallingKind, ServiceSpec
from rigwright.engines.image import compose_export, container_command, install
from rigwright.engines.image.catalog_keys import ImageEngine, VllmVariant
from rigwright.engines.image.runtime_selection import select_runtime
from rigwright.engines.known_issue_rule import KnownIssue, PlacedInstance
from rigwright.engines.log_causes import Cause, StartupFacts
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.engines.metrics import MetricNames
from rigwright.engines.vllm import Vllm
from rigwright.model.catalog_schema import Catalog, ModelKeys, ModelSelection
from rigwright.model.containers.archive_tables import CDI_SPEC, REFRESH_UNIT
from rigwright.model.engine_schema import EngineKeys
from rigwright.model.installation import Installation, InstallJob
from rigwright.model.instance import Instance, ModelPart
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.supply import lock
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.engines.reported_memory import ReportedMemory
    from rigwright.model.fact_types import HostFacts


class _ImageVllm(Vllm):
    """vLLM with the version that the catalogue gives: no lock has the contents of an image."""

    def release(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> str:
        return cast("ImageEngine", engine).version


IMAGE_VLLM = _ImageVllm()


# The messages of podman, and of crun through it.
CAUSES = (
    Cause(
        "unresolvable-cdi-devices",
        "unresolvable CDI devices",
        f"{CDI_SPEC} does not list its cards: see `journalctl -u {REFRESH_UNIT}`, and re-run deploy to regenerate it",
        check="C05",
    ),
    Cause(
        "failed-to-stat-cdi-host-device",
        "failed to stat CDI host device",
        f"{CDI_SPEC} is for another driver: re-run deploy to regenerate it",
        check="C05",
    ),
    Cause(
        "waits-for-cdi-spec",
        f"waits for {re.escape(CDI_SPEC)}",
        f"it does not exist because the cards do not respond: see `journalctl -u {REFRESH_UNIT}`",
    ),
)


class Image(InstallingKind):
    """A container image."""

    name = "image"
    engine_keys = ImageEngine
    variant_keys = VllmVariant
    packages = ("crun", "podman", "skopeo")
    artefact_noun = "layers"
    container_engine = "podman"
    # podman alone starts it, and its messages are those above; a missing device file has a cause of its own
    causes = (*CAUSES, *(one for one in IMAGE_VLLM.causes if one.id != "container-device"))
    startup_patterns = IMAGE_VLLM.startup_patterns
    memory_patterns = IMAGE_VLLM.memory_patterns
    validates_model_name = IMAGE_VLLM.validates_model_name
    salts_prompts = IMAGE_VLLM.salts_prompts
    has_stream_usage = IMAGE_VLLM.has_stream_usage
    unsalted_paths = IMAGE_VLLM.unsalted_paths
    metric_names = IMAGE_VLLM.metric_names

    def rules(self) -> tuple[KnownIssue, ...]:
        """Those of what is in it."""
        return IMAGE_VLLM.rules()

    def memory(self, one: PlacedInstance) -> MemoryNeed | None:
        """That of what is in it."""
        return IMAGE_VLLM.memory(one)

    def parse_memory(self, lines: Iterable[str]) -> ReportedMemory:
        """Likewise."""
        return IMAGE_VLLM.parse_memory(lines)

    def parse_startup(self, lines: Iterable[str]) -> StartupFacts:
        """The engine in it prints the same as elsewhere."""
        return IMAGE_VLLM.parse_startup(lines)

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """Those of what is in it."""
        return IMAGE_VLLM.abilities(instance)

    def progress_metric(self, instance: Instance) -> tuple[str, MetricNames]:
        """Those of what is in it."""
        return IMAGE_VLLM.progress_metric(instance)

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """Those of what is in it."""
        return IMAGE_VLLM.paths(instance)

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.ArtefactKind]:
        """The image."""
        return {cast("ImageEngine", engine).image: "image"}

    def patchable(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Mapping[str, str]:
        """The catalogue's list of its contents: no lock has it."""
        return {canonicalize_name(cast("ImageEngine", engine).serves): cast("ImageEngine", engine).version}

    def parts(self, model: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
        """Those of what is in it."""
        return IMAGE_VLLM.parts(model, selection)

    def version_data(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> object:
        """The options of the version in it, if the catalogue has them."""
        return IMAGE_VLLM.version_data(catalog, engine, artefacts)

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """Settings that the version in it would not start with, and patches that no mount over a file can apply."""
        brought = [
            f"patch {one} adds {target.path}: in an image, patches can only change existing files"
            for one in instance.patches
            for target in one.keys.targets
            if target.before is None
        ]
        return [*brought, *IMAGE_VLLM.refusals(instance, roots, folder, capabilities)]

    def forbidden_keys(self, instance: Instance) -> dict[str, str]:
        """Its options and variables that a catalogue may not set by itself."""
        return IMAGE_VLLM.forbidden_keys(instance)

    def needs(self, system: str) -> tuple[str, ...]:
        """The programs that unpack an image there, and that start it."""
        return tuple(name for name in self.packages if name != "podman" or select_runtime(system) == name)

    def shared_memory(self, instance: Instance) -> str:
        """That of its container."""
        return IMAGE_VLLM.shared_memory(instance)

    def notes(self, instance: Instance) -> list[str]:
        """As for what is in it."""
        return IMAGE_VLLM.notes(instance)

    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> Installation:
        """The image, unpacked."""
        return install.plan_image(
            rig.instances, rig.envs, rig.toolkit, rig.engine_artefacts, name, cast("ImageEngine", engine), facts.system
        )

    def script(self, rig: Rig, made: Installation, job: InstallJob) -> str:
        """templates/image/install.sh.j2."""
        return install.render_image_job(rig.roots, made, job)

    def service(self, rig: Rig, instance: Instance, made: Installation) -> ServiceSpec:
        """The command line that starts its container."""
        return container_command.image_service(rig.roots, rig.cards, rig.driver, rig.network, instance, made)

    def compose(self, rig: Rig, instance: Instance) -> dict[str, str]:
        """The same container."""
        made = install.plan_image(
            rig.instances,
            rig.envs,
            rig.toolkit,
            rig.engine_artefacts,
            instance.engine_name,
            cast("ImageEngine", instance.engine),
        )
        service = container_command.image_service(rig.roots, rig.cards, rig.driver, rig.network, instance, made)
        return compose_export.render_compose(
            instance,
            service,
            container_command.build_container(rig.roots, rig.cards, rig.driver, rig.network, instance, made),
            made,
        )


KIND = Image()
