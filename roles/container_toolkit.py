"""Role container_toolkit: container runtimes from locked packages, and the specs by which they find the cards."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from pyinfra import host, logger
from pyinfra.api import StringCommand, operation

from rigwright.containers import daemon_json
from rigwright.containers.container_facts import ContainerFacts, source_path, store_folder
from rigwright.containers.container_files import (
    archive_of,
    managed_folders,
    managed_paths,
    render_settings,
    system_folders,
)
from rigwright.containers.container_plan import ContainerPlan, ContainerRefusal, find_missing_packages, plan_containers
from rigwright.containers.end_of_management import container_release_values, describe_release
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE as DOCKER_ARCHIVE
from rigwright.model.containers.archive_tables import TOOLKIT_ARCHIVE
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.bundle import BundledPackages
from roles.operations.containers import (
    apply_running_options,
    hold_container_packages,
    keep_original_file,
    move_duplicate_sources,
    read_container_facts,
    refresh_cdi_spec,
    require_undisturbed_containers,
)
from roles.operations.files import (
    TextFile,
    make_directories,
    missing_paths,
    remove_files,
    texts_differ,
    write_text_files,
)
from roles.operations.packages import PackageTarget, install_distribution_packages, install_locked_packages
from roles.rig_lookup import DeployContext, role

DOCKER = daemon_json.PATH.rpartition("/")[0]
PROOF = "dockerd --validate --config-file"
SHARED = 0o755  # the kept bits of a file's mode: only root writes Docker's options


@dataclass(frozen=True)
class ContainerChoice:
    """The target state of a rig's containers on a host; None where it declares none."""

    facts: ContainerFacts | None = None
    plan: ContainerPlan | ContainerRefusal | None = None


def choose_containers(rig: Rig) -> ContainerChoice:
    """The target state of its containers on the host of the running deploy."""
    facts = read_container_facts(rig) if rig.containers else None
    return (
        ContainerChoice(
            facts,
            plan_containers(
                rig.roots, rig.cards, rig.containers, rig.container_supply, rig.bundle, rig.bundle_folder, facts
            ),
        )
        if facts
        else ContainerChoice()
    )


def packages_for_containers(chosen: ContainerChoice) -> tuple[ContainerFacts, ContainerPlan] | None:
    """The packages that are brought; None where nothing is."""
    return (chosen.facts, chosen.plan) if chosen.facts and isinstance(chosen.plan, ContainerPlan) else None


@role("Container toolkit")
def container_toolkit(context: DeployContext) -> None:
    """Bring packages, Docker's options and the cards' specs to their state; stop managing what is not declared."""
    rig = context.rig
    if context.target.containers:
        _install_container_toolkit(rig, *context.target.containers, system=context.facts.system)
    elif not rig.containers:
        facts = read_container_facts(rig)
        for note in describe_release(rig.roots, facts) if facts else []:
            logger.warning(f"{host.print_prefix}{note}")
        release_container_toolkit(name="Stop managing containers", rig=rig)


def _install_container_toolkit(rig: Rig, facts: ContainerFacts, plan: ContainerPlan, system: str) -> None:
    files = render_settings(rig.roots, rig.container_supply, rig.network, rig.bundle_folder, plan, system)
    written = [TextFile(file.path, file.text, file.mode) for file in files]
    left = sorted(set(managed_paths(rig.roots)) - {file.path for file in files})
    missing = bool(find_missing_packages(plan, facts))
    needed = [
        store_folder(rig.roots),
        *managed_folders(rig.roots, files),
        *missing_paths([*system_folders(files), *([DOCKER] if plan.options else [])]),
    ]
    make_directories(name="Folders", paths=dict.fromkeys(needed, ("755", "root", "root")), ledger=rig.roots.ledger)
    changed = texts_differ(written)
    move_duplicate_sources(
        name="Conflicting apt sources", paths=plan.leftovers, folder=f"{store_folder(rig.roots)}/leftovers"
    )
    write_text_files(name="Settings", files=written)
    remove_files(name="Undeclared settings", paths=left)
    if plan.distribution:
        install_distribution_packages(
            name="Packages",
            names=plan.distribution,
            rig=rig,
            system=system,
        )
    for group in plan.groups:
        name, known = archive_of(rig.container_supply, group)
        if name == DOCKER_ARCHIVE and plan.restarting:
            require_undisturbed_containers(name="Containers that would stop", rig=rig)
        whose = {TOOLKIT_ARCHIVE: "the container toolkit's archive"}.get(name, "Docker's archive")
        install_locked_packages(
            name=f"{group.name} {group.version}",
            rig=rig,
            wanted=PackageTarget(
                group,
                f"{store_folder(rig.roots)}/kept/{group.name}",
                ((source_path(group), whose),),
                tuple(one for one in plan.removed if one in known.replaces),
                rig.bundle.files(group.packages.values()) if rig.bundle else (),
                rig.bundle.packages(system) if rig.bundle else BundledPackages(),
            ),
            there=dict(facts.packages),
            kept=(group.name, group.store_name) in facts.kept,
            half=[one for one in facts.half if one in group.packages],
        )
    hold_container_packages(name="Holds", rig=rig, plan=plan, facts=facts, lacking=missing)
    if plan.options is not None:
        _apply_daemon_options(rig, facts, plan, missing)
    if any(group.name == TOOLKIT_ARCHIVE for group in plan.groups):
        refresh_cdi_spec(name="CDI spec", rig=rig, facts=facts, changed=changed or missing)


def _apply_daemon_options(rig: Rig, facts: ContainerFacts, plan: ContainerPlan, missing: bool) -> None:
    """Docker's options, what is written down of them, and the daemon that has them."""
    options = plan.options or {}
    record, copy = (f"{store_folder(rig.roots)}/{name}" for name in ("daemon.json", "daemon.json.found"))
    before = daemon_json.parse_record(facts.record) or daemon_json.DaemonRecord()
    if plan.record.set:
        # before ours are in it, as it was
        keep_original_file(name="Previous Docker options", path=daemon_json.PATH, copy=copy, record=record)
    written = plan.record.merge_previous(before)
    # as secret as what it is of: a proxy may have a password
    write_text_files(name="Previous Docker options", files=[TextFile(record, written.render(), "600")])
    if not plan.record.set and plan.record.absent and not options:
        remove_files(name="Docker options", paths=[daemon_json.PATH])
    elif facts.options is None or daemon_json.parse_options(facts.options) != options:
        made = TextFile(
            daemon_json.PATH, daemon_json.render_daemon_json(options), f"{facts.mode & SHARED:o}", proof=PROOF
        )
        write_text_files(name="Docker options", files=[made])
    apply_running_options(name="Docker daemon", rig=rig, plan=plan, facts=facts, lacking=missing)
    if not plan.record.set:
        remove_files(name="Previous Docker options, restored", paths=[record, copy])
    elif written != plan.record:
        write_text_files(name="Leftovers", files=[TextFile(record, plan.record.render(), "600")])


@operation()
def release_container_toolkit(rig: Rig) -> Generator[StringCommand, None, None]:
    """Stop managing what runs containers: packages stay, our files and holds go, Docker's options are what they were.

    + rig: the rig
    """
    if facts := read_container_facts(rig):
        script = render(
            "containers/release.sh.j2", ledger=rig.roots.ledger, **container_release_values(rig.roots, facts)
        )
        # not in words that everybody there can read: Docker's options may have a proxy's password
        yield StringCommand("sh", _stdin=[render_piped_script(script)])


def render_piped_script(script: str) -> str:
    """A script for a shell's standard input, of which what it runs reads nothing."""
    return f"script() {{\n{script}\n}}\nscript </dev/null\n"
