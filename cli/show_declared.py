"""Topics of `rigwright show` that contact no host: API addresses and compose files."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import click

from cli import shell_completion
from cli.inventory_loading import INVENTORY_ARGUMENT, SuggestingChoice, load_host_rigs, load_hosts
from cli.option_types import OutputFolder
from cli.prog_name import with_prog_name
from cli.shell_completion import LIMIT_OPTION, complete_instances
from cli.tables import print_prose, print_table
from rigwright.engines import kind_of
from rigwright.gateway.client_setup import CLIENTS, VARIABLE, ClientEndpoint, client_endpoints
from rigwright.gateway.served_models import offers_of
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.problems import describe_unknown
from rigwright.serving.instance_units import credential_path

EXTENSION_ORIGIN = "chrome-extension://jfgfiigpkhlkbnfnbobbkinehhfdhndo"
"""Page Assist's origin: its number in Chrome's store."""


def find_access_paths(inventory: str, limit: str | None, model: str | None) -> dict[ClientEndpoint, Rig]:
    """The ways to the models of an inventory's hosts, with the rig that each leads to.

    Raises:
        click.ClickException: the inventory is refused, or nothing there has that name.
    """
    found: dict[ClientEndpoint, Rig] = {}
    hosts = load_hosts(inventory, limit)
    for name, rig in load_host_rigs(hosts).items():
        found |= dict.fromkeys(
            client_endpoints(rig.name, rig.instances, rig.gateway, str(hosts[name].get("ssh_hostname") or name)), rig
        )
    if model is None:
        return found
    aliases = {
        replace(one, model=model): rig
        for one, rig in found.items()
        if one.listener and rig.gateway and rig.gateway.aliases.get(model) == one.model
    }
    if aliases:
        return aliases
    names = {one.model for one in found} | {one.instance for one in found if one.instance}
    names |= {alias for rig in found.values() if rig.gateway for alias in rig.gateway.aliases}
    if model not in names:
        raise click.UsageError(describe_unknown("model or instance", model, names))
    return {one: rig for one, rig in found.items() if model in (one.model, one.instance)}


@click.command()
@INVENTORY_ARGUMENT
@click.argument("model", required=False, shell_complete=shell_completion.complete_instances)
@click.option("--for", "client", type=SuggestingChoice([*CLIENTS]), help="Print configuration for this client.")
@LIMIT_OPTION
def url(inventory: str, model: str | None, client: str | None, limit: str | None) -> None:
    """Print API addresses, or a client's configuration.

    Without MODEL, of all models. --for prints the configuration for the first address, a gateway's if there is one. It
    contains no key: programs read RIGWRIGHT_API_KEY; elsewhere replace YOUR-KEY. Contacts no host.
    Example: rigwright show url rig.py qwen3.6-27b --for openwebui > env
    """
    found = find_access_paths(inventory, limit, model)
    if not found:
        raise click.ClickException(f"{inventory}: nothing is served")
    if client is None:
        rows = [
            (
                one.host,
                one.model,
                one.base,
                "needed" if one.keyed else "none",
                one.listener or f"ssh --tunnel {one.instance}",
            )
            for one in found
        ]
        print_table(("host", "model", "address", "key", "by"), rows)
        if any(one.instance for one in found):
            file = shlex.quote(inventory)
            print_prose(
                with_prog_name(f"127.0.0.1 is the box's own: `rigwright ssh --tunnel INSTANCE {file}` forwards it")
            )
        return
    way, rig = next(iter(found.items()))
    click.echo(CLIENTS[client].made(way), nl=False)
    for note in client_notes(way, client, inventory, rig.roots, rig.instances, rig.gateway):
        # commands are copied: a break of ours would be in them
        click.echo(with_prog_name(note), err=True)


def client_notes(
    way: ClientEndpoint,
    client: str,
    inventory: str,
    roots: Roots,
    instances: tuple[Instance, ...],
    gateway: Gateway | None,
) -> list[str]:
    """Facts that the operator of a client needs in addition to its configuration."""
    file, asked = shlex.quote(inventory), CLIENTS[client]
    found = [f"{asked.where}; {way.model} on {way.host}"]
    if way.instance:
        (instance,) = (one for one in instances if one.name == way.instance)
        tunnel = f"rigwright ssh --tunnel {way.instance} --limit {way.host} {file}"
        others = "declare a gateway that offers it"
        if any(one.name == way.model for one in offers_of(instances, gateway)):
            others = f"the gateway, as of `rigwright show url --limit {way.host} --for {client} {file} {way.model}`"
        found.append(f"while `{tunnel}` runs; for others: {others}")
        kept = shlex.quote(credential_path(roots, instance))
        found.append(f"key: `rigwright ssh --sudo --limit {way.host} {file} cat {kept}`")
    elif way.keyed:
        found.append(f"key: `rigwright key make {file} NAME`; then export {VARIABLE}=...")
    if asked.contained and way.is_local:
        found.append("in a container 127.0.0.1 is the container itself: start it with `--network host`")
    if way.base.startswith("https:"):
        found.append(f"to trust the certificate, see `rigwright key ca {file}`")
    if client == "page-assist" and EXTENSION_ORIGIN not in (gateway.origins if gateway else ()):
        found.append(f'it is a page: "origins": ["{EXTENSION_ORIGIN}"] lets it ask, in the gateway of {way.host}')
    return found


@click.command()
@INVENTORY_ARGUMENT
@click.argument("name", metavar="INSTANCE", shell_complete=complete_instances)
@click.option("--into", type=OutputFolder(), help="Write all its files to this folder.")
@LIMIT_OPTION
def compose(inventory: str, name: str, into: Path | None, limit: str | None) -> None:
    """Print an instance as a Docker compose file.

    Only for instances that are served from images. Contacts no host.
    Example: rigwright show compose rig.py chat --into compose
    """
    rigs = load_host_rigs(load_hosts(inventory, limit))
    having = {host: one for host, rig in rigs.items() for one in rig.instances if one.name == name}
    if not having:
        names = {one.name for rig in rigs.values() for one in rig.instances}
        raise click.ClickException(describe_unknown("instance", name, names))
    host, *others = having
    if others:
        raise click.ClickException(f"{name} is on {', '.join(having)}: choose one with --limit")
    files = kind_of(having[host]).compose(rigs[host], having[host])
    if not files:
        kind = having[host].engine.kind
        raise click.ClickException(f"{name} is served by {kind}, which does not run in a container")
    if into is None:
        click.echo(next(iter(files.values())), nl=False)
        return
    try:
        into.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (into / file).write_text(text)
    except OSError as error:
        raise click.ClickException(f"--into: {error.filename}: {error.strerror}") from None
    click.echo(f"{into}: {', '.join(files)}")
