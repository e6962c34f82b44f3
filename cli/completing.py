"""What a shell completes of an inventory's own names; nothing where it is refused, or not typed yet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click


def hosts(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Hosts; of several with commas between, the last."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _fitting(last, _rigs(context))]


def instances(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Instances of all hosts."""
    return _fitting(incomplete, (name for rig in _rigs(context).values() for name in _keys(rig, "instances")))


def variants(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Variants of the catalogue: ours, and the inventory's own."""
    from rigwright.declaration.catalog import load_catalog
    from rigwright.inventory import layers
    from rigwright.paths import ROOT
    from rigwright.problems import Invalid

    given = _inventory(context)
    try:
        return _fitting(incomplete, load_catalog(layers(Path(given or ROOT / "x"), "catalog")).variants)
    except (Invalid, OSError):
        return []


def checks(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Ids of checks; of several with commas between, the last."""
    from checks.catalogue import every

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in _fitting(last, (one.id for one in every()))]


def _inventory(context: click.Context) -> str | None:
    # behind an option that waits for its value, click leaves arguments as they were typed
    waiting = (word for word in context.args if Path(word).is_file())
    return context.params.get("inventory") or next(waiting, None)


def _rigs(context: click.Context) -> dict[str, Any]:
    from cli.declared import named
    from rigwright.inventory import tolerating

    given = _inventory(context)
    if not given:
        return {}
    # a shell reads standard output, and an inventory is a program that may print
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), tolerating():
        try:
            return named(given, None)
        except click.ClickException:
            return {}


def _keys(data: Any, key: str) -> Iterator[str]:
    rig = data.get("rig")
    entry = rig.get("entry") if isinstance(rig, dict) else None
    found = entry.get(key) if isinstance(entry, dict) else None
    yield from found if isinstance(found, dict) else ()


def _fitting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


LIMIT = click.option(
    "--limit",
    metavar="HOST",
    help="Only this host or group, or several with commas between.",
    shell_complete=hosts,
)
