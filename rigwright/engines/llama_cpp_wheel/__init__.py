"""llama.cpp for the CPU, prebuilt: the server inside xllamacpp's wheel, started by a program of ours.

Variants, their models and all that a log says are llama.cpp's. Its options are fields of a Python object: see
option_fields.py for those that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rigwright.engines.api_paths import COMPLETIONS, MESSAGES
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.llama_cpp import LlamaCpp
from rigwright.engines.llama_cpp.catalog_keys import MANAGED_FLAGS, LlamaVariant
from rigwright.engines.llama_cpp.model_files import OPTIONS as MODEL_OPTIONS
from rigwright.engines.llama_cpp_wheel import install, option_fields, server_fields
from rigwright.engines.llama_cpp_wheel.catalog_keys import WheelEngine
from rigwright.model.catalog_schema import Catalog
from rigwright.model.engine_schema import EngineKeys
from rigwright.model.installation import Installation, InstallJob
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.supply import lock
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import is_stand_in

if TYPE_CHECKING:
    from rigwright.model.fact_types import HostFacts


class LlamaCppWheel(LlamaCpp):
    """The llama.cpp server in xllamacpp's wheel."""

    name = "llama.cpp-wheel"
    engine_keys = WheelEngine
    variant_keys = LlamaVariant
    packages = ("libgomp1", "libstdc++6")
    artefact_noun = "wheel"
    # its log is that of llama.cpp's own kind
    log_marker = ""
    cpu_features = install.CPU_FEATURES

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """OpenAI's and Anthropic's."""
        return (*COMPLETIONS, *MESSAGES)

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.ArtefactKind]:
        """The wheel."""
        return {cast("WheelEngine", engine).wheel: "wheel"}

    def patchable(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Mapping[str, str]:
        """Nothing: it is compiled already."""
        return {}

    def version_data(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> None:
        """None: its options are those of option_fields.py."""
        return

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """Cards, drafts, another build than the wheel's, and flags without a field."""
        variant, engine = cast("LlamaVariant", instance.variant), cast("WheelEngine", instance.engine)
        wheel, found = instance.artefacts[0], []
        if len(instance.artefacts) != 1:
            others = ", ".join(sorted(one.name for one in instance.artefacts[1:]))
            found.append(
                f"{instance.engine_name} cannot be installed: its wheel requires packages that Rigwright does not "
                f"install: {others}"
            )
        # a wheel that is not locked yet has no version
        if not is_stand_in([wheel]) and wheel.version.rpartition(".")[2] != str(engine.build):
            found.append(
                f"{instance.engine_name} declares build {engine.build}, but its wheel is {wheel}: change build"
            )
        if instance.cards:
            found.append(f"{instance.engine_name} is built for the CPU and cannot use cards; {option_fields.SOURCE}")
        if MODEL_OPTIONS["draft"] in {part.option for part in instance.parts}:
            found.append(f"{instance.engine_name} loads no draft model; {option_fields.SOURCE}")
        own = MANAGED_FLAGS | {"reasoning"} | server_fields.options_of_keys(instance, roots)
        wrong = option_fields.find_flag_problems(variant.flags, own=own)
        return found + [f"flags.{flag} {text}" for flag, text in wrong.items()]

    def forbidden_keys(self, instance: Instance) -> dict[str, str]:
        """None: no option of the table names a file, a folder, a server or a listener."""
        return {}

    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> Installation:
        """The unpacked wheel."""
        (wheel,) = rig.engine_artefacts[name]
        return install.plan_wheel(wheel, name, cast("WheelEngine", engine))

    def script(self, rig: Rig, made: Installation, job: InstallJob) -> str:
        """templates/llama_cpp_wheel/install.sh.j2."""
        return install.render_install_job(rig.roots, cast("install.WheelInstallation", made), job)

    def service(self, rig: Rig, instance: Instance, made: Installation) -> ServiceSpec:
        """The launcher's command line."""
        return server_fields.wheel_service(
            rig.roots, rig.gateway, rig.monitoring, instance, rig.roots.installation_path(made.folder)
        )

    def version(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], str]:
        """The wheel reports its own version; that of llama.cpp is empty."""
        return (f"{rig.roots.installation_path(made.folder)}/bin/llama-server", "--version"), made.version

    def machine_code(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], frozenset[str]]:
        """None: it has no code for cards."""
        return (), frozenset()


KIND = LlamaCppWheel()
