"""Options that name hosts and instances, and the completion of such names in a shell."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click

from cli.default_inventory import DecoratedCommand, default_inventory


def complete_hosts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Hosts; of several with commas between, the last."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _with_prefix(last, _load_rig_data(context))]


def complete_instances(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Instances of all hosts."""
    return _with_prefix(
        incomplete, (name for rig in _load_rig_data(context).values() for name in _entry_keys(rig, "instances"))
    )


def complete_environments(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Environments and instances of all hosts."""
    rigs = _load_rig_data(context).values()
    return _with_prefix(
        incomplete, (name for rig in rigs for key in ("envs", "instances") for name in _entry_keys(rig, key))
    )


def complete_variants(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Variants of the catalogue: ours, and the inventory's own."""
    from rigwright.declaration.catalog_loader import load_catalog
    from rigwright.inventory import layer_folders
    from rigwright.problems import Invalid
    from rigwright.project_root import ROOT

    path = _typed_inventory(context) or ROOT / "x"
    try:
        return _with_prefix(incomplete, load_catalog(layer_folders(Path(path), "catalog")).variants)
    except (Invalid, OSError):
        return []


def complete_checks(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Ids of checks; of several with commas between, the last."""
    from checks.check_catalogue import list_checks

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _with_prefix(last, (one.id for one in list_checks()))]


def complete_entry_classes(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Classes of entries of a host; of several with commas between, the last."""
    from checks.change_review.class_checks import PACKAGES
    from checks.survey.fingerprint_classes import ENTRY_CLASSES

    before, comma, last = incomplete.rpartition(",")
    names = (PACKAGES, *(one.name for one in ENTRY_CLASSES))
    return [before + comma + name for name in _with_prefix(last, names)]


def _typed_inventory(context: click.Context) -> str | None:
    # behind an option that waits for its value, click leaves arguments as they were typed
    waiting = (word for word in context.args if Path(word).is_file())
    return context.params.get("inventory") or next(waiting, None) or default_inventory()


def _load_rig_data(context: click.Context) -> dict[str, Any]:
    from cli.inventory_loading import load_hosts
    from rigwright.inventory import tolerate_problems

    given = _typed_inventory(context)
    if not given:
        return {}
    # a shell reads standard output, and an inventory is a program that may print
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), tolerate_problems():
        try:
            return load_hosts(given, None)
        except click.ClickException:
            return {}


def _entry_keys(data: Any, key: str) -> Iterator[str]:
    rig = data.get("rig")
    entry = rig.get("entry") if isinstance(rig, dict) else None
    found = entry.get(key) if isinstance(entry, dict) else None
    yield from (str(one) for one in found) if isinstance(found, (dict, list)) else ()


def _with_prefix(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


LIMIT_OPTION = click.option(
    "--limit",
    metavar="HOST",
    help="Only this host or group, or several with commas between.",
    shell_complete=complete_hosts,
)
INSTANCE_OPTION = click.option(
    "--instance",
    multiple=True,
    metavar="NAME",
    help="Only this instance; repeatable.",
    shell_complete=complete_instances,
)


def access_options(verb: DecoratedCommand) -> DecoratedCommand:
    """Options of an access to instances: `cli.instance_access.parse_access`."""
    for option in (
        click.option("--key-file", metavar="FILE", help="With --gateway: a file with a client's key."),
        click.option("--listener", metavar="NAME", help="With --gateway: the listener to use."),
        click.option("--gateway", is_flag=True, help="Ask through the gateway, as clients do."),
    ):
        verb = option(verb)
    return verb
