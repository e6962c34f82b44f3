"""`rigwright lab`: throwaway hosts to try things on."""

from __future__ import annotations

import os
import pprint

import click
from pydantic import TypeAdapter, ValidationError

from cli.lazy_commands import LazyGroup
from cli.option_types import WholeNumber
from cli.prog_name import prog_name
from cli.tables import print_prose, print_table
from lab import base_images
from lab.hosts import HostSpec, LabHost
from lab.machine_requirements import UnsupportedMachine
from lab.throwaway_lab import ThrowawayLab, list_labs
from rigwright.problems import format_count
from rigwright.project_root import ROOT
from rigwright.validated_types import PciId
from roles.progress import progress


@click.group(
    cls=LazyGroup,
    places={**{name: ("lab", name) for name in ("up", "ssh", "inventory", "diff", "down")}, "list": ("lab", "list_")},
)
@click.option(
    "--name",
    default="lab",
    show_default=True,
    help="Lab name, 1 to 6 lowercase letters and digits; several can be up at once.",
)
@click.pass_context
def lab(context: click.Context, name: str) -> None:
    """Manage throwaway hosts.

    Debian hosts on this machine with their own systemd, sshd and apt; `lab down` removes them and their network.
    Example: rigwright lab up 2
    """
    try:
        context.obj = ThrowawayLab(name)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _find_host(lab: ThrowawayLab, name: str) -> LabHost:
    try:
        return lab.host(name)
    except KeyError:
        names = ", ".join(host.name for host in lab.hosts) or "none"
        raise click.ClickException(f"no host {name} in lab {lab.name}; there are: {names}") from None


@click.command()
@click.argument("count", type=WholeNumber(1, 40), default=1)
@click.option("--release", type=click.Choice(sorted(base_images.RELEASES)), default="debian-12", show_default=True)
@click.option("--card", multiple=True, help="Simulate a card, by PCI id such as 10de:2204; repeatable.")
@click.option("--gpus", is_flag=True, help="Give the hosts this machine's NVIDIA cards and CUDA toolkit.")
@click.pass_obj
def up(lab: ThrowawayLab, count: int, release: str, card: tuple[str, ...], gpus: bool) -> None:
    """Boot COUNT more hosts.

    Waits until they answer. The first host of a release takes a minute for its base image, later ones a second.
    """
    if card and gpus:
        raise click.UsageError("--card is simulated, --gpus are real: use one or the other")
    for one in card:
        try:
            TypeAdapter(PciId).validate_python(one)
        except ValidationError:
            raise click.ClickException(f"--card {one}: must be vendor:device, such as 10de:2204") from None
    first = max((int(host.name.removeprefix("h")) for host in lab.hosts), default=0) + 1
    specs = [HostSpec(f"h{number}", release, cards=card, gpus=gpus) for number in range(first, first + count)]
    try:
        with progress.task("lab", f"booting {format_count(count, 'host')} of {release}"):
            hosts = lab.up(specs)
        for host in hosts:
            click.echo(f"{host.name}  {host.spec.release}  {host.address}")
        print_prose(_describe_access(hosts[0], lab.name))
    except (UnsupportedMachine, TimeoutError, RuntimeError) as error:
        raise click.ClickException(str(error)) from None


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("command", nargs=-1)
@click.pass_obj
def ssh(lab: ThrowawayLab, host: str, command: tuple[str, ...]) -> None:
    """Open a shell on HOST, or run COMMAND there."""
    words = _find_host(lab, host).ssh_command(*command)
    os.execvp(words[0], words)  # noqa: S606 (no shell is wanted)


@click.command()
@click.pass_obj
def inventory(lab: ThrowawayLab) -> None:
    """Print a pyinfra inventory of the hosts."""
    data = {host.name: host.inventory_keys for host in lab.hosts}
    click.echo("from rigwright.inventory import hosts\n")
    click.echo(f"rigs = hosts({pprint.pformat(data, sort_dicts=False)})")


@click.command()
@click.argument("host")
@click.pass_obj
def diff(lab: ThrowawayLab, host: str) -> None:
    """List files that changed on HOST since its first boot."""
    for path in _find_host(lab, host).changed_paths():
        click.echo(path)


@click.command()
@click.option("--all", "every", is_flag=True, help="All labs on this machine, also those of other checkouts.")
@click.pass_obj
def down(lab: ThrowawayLab, every: bool) -> None:
    """Remove the hosts, also after a crash."""
    for one in list_labs() if every else [lab]:
        names = [host.name for host in one.hosts]
        one.down()
        place = _describe_checkout(one)
        click.echo(f"{one.name}{f' (of {place})' if place else ''}: {', '.join(names) or 'nothing'} ended")


@click.command("list")
def list_() -> None:
    """List the labs of this machine and their hosts."""
    rows = [
        (one.name, host.name, host.spec.release, host.address, _describe_checkout(one))
        for one in list_labs()
        for host in one.hosts
    ]
    if rows:
        print_table(("lab", "host", "release", "address", "checkout"), rows)


def _describe_access(host: LabHost, lab_name: str) -> str:
    """How to log in to a host that is up, and the next command."""
    keys = host.inventory_keys
    option = "" if lab_name == "lab" else f" --name {lab_name}"
    return (
        f"login: user {keys['ssh_user']}, key {keys['ssh_key']}; `{prog_name()} lab{option} ssh {host.name}` opens a "
        f"shell\nnext: `{prog_name()} lab{option} inventory` prints the hosts' entries of an inventory"
    )


def _describe_checkout(lab: ThrowawayLab) -> str:
    """The folder that a lab belongs to; empty for this one."""
    return "" if lab.checkout == ROOT else str(lab.checkout or "an older version")
