"""`rigwright show compose`: an instance as a file for Docker's compose."""

from __future__ import annotations

from pathlib import Path

import click

from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rig, load_hosts
from cli.shell_completion import LIMIT_OPTION, complete_instances
from rigwright.engines import kind_of
from rigwright.problems import describe_unknown


@click.command()
@INVENTORY_ARGUMENT
@click.argument("name", metavar="INSTANCE", shell_complete=complete_instances)
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), help="Write all its files to this folder.")
@LIMIT_OPTION
def compose(inventory: str, name: str, into: Path | None, limit: str | None) -> None:
    """Print an instance as a Docker compose file.

    Only for instances that are served from images. Contacts no host.
    Example: rigwright show compose rig.py chat --into compose
    """
    rigs = {host: load_host_rig(host, data.get("rig")) for host, data in load_hosts(inventory, limit).items()}
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
