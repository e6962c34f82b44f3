"""Commands of `rigwright key` about client keys of gateways: make, list, rotate, revoke, sync."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

import click
from pydantic import TypeAdapter, ValidationError

from checks.connections import UnreachableHosts
from checks.results import STATUS
from cli import key_sync
from cli.exit_codes import print_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.key_sync import (
    KeyTargets,
    accepts_keys,
    file_access,
    load_targets,
    read_gateways,
    refuse_diverged,
    refuse_vanished,
    sync_keys,
)
from cli.option_types import WholeNumber
from cli.prog_name import prog_name
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose, print_table
from rigwright.gateway import deployed_keys, keyring
from rigwright.gateway.deployed_keys import DeployedKeys
from rigwright.gateway.keyring import ClientKey, ClientKeyring, RotatedKey
from rigwright.gateway.keys_file_version import RIGHTS, TOKEN_LIMITS
from rigwright.problems import describe_unknown, describe_violated_rule, format_count, format_value, printable
from rigwright.validated_types import Name

WIDTH = 80  # columns, where the output is no terminal
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
LONGEST = timedelta(days=365)


NAME_ARGUMENT = click.argument("name", callback=lambda _, __, value: _parse_name(value))
NO_HOSTS_OPTION = click.option("--no-hosts", is_flag=True, help="Only write the file; the next deploy sends it.")


@click.command()
@INVENTORY_ARGUMENT
@NAME_ARGUMENT
@LIMIT_OPTION
@click.option("--models", metavar="NAMES", help="Models or aliases, comma-separated; default: all.")
@click.option("--requests-per-minute", type=WholeNumber(1, keyring.MOST), metavar="N", help="Requests per minute.")
@click.option("--streams", type=WholeNumber(1, keyring.MOST), metavar="N", help="Concurrent requests.")
@click.option(
    "--tokens-per-minute", type=WholeNumber(1, keyring.MOST_TOKENS), metavar="N", help="Tokens in any minute."
)
@click.option("--tokens-per-day", type=WholeNumber(1, keyring.MOST_TOKENS), metavar="N", help="Tokens per day (UTC).")
@click.option(
    "--tokens-per-month", type=WholeNumber(1, keyring.MOST_TOKENS), metavar="N", help="Tokens per month (UTC)."
)
@click.option("--no-wake", is_flag=True, help="Its requests start no instance on demand.")
@click.option("--no-evict", is_flag=True, help="Its requests have no other model stopped.")
@NO_HOSTS_OPTION
def make(
    inventory: str,
    name: str,
    limit: str | None,
    models: str | None,
    requests_per_minute: int | None,
    streams: int | None,
    tokens_per_minute: int | None,
    tokens_per_day: int | None,
    tokens_per_month: int | None,
    no_wake: bool,
    no_evict: bool,
    no_hosts: bool,
) -> None:
    """Make a client's key, and print it once.

    All gateways get it at once. Exit status: 0, done. 1, a host did not take it. 2, refused. 3, not reached.
    Example: rigwright key make rig.py alice --models qwen3 --streams 4
    """
    asked = load_targets(inventory, limit)
    clear, opened = keyring.generate_key(), _parse_models(models)
    for model in opened or ():
        if model not in asked.models:
            raise click.BadParameter(describe_unknown("model", model, asked.models), param_hint="--models")

    def change(there: ClientKeyring) -> ClientKeyring:
        if name in there.keys:
            raise click.ClickException(
                f"{asked.file}: {name} already has a key: `key rotate` replaces it, `key revoke` removes it"
            )
        key = ClientKey(
            sha256=keyring.hash_key(clear),
            models=opened,
            requests_per_minute=requests_per_minute,
            streams=streams,
            tokens_per_minute=tokens_per_minute,
            tokens_per_day=tokens_per_day,
            tokens_per_month=tokens_per_month,
            wake=not no_wake,
            evict=not no_evict,
            made=_current_time().date().isoformat(),
        )
        return there.with_key(name, key)

    reach = None if no_hosts else read_gateways(asked)
    if reach:
        refuse_vanished(asked, reach)
        refuse_diverged(asked, reach)
    _change_keyring(asked, change)
    _print_key(name, clear)
    sync_keys(asked, no_hosts=no_hosts, reach=reach, changed=name)


@click.command()
@INVENTORY_ARGUMENT
@NAME_ARGUMENT
@LIMIT_OPTION
@click.option("--keep", metavar="TIME", help="How long the previous key stays valid, such as 90m, 24h or 7d.")
@NO_HOSTS_OPTION
def rotate(inventory: str, name: str, limit: str | None, keep: str | None, no_hosts: bool) -> None:
    """Replace a client's key, and print the new one.

    The new key has the same rights. The previous key and its requests end at once, or after --keep.
    Example: rigwright key rotate rig.py alice --keep 24h
    """
    asked = load_targets(inventory, limit)
    clear, kept = keyring.generate_key(), _parse_duration(keep)
    until = _current_time() + kept if kept else None

    def change(there: ClientKeyring) -> ClientKeyring:
        before = _find_key(there, name)
        old = RotatedKey(sha256=before.sha256, until=until) if until else None
        values = {"sha256": keyring.hash_key(clear), "made": _current_time().date().isoformat(), "old": old}
        return there.with_key(name, before.model_copy(update=values))

    _find_key(asked.load_keyring(), name)
    reach = None if no_hosts else read_gateways(asked)
    if reach:
        refuse_diverged(asked, reach)
    _change_keyring(asked, change)
    _print_key(name, clear)
    validity = f"stays valid until {until:%Y-%m-%d %H:%M:%S} UTC" if until else "is not valid any more"
    print_prose(f"the previous key of {name} {validity}", err=True)
    sync_keys(asked, no_hosts=no_hosts, reach=reach, changed=name)


@click.command()
@INVENTORY_ARGUMENT
@NAME_ARGUMENT
@LIMIT_OPTION
@NO_HOSTS_OPTION
def revoke(inventory: str, name: str, limit: str | None, no_hosts: bool) -> None:
    """Revoke a client's key, and end its requests.

    Example: rigwright key revoke rig.py alice
    """
    asked = load_targets(inventory, limit)

    def change(there: ClientKeyring) -> ClientKeyring:
        _find_key(there, name)
        return there.with_key(name, None)

    _change_keyring(asked, change)
    print_prose(f"the key of {name} is revoked in {asked.file}", err=True)
    sync_keys(asked, no_hosts=no_hosts, changed=name)


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option(
    "--replace-newer",
    is_flag=True,
    help="Replace newer keys and keys of another controller, too; keys that return or vanish are listed.",
)
def sync(inventory: str, limit: str | None, replace_newer: bool) -> None:
    """Send the keys file to all gateways.

    A host keeps keys that are newer than the file, because an older file would restore revoked keys.
    Example: rigwright key sync rig.py
    """
    asked = load_targets(inventory, limit)
    reach = read_gateways(asked) if replace_newer or not asked.has_file else None
    if reach:
        refuse_vanished(asked, reach)
    replaced = key_sync.collect_newer(asked, reach) if reach and replace_newer else None
    sync_keys(asked, reach=reach, replaced=replaced)


@click.command("list")
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@NO_HOSTS_OPTION
@click.pass_context
def list_(context: click.Context, inventory: str, limit: str | None, no_hosts: bool) -> None:
    """List keys, their rights and their hosts.

    Example: rigwright key list rig.py
    """
    asked = load_targets(inventory, limit)
    ring = asked.load_keyring()
    having: dict[str, DeployedKeys] = {}
    silent: UnreachableHosts = {}
    if not no_hosts:
        reach = read_gateways(asked)
        silent, having = reach.gone, reach.require_keys()
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
    if not lines:
        print_prose(f"no keys yet: `{prog_name()} key make {shlex.quote(inventory)} NAME` makes one", err=True)
        print_unreached(silent)
        context.exit(STATUS["not reached"] if silent else 0)
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
            f"{', '.join(behind)}: keys differ from the file: `key sync` or the next deploy updates them", err=True
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
    for limit in TOKEN_LIMITS:
        parts += [f"{getattr(key, limit)} tokens/{limit.rpartition('_')[2]}"] if getattr(key, limit) else []
    parts += [f"no {right}" for right in RIGHTS if not getattr(key, right)]
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
