"""The installation of an image on a host: locked blobs, unpacked by skopeo into a store that podman only reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rigwright.engines.image.catalog_keys import ImageEngine
from rigwright.engines.image.runtime_selection import ContainerRuntime, select_runtime
from rigwright.model.installation import FILES, MARKER, Installation, InstallJob
from rigwright.model.instance import EnvSpec, Instance, patches_by_target
from rigwright.model.nvidia_tables import ToolkitSpec
from rigwright.model.roots import Roots
from rigwright.patches.new_files import shadow_pattern
from rigwright.patches.patch import APPLY_PROGRAM_TEXT, Patch, collect_digests, describe_patches
from rigwright.render import render
from rigwright.supply import image_manifest
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import below_models

# Raised when the steps change in a way that changes what they install.
RECIPE = 1
# vLLM's images take 30 GB of disk, unpacked from 9 GB.
GROWN = 3.4
# KiB that stay free while it is unpacked: preflight's reserve.
RESERVE_KIB = 1 << 20
# The name of the image in its store, and in the layout that it is unpacked from.
REFERENCE = "localhost/rigwright:locked"
# The store's folder in the installation's, and that of what is mounted over files of the image.
STORE, CHANGED = "store", "changed"
# Beside the folder of those: which folders of its layers hide what is below them.
HIDING = "opaque.json"
# The program that takes them out of the image, as text.
ORIGINALS = Path(__file__).with_name("originals.py").read_text()


@dataclass(frozen=True)
class UnpackedImage(Installation):
    """An image, and what is mounted over files of it."""

    patches: tuple[Patch, ...] = ()
    site: str = ""
    """Where they are in it."""
    by: ContainerRuntime = "podman"
    """The runtime by which units on its host start it."""

    def patched_files(self, folder: str) -> dict[str, str]:
        """File of a host -> the path in the image that it is mounted over.

        Args:
            folder: The installation's, on the host.
        """
        return {f"{folder}/{CHANGED}/{path}": f"{self.site}/{path}" for path in collect_digests(self.patches)}


def plan_image(
    instances: tuple[Instance, ...],
    envs: tuple[EnvSpec, ...],
    toolkit_spec: ToolkitSpec,
    engine_artefacts: Mapping[str, tuple[Artefact, ...]],
    name: str,
    engine: ImageEngine,
    system: str = "",
) -> UnpackedImage:
    """The installation of an engine's image on a host, the same bytes on each.

    Args:
        instances: The declared instances.
        envs: The declared environments.
        toolkit_spec: The CUDA toolkit to compile with.
        engine_artefacts: Engine name -> its locked artefacts.
        name: The engine's.
        engine: Its keys.
        system: The host's release, which says what containers are started by.
    """
    artefacts = engine_artefacts[name]
    manifest, configuration = image_manifest.manifest_row(artefacts), image_manifest.configuration_row(artefacts)
    patches, site = patches_by_target(instances, envs, toolkit_spec.patches).get(name, ()), engine.site or ""
    over: dict[str, object] = {"patches": collect_digests(patches), "site": site} if patches else {}
    inputs = [RECIPE, manifest.sha256, *([over] if over else [])]
    digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]
    fetched = [one for one in artefacts if not one.is_written]
    return UnpackedImage(
        name=name,
        version=engine.version,
        digest=digest,
        artefacts=artefacts,
        what=f"unpack the image {engine.image} {manifest.version}{describe_patches(patches)}",
        record={
            "engine": name,
            "digest": digest,
            "image": {"sha256": manifest.sha256, "id": configuration.sha256, "version": manifest.version},
            **over,
        },
        installed_kib=int(sum(one.size for one in fetched) * GROWN) // 1024,
        patches=patches,
        site=site,
        by=select_runtime(system),
    )


def render_patch_plan(made: UnpackedImage) -> str:
    """The changes to its files, in the form that the programs which extract and change them read."""
    shadowed = {path: shadow_pattern(path) for path in sorted(collect_digests(made.patches))}
    return json.dumps({"patches": [one.plan for one in made.patches], "shadows": shadowed})


def render_patch_step(made: UnpackedImage, job: InstallJob, image: str) -> str:
    """The step that changes copies of its files, run as user `nobody`; empty if none of its files change."""
    if not made.patches:
        return ""
    return render(
        "image/patch.sh.j2",
        originals=ORIGINALS,
        store=f"{job.target}/{STORE}",
        image=image,
        site=made.site,
        into=CHANGED,
        program=APPLY_PROGRAM_TEXT,
        plan=render_patch_plan(made),
        hiding=HIDING,
    )


def render_image_job(roots: Roots, made: Installation, job: InstallJob) -> str:
    """The job that unpacks it."""
    made = cast("UnpackedImage", made)
    manifest, configuration = (
        image_manifest.manifest_row(made.artefacts),
        image_manifest.configuration_row(made.artefacts),
    )
    blobs = {one.sha256: f"{roots.models}/{below_models(one)}" for one in made.artefacts if not one.is_written}
    named = {
        "mediaType": image_manifest.manifest_media_type(manifest),
        "digest": f"sha256:{manifest.sha256}",
        "size": manifest.size,
        "annotations": {"org.opencontainers.image.ref.name": REFERENCE},
    }
    return render(
        "image/install.sh.j2",
        job=job,
        ledger=roots.ledger,
        manifest=manifest,
        image=configuration.sha256,
        blobs=blobs,
        layout=json.dumps({"imageLayoutVersion": "1.0.0"}),
        index=json.dumps({"schemaVersion": 2, "manifests": [named]}),
        reference=REFERENCE,
        store=STORE,
        reserve_kib=RESERVE_KIB,
        patching=render_patch_step(made, job, configuration.sha256),
        originals=ORIGINALS,
        plan=render_patch_plan(made),
        site=made.site,
        hiding=HIDING,
        changed=CHANGED,
        becomes=collect_digests(made.patches),
        inputs=json.dumps(made.record),
        marker=MARKER,
        files=FILES,
    )
