"""The verbs that run pyinfra or the checks over an inventory's hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import click

from cli import exit_codes, import_speedups
from cli.exit_codes import HostUnreached, NotAsDeclared
from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rigs, load_hosts, require_deployable
from cli.option_types import WholeNumber
from cli.shell_completion import LIMIT_OPTION
from rigwright.host_inventory import is_host_file
from rigwright.host_selection import format_hosts
from rigwright.model.rig import Rig
from rigwright.model.secret_sources import run_secret_commands
from rigwright.plan.separate_roles import select_roles
from rigwright.problems import format_value
from rigwright.project_root import ROOT
from rigwright.run_options import DIGEST
from rigwright.supply.bundle import describe_digest_mismatch, format_digest, parse_digest

DRY_OPTION = click.option("--dry", is_flag=True, help="Print the changes without making them.")
VERBOSE_OPTION = click.option("--verbose", "-v", count=True, help="Print pyinfra's output instead; -vv prints more.")
REBOOT_OPTION = click.option("--reboot", is_flag=True, help="Stop services and reboot a host if the driver needs it.")


def _parse_digest(_: click.Context, __: click.Parameter, value: str | None) -> str:
    if value is None:
        return ""
    if not (digits := parse_digest(value)):
        raise click.BadParameter(f"{format_value(value)} is refused: must be {DIGEST}")
    return digits


def _parse_roles(_: click.Context, __: click.Parameter, value: str | None) -> str:
    try:
        return value if value and select_roles(value) else ""
    except LookupError as error:
        raise click.BadParameter(str(error)) from None


ONLY_OPTION = click.option(
    "--only",
    metavar="ROLE[,ROLE]",
    callback=_parse_roles,
    help="Run these roles of deploy.py and those that they need; no generation is activated.",
)
EXPECT_OPTION = click.option(
    "--expect",
    metavar="DIGEST",
    callback=_parse_digest,
    help="Refuse to start if locks and bundles differ from this digest of `lock`, `bundle` or `plan --json`.",
)


def run_pyinfra(inventory: str, *options: str) -> int:
    """Run pyinfra's own command line over an inventory with our deploy, in this process; returns its exit status.

    The work of its own main(), except that an interrupt is no success and ends it wherever it is, and that Python keeps
    the compiled code of the roles.
    """
    import_speedups.speed_up_operations()
    import pyinfra
    from pyinfra.api.output import set_echo, set_formatter
    from pyinfra_cli.cli import cli

    from roles.connection_failures import silence_paramiko_log

    silence_paramiko_log()
    os.environ["PYINFRA_PROGRESS"] = "off"
    pyinfra.is_cli = True
    set_formatter(click.style)
    set_echo(click.echo)
    sys.path.append(".")
    for stream in (sys.stdout, sys.stderr):
        # a test's has no such setting
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(line_buffering=True)
    # the next run finishes half-done work on a host
    exit_codes.exit_on_interrupt(lambda: "\nAborted!\n")
    try:
        cli.main([inventory, str(ROOT / "deploy.py"), *options], prog_name="pyinfra")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


@dataclass(frozen=True)
class RunRequest:
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
    """The members of rigwright.run_options that these do not set."""

    @property
    def pyinfra_data(self) -> dict[str, object]:
        """As pyinfra's `--data` gives it."""
        verb = {} if self.verb == "deploy" else {"verb": self.verb}
        return {**verb, **self.orders, **({"expected_digest": format_digest(self.expect)} if self.expect else {})}

    @property
    def pyinfra_arguments(self) -> list[str]:
        """pyinfra's command line for it, on all hosts."""
        data = [f"{key}={str(value).lower() if value is True else value}" for key, value in self.pyinfra_data.items()]
        return [
            "--dry" if self.dry else "--yes",
            *(["--diff"] if self.diff else []),
            *(word for one in data for word in ("--data", one)),
            *(["-" + "v" * (self.verbose - 1)] if self.verbose > 1 else []),
        ]


def run_request(wanted: RunRequest, question: str = "") -> None:
    """Run deploy.py over the hosts that are meant.

    Args:
        wanted: The request.
        question: Of a removal: asked first, with the hosts' names in it, after the list of what goes. A dry run prints
            that list and asks nothing.

    Raises:
        click.ClickException: the run is refused.
        cli.exit_codes.NotAsDeclared: something failed on a host.
        cli.exit_codes.HostUnreached: a host was not reached.
    """
    with import_speedups.without_module_locks():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before an inventory imports anything)

    deploys = wanted.verb in ("deploy", "upgrade")
    judge = require_deployable if deploys else lambda rig: rig
    # secrets of commands are refused here, before a host is reached
    with run_secret_commands() if deploys else nullcontext():
        found = load_hosts(wanted.inventory, wanted.limit)
        rigs = {name: judge(rig) for name, rig in load_host_rigs(found).items()}
    for name, rig in rigs.items():
        if wanted.expect and (wrong := describe_digest_mismatch(rig.digest, wanted.expect)):
            raise click.ClickException(f"{name}: {wrong}")
    gone: set[str] = set()
    if question or (wanted.verb == "remove" and wanted.dry):
        from cli import removal_preview

        there = removal_preview.print_preview(wanted.inventory, wanted.limit, bool(wanted.orders.get("keep_weights")))
        gone = {*rigs} - {*there}
        # one that comes back meanwhile was not in the question
        rigs = {name: rig for name, rig in rigs.items() if name in there}
        if question:
            try:
                click.confirm(question.format(hosts=format_hosts(rigs)), abort=True)
            except click.Abort as error:
                if not isinstance(error.__context__, EOFError):
                    raise
                raise click.ClickException("no answer, nothing was removed: answer y, or give --yes") from None
    try:
        _run_on_hosts(wanted, rigs, some=bool(wanted.limit or gone))
    except NotAsDeclared as error:
        raise (HostUnreached if gone else NotAsDeclared)(error.message, error.causes) from None
    if gone:
        raise HostUnreached(f"not reached, and unchanged: {format_hosts(gone)}")


def _run_on_hosts(wanted: RunRequest, rigs: dict[str, Rig], some: bool) -> None:
    """Run over hosts; `some` says that the inventory may have others."""
    if wanted.verbose and is_host_file(wanted.inventory):
        raise click.UsageError(
            f"-v needs a Python inventory, which pyinfra reads itself: {wanted.inventory} is another kind"
        )
    if wanted.verbose:
        limits = [word for name in rigs for word in ("--limit", _host_pattern(wanted.inventory, name))] if some else []
        if run_pyinfra(wanted.inventory, *wanted.pyinfra_arguments, *limits):
            from pyinfra.context import ctx_state

            reached = {host.name for host in ctx_state.get().activated_hosts}
            raise (NotAsDeclared if reached >= {*rigs} else HostUnreached)(f"{wanted.verb} failed (see above)")
        return
    import_speedups.speed_up_operations()
    from cli.deploy_run import run_deploy

    run_deploy(wanted.inventory, wanted.verb, rigs, wanted.pyinfra_data, dry=wanted.dry, diff=wanted.diff)


def _host_pattern(inventory: str, host: str) -> str:
    """A pattern of pyinfra's for one host; its name would be the file's group where that is called like it."""
    return f"[{host[0]}]{host[1:]}" if host == Path(inventory).stem else host


def _reboot_consent(reboot: bool) -> dict[str, object]:
    return {"reboot": True} if reboot else {}


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@DRY_OPTION
@click.option("--diff", is_flag=True, help="Show the changed lines of files.")
@click.option(
    "--upgrade-driver", is_flag=True, help="Also move the NVIDIA driver to the locked version, or its branch's newest."
)
@ONLY_OPTION
@REBOOT_OPTION
@EXPECT_OPTION
@click.option(
    "--accept-older",
    type=WholeNumber(1, 10**17),
    metavar="SERIAL",
    help="Accept the lock or bundle signed with this serial although a host has accepted a later one.",
)
@VERBOSE_OPTION
def deploy(
    inventory: str,
    limit: str | None,
    dry: bool,
    diff: bool,
    upgrade_driver: bool,
    only: str,
    reboot: bool,
    expect: str,
    accept_older: int | None,
    verbose: int,
) -> None:
    """Apply the inventory.

    A second run changes nothing; a run after an interrupt continues. If the new generation does not serve, the
    previous one is restored. Without --upgrade-driver a working driver keeps its version.
    Example: rigwright deploy rig.py --dry
    """
    verb = "upgrade" if upgrade_driver else "deploy"
    orders = _reboot_consent(reboot) | ({"only": only} if only else {})
    orders |= {"accept_older": accept_older} if accept_older else {}
    run_request(RunRequest(inventory, limit, verb, dry, verbose, diff, expect, orders))


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option("--to", type=WholeNumber(1, 10**9), help="The generation's number; default: the previous one.")
@click.option("--driver", is_flag=True, help="Restore the previous NVIDIA driver instead.")
@DRY_OPTION
@REBOOT_OPTION
@VERBOSE_OPTION
def rollback(
    inventory: str, limit: str | None, to: int | None, driver: bool, dry: bool, reboot: bool, verbose: int
) -> None:
    """Restore a generation.

    `rigwright show generations` lists them. The next deploy serves the inventory again; a driver keeps its version
    until `rigwright deploy --upgrade-driver`.
    Example: rigwright rollback rig.py --limit box1 --to 3
    """
    if driver and to:
        raise click.UsageError("--to takes a generation's number and conflicts with --driver")
    if reboot and not driver:
        raise click.UsageError("--reboot needs --driver: another generation needs no reboot")
    if dry and not driver:
        from cli.rollback_preview import print_rollback

        print_rollback(inventory, limit, to)
    orders = ({"to": to} if to else {}) | ({"driver": True} if driver else {}) | _reboot_consent(reboot)
    run_request(RunRequest(inventory, limit, "rollback", dry, verbose, orders=orders))


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option("--keep-weights", is_flag=True, help="Keep model files.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@DRY_OPTION
@VERBOSE_OPTION
def remove(inventory: str, limit: str | None, keep_weights: bool, yes: bool, dry: bool, verbose: int) -> None:
    """Uninstall from hosts.

    Removes services, engines, keys, fetched weights, instances' users and packages that nothing else needs.
    Example: rigwright remove rig.py --limit box1
    """
    orders: dict[str, object] = {"keep_weights": True} if keep_weights else {}
    question = "" if yes or dry else "Remove everything Rigwright installed on {hosts}?"
    run_request(RunRequest(inventory, limit, "remove", dry, verbose, orders=orders), question)
