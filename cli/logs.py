"""`rigwright logs`: journals of instances, with the known cause of a line."""

from __future__ import annotations

import re
import shlex
import sys

import click
from gevent.queue import Queue

from checks.connections import ConnectedHost, HostReadFailed, RigsByHost, UnreachableHosts, map_inventory
from checks.results import STATUS
from cli import exit_codes, shell_completion
from cli.exit_codes import exit_if_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import WholeNumber
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose
from rigwright.engines import kind_of
from rigwright.engines.log_causes import Cause, CheckRequests, find_cause
from rigwright.model.instance import Instance
from rigwright.problems import describe_unknown, printable
from rigwright.serving.serving_state import INSTANCE, ObservedServing
from roles import root_shell
from roles.host_pool import HostThreads


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option(
    "--instance", metavar="NAME", help="Only this instance.", shell_complete=shell_completion.complete_instances
)
@click.option("--lines", "-n", type=WholeNumber(1, 100_000), default=50, show_default=True, help="Last lines.")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until interrupted.")
@click.option("--all", "everything", is_flag=True, help="Also the lines that an engine writes for each request.")
def logs(inventory: str, limit: str | None, instance: str | None, lines: int, follow: bool, everything: bool) -> None:
    """Print instances' journals.

    Each line begins with its host. Lines that an engine writes for each successful request are left out. Standard error
    explains a line with a known cause, once.
    Example: rigwright logs rig.py --instance chat --follow
    """
    exit_codes.exit_on_interrupt()

    def judge(rigs: RigsByHost) -> None:
        names = {i.name for rig in rigs.values() for i in rig.instances}
        if instance is not None and instance not in names:
            raise click.UsageError(f"--instance: {describe_unknown('instance', instance, names)}")

    lost: dict[str, str] = {}
    said: Queue[tuple[str, bool] | None] = Queue(1000)  # no more is read than the terminal takes

    def tell(box: ConnectedHost, units: list[str]) -> None:
        kinds = [*dict.fromkeys(map(kind_of, box.rig.instances))]
        patterns = [one.request_log for one in kinds if one.request_log and not everything]
        requests = re.compile(rf"\S+ \S+: (?:{'|'.join(patterns)})" if patterns else r"(?!)")
        causes = [*dict.fromkeys(cause for one in kinds for cause in one.causes)]
        shown: set[Cause] = set()
        checks = CheckRequests(causes)
        try:
            for line in box.stream_lines(_journal_command(units, lines, patterns, follow=follow)):
                if requests.match(line):
                    continue
                said.put((f"{box.name}  {_strip_controls(line)}", False))
                cause = None if checks.is_own(line) else find_cause(causes, line)
                if cause and not (cause.last or cause.plain) and cause not in shown:
                    shown.add(cause)
                    said.put((f"{box.name}  ==> {cause.sentence}", True))
        except root_shell.ConnectionGone as error:
            lost[box.name] = str(error)

    refused: list[HostReadFailed] = []

    def look(box: ConnectedHost) -> None:
        try:
            served = box.read_serving_state()
        except HostReadFailed as error:
            refused.append(error)
            said.put((error.message, True))
            return
        if units := _journal_units(box.rig.instances, served, instance):
            tell(box, units)
        else:
            missing = f"instance {instance} is not" if instance else "no instance is"
            print_prose(f"{box.name}: {missing} there yet", err=True)

    def look_at_all() -> UnreachableHosts:
        try:
            return map_inventory(inventory, limit, look, judge)[1]
        finally:
            said.put(None)

    looking = HostThreads(1).submit(look_at_all)
    while line := said.get():
        click.echo(line[0], err=line[1])
    gone = looking.result()
    for name, why in sorted(lost.items()):
        print_prose(f"{name}: lost the connection: {printable(why)}", err=True)
    exit_if_unreached(gone)
    if refused:
        raise click.exceptions.Exit(max(one.exit_code for one in refused))
    if lost:
        sys.exit(STATUS["not reached"])


def _journal_units(instances: tuple[Instance, ...], served: ObservedServing, instance: str | None) -> list[str]:
    """The units of a rig's instances that its host has, and of others that run there; only one instance's if named."""
    # their names are the host's words
    running = {name for name, one in served.processes.items() if one.started_from and INSTANCE.fullmatch(name)}
    declared = {one.unit for one in instances if instance in (None, one.name)}
    there = declared & {*served.links, *served.processes}
    return sorted(there if instance else there | running)


def _journal_command(units: list[str], lines: int, left_out: list[str], *, follow: bool) -> str:
    """The shell command that prints the last lines of units, without those that begin with a pattern.

    With `--follow` the lines left out count among the last ones, for journalctl cannot select and follow.
    """
    command = ["journalctl", "--no-pager", "--output=short-iso", "--no-hostname", f"--lines={lines}"]
    command += [f"--unit={unit}" for unit in units]
    if follow:
        return shlex.join([*command, "--follow"])
    if not left_out:
        return shlex.join(command)
    # with a pattern and a number, releases differ in the order of lines
    command += ["--reverse", "--case-sensitive=yes", f"--grep=^(?!{'|'.join(left_out)})"]
    return f"{shlex.join(command)} | tac"


def _strip_controls(line: str) -> str:
    """Without what could write elsewhere on the terminal than where it belongs."""
    return re.sub(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", "", line)
