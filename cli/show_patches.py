"""`rigwright show patches`: patches of engines and environments, read from an inventory and the folders next to it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rigs, load_hosts
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.inventory import layer_folders, load_for
from rigwright.model.instance import patches_by_target
from rigwright.model.lock_coverage import UNLOCKED
from rigwright.model.rig import Rig
from rigwright.patches.patch import Patch, load_patches
from rigwright.problems import Invalid

COLUMNS = ("rig", "engine", "patch", "of", "verdict", "until", "why")


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option("--all", "everything", is_flag=True, help="Also those that nothing uses.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def patches(inventory: str, limit: str | None, everything: bool, as_json: bool) -> None:
    """List patches of engines, with purpose and end.

    Contacts no host.
    Example: rigwright show patches rig.py --all
    """
    rows: list[dict[str, object]] = []
    carried: set[str] = set()
    limited, rigs = _load_patched_rigs(inventory, limit, everything)
    for name, rig in rigs.items():
        for what, found in sorted(patches_by_target(rig.instances, rig.envs, rig.toolkit.patches).items()):
            rows += [_patch_row(one, name, what) for one in found if name in limited]
            carried |= {one.name for one in found}
    if everything:
        try:
            there = load_patches(layer_folders(Path(inventory), "patches"))
        except Invalid as error:
            raise click.ClickException(str(error)) from None
        rows += [_patch_row(one) for name, one in sorted(there.items()) if name not in carried]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if rows:
        print_table(COLUMNS, [tuple(str(row[column]) for column in COLUMNS) for row in rows])
    else:
        click.echo("no patches")


def _load_patched_rigs(inventory: str, limit: str | None, everything: bool) -> tuple[set[str], dict[str, Rig]]:
    """The hosts that a limit names, and the rigs to report. An inventory with a part that is not locked is read
    without its lock: the catalogue names the patches of its engines.
    """

    def read() -> tuple[set[str], dict[str, Rig]]:
        limited = load_hosts(inventory, limit)
        looked = load_hosts(inventory, None) if everything else limited
        return {*limited}, load_host_rigs(looked)

    try:
        return read()
    except click.ClickException as error:
        if not all(f" {UNLOCKED}: " in line for line in error.message.splitlines()):
            raise
    with load_for("lock"):
        found = read()
    print_prose("some inputs are not locked: `rigwright lock` compares patches with their versions", err=True)
    return found


def _patch_row(patch: Patch, rig: str = "", engine: str = "") -> dict[str, object]:
    """Columns of a patch; an unused patch has no rig and engine."""
    keys = patch.keys
    said = {
        "of": f"{keys.target_distribution} {', '.join(keys.versions)}",
        "verdict": keys.verdict,
        "until": keys.obsolete_when,
    }
    more = {"source": keys.source, "licence": keys.licence, "where": keys.evidence, "tested": keys.test_notes}
    return {
        "rig": rig,
        "engine": engine,
        "patch": patch.name,
        **said,
        "why": keys.purpose,
        **more,
        "files": patch.patched_digests,
    }
