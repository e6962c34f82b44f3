"""Topics of `rigwright show` that are read from hosts: generations and models."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

import click

from checks.connections import ConnectedHost, map_inventory
from cli.exit_codes import NotAsDeclared, exit_if_unreached, unreached_rows
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import JSON_OPTION
from cli.shell_completion import LIMIT_OPTION
from cli.tables import format_size, print_prose, print_table
from rigwright.host.deploy_lock_state import LOCKS, render_holder_record
from rigwright.problems import describe_unknown, format_count, format_value
from rigwright.render import render
from rigwright.serving.serving_state import ObservedServing
from rigwright.serving.weight_inventory import StoredModel, WeightInventory, list_models, parse_removal
from rigwright.weights.verification import records_folder

SHORT = 12  # digits of a commit that are shown, and enough to name one
MIN_COMMIT_DIGITS = 7


@dataclass(frozen=True)
class HostModels:
    """The models of one host."""

    box: ConnectedHost
    stored: WeightInventory
    models: tuple[StoredModel, ...]


def _read_host_models(box: ConnectedHost) -> HostModels:
    looked = box.prefetch("stored", "served")
    stored = looked.read_weight_inventory()
    # the box itself, which looks again: a file that is removed is looked at right before
    return HostModels(box, stored, list_models(stored, looked.read_serving_state(), box.rig.roots, box.rig.instances))


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@JSON_OPTION
@click.option("--remove", metavar="NAME@VERSION", help="Remove this version if nothing needs it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def models(inventory: str, limit: str | None, as_json: bool, remove: str | None, yes: bool) -> None:
    """List the models on each host, their state and their users.

    --remove refuses a version that the inventory or a generation on the host refers to.
    Example: rigwright show models rig.py --remove org/name@0123456789ab
    """
    if remove is not None and as_json:
        raise click.UsageError("--json conflicts with --remove")
    if remove is not None and not re.fullmatch(r"[^@]+@[^@]+", remove):
        raise click.UsageError(
            f"--remove: {format_value(remove)} is refused: must be NAME@VERSION, as `show models` lists them"
        )
    found, gone = map_inventory(inventory, limit, _read_host_models)
    seen = [one for _, one in found]
    if remove is not None:
        if not seen:
            exit_if_unreached(gone)
        _remove_everywhere(seen, remove, yes)
    elif as_json:
        rows = [
            {
                "host": one.box.name,
                "reached": True,
                **asdict(model),
                "state": model.state_word,
                "hashed": _format_time(model.hashed),
            }
            for one in seen
            for model in one.models
        ]
        click.echo(json.dumps(rows + unreached_rows(gone), indent=2))
    else:
        _print_models(seen)
    exit_if_unreached(gone)


def _print_models(seen: list[HostModels]) -> None:
    columns = ("host", "model", "version", "files", "size", "state", "last hashed (UTC)", "used by", "left over")
    rows: list[tuple[str, ...]] = []
    for one in seen:
        rows += [
            (
                *(
                    one.box.name,
                    model.name,
                    model.version[:SHORT],
                    str(model.files),
                    format_size(model.size),
                    model.state_word,
                ),
                *(_format_time(model.hashed) or "", ", ".join(model.users) or "nothing"),
                format_size(model.left_over) if model.left_over else "",
            )
            for model in one.models
        ] or [(one.box.name, "none")]
    if rows:
        print_table(columns, rows)


def _format_time(seconds: float | None) -> str | None:
    """A moment for people; nothing where there was none."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M") if seconds else None


def _model_label(model: StoredModel) -> str:
    return f"{model.name}@{model.version[:SHORT]}"


def _matches_model(model: StoredModel, name: str, version: str) -> bool:
    whole = model.version == version
    return model.name == name and (whole or (len(version) >= MIN_COMMIT_DIGITS and model.version.startswith(version)))


def _remove_everywhere(seen: list[HostModels], asked: str, yes: bool) -> None:
    """Remove one model from all hosts that have it.

    Raises:
        click.ClickException: no host has it, two versions begin like that, or something needs it.
    """
    name, _, version = asked.rpartition("@")
    chosen = [(one, model) for one in seen for model in one.models if _matches_model(model, name, version)]
    if not chosen:
        known = {_model_label(model) for one in seen for model in one.models}
        raise click.ClickException(f"--remove: {describe_unknown('model', asked, known)}")
    if len({model.version for _, model in chosen}) > 1:
        raise click.ClickException(f"--remove: more than one version begins with {version}: give more characters")
    if needed := [f"{one.box.name}: {', '.join(model.users)}" for one, model in chosen if model.users]:
        raise click.ClickException(
            f"{_model_label(chosen[0][1])} stays, because it is needed; on {'; on '.join(needed)}"
        )
    for one, model in chosen:
        size = f"{format_count(model.files, 'file')}, {format_size(model.size + model.left_over)}"
        print_prose(f"{one.box.name}: {model.folder}, {size}")
    if not yes:
        click.confirm(f"Remove {_model_label(chosen[0][1])}?", abort=True)
    said = [_remove_from_host(one, model) for one, model in chosen]
    if refused := [line for line in said if line]:
        raise NotAsDeclared("\n".join(refused))


def _remove_from_host(found: HostModels, model: StoredModel) -> str:
    """Remove a model from one host; returns why that was not possible, or nothing."""
    box = found.box
    script = render(
        "removal/model.sh.j2",
        root=box.rig.roots.models,
        folder=model.folder,
        records=records_folder(box.rig.roots),
        ledger=box.rig.roots.ledger,
        config=box.rig.roots.config,
        locks=LOCKS,
        holder=render_holder_record(f"removing {_model_label(model)}"),
    )
    try:
        told = box.run_and_parse(parse_removal, script)
    except click.ClickException as error:  # other hosts have theirs to remove
        return error.message
    if told.refusal:
        return f"{box.name}: refused: {told.refusal}"
    for path in told.stays:
        print_prose(f"{box.name}: {path} stays: it is not managed by Rigwright, and was never verified")
    sizes = [found.stored.entries[path].size for path in told.gone if path in found.stored.entries]
    print_prose(f"{box.name}: {format_count(len(told.gone), 'file')} removed, {format_size(sum(sizes))}")
    return ""


def _read_generations(box: ConnectedHost) -> tuple[ObservedServing, str]:
    box = box.prefetch("served", "facts")
    found = box.read_serving_state()
    return found, box.resolve_desired().generation.digest


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@JSON_OPTION
def generations(inventory: str, limit: str | None, as_json: bool) -> None:
    """List the generations on each host.

    `rigwright rollback` serves one of them again. JSON has a row with `"reached": false` for an unreachable host.
    Example: rigwright show generations rig.py
    """
    found, gone = map_inventory(inventory, limit, _read_generations)
    rows = [
        {
            "host": box.name,
            "reached": True,
            "number": kept.number,
            "created": kept.created,
            "digest": kept.sealed,
            "current": kept.number == state.current,
            "declared": kept.sealed == wanted,
            "intact": kept.is_intact,
        }
        for box, (state, wanted) in found
        for kept in state.generations
    ]
    if as_json:
        click.echo(json.dumps(rows + unreached_rows(gone), indent=2))
        exit_if_unreached(gone)
        return
    shown: list[tuple[str, ...]] = []
    for row in rows:
        words = [word for word in ("current", "declared") if row[word]] + ([] if row["intact"] else ["changed by hand"])
        number, digest = str(row["number"]), str(row["digest"])[:12]
        written = str(row["created"]).removesuffix("Z").replace("T", " ")
        shown.append((str(row["host"]), number, written, digest, ", ".join(words)))
    if shown:
        print_table(("host", "generation", "written (UTC)", "digest", "state"), shown)
    for box, (state, _) in found:
        if not state.generations:
            print_prose(f"{box.name}: no generation: nothing is deployed")
    exit_if_unreached(gone)
