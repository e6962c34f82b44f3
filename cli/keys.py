"""`rigwright keys`: who may ask the gateways of an inventory, and with what."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

import click
from pydantic import TypeAdapter, ValidationError

from checks.connections import UnreachableHosts, map_hosts
from checks.results import STATUS
from cli import key_sync
from cli.exit_codes import print_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.key_sync import (
    KeyTargets,
    accepts_keys,
    connect_hosts,
    file_access,
    load_targets,
    read_host_keys,
    refuse_diverged,
    refuse_vanished,
    sync_keys,
)
from cli.option_types import WholeNumber
from cli.prog_name import SentenceGroup
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.gateway import deployed_keys, keyring
from rigwright.gateway.deployed_keys import DeployedKeys
from rigwright.gateway.keyring import ClientKey, ClientKeyring, RotatedKey
from rigwright.problems import describe_unknown, describe_violated_rule, format_count, format_value, printable
from rigwright.validated_types import Name

WIDTH = 80  # columns, where the output is no terminal
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
LONGEST = timedelta(days=365)


NAME_ARGUMENT = click.argument("name", callback=lambda _, __, value: _parse_name(value))
NO_HOSTS_OPTION = click.option(
    "--no-hosts", is_flag=True, help="Only write the file; hosts get it with the next deploy."
)


class InventoryFirstGroup(SentenceGroup):
    """A group whose commands stand behind an argument; each tells of itself without one, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help of a command that stands where the argument belongs."""
        if len(args) == 2 and args[0] in self.commands and args[1] in ctx.help_option_names:
            self.commands[args[0]].make_context(args[0], args[1:], parent=ctx)
        return super().parse_args(ctx, args)


@click.group(cls=InventoryFirstGroup)
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.pass_context
def keys(context: click.Context, inventory: str, limit: str | None) -> None:
    """Make, list, rotate and revoke the keys that clients of INVENTORY's gateways need.

    A key is printed once, as it is made, and nothing else is on standard output then; what is kept is its SHA-256, in
    `gateway-keys.toml` beside the inventory. Every change is brought to all hosts with a gateway at once: no engine
    notices, and nobody else's stream. Exit status 1: a host did not get it, or 3: was not reached; it is named,
    and `bring` or the next deploy brings it.
    Example: rigwright keys ~/boxes/rig.py make alice --models qwen3 --streams 4
    """
    context.obj = load_targets(inventory, limit)


@keys.command()
@NAME_ARGUMENT
@click.option("--models", help="Models that the key may use, by name or alias, comma-separated; default: all.")
@click.option("--requests-per-minute", type=WholeNumber(1, keyring.MOST), help="Requests per minute.")
@click.option("--streams", type=WholeNumber(1, keyring.MOST), help="Concurrent requests.")
@NO_HOSTS_OPTION
@click.pass_obj
def make(
    asked: KeyTargets,
    name: str,
    models: str | None,
    requests_per_minute: int | None,
    streams: int | None,
    no_hosts: bool,
) -> None:
    """Make a key for NAME, and print it."""
    clear, opened = keyring.generate_key(), _parse_models(models)
    for model in opened or ():
        if model not in asked.models:
            raise click.BadParameter(describe_unknown("model", model, asked.models), param_hint="--models")

    def change(there: ClientKeyring) -> ClientKeyring:
        if name in there.keys:
            raise click.ClickException(
                f"{asked.file}: {name} already has a key: `rotate` replaces it, `revoke` removes it"
            )
        key = ClientKey(
            sha256=keyring.hash_key(clear),
            models=opened,
            requests_per_minute=requests_per_minute,
            streams=streams,
            made=_current_time().date().isoformat(),
        )
        return there.with_key(name, key)

    reach = None if no_hosts else connect_hosts(asked)
    if reach:
        refuse_vanished(asked, reach)
        refuse_diverged(asked, reach)
    _change_keyring(asked, change)
    _print_key(name, clear)
    sync_keys(asked, reach)


@keys.command()
@NAME_ARGUMENT
@click.option("--keep", metavar="TIME", help="How long the previous key stays valid, such as 90m, 24h or 7d.")
@NO_HOSTS_OPTION
@click.pass_obj
def rotate(asked: KeyTargets, name: str, keep: str | None, no_hosts: bool) -> None:
    """Make another key for NAME, with the rights of the one before, and print it.

    The one before ends at once, and what it has under way, unless --keep says how long it stays.
    """
    clear, kept = keyring.generate_key(), _parse_duration(keep)

    def change(there: ClientKeyring) -> ClientKeyring:
        before = _find_key(there, name)
        old = RotatedKey(sha256=before.sha256, until=_current_time() + kept) if kept else None
        values = {"sha256": keyring.hash_key(clear), "made": _current_time().date().isoformat(), "old": old}
        return there.with_key(name, before.model_copy(update=values))

    _find_key(asked.load_keyring(), name)
    reach = None if no_hosts else connect_hosts(asked)
    if reach:
        refuse_diverged(asked, reach)
    _change_keyring(asked, change)
    _print_key(name, clear)
    sync_keys(asked, reach)


@keys.command()
@NAME_ARGUMENT
@NO_HOSTS_OPTION
@click.pass_obj
def revoke(asked: KeyTargets, name: str, no_hosts: bool) -> None:
    """Take NAME's key away, and end what it has under way."""

    def change(there: ClientKeyring) -> ClientKeyring:
        _find_key(there, name)
        return there.with_key(name, None)

    _change_keyring(asked, change)
    print_prose(f"the key of {name} is revoked in {asked.file}", err=True)
    sync_keys(asked, None if no_hosts else connect_hosts(asked))


@keys.command()
@click.option(
    "--replace-newer",
    is_flag=True,
    help="Also where a host has keys of another controller, or newer ones: they are replaced, and keys that return or "
    "vanish by that are named.",
)
@click.pass_obj
def bring(asked: KeyTargets, replace_newer: bool) -> None:
    """Bring the keys as they are in the file to every host, as a deploy does.

    A host keeps the keys that it has where the file's were not made from them: those of an earlier file would give
    revoked keys back.
    """
    reach = connect_hosts(asked)
    refuse_vanished(asked, reach)
    sync_keys(asked, reach, key_sync.collect_newer(asked, reach) if replace_newer else None)


@keys.command("list")
@NO_HOSTS_OPTION
@click.pass_context
def list_(context: click.Context, no_hosts: bool) -> None:
    """List the keys, their rights, and which hosts have each."""
    asked: KeyTargets = context.obj
    ring = asked.load_keyring()
    having: dict[str, DeployedKeys] = {}
    silent: UnreachableHosts = {}
    if not no_hosts:
        reach = connect_hosts(asked)
        silent = reach.gone
        having = dict(zip((box.name for box in reach.boxes), map_hosts(reach.boxes, read_host_keys), strict=True))
    wanted = {str(row["sha256"]): row for row in keyring.key_rows(ring)}
    lines: list[tuple[str, ...]] = []
    for name, key in sorted(ring.keys.items()):
        row = wanted[key.sha256]
        until = f"{key.made}; the previous one until {key.old.until:%Y-%m-%d %H:%M} UTC" if key.old else key.made
        hosts = [host for host, one in having.items() if one.current and row in one.rows]
        lines.append(
            (
                name,
                ", ".join(key.models or ("all",)),
                _describe_limits(key),
                until,
                _describe_hosts(hosts, having, no_hosts),
            )
        )
    for host, one in sorted(having.items()):
        # names are the host's words
        gone = sorted(
            {printable(str(row.get("name")))[:48] for row in one.rows if str(row.get("sha256")) not in wanted}
        )
        lines += [(name, "", "", "not in the file", host) for name in gone]
    print_table(("name", "models", "limits", "made (UTC)", "on hosts"), lines, WIDTH)
    serials: dict[int, list[str]] = {}
    for host, one in sorted(having.items()):
        serials.setdefault(one.version.serial if one.version else 0, []).append(host)
    on_hosts = "".join(f"; serial {serial} on {', '.join(names)}" for serial, names in sorted(serials.items()))
    print_prose(f"{asked.file}: serial {ring.current_version.serial}{on_hosts}", err=True)
    newer = [host for host, one in sorted(having.items()) if not accepts_keys(ring, one)]
    for host in newer:
        print_prose(f"{host}: {deployed_keys.describe_key_divergence(asked.file, ring, having[host])}", err=True)
    behind = [host for host, one in sorted(having.items()) if not one.current or not _has_same_keys(one, ring)]
    if behind := [host for host in behind if host not in newer]:
        print_prose(
            f"{', '.join(behind)}: keys differ from the file: `bring` or the next deploy updates them", err=True
        )
    print_unreached(silent)
    context.exit(STATUS["not reached"] if silent else 0)


def _has_same_keys(one: DeployedKeys, ring: ClientKeyring) -> bool:
    return (
        one.version is not None
        and one.version.id == ring.current_version.id
        and list(one.rows) == keyring.key_rows(ring)
    )


def _describe_limits(key: ClientKey) -> str:
    parts = [f"{key.requests_per_minute}/min"] if key.requests_per_minute else []
    parts += [format_count(key.streams, "stream")] if key.streams else []
    return ", ".join(parts) or "none"


def _describe_hosts(hosts: list[str], having: Mapping[str, DeployedKeys], no_hosts: bool) -> str:
    if no_hosts:
        return "not asked"
    return "all" if len(hosts) == len(having) > 1 else ", ".join(sorted(hosts)) or "none"


def _print_key(name: str, clear: str) -> None:
    click.echo(clear)
    print_prose(f"the key of {name}, shown only once and stored nowhere", err=True)


def _change_keyring(asked: KeyTargets, change: Callable[[ClientKeyring], ClientKeyring]) -> None:
    """Change the file, as its next version; a run that does so at the same time waits."""
    now = _current_time()
    with file_access(asked.file), keyring.lock_keys_file(asked.file, f"keys of {asked.inventory}"):
        there = keyring.load_keyring(asked.file)
        kept = there.model_copy(update={"keys": {name: key.without_expired(now) for name, key in there.keys.items()}})
        keyring.dump(asked.file, change(kept))


def _find_key(ring: ClientKeyring, name: str) -> ClientKey:
    if name not in ring.keys:
        raise click.ClickException(describe_unknown("key", name, ring.keys))
    return ring.keys[name]


def _current_time() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def _parse_name(value: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(value)
    except ValidationError as error:
        raise click.BadParameter(f"{format_value(value)} is refused: must be {describe_violated_rule(error)}") from None


def _parse_models(value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(dict.fromkeys(part.strip() for part in value.split(",")))


def _parse_duration(value: str | None) -> timedelta | None:
    if value is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", value)
    kept = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else LONGEST
    if not found or kept > LONGEST:
        raise click.BadParameter(
            f"{format_value(value)} is refused: must be such as 90m, 24h or 7d", param_hint="--keep"
        )
    return kept
