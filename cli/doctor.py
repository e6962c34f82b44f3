"""`rigwright doctor`: what is wrong here and on the boxes, and the command that fixes it."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from checks.connections import ConnectedHost, map_hosts
from cli.inventory_loading import InventoryPath, load_hosts
from cli.observed_box import observe_box
from cli.prog_name import prog_name, with_typed_inventory
from cli.shell_completion import LIMIT_OPTION
from cli.status import UndeclaredHost, connect_hosts
from cli.tables import print_prose
from rigwright.declaration.entry_validation import find_exposed_files
from rigwright.engines import kind_of
from rigwright.engines.log_causes import find_cause_lines
from rigwright.inventory import load_rig, tolerate_problems
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.plan.preflight import find_refusals
from rigwright.problems import Invalid, printable
from rigwright.serving.activation import goal_for
from roles import root_shell

MAX_LOG_LINES = 200  # of an instance's journal that are read
NAMED_AS_IDS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
"""Keys that are tried without being named (ssh_config(5), IdentityFile)."""


@dataclass(frozen=True)
class DoctorFinding:
    """Something that is wrong."""

    what: str
    cure: str = ""
    """The command, or the edit, that fixes it; empty where `what` says it."""


@click.command()
@click.argument("inventory", type=InventoryPath(), required=False)
@LIMIT_OPTION
def doctor(inventory: str | None, limit: str | None) -> None:
    """Say what is wrong with this machine, and with the hosts of INVENTORY, and the command that fixes each.

    It looks at what keeps deploys and services from working, from SSH keys to instances' logs; `check` proves much
    more of a host that is reached. Without INVENTORY it looks at this machine alone; of one that is refused it says
    why, and goes on with what can be read. Nothing is changed. Exit status 0: nothing is wrong. 1: something is.
    2: INVENTORY is refused. 3: a host cannot be reached.
    Example: rigwright doctor ~/boxes/rig.py
    """
    hosts, rigs, refused = _load_declarations(inventory, limit) if inventory else ({}, {}, [])
    for text in refused:
        print_prose(with_typed_inventory(text, click.get_current_context()), err=True)
    wrong = list(_check_controller(hosts, rigs))
    _print_findings("this machine", wrong)
    # pyinfra's gevent, which nothing before this needs
    from roles.first_contact import probe_host_key

    away: dict[str, list[DoctorFinding]] = {}
    for name, data in hosts.items():
        if found := _check_connection(str(inventory), name, data, probe_host_key):
            away[name] = [found]
    met = [name for name in hosts if name not in away]
    found_boxes, faulty, gone, _ = connect_hosts(str(inventory), ",".join(met)) if met else ([], [], {}, [])
    for name in gone:
        user, place = _ssh_target(name, hosts[name])
        away[name] = [DoctorFinding(f"SSH login as {user} is refused", f"ssh-copy-id {place}")]
    for name, one in away.items():
        _print_findings(name, one)
    each_found = map_hosts(found_boxes, lambda box: _check_box(str(inventory), box))
    seen = dict(zip([box.name for box in found_boxes], each_found, strict=True))
    seen |= {one.name: _check_undeclared_host(one) for one in faulty}
    for name, found_there in seen.items():
        _print_findings(name, found_there)
    if away:
        sys.exit(3)
    if refused:
        sys.exit(2)
    sys.exit(1 if wrong or any(seen.values()) else 0)


def _load_declarations(
    inventory: str, limit: str | None
) -> tuple[Mapping[str, dict[str, Any]], dict[str, Rig], list[str]]:
    """The hosts of an inventory with their data, the rigs of those that can be read, and why it is refused, if it is.

    Raises:
        click.UsageError: there is no host of that limit.
    """
    rigs: dict[str, Rig] = {}
    with tolerate_problems() as wrong:
        try:
            hosts = load_hosts(inventory, limit)
        except click.UsageError:
            raise
        except click.ClickException as error:
            return {}, {}, [error.message]
        problems = []
        for name, data in hosts.items():
            try:
                rigs[name] = load_rig(data.get("rig"))
            except Invalid as error:
                problems += error.problems
    return hosts, rigs, [str(one) for one in sorted({*wrong, *problems})]


def _print_findings(where: str, found: list[DoctorFinding]) -> None:
    if not found:
        print_prose(f"{where}: nothing is wrong")
    for one in found:
        print_prose(f"{where}: {printable(one.what)}")
        if one.cure:  # a command, to be copied
            click.echo(f"    fix: {printable(one.cure)}")


def _ssh_target(name: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """The user who logs in, and what ssh and ssh-copy-id are told of a host."""
    user, port = str(data.get("ssh_user") or "you"), data.get("ssh_port", 22)
    at = f"{data['ssh_user']}@" if data.get("ssh_user") else ""
    place = f"{at}{data.get('ssh_hostname') or name}"
    return user, f"-p {port} {shlex.quote(place)}" if port != 22 else shlex.quote(place)


def _check_controller(hosts: Mapping[str, Mapping[str, Any]], rigs: Mapping[str, Rig]) -> Iterator[DoctorFinding]:
    """What is wrong with the machine that deploys."""
    agent = os.environ.get("SSH_AUTH_SOCK")
    home = Path.home() / ".ssh"
    if agent and not _is_agent_alive(agent):
        yield DoctorFinding(f"no SSH agent answers at SSH_AUTH_SOCK={agent}", 'eval "$(ssh-agent)" && ssh-add')
    elif not agent and not any((home / one).exists() for one in NAMED_AS_IDS):
        lacking = [name for name, data in hosts.items() if not data.get("ssh_key")]
        if lacking or not hosts:
            what = f"no SSH key to log in with: no agent, none in {home}"
            what += f", and no ssh_key of {', '.join(lacking)}" if lacking else ""
            yield DoctorFinding(what, "ssh-keygen -t ed25519, then ssh-copy-id to each box")
    for what, cure in find_exposed_files(rigs.values()).items():
        yield DoctorFinding(what, cure)


def _is_agent_alive(agent: str) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as tried:
        try:
            tried.settimeout(5)
            tried.connect(agent)
        except OSError:
            return False
    return True


def _check_connection(inventory: str, name: str, data: Mapping[str, Any], meet: Any) -> DoctorFinding | None:
    """Why a host is not logged in to."""
    from roles.first_contact import HostKeyUnavailable

    try:
        contact = meet(name, data)
    except HostKeyUnavailable as error:
        return DoctorFinding(f"cannot be reached: {error}", f"ssh -v {_ssh_target(name, data)[1]} says where it stops")
    if contact.found == contact.expected:
        return None
    known = f"another than {contact.expected.fingerprint}" if contact.expected else "which nothing here knows"
    return DoctorFinding(
        f"it shows the host key {contact.found.fingerprint}, {known}",
        f"compare with `{contact.found.comparison_command}` on its console; then {prog_name()} host-key "
        f"{shlex.quote(inventory)} --limit {name} says what to declare",
    )


def _check_box(inventory: str, box: ConnectedHost) -> list[DoctorFinding]:
    """What is wrong with a host that lets us in."""
    try:
        if found := _check_root(box):
            return [found]
        return list(
            _check_deployability(lambda verb: f"{prog_name()} {verb} --limit {box.name} {shlex.quote(inventory)}", box)
        )
    except (click.ClickException, root_shell.ConnectionGone) as error:
        return [DoctorFinding(f"it does not answer as it should: {getattr(error, 'message', error)}")]


def _check_undeclared_host(host: UndeclaredHost) -> list[DoctorFinding]:
    """What is wrong with a host that lets us in and of which it is not known what it is to be."""
    try:
        found = _check_root(host)
    except root_shell.ConnectionGone as error:
        found = DoctorFinding(f"it does not answer as it should: {error}")
    rest = DoctorFinding("its declaration is refused: what it serves was not looked at")
    return [found, rest] if found else [rest]


def _check_root(box: ConnectedHost | UndeclaredHost) -> DoctorFinding | None:
    """Why commands are not root's there."""
    try:
        found = root_shell.run_command(box.target, "id -u", limit=60).lines
    except root_shell.RootDenied as error:
        user = box.target.data.get("ssh_user") or "USER"
        line = shlex.quote(f"{user} ALL=(ALL) NOPASSWD: ALL")
        return DoctorFinding(str(error), f"on the box, as root: echo {line} > /etc/sudoers.d/rigwright")
    if found == ["0"]:
        return None
    return DoctorFinding("who logs in is not root", 'put "_sudo": True among its keys in the inventory')


def _check_deployability(again: Callable[[str], str], box: ConnectedHost) -> Iterator[DoctorFinding]:
    """What keeps a host from being deployed to, and from serving.

    Args:
        again: Makes the command line of a verb about this host.
        box: The host.
    """
    observed = observe_box(box, "served", "holder")
    box = observed.box
    served, wanted = box.read_serving_state(), box.resolve_desired()
    if holder := box.read_lock_holder():
        yield DoctorFinding(str(holder))
    for text in (*map(str, box.rig.bundle_faults), *find_refusals(wanted, time.time())):
        yield DoctorFinding(text)
    if observed.look is None:
        yield DoctorFinding(f"it does not answer as it should: {observed.why}")
    states = [observed.assess_state(one) for one in box.rig.instances] if observed.look else []
    undeployed = [one for one in states if one.remediation == ("deploy",)]
    aim = goal_for(served, wanted.generation)
    if served.activating and not served.job:
        yield DoctorFinding("an activation was cut off", again("deploy"))
    elif undeployed:
        yield DoctorFinding("; ".join(one.describe() for one in undeployed), again("deploy"))
    elif aim.number is None or aim.number != served.current:
        yield DoctorFinding("it does not serve what the inventory declares", again("deploy"))
    if observed.look and observed.look.reboot:
        yield DoctorFinding("a reboot is pending", again("ssh") + " sudo reboot")
    for one, state in zip(box.rig.instances, states, strict=False):
        if state.is_ready or state in undeployed:
            continue
        verb, *words = state.remediation or ("health",)
        causes = _describe_log(box, one) if state.state in ("failed", "failing", "wedged") else ""
        yield DoctorFinding(f"{state.describe()}{causes}", " ".join([again(verb), *map(shlex.quote, words)]))


def _describe_log(box: ConnectedHost, instance: Instance) -> str:
    """What the last lines of an instance's log say of why it does not serve."""
    command = f"journalctl --no-pager --output=cat --lines={MAX_LOG_LINES} --unit={shlex.quote(instance.unit)}"
    lines = root_shell.run_command(box.target, command, limit=60).lines
    # an engine that refuses a request goes on serving
    causes = [
        cause
        for cause in find_cause_lines(kind_of(instance).causes, lines)
        if not (cause.harmless or cause.last or cause.request)
    ]
    why = "; ".join(cause.sentence for cause in causes) or f"last log line: {next(reversed(lines), 'none')[:200]}"
    return f"; {why}"
