"""`rigwright models`: which weights lie on hosts, how they are known to be right, and who uses them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

import click

from checks.looking import Box, boxes, each
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import Failed, absent, leave
from cli.state import JSON
from cli.tables import say, show, size
from rigwright.host.deploy_lock import holder_record
from rigwright.host.locks import LOCKS
from rigwright.problems import shown, unknown
from rigwright.render import render
from rigwright.serving.stored import Stored, StoredModel
from rigwright.serving.stored import models as stored_models
from rigwright.weights.records import records_folder
from rigwright.weights.removed import parse as removed

SHORT = 12  # digits of a commit that are shown, and enough to name one
FEWEST = 7


@dataclass(frozen=True)
class Found:
    """The models of one host."""

    box: Box
    stored: Stored
    models: tuple[StoredModel, ...]


def _look(box: Box) -> Found:
    looked = box.ahead("stored", "served")
    stored = looked.stored()
    # the box itself, which looks again: what is removed is looked at right before
    return Found(box, stored, stored_models(stored, looked.served(), box.rig))


@click.command()
@INVENTORY
@LIMIT
@JSON
@click.option("--remove", metavar="NAME@VERSION", help="Remove this version if nothing needs it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def models(inventory: str, limit: str | None, as_json: bool, remove: str | None, yes: bool) -> None:
    """The models that lie on every host of INVENTORY, verified or not, and what uses each.

    Nothing is removed without --remove, and nothing at all that the inventory or a generation on the host refers to.
    Example: rigwright models ~/boxes/rig.py --remove org/name@0123456789ab
    """
    if remove is not None and as_json:
        raise click.UsageError("--json conflicts with --remove")
    if remove is not None and not re.fullmatch(r"[^@]+@[^@]+", remove):
        raise click.UsageError(f"--remove: {shown(remove)} is refused: must be NAME@VERSION, as `models` lists them")
    found, gone = boxes(inventory, limit)
    seen = each(found, _look)
    if remove is not None:
        if not seen:
            leave(gone)
        _remove(seen, remove, yes)
    elif as_json:
        rows = [
            {"host": one.box.name, "reached": True, **asdict(model), "state": model.word, "hashed": _at(model.hashed)}
            for one in seen
            for model in one.models
        ]
        click.echo(json.dumps(rows + absent(gone), indent=2))
    else:
        _show(seen)
    leave(gone)


def _show(seen: list[Found]) -> None:
    columns = ("host", "model", "version", "files", "size", "state", "last hashed (UTC)", "used by", "left over")
    rows: list[tuple[str, ...]] = []
    for one in seen:
        rows += [
            (
                *(one.box.name, model.name, model.version[:SHORT], str(model.files), size(model.size), model.word),
                *(_at(model.hashed) or "", ", ".join(model.users) or "nothing"),
                size(model.left_over) if model.left_over else "",
            )
            for model in one.models
        ] or [(one.box.name, "none")]
    if rows:
        show(columns, rows)


def _at(seconds: float | None) -> str | None:
    """A moment for people; nothing where there was none."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M") if seconds else None


def _named(model: StoredModel) -> str:
    return f"{model.name}@{model.version[:SHORT]}"


def _is(model: StoredModel, name: str, version: str) -> bool:
    whole = model.version == version
    return model.name == name and (whole or (len(version) >= FEWEST and model.version.startswith(version)))


def _remove(seen: list[Found], asked: str, yes: bool) -> None:
    """Remove one model from all hosts that have it.

    Raises:
        click.ClickException: no host has it, two versions begin like that, or something needs it.
    """
    name, _, version = asked.rpartition("@")
    chosen = [(one, model) for one in seen for model in one.models if _is(model, name, version)]
    if not chosen:
        known = {_named(model) for one in seen for model in one.models}
        raise click.ClickException(f"--remove: {unknown('model', asked, known)}")
    if len({model.version for _, model in chosen}) > 1:
        raise click.ClickException(f"--remove: more than one version begins with {version}: give more of it")
    if needed := [f"{one.box.name}: {', '.join(model.users)}" for one, model in chosen if model.users]:
        raise click.ClickException(f"{_named(chosen[0][1])} stays, because it is needed; on {'; on '.join(needed)}")
    for one, model in chosen:
        say(f"{one.box.name}: {model.folder}, {model.files} files, {size(model.size + model.left_over)}")
    if not yes:
        click.confirm(f"Remove {_named(chosen[0][1])}?", abort=True)
    said = [_take_off(one, model) for one, model in chosen]
    if refused := [line for line in said if line]:
        raise Failed("\n".join(refused))


def _take_off(found: Found, model: StoredModel) -> str:
    """Remove a model from one host; returns why that was not possible, or nothing."""
    box = found.box
    script = render(
        "removal/model.sh.j2",
        root=box.rig.roots.models,
        folder=model.folder,
        records=records_folder(box.rig),
        ledger=box.rig.ledger,
        config=box.rig.roots.config,
        locks=LOCKS,
        holder=holder_record(f"removing {_named(model)}"),
    )
    try:
        told = box.read(removed, script)
    except click.ClickException as error:  # other hosts have theirs to remove
        return error.message
    if told.refusal:
        return f"{box.name}: refused: {told.refusal}"
    for path in told.stays:
        say(f"{box.name}: {path} stays: it is not managed by Rigwright, and was never verified")
    sizes = [found.stored.entries[path].size for path in told.gone if path in found.stored.entries]
    say(f"{box.name}: {len(told.gone)} files removed, {size(sum(sizes))}")
    return ""
