"""The verbs that run pyinfra or the checks over an inventory's hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from cli import interrupts, quick
from cli.completing import LIMIT
from cli.declared import INVENTORY, named, rig_of, whole
from cli.ending import Failed, Unreached
from rigwright.model.rig import Rig
from rigwright.orders import DIGEST
from rigwright.paths import ROOT
from rigwright.supply.expected import heard, refusal, spoken

DRY = click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
VERBOSE = click.option("--verbose", "-v", count=True, help="pyinfra's output in place of ours; twice, more of it.")
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
    help="What `lock`, `bundle` or `plan` printed where lock and bundle were made: refuse to start if it differs.",
)


def pyinfra_here(inventory: str, *options: str) -> int:
    """Run pyinfra's own command line over an inventory with our deploy, in this process; returns its exit status.

    What its own main() does, but that an interrupt is no success and ends it wherever it is, and that Python keeps what
    it compiled of the roles.
    """
    quick.operations()
    import pyinfra
    from pyinfra.api.output import set_echo, set_formatter
    from pyinfra_cli.cli import cli

    from roles.unreached import silence

    silence()
    os.environ["PYINFRA_PROGRESS"] = "off"
    pyinfra.is_cli = True
    set_formatter(click.style)
    set_echo(click.echo)
    sys.path.append(".")
    for stream in (sys.stdout, sys.stderr):
        # a test's has no such setting
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(line_buffering=True)
    # what is half done on a host, the next run finishes
    interrupts.end_at_once(lambda: "\nAborted!\n")
    try:
        cli.main([inventory, str(ROOT / "deploy.py"), *options], prog_name="pyinfra")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


@dataclass(frozen=True)
class Wanted:
    """How a run over hosts is asked for."""

    inventory: str
    limit: str | None
    verb: str
    dry: bool
    verbose: int
    """0: our output. 1: pyinfra's. 2 and more: that with as many of its `-v`, but one."""
    diff: bool = False
    expect: str = ""
    """The digest that locks and bundles must have; "" where any will do."""
    orders: Mapping[str, object] = field(default_factory=dict)
    """What of rigwright.orders is not said with these."""

    @property
    def data(self) -> dict[str, object]:
        """As pyinfra's `--data` gives it."""
        verb = {} if self.verb == "deploy" else {"verb": self.verb}
        return {**verb, **self.orders, **({"expect": spoken(self.expect)} if self.expect else {})}

    @property
    def words(self) -> list[str]:
        """pyinfra's command line for it, on all hosts."""
        data = [f"{key}={str(value).lower() if value is True else value}" for key, value in self.data.items()]
        return [
            "--dry" if self.dry else "--yes",
            *(["--diff"] if self.diff else []),
            *(word for one in data for word in ("--data", one)),
            *(["-" + "v" * (self.verbose - 1)] if self.verbose > 1 else []),
        ]


def perform(wanted: Wanted, question: str = "") -> None:
    """Run deploy.py over the hosts that are meant.

    Args:
        wanted: What is asked for.
        question: Of a removal: asked first, with the hosts' names in it, after what is there was listed.

    Raises:
        click.ClickException: the run is refused.
        cli.ending.Failed: something failed on a host.
        cli.ending.Unreached: a host was not reached.
    """
    with quick.nothing_locked():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before an inventory imports anything)

    found = named(wanted.inventory, wanted.limit)
    judge = whole if wanted.verb in ("deploy", "upgrade") else _any
    rigs = {name: judge(rig_of(name, data.get("rig"))) for name, data in found.items()}
    for name, rig in rigs.items():
        if wanted.expect and (wrong := refusal(rig.digest, wanted.expect)):
            raise click.ClickException(f"{name}: {wrong}")
    gone: set[str] = set()
    if question:
        from cli import removal

        there = removal.preview(wanted.inventory, wanted.limit, bool(wanted.orders.get("keep_weights")))
        gone = {*rigs} - {*there}
        # one that comes back meanwhile is none that was asked about
        rigs = {name: rig for name, rig in rigs.items() if name in there}
        click.confirm(question.format(hosts=", ".join(sorted(rigs))), abort=True)
    try:
        _run(wanted, rigs, some=bool(wanted.limit or gone))
    except Failed as error:
        raise (Unreached if gone else Failed)(error.message) from None
    if gone:
        raise Unreached(f"not reached, and left as they are: {', '.join(sorted(gone))}")


def _run(wanted: Wanted, rigs: dict[str, Rig], some: bool) -> None:
    """Run over hosts; `some` says that the inventory may have others."""
    if wanted.verbose:
        limits = [word for name in rigs for word in ("--limit", _alone(wanted.inventory, name))] if some else []
        if pyinfra_here(wanted.inventory, *wanted.words, *limits):
            from pyinfra.context import ctx_state

            reached = {host.name for host in ctx_state.get().activated_hosts}
            raise (Failed if reached >= {*rigs} else Unreached)(f"{wanted.verb} failed, as said above")
        return
    quick.operations()
    from cli.running import run

    run(wanted.inventory, wanted.verb, rigs, wanted.data, dry=wanted.dry, diff=wanted.diff)


def _alone(inventory: str, host: str) -> str:
    """A pattern of pyinfra's for one host; its name would be the file's group where that is called like it."""
    return f"[{host[0]}]{host[1:]}" if host == Path(inventory).stem else host


def _any(rig: Rig) -> Rig:
    return rig


def _consent(reboot: bool) -> dict[str, object]:
    return {"reboot": True} if reboot else {}


@click.command()
@INVENTORY
@LIMIT
@DRY
@click.option("--diff", is_flag=True, help="Show the lines of files that change.")
@REBOOT
@EXPECT
@VERBOSE
def deploy(inventory: str, limit: str | None, dry: bool, diff: bool, reboot: bool, expect: str, verbose: int) -> None:
    """Bring every rig of INVENTORY to the state it declares.

    Safe to run again at any time: what is right stays untouched, what a killed run left half done is finished. When a
    new generation does not serve, the old one comes back.
    Example: rigwright deploy ~/boxes/rig.py --dry
    """
    perform(Wanted(inventory, limit, "deploy", dry, verbose, diff, expect, _consent(reboot)))


@click.command()
@INVENTORY
@LIMIT
@DRY
@REBOOT
@EXPECT
@VERBOSE
def upgrade(inventory: str, limit: str | None, dry: bool, reboot: bool, expect: str, verbose: int) -> None:
    """Deploy INVENTORY, and move the NVIDIA driver of its rigs to the version that is locked.

    A plain deploy leaves a working driver at its version. Where the lock has none for a host's system, the newest of
    its branch comes. The package files of the version before stay on the host: `rigwright rollback --driver` goes back.
    Example: rigwright upgrade ~/boxes/rig.py --limit box1 --reboot
    """
    perform(Wanted(inventory, limit, "upgrade", dry, verbose, expect=expect, orders=_consent(reboot)))


@click.command()
@INVENTORY
@LIMIT
@click.option("--to", type=click.IntRange(min=1), help="The generation's number; by default the one before.")
@click.option("--driver", is_flag=True, help="Not the served generation: the NVIDIA driver that was there before.")
@DRY
@REBOOT
@VERBOSE
def rollback(
    inventory: str, limit: str | None, to: int | None, driver: bool, dry: bool, reboot: bool, verbose: int
) -> None:
    """Serve an earlier generation again, as it was, on every host of INVENTORY.

    `rigwright generations` lists them. The next deploy serves what the inventory declares again; a driver stays at its
    version until the next `rigwright upgrade`.
    Example: rigwright rollback ~/boxes/rig.py --limit box1 --to 3
    """
    if driver and to:
        raise click.UsageError("--to is a generation's number: it does not go with --driver")
    if reboot and not driver:
        raise click.UsageError("--reboot goes with --driver: another generation needs none")
    orders = ({"to": to} if to else {}) | ({"driver": True} if driver else {}) | _consent(reboot)
    perform(Wanted(inventory, limit, "rollback", dry, verbose, orders=orders))


@click.command()
@INVENTORY
@LIMIT
@click.option("--keep-weights", is_flag=True, help="Leave the model files.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@DRY
@VERBOSE
def remove(inventory: str, limit: str | None, keep_weights: bool, yes: bool, dry: bool, verbose: int) -> None:
    """Take off every host of INVENTORY all that Rigwright has put there, and nothing else.

    Services, engines, keys, weights that were fetched, instances' users, and packages that nothing else needs.
    Example: rigwright remove ~/boxes/rig.py --limit box1
    """
    orders: dict[str, object] = {"keep_weights": True} if keep_weights else {}
    question = "" if yes or dry else "Remove everything Rigwright installed on {hosts}?"
    perform(Wanted(inventory, limit, "remove", dry, verbose, orders=orders), question)
