"""Role container_toolkit: what runs containers, from locked packages, and the specs by which they find the cards."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from pyinfra import host, logger
from pyinfra.api import StringCommand, deploy, operation

from rigwright.containers import daemon
from rigwright.containers.files import archive_of, folders, others, paths, settings
from rigwright.containers.found import ContainerFacts, source_path, store
from rigwright.containers.leaving import notes, release
from rigwright.containers.plan import ContainerPlan, Refused, container_plan, lacking
from rigwright.model.containers.tables import DOCKER as DOCKER_ARCHIVE
from rigwright.model.containers.tables import TOOLKIT
from rigwright.model.rig import Rig
from rigwright.plan.desired import Desired
from rigwright.render import render
from rigwright.supply.bundle import Packages
from roles.operations.containers import held, in_force, kept_aside, look, refreshed, set_aside, undisturbed
from roles.operations.debs import Wanted, brought
from roles.operations.files import Entries, Entry, Text, absent, differ, directories, texts
from roles.operations.packages import packages

DOCKER = daemon.PATH.rpartition("/")[0]
PROOF = "dockerd --validate --config-file"
SHARED = 0o755  # what of a file's mode is kept: nobody but root writes Docker's options


@dataclass(frozen=True)
class Chosen:
    """What a rig's containers come to on a host; nothing where it declares none."""

    facts: ContainerFacts | None = None
    plan: ContainerPlan | Refused | None = None


def containers_of(rig: Rig) -> Chosen:
    """What its containers come to on the host of the running deploy."""
    facts = look(rig) if rig.containers else None
    return Chosen(facts, container_plan(rig, facts)) if facts else Chosen()


def brought_with(chosen: Chosen) -> tuple[ContainerFacts, ContainerPlan] | None:
    """What is brought; None where nothing is."""
    return (chosen.facts, chosen.plan) if chosen.facts and isinstance(chosen.plan, ContainerPlan) else None


@deploy("Container toolkit")
def container_toolkit(desired: Desired) -> None:
    """Bring packages, Docker's options and the cards' specs to their state; stop managing what is not declared."""
    if desired.containers:
        _brought(desired.rig, *desired.containers, system=desired.facts.system)
    elif not desired.rig.containers:
        facts = look(desired.rig)
        for note in notes(desired.rig, facts) if facts else []:
            logger.warning(f"{host.print_prefix}{note}")
        released(name="Stop managing containers", rig=desired.rig)


def _brought(rig: Rig, facts: ContainerFacts, plan: ContainerPlan, system: str) -> None:
    files = settings(rig, plan, system)
    written = [Text(file.path, file.text, file.mode) for file in files]
    left = sorted(set(paths(rig)) - {file.path for file in files})
    missing = bool(lacking(plan, facts))
    needed = [store(rig), *folders(rig, files), *_absent([*others(files), *([DOCKER] if plan.options else [])])]
    directories(name="Folders", paths=dict.fromkeys(needed, ("755", "root", "root")), ledger=rig.ledger)
    changed = differ(written)
    set_aside(name="Conflicting apt sources", paths=plan.leftovers, folder=f"{store(rig)}/leftovers")
    texts(name="Settings", files=written)
    absent(name="Undeclared settings", paths=left)
    if plan.distribution:
        packages(name="Packages", names=plan.distribution, rig=rig, system=system)
    for group in plan.groups:
        name, known = archive_of(rig, group)
        if name == DOCKER_ARCHIVE and plan.restarting:
            undisturbed(name="Containers that would stop", rig=rig)
        whose = {TOOLKIT: "the container toolkit's archive"}.get(name, "Docker's archive")
        brought(
            name=f"{group.name} {group.version}",
            rig=rig,
            wanted=Wanted(
                group,
                f"{store(rig)}/kept/{group.name}",
                ((source_path(group), whose),),
                tuple(one for one in plan.removed if one in known.replaces),
                rig.bundle.files(group.packages.values()) if rig.bundle else (),
                rig.bundle.packages(system) if rig.bundle else Packages(),
            ),
            there=dict(facts.packages),
            kept=(group.name, group.kept) in facts.kept,
            half=[one for one in facts.half if one in group.packages],
        )
    held(name="Holds", rig=rig, plan=plan, facts=facts, lacking=missing)
    if plan.options is not None:
        _options(rig, facts, plan, missing)
    if any(group.name == TOOLKIT for group in plan.groups):
        refreshed(name="CDI spec", rig=rig, facts=facts, changed=changed or missing)


def _absent(paths: list[str]) -> list[str]:
    """Those that are not there: a folder of the system's stays as its operator has it."""
    found = host.get_fact(Entries, paths=paths) if paths else {}
    return [path for path in paths if found.get(path, Entry()).kind == "absent"]


def _options(rig: Rig, facts: ContainerFacts, plan: ContainerPlan, missing: bool) -> None:
    """Docker's options, what is written down of them, and the daemon that has them."""
    options = plan.options or {}
    record, copy = (f"{store(rig)}/{name}" for name in ("daemon.json", "daemon.json.found"))
    before = daemon.record(facts.record) or daemon.Record()
    if plan.record.set:
        # before ours are in it, as it was
        kept_aside(name="Previous Docker options", path=daemon.PATH, copy=copy, record=record)
    written = plan.record.beside(before)
    # as secret as what it is of: a proxy may have a password
    texts(name="Previous Docker options", files=[Text(record, written.text(), "600")])
    if not plan.record.set and plan.record.absent and not options:
        absent(name="Docker options", paths=[daemon.PATH])
    elif facts.options is None or daemon.options(facts.options) != options:
        made = Text(daemon.PATH, daemon.text(options), f"{facts.mode & SHARED:o}", proof=PROOF)
        texts(name="Docker options", files=[made])
    in_force(name="Docker daemon", rig=rig, plan=plan, facts=facts, lacking=missing)
    if not plan.record.set:
        absent(name="Previous Docker options, restored", paths=[record, copy])
    elif written != plan.record:
        texts(name="Leftovers", files=[Text(record, plan.record.text(), "600")])


@operation()
def released(rig: Rig) -> Generator[StringCommand, None, None]:
    """Stop managing what runs containers: packages stay, our files and holds go, Docker's options are what they were.

    + rig: the rig
    """
    if facts := look(rig):
        script = render("containers/release.sh.j2", ledger=rig.ledger, **release(rig, facts))
        # not in words that everybody there can read: Docker's options may have a proxy's password
        yield StringCommand("sh", _stdin=[piped(script)])


def piped(script: str) -> str:
    """A script for a shell's standard input, of which what it runs reads nothing."""
    return f"script() {{\n{script}\n}}\nscript </dev/null\n"
