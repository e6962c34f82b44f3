"""The verbs that run pyinfra or the checks over an inventory's hosts."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import click

from cli import interrupts, quick
from cli.declared import INVENTORY, LIMIT, named, rig_of, whole
from rigwright.inventory import ROOT
from rigwright.orders import DIGEST
from rigwright.supply.expected import heard, refusal, spoken

DRY = click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
REBOOT = click.option(
    "--reboot", is_flag=True, help="Reboot hosts where the driver needs it, after stopping what they serve."
)


def _digest(_: click.Context, __: click.Parameter, value: str | None) -> str:
    if value is None:
        return ""
    if not (digits := heard(value)):
        raise click.BadParameter(f"{value!r} is refused: must be {DIGEST}")
    return digits


EXPECT = click.option(
    "--expect",
    metavar="DIGEST",
    callback=_digest,
    help="What `lock`, `bundle` or `plan` printed where lock and bundle were made: with another one nothing is begun.",
)


def pyinfra(inventory: str, *options: str) -> int:
    """Run pyinfra over an inventory with our deploy; returns its exit status."""
    program = str(Path(sys.executable).with_name("pyinfra"))
    # its spinner and our progress would write over each other
    environment = os.environ | {"PYINFRA_PROGRESS": "off"}
    return subprocess.run(
        [program, inventory, str(ROOT / "deploy.py"), *options], env=environment, check=False
    ).returncode


def pyinfra_here(inventory: str, *options: str) -> int:
    """The same as `pyinfra`, in this process: without another interpreter, which takes longer than asking a host.

    What its own main() does, but that an interrupt is no success and ends it wherever it is, and that Python keeps what
    it compiled of the roles.
    """
    quick.operations()
    import pyinfra
    from pyinfra.api.output import set_echo, set_formatter
    from pyinfra_cli.cli import cli

    os.environ["PYINFRA_PROGRESS"] = "off"
    pyinfra.is_cli = True
    set_formatter(click.style)
    set_echo(click.echo)
    sys.path.append(".")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    # what is half done on a host, the next run finishes
    interrupts.end_at_once("\nAborted!\n")
    try:
        cli.main([inventory, str(ROOT / "deploy.py"), *options], prog_name="pyinfra")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _run(
    inventory: str, limit: str | None, *options: str, question: str = "", bundled: bool = False, expect: str = ""
) -> None:
    """Run pyinfra over what a limit names.

    Args:
        inventory: The file.
        limit: One host or group of it.
        *options: pyinfra's.
        question: Asked first, with the hosts' names in it.
        bundled: Whether rigs with a bundle need all of it.
        expect: The digest that their locks and bundles must have; "" where any will do.
    """
    with quick.nothing_locked():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before an inventory imports anything)

    hosts = named(inventory, limit)
    for name, data in hosts.items() if bundled else ():
        rig = whole(rig_of(name, data.get("rig")))
        if expect and (wrong := refusal(rig.digest, expect)):
            raise click.ClickException(f"{name}: {wrong}")
    if expect:
        options += ("--data", f"expect={spoken(expect)}")
    if question:
        click.confirm(question.format(hosts=", ".join(sorted(hosts))), abort=True)
    if pyinfra_here(inventory, *options, *(word for one in hosts if limit for word in ("--limit", one))):
        raise click.ClickException(
            "not every host is what was asked for; above is why. Running it again goes on from here."
        )


def _mode(dry: bool) -> str:
    return "--dry" if dry else "--yes"


def _consent(reboot: bool) -> list[str]:
    return ["--data", "reboot=true"] if reboot else []


@click.command()
@INVENTORY
@LIMIT
@DRY
@click.option("--diff", is_flag=True, help="Show the lines of files that change.")
@REBOOT
@EXPECT
def deploy(inventory: str, limit: str | None, dry: bool, diff: bool, reboot: bool, expect: str) -> None:
    """Bring every rig of INVENTORY to the state it declares.

    Safe to run again at any time: what is right stays untouched, what a killed run left half done is finished. When a
    new generation does not serve, the old one comes back.
    Example: rigwright deploy ~/boxes/rig.py --dry
    """
    _run(inventory, limit, _mode(dry), *(["--diff"] if diff else []), *_consent(reboot), bundled=True, expect=expect)


@click.command()
@INVENTORY
@LIMIT
@DRY
@REBOOT
@EXPECT
def upgrade(inventory: str, limit: str | None, dry: bool, reboot: bool, expect: str) -> None:
    """Deploy INVENTORY, and move the NVIDIA driver of its rigs to the version that is locked.

    A plain deploy leaves a working driver at its version. Where the lock has none for a host's system, the newest of
    its branch comes. The package files of the version before stay on the host: `rigwright rollback --driver` goes back.
    Example: rigwright upgrade ~/boxes/rig.py --limit box1 --reboot
    """
    _run(inventory, limit, _mode(dry), "--data", "verb=upgrade", *_consent(reboot), bundled=True, expect=expect)


@click.command()
@INVENTORY
@LIMIT
@click.option("--to", type=click.IntRange(min=1), help="The generation's number; by default the one before.")
@click.option("--driver", is_flag=True, help="Not the served generation: the NVIDIA driver that was there before.")
@DRY
@REBOOT
def rollback(inventory: str, limit: str | None, to: int | None, driver: bool, dry: bool, reboot: bool) -> None:
    """Serve an earlier generation again, as it was, on every host of INVENTORY.

    `rigwright generations` lists them. The next deploy serves what the inventory declares again; a driver stays at its
    version until the next `rigwright upgrade`.
    Example: rigwright rollback ~/boxes/rig.py --limit box1 --to 3
    """
    if driver and to:
        raise click.UsageError("--to is a generation's number: it does not go with --driver")
    if reboot and not driver:
        raise click.UsageError("--reboot goes with --driver: another generation needs none")
    options = ["--data", f"to={to}"] if to else []
    options += ["--data", "driver=true"] if driver else []
    _run(inventory, limit, _mode(dry), "--data", "verb=rollback", *options, *_consent(reboot))


@click.command()
@INVENTORY
@LIMIT
@click.option("--keep-weights", is_flag=True, help="Leave the model files.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@DRY
def remove(inventory: str, limit: str | None, keep_weights: bool, yes: bool, dry: bool) -> None:
    """Take off every host of INVENTORY all that Rigwright has put there, and nothing else.

    Services, engines, keys, weights that were fetched, instances' users, and packages that nothing else needs.
    Example: rigwright remove ~/boxes/rig.py --limit box1
    """
    options = ["--data", "keep_weights=true"] if keep_weights else []
    question = "" if yes or dry else "Remove everything from {hosts}?"
    _run(inventory, limit, _mode(dry), "--data", "verb=remove", *options, question=question)
