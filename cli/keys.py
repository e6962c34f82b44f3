"""`rigwright keys`: who may ask the gateways of an inventory, and with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

import click
from pydantic import TypeAdapter, ValidationError

from checks.looking import Gone, each
from checks.results import STATUS
from cli import keys_there
from cli.calling import Listed
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import lacking
from cli.keys_there import (
    Asked,
    asked_of,
    connect_hosts,
    everywhere,
    file_access,
    having_of,
    is_accepted,
    refuse_diverged,
    refuse_vanished,
)
from cli.tables import say, show
from rigwright.gateway import host_keys, keyring
from rigwright.gateway.host_keys import Having
from rigwright.gateway.keyring import Key, Keyring, Old
from rigwright.problems import counted, printable, said, unknown
from rigwright.types import Name

WIDTH = 80  # columns, where the output is no terminal
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
LONGEST = timedelta(days=365)


NAME = click.argument("name", callback=lambda _, __, value: _name(value))
NO_HOSTS = click.option("--no-hosts", is_flag=True, help="Only write the file; hosts get it with the next deploy.")


class Behind(Listed):
    """A group whose commands stand behind an argument; each tells of itself without one, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help of a command that stands where the argument belongs."""
        if len(args) == 2 and args[0] in self.commands and args[1] in ctx.help_option_names:
            self.commands[args[0]].make_context(args[0], args[1:], parent=ctx)
        return super().parse_args(ctx, args)


@click.group(cls=Behind)
@INVENTORY
@LIMIT
@click.pass_context
def keys(context: click.Context, inventory: str, limit: str | None) -> None:
    """Make, list, rotate and revoke the keys that clients of INVENTORY's gateways need.

    A key is printed once, as it is made, and nothing else is on standard output then; what is kept is its SHA-256, in
    `gateway-keys.toml` beside the inventory. Every change is brought to all hosts with a gateway at once: no engine
    notices, and nobody else's stream. Exit status 1: a host did not get it, or 3: was not reached; it is named,
    and `bring` or the next deploy brings it.
    Example: rigwright keys ~/boxes/rig.py make alice --models qwen3 --streams 4
    """
    context.obj = asked_of(inventory, limit)


@keys.command()
@NAME
@click.option("--models", help="Models that the key may use, by name or alias, comma-separated; default: all.")
@click.option("--requests-per-minute", type=click.IntRange(1, keyring.MOST), help="Requests per minute.")
@click.option("--streams", type=click.IntRange(1, keyring.MOST), help="Concurrent requests.")
@NO_HOSTS
@click.pass_obj
def make(
    asked: Asked,
    name: str,
    models: str | None,
    requests_per_minute: int | None,
    streams: int | None,
    no_hosts: bool,
) -> None:
    """Make a key for NAME, and print it."""
    clear, opened = keyring.made(), _models(models)
    for model in opened or ():
        if model not in asked.models:
            raise click.BadParameter(unknown("model", model, asked.models), param_hint="--models")

    def change(there: Keyring) -> Keyring:
        if name in there.keys:
            raise click.ClickException(
                f"{asked.file}: {name} already has a key: `rotate` replaces it, `revoke` removes it"
            )
        key = Key(
            sha256=keyring.recognised(clear),
            models=opened,
            requests_per_minute=requests_per_minute,
            streams=streams,
            made=_now().date().isoformat(),
        )
        return there.having(name, key)

    reach = None if no_hosts else connect_hosts(asked)
    if reach:
        refuse_vanished(asked, reach)
        refuse_diverged(asked, reach)
    _changed(asked, change)
    _printed(name, clear)
    everywhere(asked, reach)


@keys.command()
@NAME
@click.option("--keep", metavar="TIME", help="How long the previous key stays valid, such as 90m, 24h or 7d.")
@NO_HOSTS
@click.pass_obj
def rotate(asked: Asked, name: str, keep: str | None, no_hosts: bool) -> None:
    """Make another key for NAME, with the rights of the one before, and print it.

    The one before ends at once, and what it has under way, unless --keep says how long it stays.
    """
    clear, kept = keyring.made(), _time(keep)

    def change(there: Keyring) -> Keyring:
        before = _of(there, name)
        old = Old(sha256=before.sha256, until=_now() + kept) if kept else None
        values = {"sha256": keyring.recognised(clear), "made": _now().date().isoformat(), "old": old}
        return there.having(name, before.model_copy(update=values))

    _of(asked.load(), name)
    reach = None if no_hosts else connect_hosts(asked)
    if reach:
        refuse_diverged(asked, reach)
    _changed(asked, change)
    _printed(name, clear)
    everywhere(asked, reach)


@keys.command()
@NAME
@NO_HOSTS
@click.pass_obj
def revoke(asked: Asked, name: str, no_hosts: bool) -> None:
    """Take NAME's key away, and end what it has under way."""

    def change(there: Keyring) -> Keyring:
        _of(there, name)
        return there.having(name, None)

    _changed(asked, change)
    say(f"the key of {name} is revoked in {asked.file}", err=True)
    everywhere(asked, None if no_hosts else connect_hosts(asked))


@keys.command()
@click.option(
    "--replace-newer",
    is_flag=True,
    help="Also where a host has keys of another controller, or newer ones: they are replaced, and keys that return or "
    "vanish by that are named.",
)
@click.pass_obj
def bring(asked: Asked, replace_newer: bool) -> None:
    """Bring the keys as they are in the file to every host, as a deploy does.

    A host keeps the keys that it has where the file's were not made from them: those of an earlier file would give
    revoked keys back.
    """
    reach = connect_hosts(asked)
    refuse_vanished(asked, reach)
    everywhere(asked, reach, keys_there.replace_newer(asked, reach) if replace_newer else None)


@keys.command("list")
@NO_HOSTS
@click.pass_context
def list_(context: click.Context, no_hosts: bool) -> None:
    """List the keys, their rights, and which hosts have each."""
    asked: Asked = context.obj
    ring = asked.load()
    having: dict[str, Having] = {}
    silent: Gone = {}
    if not no_hosts:
        reach = connect_hosts(asked)
        silent = reach.gone
        having = dict(zip((box.name for box in reach.boxes), each(reach.boxes, having_of), strict=True))
    wanted = {str(row["sha256"]): row for row in keyring.rows(ring)}
    lines: list[tuple[str, ...]] = []
    for name, key in sorted(ring.keys.items()):
        row = wanted[key.sha256]
        until = f"{key.made}; the previous one until {key.old.until:%Y-%m-%d %H:%M} UTC" if key.old else key.made
        hosts = [host for host, one in having.items() if one.current and row in one.rows]
        lines.append((name, ", ".join(key.models or ("all",)), _limits(key), until, _listed(hosts, having, no_hosts)))
    for host, one in sorted(having.items()):
        # names are the host's words
        gone = sorted(
            {printable(str(row.get("name")))[:48] for row in one.rows if str(row.get("sha256")) not in wanted}
        )
        lines += [(name, "", "", "not in the file", host) for name in gone]
    show(("name", "models", "limits", "made (UTC)", "on hosts"), lines, WIDTH)
    serials: dict[int, list[str]] = {}
    for host, one in sorted(having.items()):
        serials.setdefault(one.version.serial if one.version else 0, []).append(host)
    on_hosts = "".join(f"; serial {serial} on {', '.join(names)}" for serial, names in sorted(serials.items()))
    say(f"{asked.file}: serial {ring.current_version.serial}{on_hosts}", err=True)
    newer = [host for host, one in sorted(having.items()) if not is_accepted(ring, one)]
    for host in newer:
        say(f"{host}: {host_keys.divergence(asked.file, ring, having[host])}", err=True)
    behind = [host for host, one in sorted(having.items()) if not one.current or not _same(one, ring)]
    if behind := [host for host in behind if host not in newer]:
        say(f"{', '.join(behind)}: keys differ from the file: `bring` or the next deploy updates them", err=True)
    lacking(silent)
    context.exit(STATUS["not reached"] if silent else 0)


def _same(one: Having, ring: Keyring) -> bool:
    return (
        one.version is not None and one.version.id == ring.current_version.id and list(one.rows) == keyring.rows(ring)
    )


def _limits(key: Key) -> str:
    parts = [f"{key.requests_per_minute}/min"] if key.requests_per_minute else []
    parts += [counted(key.streams, "stream")] if key.streams else []
    return ", ".join(parts) or "none"


def _listed(hosts: list[str], having: Mapping[str, Having], no_hosts: bool) -> str:
    if no_hosts:
        return "not asked"
    return "all" if len(hosts) == len(having) > 1 else ", ".join(sorted(hosts)) or "none"


def _printed(name: str, clear: str) -> None:
    click.echo(clear)
    say(f"the key of {name}, shown only once and stored nowhere", err=True)


def _changed(asked: Asked, change: Callable[[Keyring], Keyring]) -> None:
    """Change the file, as its next version; a run that does so at the same time waits."""
    now = _now()
    with file_access(asked.file), keyring.lock_file(asked.file, f"keys of {asked.inventory}"):
        there = keyring.load(asked.file)
        kept = there.model_copy(update={"keys": {name: key.before(now) for name, key in there.keys.items()}})
        keyring.dump(asked.file, change(kept))


def _of(ring: Keyring, name: str) -> Key:
    if name not in ring.keys:
        raise click.ClickException(unknown("key", name, ring.keys))
    return ring.keys[name]


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def _name(value: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(value)
    except ValidationError as error:
        raise click.BadParameter(f"{value!r} is refused: must be {said(error)}") from None


def _models(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(dict.fromkeys(part.strip() for part in value.split(",")))


def _time(value: str | None) -> timedelta | None:
    if value is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", value)
    kept = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else LONGEST
    if not found or kept > LONGEST:
        raise click.BadParameter(f"{value!r} is refused: must be such as 90m, 24h or 7d", param_hint="--keep")
    return kept
