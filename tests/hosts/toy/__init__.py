"""A kind of engine from outside Rigwright: a small HTTP server with a worker, which reports its command line.

An inventory adds it with `from toy import KIND; register(KIND)`.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from rigwright.engines.engine_interface import KEY_FILE, InstallingKind, Sandbox, ServiceSpec
from rigwright.engines.instance_request import InstanceRequest
from rigwright.model.catalog_schema import ModelKeys, ModelSelection
from rigwright.model.engine_schema import EngineKeys, VariantKeys
from rigwright.model.fact_types import HostFacts
from rigwright.model.installation import FILES, MARKER, Installation, InstallJob
from rigwright.model.instance import Instance, ModelPart
from rigwright.model.rig import Rig
from rigwright.supply import lock
from rigwright.validated_types import CatalogName
from rigwright.weights.verification import below_models

SERVER = Path(__file__).with_name("server.py")
SCRIPT = """
set -eu
ledger={ledger}
rm -rf {target} && mkdir -p {target}/bin
echo 'tree {target}' >> "$ledger"
install -m 755 {fetched} {target}/bin/toy-server
rm -rf "$work"
(cd {target} && sha256sum bin/toy-server) > {target}/{files}
printf '%s' '{record}' > {target}/{marker}.new && mv {target}/{marker}.new {target}/{marker}
"""


class ToyEngine(EngineKeys):
    """A toy."""

    source: CatalogName


class ToyVariant(VariantKeys):
    """A toy's answer."""

    greeting: str = Field(description="Any text.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Handed on as JSON.")

    @property
    def capacity(self) -> tuple[int, int]:
        """One at a time."""
        return 1, len(self.greeting)


class ToyKind(InstallingKind):
    """A toy."""

    name = "toy"
    engine_keys = ToyEngine
    variant_keys = ToyVariant
    program = "toy-server"

    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.ArtefactKind]:
        return {cast("ToyEngine", engine).source: "source"}

    def parts(self, model: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
        among = selection.candidates(model.file)
        return (ModelPart("model", tuple(among.by_path.values())),)

    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> Installation:
        (server,) = rig.engine_artefacts[name]
        digest = hashlib.sha256(server.sha256.encode()).hexdigest()[:12]
        record = {"digest": digest, "server": server.identity}
        return Installation(name, server.version, digest, (server,), f"fetch {server}", record)

    def script(self, rig: Rig, made: Installation, job: InstallJob) -> str:
        (server,) = made.artefacts
        return SCRIPT.format(
            ledger=rig.roots.ledger,
            target=job.target,
            fetched=f"{rig.roots.models}/{below_models(server)}",
            files=FILES,
            marker=MARKER,
            record=json.dumps({"inputs": made.record}),
        )

    def service(self, rig: Rig, instance: Instance, made: Installation) -> ServiceSpec:
        variant = cast("ToyVariant", instance.variant)
        (model,) = instance.weights
        words = [
            f"{rig.roots.installation_path(made.folder)}/bin/toy-server",
            instance.socket,
            KEY_FILE,
            rig.roots.weight_path(model),
            variant.greeting,
        ]
        return ServiceSpec(
            command=(*words, json.dumps(variant.settings)),
            environment={"GREETING": variant.greeting},
            sandbox=Sandbox(exposure=0.5, exposure_with_cards=1.0),
            about="a toy",
            ready=InstanceRequest("/greet"),
            streamed=None,
            models=None,
            warm_up=(InstanceRequest("/warm", {"words": 'a "b" \\ c'}), InstanceRequest("/warm", {})),
        )

    def count_answer_tokens(self, said: str) -> int | None:
        return 1 if said.startswith("{") and json.loads(said).get("argv") else None

    def version(self, rig: Rig, made: Installation) -> tuple[tuple[str, ...], str]:
        return (f"{rig.roots.installation_path(made.folder)}/bin/toy-server", "--version"), "toy 1"


KIND = ToyKind()
