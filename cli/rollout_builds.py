"""Copies of compiled engines: from the boxes of a rollout that have compiled them, by this machine, to others."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import click

from checks.connections import ConnectedHost, connect_inventory, map_hosts
from cli.instance_access import hold_deploy_lock
from cli.tables import print_prose
from rigwright.engines.environment_installer import find_installer
from rigwright.host.script_output import free_text
from rigwright.model.installation import Installation
from rigwright.problems import printable
from rigwright.rollout.batch_plan import RolloutBox
from rigwright.rollout.shared_build import (
    MOST_BYTES,
    NoAgreement,
    agree_on_digest,
    copy_folder,
    parse_builds,
    render_builds_query,
    render_prepare_script,
    render_receive_script,
    repack_tree,
)
from roles import root_shell
from roles.operations.reconnecting_shell import HostLost, ReconnectingShell

ARCHIVE = "tree.tar.gz"
PIECE = 1 << 20
LIMIT = 600.0  # seconds without a byte, and for the verification of a copy


def share_builds(inventory: str, names: Collection[str], builders: Mapping[str, Sequence[str]]) -> None:
    """Copy engines to boxes that lack them. A box that gets none compiles it; the reason is printed.

    Args:
        inventory: The file.
        names: The boxes that are deployed next.
        builders: Tree -> the two boxes that have compiled it.
    """
    found, _ = connect_inventory(inventory, ",".join(names))
    lacking = dict(zip([box.name for box in found], map_hosts(found, _find_lacking), strict=True))
    for tree, two in builders.items():
        receivers = [box for box in found if box.name not in two and tree in lacking[box.name]]
        if not receivers:
            continue
        with tempfile.TemporaryDirectory(prefix="rigwright-build-") as folder:
            try:
                digest = _fetch_tree(inventory, tree, two, Path(folder))
            except (NoAgreement, click.ClickException, HostLost, ValueError, *root_shell.BROKEN) as error:
                reason = printable(error.message if isinstance(error, click.ClickException) else str(error))
                print_prose(f"{', '.join(box.name for box in receivers)}: no copy of {tree}: {reason}")
                continue

            def send(box: ConnectedHost) -> str:
                return _send_tree(box, lacking[box.name][tree], Path(folder) / ARCHIVE, digest, two)  # noqa: B023

            for box, fault in zip(receivers, map_hosts(receivers, send), strict=True):
                said = f"no copy of {tree}: {fault}" if fault else f"copied {tree} of {two[0]}, as compiled by {two[1]}"
                print_prose(f"{box.name}: {said}")


def without_copies(inventory: str, boxes: Sequence[RolloutBox]) -> list[RolloutBox]:
    """The boxes with the trees alone that others lack and they have compiled: a copy is no second build."""
    wanted = frozenset[str]().union(*(box.builds for box in boxes))
    names = [box.name for box in boxes if box.built & wanted]
    found, _ = connect_inventory(inventory, ",".join(names)) if names else ([], {})
    reports = map_hosts(found, lambda box: _read_compiled(box, wanted))
    compiled = dict(zip([box.name for box in found], reports, strict=True))
    return [replace(box, built=compiled.get(box.name, frozenset())) for box in boxes]


def _read_compiled(box: ConnectedHost, trees: Collection[str]) -> frozenset[str]:
    digests = box.run_and_parse(parse_builds, render_builds_query(box.rig.roots, trees))
    return frozenset(tree for tree, digest in digests.items() if digest)


def _find_lacking(box: ConnectedHost) -> dict[str, Installation]:
    """Tree -> an engine that the deploy of a box would compile."""
    with suppress(click.ClickException, *root_shell.BROKEN):
        wanted = box.resolve_desired()
        return {
            made.folder: made
            for made in wanted.installations.values()
            if find_installer(box.rig.instances, made).compiles and made.folder not in wanted.facts.built_engines
        }
    return {}


def _fetch_tree(inventory: str, tree: str, two: Sequence[str], folder: Path) -> str:
    """Fetch a tree that two boxes have compiled alike; returns its digest.

    Raises:
        NoAgreement: they have not.
        click.ClickException: a box does not answer as asked.
        ValueError: the archive is refused.
    """
    found, gone = connect_inventory(inventory, ",".join(two))
    if gone:
        raise NoAgreement(f"{', '.join(gone)} does not answer")
    reports = dict(zip([box.name for box in found], map_hosts(found, lambda box: _read_digest(box, tree)), strict=True))
    digest = agree_on_digest(tree, {name: reports[name] for name in two})
    (source,) = [box for box in found if box.name == two[0]]
    with tempfile.NamedTemporaryFile(dir=folder) as sent:
        _receive_archive(source, tree, Path(sent.name))
        copied = repack_tree(Path(sent.name), folder / ARCHIVE)
    if copied != digest:
        raise NoAgreement(f"{two[0]} has sent another tree, with digest {copied}, and reported {digest}")
    return digest


def _read_digest(box: ConnectedHost, tree: str) -> str:
    return box.run_and_parse(parse_builds, render_builds_query(box.rig.roots, [tree])).get(tree, "")


def _receive_archive(box: ConnectedHost, tree: str, target: Path) -> None:
    # other formats have headers that `repack_tree` refuses
    command = f"tar --format=ustar -C {shlex.quote(box.rig.roots.installation_path(tree))} -czf - bin"
    allowed = root_shell.TransferAllowance(LIMIT)
    with closing(root_shell.start_command(box.target, command, LIMIT)) as channel, target.open("wb") as file:
        while piece := channel.recv(PIECE):
            allowed.count(len(piece))
            if file.tell() > MOST_BYTES:
                raise ValueError("its archive is larger than any engine")
            file.write(piece)


def _send_tree(box: ConnectedHost, made: Installation, archive: Path, digest: str, two: Sequence[str]) -> str:
    """Send a tree to a box, which verifies and installs it under its deploy lock; the reason if that failed."""
    roots = box.rig.roots
    record = {"inputs": made.record, "copied_from": [*two], "tree": digest}
    script = render_receive_script(roots, made.folder, digest, json.dumps(record, indent=2))
    shell = ReconnectingShell(box.target)
    try:
        with hold_deploy_lock(box, f"rollout: copy of {made.folder}") as lock:
            shell.run(render_prepare_script(roots, made.folder))
            shell.append_file(archive, f"{copy_folder(roots, made.folder)}/{ARCHIVE}", lambda there: None)
            if lock.lost or not lock.channel or lock.channel.closed:
                return "the deploy lock was lost"
            done = root_shell.run_command(box.target, script, limit=LIMIT)
    except click.ClickException as error:
        return printable(error.message)
    except (HostLost, *root_shell.BROKEN) as error:
        return printable(str(error))
    return free_text(done.complaint or f"status {done.status}") if done.status else ""
