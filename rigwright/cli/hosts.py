"""`rigwright deploy` and `rigwright check`: an inventory's hosts, brought to their state and compared with it."""

from __future__ import annotations

import fnmatch
import os
import runpy
import subprocess
import sys
from pathlib import Path

import click

from rigwright.inventory import ROOT
from rigwright.problems import unknown


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


def _refuse_nothing(inventory: str, limit: str | None) -> None:
    """End here when the inventory has no hosts to work on: pyinfra would call that a success."""
    groups: dict[str, list[str]] = {}
    try:
        variables = runpy.run_path(inventory)
    except Exception as error:  # an inventory is the operator's program: anything can come out of it
        raise click.ClickException(f"{inventory}: {type(error).__name__}: {error}") from None
    for name, value in variables.items():
        listed = value[0] if isinstance(value, tuple) and value else value
        if isinstance(listed, list) and not name.startswith("_"):
            groups[name] = [item[0] if isinstance(item, tuple) else str(item) for item in listed]
    hosts = {host for group in groups.values() for host in group}
    if not hosts:
        raise click.ClickException(f"{inventory}: no hosts")
    names = {*hosts, *groups, Path(inventory).stem}
    if limit is not None and limit not in names and not fnmatch.filter(hosts, limit):
        raise click.ClickException(f"--limit: {unknown('host or group', limit, names)}")


@click.command()
@click.argument("inventory", type=click.Path(exists=True, dir_okay=False))
@click.option("--limit", help="Only this host or group.")
@click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--diff", is_flag=True, help="Show the lines of files that change.")
def deploy(inventory: str, limit: str | None, dry: bool, diff: bool) -> None:
    """Bring every rig of INVENTORY to the state it declares.

    Safe to run again at any time: what is right stays untouched, what a killed run left half done is finished.
    Example: rigwright deploy ~/boxes/rig.py --dry
    """
    _refuse_nothing(inventory, limit)
    options = ["--dry" if dry else "--yes"]
    options += ["--diff"] if diff else []
    options += ["--limit", limit] if limit else []
    status = pyinfra(inventory, *options)
    if status:
        raise click.ClickException(
            "not every host is what its rig says; above is why. Running it again goes on from here."
        )


@click.command()
@click.argument("inventory", type=click.Path(exists=True, dir_okay=False))
@click.option("--limit", help="Only this host or group.")
@click.option("--junit", type=click.Path(dir_okay=False), help="Also write a JUnit XML report to this file.")
def check(inventory: str, limit: str | None, junit: str | None) -> None:
    """Compare every rig of INVENTORY with what it declares; change nothing.

    Exit status 0: every check holds. 1: one does not. 2: a host cannot be reached, or there is nothing to check.
    """
    options = [f"--limit={limit}"] if limit else []
    options += [f"--junitxml={junit}"] if junit else []
    status = run_checks(inventory, *options)
    sys.exit(status if status in (0, 1) else 2)
