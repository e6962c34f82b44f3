"""The bill of materials of one rig: its declared parts by inventory and lock."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from typing import cast

from cyclonedx.model import AttachedText
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Commit, Component, ComponentType, Diff, Patch, PatchClassification, Pedigree
from cyclonedx.model.dependency import Dependency
from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from rigwright.advisories.assessment import Assessment
from rigwright.advisories.audit import NOMINAL
from rigwright.advisories.components import REPOSITORY
from rigwright.engines import kinds
from rigwright.engines.engine_interface import InstallingKind
from rigwright.model.deb_package_groups import locked_version
from rigwright.model.instance import PATCHED_TOOLKIT, loaded_weights, patches_by_target, standalone_engines
from rigwright.model.nvidia_tables import locked_driver_version
from rigwright.model.rig import Rig
from rigwright.patches.patch import Patch as EnginePatch
from rigwright.plan.host_probe import required_packages
from rigwright.sbom.part_list import (
    PartList,
    describe_bundled_deb,
    describe_model,
    make_group,
    make_hashes,
    make_properties,
)
from rigwright.sbom.vulnerability_states import describe_vulnerabilities
from rigwright.supply.bundle import match_deb
from rigwright.supply.image_manifest import manifest_row
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import CUDA, GPU_EXPORTER, HUB_CLIENT, INSTALLERS, TOOLS

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:rigwright:sbom")
NO_NUMBER = uuid.UUID(int=0)
STATE = "declared: by inventory and lock. `rigwright check` compares the host with it"


def render_bom(rig: Rig, assessment: Assessment, version: str) -> str:
    """A rig's bill of materials as CycloneDX 1.6 JSON: equal bytes for equal inventories, locks and advisories.

    Args:
        rig: The rig, with all that it names in the lock.
        assessment: Its advisories.
        version: Rigwright's.
    """
    box = f"box {rig.name}"
    parts = collect_parts(rig, box)
    root = make_group(
        *(box, rig.name, "", {"lock-digest": rig.lock.digest, "supply-digest": rig.digest}), ComponentType.DEVICE
    )
    tool = Component(
        name="rigwright",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="rigwright",
        purl=PackageURL("generic", None, "rigwright", version),
    )
    gaps = [f"{one.what}: {one.why}" for one in assessment.gaps]
    metadata = BomMetaData(
        component=root,
        tools=ToolRepository(components=[tool]),
        lifecycles=[PredefinedLifecycle(LifecyclePhase.PRE_BUILD)],
        properties=make_properties({"state": STATE, "advisories-not-covered": gaps}),
    )
    # the lock has no time of its own, and a clock would give other bytes
    metadata.timestamp = None  # type: ignore[assignment] # the library then omits it
    references = {**{name: one.bom_ref for name, one in parts.components.items()}, box: root.bom_ref}
    bom = Bom(
        serial_number=NO_NUMBER,
        metadata=metadata,
        components=parts.components.values(),
        dependencies=[
            Dependency(reference, [Dependency(references[one]) for one in sorted(parts.dependencies.get(name, ()))])
            for name, reference in references.items()
        ],
        vulnerabilities=describe_vulnerabilities(assessment.findings, parts, box),
    )
    text = JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
    content = hashlib.sha256(text.encode()).hexdigest()
    number = uuid.uuid5(NAMESPACE, f"{rig.digest} {rig.name} {content}")
    # strings of the content have their quotes escaped
    return text.replace(f'"serialNumber": "{NO_NUMBER.urn}"', f'"serialNumber": "{number.urn}"')


def collect_parts(rig: Rig, box: str) -> PartList:
    """All components of a rig.

    Args:
        rig: The rig.
        box: The reference of the rig itself.
    """
    parts = PartList()
    _add_engines(rig, parts, box)
    _add_environments(rig, parts, box)
    _add_models(rig, parts, box)
    _add_tools(rig, parts, box)
    _add_archives(rig, parts, box)
    _add_distribution_packages(rig, parts, box)
    for card in dict.fromkeys(rig.cards):
        values = {"capability": card.capability, "memory-mib": card.vram_mib, "pci-id": card.pci_ids}
        values["cards"] = rig.cards.count(card)
        parts.add(make_group(f"card {card.name}", card.name, "", values, ComponentType.DEVICE), box)
    return parts


def make_pedigree(patches: Iterable[EnginePatch], commit: str = "") -> Pedigree | None:
    """The origin of a part's code: its commit and the patches that a deploy applies; None without either."""
    patches = tuple(patches)
    made = [
        Patch(
            type=PatchClassification.UNOFFICIAL,
            diff=Diff(text=AttachedText(content=one.diff or json.dumps(one.patched_digests, indent=1, sort_keys=True))),
        )
        for one in patches
    ]
    notes = [
        f"{one.name}: {one.keys.purpose} Source: {one.keys.source}. Licence: {one.keys.licence}."
        f" Obsolete when: {one.keys.obsolete_when}."
        for one in patches
    ]
    if not made and not commit:
        return None
    return Pedigree(commits=[Commit(uid=commit)] if commit else [], patches=made, notes="\n".join(notes) or None)


def patch_values(patches: Iterable[EnginePatch]) -> dict[str, object]:
    """Properties of a patched part: the digest of each diff, and of each file afterwards."""
    values: dict[str, object] = {}
    for one in patches:
        if one.diff:
            values[f"patch:{one.name}:diff-sha256"] = hashlib.sha256(one.diff.encode()).hexdigest()
        for path, digest in sorted(one.patched_digests.items()):
            values[f"patch:{one.name}:{path}"] = digest
    return values


def _add_engines(rig: Rig, parts: PartList, box: str) -> None:
    """Engines that are installed by themselves, with sources, wheels or images."""
    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches)
    for name, engine in standalone_engines(rig.instances).items():
        place, rows = f"engine {name}", rig.engine_artefacts[name]
        made = cast("InstallingKind", kinds()[engine.kind]).installation(rig, name, engine, NOMINAL)
        commit = str(getattr(engine, "commit", ""))
        options = made.record.get("options")
        values: dict[str, object] = {
            "engine-kind": engine.kind,
            "commit": commit,
            "llama.cpp-build": getattr(engine, "build", ""),
            "serves": getattr(engine, "serves", ""),
            **patch_values(patches.get(name, ())),
        }
        if isinstance(options, dict):
            values |= {f"compile:{option}": value for option, value in options.items()}
        component = make_group(place, name, made.version, values)
        component.pedigree = make_pedigree(patches.get(name, ()), commit)
        if commit:
            host, owner, repository = REPOSITORY.split("/")
            component.purl = PackageURL(host.partition(".")[0], owner, repository, commit)
        parts.add(component, box)
        if any(row.kind == "image" for row in rows):
            _add_image(parts, f"image of {name}", rows, place)
            continue
        for row in rows:
            where = f"{row.kind} of {name}"
            parts.add_files(where, (row,), place)
    for one in rig.instances:
        place = f"instance {one.name}"
        values = {"variant": one.variant_name, "model": one.model_name, "port": one.port}
        parts.add(make_group(place, one.name, "", values), box)
        parts.dependencies[place].add(f"environment {one.env}" if one.env else f"engine {one.engine_name}")
        parts.dependencies[place] |= {f"model {row.weight_folder}" for row in one.weights}


def _add_image(parts: PartList, place: str, rows: tuple[Artefact, ...], user: str) -> None:
    manifest = manifest_row(rows)
    name = str(manifest.group)
    digest = f"sha256:{manifest.sha256}"
    component = Component(
        name=name,
        version=digest,
        type=ComponentType.CONTAINER,
        bom_ref=place,
        hashes=make_hashes(manifest.sha256),
        purl=PackageURL("oci", None, name, digest, {"tag": manifest.version}),
        properties=make_properties({"tag": manifest.version, "source": list(manifest.sources)}),
    )
    parts.add(component, user)
    parts.add_files(place, rows)


def _add_environments(rig: Rig, parts: PartList, box: str) -> None:
    for env in rig.envs:
        place = f"environment {env.name}"
        values: dict[str, object] = {"distribution": env.keys.distribution, **patch_values(env.patches)}
        component = make_group(place, env.name, env.version, values)
        component.pedigree = make_pedigree(env.patches)
        parts.add(component, box)
        parts.add_files(place, (*env.python, *env.packages))
        if env.plugins:
            plugins = f"plugins of {env.name}"
            parts.add(make_group(plugins, plugins, "", {}), place)
            parts.add_files(plugins, [one.row for one in env.plugins])


def _add_models(rig: Rig, parts: PartList, box: str) -> None:
    folders: dict[str, list[Artefact]] = {}
    for row in loaded_weights(rig.instances):
        folders.setdefault(row.weight_folder, []).append(row)
    for folder, rows in folders.items():
        place = f"model {folder}"
        parts.add(describe_model(place, rows), box)
        parts.add_files(place, rows)


def _add_tools(rig: Rig, parts: PartList, box: str) -> None:
    """Wheels of Rigwright's own tools on the host, and the CUDA toolkit."""
    groups = {TOOLS: rig.tools, HUB_CLIENT: rig.hub_client, INSTALLERS: rig.installers, GPU_EXPORTER: rig.gpu_exporter}
    for name, rows in {**groups, CUDA: rig.toolkit.wheels}.items():
        if not rows:
            continue
        place = f"host tools ({name})"
        patches = rig.toolkit.patches if name == CUDA else ()
        component = make_group(place, PATCHED_TOOLKIT if name == CUDA else name, "", patch_values(patches))
        component.pedigree = make_pedigree(patches)
        parts.add(component, box)
        parts.add_files(place, rows)
    if rig.toolkit.own_root:
        values = {"folder": rig.toolkit.own_root, "origin": "the operator's own; not in the lock"}
        parts.add(make_group("CUDA toolkit", PATCHED_TOOLKIT, "", values), box)


def _add_archives(rig: Rig, parts: PartList, box: str) -> None:
    """Locked packages of other archives than the distribution's: driver, container toolkit, Docker."""
    for system, rows in rig.driver_supply.packages.items():
        place = f"driver locked for {system}"
        parts.add(make_group(place, "NVIDIA driver", locked_driver_version(rows), {"system": system}), box)
        parts.add_files(place, rows)
    if rig.cards and not rig.driver_supply.packages:
        values = {"origin": "the operator's own; not in the lock"}
        parts.add(make_group("driver of the operator", "NVIDIA driver", "", values), box)
    for group, one in rig.container_supply.groups.items():
        place, packages = f"locked packages of {group}", tuple(one.packages.values())
        parts.add(make_group(place, group, locked_version(group, packages), {}), box)
        parts.add_files(place, packages)


def _add_distribution_packages(rig: Rig, parts: PartList, box: str) -> None:
    """The distribution's packages: those of the bundle by hash, else the names that a deploy requires."""
    systems = rig.bundle.systems if rig.bundle else ()
    for system in systems:
        place = f"packages of {system}"
        parts.add(make_group(place, place, "", {"origin": "the distribution's signed archive, in the bundle"}), box)
        for sha256, path in rig.bundle.packages(system).places if rig.bundle else ():
            file = path.rpartition("/")[2]
            if found := match_deb(file):
                parts.add(describe_bundled_deb(place, system, file, sha256, *found.groups()), place)
    if systems:
        return
    place = "packages of the distribution"
    origin = "the distribution's signed archive; versions are locked by a bundle alone"
    parts.add(make_group(place, place, "", {"origin": origin}), box)
    for name in sorted(required_packages(rig)):
        parts.add(Component(name=name, type=ComponentType.LIBRARY, bom_ref=f"{place}/{name}"), place)
