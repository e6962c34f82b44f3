"""The verbs that run pyinfra or the checks over an inventory's hosts."""

from __future__ import annotations

import fnmatch
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from rigwright.inventory import ROOT
from rigwright.problems import unknown

INVENTORY = click.argument("inventory", type=click.Path(exists=True, dir_okay=False))
LIMIT = click.option("--limit", help="Only this host or group.")


def pyinfra(inventory: str, *options: str) -> int:
    """Run pyinfra over an inventory with our deploy; returns its exit status."""
    program = str(Path(sys.executable).with_name("pyinfra"))
    # its spinner and our progress would write over each other
    environment = os.environ | {"PYINFRA_PROGRESS": "off"}
    return subprocess.run(
        [program, inventory, str(ROOT / "deploy.py"), *options], env=environment, check=False
    ).returncode


def run_checks(inventory: str, *options: str) -> int:
    """Run the checks over an inventory in a process of their own; returns pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "checks" / "pytest.ini")]
    return subprocess.run(
        [*command, str(ROOT / "checks"), f"--inventory={inventory}", *options], check=False
    ).returncode


def named(inventory: str, limit: str | None) -> dict[str, dict[str, Any]]:
    """The hosts of an inventory that a limit names, with their data.

    Raises:
        click.ClickException: a mistake in the inventory, no hosts, or none that the limit names. pyinfra would call
            the last two a success.
    """
    groups: dict[str, list[str]] = {}
    hosts: dict[str, dict[str, Any]] = {}
    try:
        variables = runpy.run_path(inventory)
    except SystemExit as error:
        raise click.ClickException(str(error.code) if error.code else f"{inventory}: ends without hosts") from None
    except Exception as error:  # an inventory is the operator's program: anything can come out of it
        raise click.ClickException(f"{inventory}: {type(error).__name__}: {error}") from None
    for name, value in variables.items():
        listed = value[0] if isinstance(value, tuple) and value else value
        if not isinstance(listed, list) or name.startswith("_"):
            continue
        members = [item if isinstance(item, tuple) else (item, {}) for item in listed]
        groups[name] = [str(host) for host, *_ in members]
        hosts |= {str(host): dict(*data) for host, *data in members}
    if not hosts:
        raise click.ClickException(f"{inventory}: no hosts")
    names = {*hosts, *groups, Path(inventory).stem}
    if limit is None or limit == Path(inventory).stem:
        return hosts
    wanted = set(groups.get(limit, fnmatch.filter(hosts, limit)))
    if not wanted:
        raise click.ClickException(f"--limit: {unknown('host or group', limit, names)}")
    return {host: data for host, data in hosts.items() if host in wanted}


def _run(inventory: str, limit: str | None, *options: str) -> None:
    named(inventory, limit)
    if pyinfra(inventory, *options, *(["--limit", limit] if limit else [])):
        raise click.ClickException(
            "not every host is what was asked for; above is why. Running it again goes on from here."
        )


@click.command()
@INVENTORY
@LIMIT
@click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--diff", is_flag=True, help="Show the lines of files that change.")
def deploy(inventory: str, limit: str | None, dry: bool, diff: bool) -> None:
    """Bring every rig of INVENTORY to the state it declares.

    Safe to run again at any time: what is right stays untouched, what a killed run left half done is finished. When a
    new generation does not serve, the old one comes back.
    Example: rigwright deploy ~/boxes/rig.py --dry
    """
    _run(inventory, limit, "--dry" if dry else "--yes", *(["--diff"] if diff else []))


@click.command()
@INVENTORY
@LIMIT
@click.option("--to", type=click.IntRange(min=1), help="The generation's number; by default the one before.")
@click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
def rollback(inventory: str, limit: str | None, to: int | None, dry: bool) -> None:
    """Serve an earlier generation again, as it was, on every host of INVENTORY.

    `rigwright generations` lists them. The next deploy serves what the inventory declares again.
    Example: rigwright rollback ~/boxes/rig.py --limit box1 --to 3
    """
    options = ["--data", f"to={to}"] if to else []
    _run(inventory, limit, "--dry" if dry else "--yes", "--data", "verb=rollback", *options)


@click.command()
@INVENTORY
@LIMIT
@click.option("--keep-weights", is_flag=True, help="Leave the model files.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
def remove(inventory: str, limit: str | None, keep_weights: bool, yes: bool, dry: bool) -> None:
    """Take off every host of INVENTORY all that Rigwright has put there, and nothing else.

    Services, engines, keys, weights that were fetched, the service user, and packages that nothing else needs.
    Example: rigwright remove ~/boxes/rig.py --limit box1
    """
    hosts = named(inventory, limit)
    if not yes and not dry:
        click.confirm(f"Remove everything from {', '.join(sorted(hosts))}?", abort=True)
    options = ["--data", "keep_weights=true"] if keep_weights else []
    _run(inventory, limit, "--dry" if dry else "--yes", "--data", "verb=remove", *options)


@click.command()
@INVENTORY
@LIMIT
@click.option("--junit", type=click.Path(dir_okay=False), help="Also write a JUnit XML report to this file.")
def check(inventory: str, limit: str | None, junit: str | None) -> None:
    """Compare every rig of INVENTORY with what it declares; change nothing.

    Exit status 0: every check holds. 1: one does not. 2: a host cannot be reached, or there is nothing to check.
    """
    options = [f"--limit={limit}"] if limit else []
    options += [f"--junitxml={junit}"] if junit else []
    status = run_checks(inventory, *options)
    sys.exit(status if status in (0, 1) else 2)
