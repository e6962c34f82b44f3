"""`rigwright doctor`: faults of this machine, of connections and of hosts, with the command that fixes each."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from checks.connections import ConnectedHost, map_hosts
from checks.results import STATUS
from cli.exit_codes import InvalidRequest
from cli.host_evidence import MAX_LOG_BYTES, causes_for_log, collect_evidence, collect_failed_checks, read_log
from cli.inventory_loading import load_hosts, optional_inventory
from cli.observed_box import next_command, observe_box
from cli.option_types import JSON_OPTION
from cli.prog_name import NAME, prog_name, with_typed_inventory
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION
from cli.status import UndeclaredHost, connect_hosts
from cli.tables import print_paragraph, print_prose
from rigwright.check_waivers import find_deploy_faults
from rigwright.declaration.entry_validation import find_exposed_files
from rigwright.declaration.shared_resolution import share_resolutions
from rigwright.engines import kind_of
from rigwright.inventory import load_rig, tolerate_problems
from rigwright.model.rig import Rig
from rigwright.operate.diagnosis_findings import Diagnosis, FailedCheck, HostEvidence
from rigwright.operate.root_cause_analysis import SPECIFIC, diagnose_host
from rigwright.plan.preflight import find_refusals
from rigwright.problems import Invalid, describe_unknown, format_count, printable
from rigwright.serving.activation import goal_for
from roles import root_shell
from roles.host_pool import TooManyHosts, raise_file_limit
from roles.progress import progress

if TYPE_CHECKING:
    from roles.first_contact import ProbedHostKey

THIS_MACHINE = "this machine"
BLOCKING = 200  # weight of a fault that keeps hosts from being reached, deployed to or served: before all causes
NAMED_AS_IDS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
"""Keys that are tried without being named (ssh_config(5), IdentityFile)."""


@dataclass(frozen=True)
class DiagnosedHost:
    """A host, this machine, or a log file."""

    name: str
    causes: Sequence[Diagnosis] = ()
    unseen: Sequence[str] = ()
    """Facts that could not be read."""
    reached: bool = True
    waived: Sequence[str] = ()
    """Failed checks that the inventory waives, each with the waiver."""


def _blocking(identifier: str, means: str, cure: str = "") -> Diagnosis:
    return Diagnosis(identifier, "", means, "", cure, BLOCKING)


@click.command()
@optional_inventory("--logs")
@LIMIT_OPTION
@INSTANCE_OPTION
@click.option(
    "--logs",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="Read this log file, plain or compressed.",
)
@click.option("--checks/--no-checks", default=True, show_default=True, help="Also run all checks.")
@click.option("--verbose", "-v", is_flag=True, help="Also print failed checks that a printed cause explains.")
@JSON_OPTION
def doctor(
    inventory: str | None,
    limit: str | None,
    instance: tuple[str, ...],
    file: str | None,
    checks: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Find causes of faults.

    Examines this machine, then connections, then each host's state, logs, kernel messages and checks. Prints the
    likeliest cause first, with its evidence and the command that fixes it. Without INVENTORY, this machine only.
    Changes nothing.
    Exit status: 0, no fault. 1, a fault. 2, the command or the inventory is refused. 3, a host was not reached, or
    refuses root.
    Example: rigwright doctor rig.py --limit box1
    """
    if file:
        found, refused = [_diagnose_log_file(file)], list[str]()
    else:
        found, refused = _diagnose_all(inventory, limit, instance, checks=checks)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    else:
        for one in found:
            _print_host(one, verbose=verbose)
    if not all(one.reached for one in found):
        sys.exit(STATUS["not reached"])
    sys.exit(2 if refused else int(any(one.causes for one in found)))


def _diagnose_all(
    inventory: str | None, limit: str | None, names: Collection[str], *, checks: bool
) -> tuple[list[DiagnosedHost], list[str]]:
    """This machine and the hosts of an inventory, and why the inventory is refused, if it is."""
    hosts, rigs, refused = _load_declarations(inventory, limit) if inventory else ({}, {}, [])
    known = {one.name for rig in rigs.values() for one in rig.instances}
    if unknown := [f"--instance: {describe_unknown('instance', one, known)}" for one in names if one not in known]:
        raise InvalidRequest("\n".join(unknown))
    for text in refused:
        print_prose(with_typed_inventory(text, click.get_current_context()), err=True)
    here = DiagnosedHost(THIS_MACHINE, list(_check_controller(hosts, rigs)))
    # pyinfra's gevent, which nothing before this needs
    from roles.first_contact import probe_host_key

    try:
        raise_file_limit(len(hosts))
    except TooManyHosts as error:
        raise InvalidRequest(f"{inventory}: {error}") from None
    meet = partial(_check_connection, str(inventory), probe=probe_host_key)
    faults = zip(hosts, map_hosts([*hosts.items()], lambda pair: meet(*pair)), strict=True)
    away = {name: fault for name, fault in faults if fault}
    met = [name for name in hosts if name not in away]
    roots: dict[str, Diagnosis | None] = {}

    def look(box: ConnectedHost) -> None:
        roots[box.name] = _check_root(box)

    limited = (str(inventory), ",".join(met))
    boxes, invalid, gone, _ = connect_hosts(*limited, look=look) if met else ([], [], {}, [])
    for name in gone:
        user, place = _ssh_target(name, hosts[name])
        away[name] = _blocking("ssh-login", f"SSH login as {user} is refused", f"ssh-copy-id {place}")
    roots |= zip((one.name for one in invalid), map_hosts(invalid, _check_root), strict=True)
    away |= {name: fault for name in met if (fault := roots.get(name))}
    usable = [box for box in boxes if box.name not in away]
    red = collect_failed_checks(str(inventory), ",".join(box.name for box in usable)) if checks and usable else {}
    causes = map_hosts(usable, lambda box: _diagnose_box(str(inventory), box, names, red))
    rest = _blocking("invalid-declaration", "its inventory entry is invalid: its state was not examined")
    found = [here, *(DiagnosedHost(name, [fault], reached=False) for name, fault in away.items()), *causes]
    return found + [DiagnosedHost(one.name, [rest]) for one in invalid if one.name not in away], refused


def _diagnose_log_file(file: str) -> DiagnosedHost:
    """The causes that a log file shows: those of the kernel, and those of the engines that wrote it."""
    lines, skipped = read_log(Path(file))
    evidence = HostEvidence("", "", logs={"": lines}, kernel=lines)
    unseen = (
        (f"the first {skipped:,} bytes of it: only the last {MAX_LOG_BYTES >> 20} MiB are read",) if skipped else ()
    )
    return DiagnosedHost(file, diagnose_host(evidence, {"": causes_for_log(lines)}), unseen)


def _diagnose_box(
    inventory: str, box: ConnectedHost, names: Collection[str], red: Mapping[str, list[FailedCheck]] | None
) -> DiagnosedHost:
    """Faults of a connected host, those that keep it from being deployed to first."""
    mine = [one for one in box.rig.instances if not names or one.name in names]
    unseen = [] if red is not None else ["checks: they are incomplete"]
    failed = (red or {}).get(box.name, [])
    waived = [f"{one.id} {one.part or one.title}: {one.found} ({one.waived})" for one in failed if one.waived]
    try:
        blocking = list(_check_deployability(inventory, box))
        evidence, missed = collect_evidence(inventory, box, mine, [one for one in failed if not one.waived])
    except (click.ClickException, root_shell.ConnectionGone) as error:
        fault = _blocking("no-answer", f"its answer is invalid: {getattr(error, 'message', error)}")
        return DiagnosedHost(box.name, [fault], reached=False)
    causes = diagnose_host(evidence, {one.name: kind_of(one).causes for one in mine})
    blocking = [one for one in blocking if not names or one.where in {"", *names}]
    # the reason in its log comes before the state of an instance that ends by itself
    explained = {one.where for one in causes if one.weight >= SPECIFIC and not one.id.startswith("state-")}
    blocking = [one for one in blocking if one.id != "state-failed" or one.where not in explained]
    known = {(one.id, one.where) for one in blocking}
    causes = [one for one in causes if (one.id, one.where) not in known]
    return DiagnosedHost(box.name, [*blocking, *causes], [*unseen, *missed], waived=waived)


def _print_host(host: DiagnosedHost, *, verbose: bool) -> None:
    for line in host.unseen:
        print_paragraph(printable(f"{host.name}: not examined: {line}"), hang=4)
    for line in host.waived:
        print_paragraph(printable(f"{host.name}: waived: {line}"), hang=4)
    if not host.causes:
        print_prose(f"{host.name}: no fault found")
    # with a cause above them that keeps the host from serving
    folded = [one for one in host.causes if one.follows] if not verbose and _blocks(host) else []
    for one in host.causes:
        if one in folded:
            continue
        where = f"{one.where}: " if one.where and not one.means.startswith(one.where) else ""
        print_paragraph(printable(f"{host.name}: {where}{one.means}"), hang=4)
        times = f" ({one.times} times)" if one.times > 1 else ""
        if one.evidence:
            print_paragraph(printable(f"{one.evidence}{times}"), lead="    seen: ")
        cure = re.sub(rf"^{NAME} ", f"{prog_name()} ", printable(one.cure))
        if one.weight == BLOCKING or cure.startswith(prog_name()):
            # a command to copy is one line
            click.echo(f"    fix: {cure}" if cure else "", nl=bool(cure))
        elif cure:
            print_paragraph(cure, lead="    fix: ")
    if folded:
        number = format_count(len(folded), "failed check")
        print_paragraph(f"{host.name}: {number} with a cause above: --verbose prints them", hang=4)


def _blocks(host: DiagnosedHost) -> bool:
    return bool(host.causes) and host.causes[0].weight == BLOCKING


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
        with share_resolutions():
            for name, data in hosts.items():
                try:
                    rigs[name] = load_rig(data.get("rig"))
                except Invalid as error:
                    problems += error.problems
    return hosts, rigs, [str(one) for one in sorted({*wrong, *problems})]


def _ssh_target(name: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """The login user, and the arguments of ssh and ssh-copy-id for a host."""
    user, port = str(data.get("ssh_user") or "you"), data.get("ssh_port", 22)
    at = f"{data['ssh_user']}@" if data.get("ssh_user") else ""
    place = f"{at}{data.get('ssh_hostname') or name}"
    return user, f"-p {port} {shlex.quote(place)}" if port != 22 else shlex.quote(place)


def _check_controller(hosts: Mapping[str, Mapping[str, Any]], rigs: Mapping[str, Rig]) -> Iterator[Diagnosis]:
    """The problems of the machine that deploys."""
    agent = os.environ.get("SSH_AUTH_SOCK")
    home = Path.home() / ".ssh"
    if agent and not _is_agent_alive(agent):
        yield _blocking("ssh-agent", f"no SSH agent answers at SSH_AUTH_SOCK={agent}", 'eval "$(ssh-agent)" && ssh-add')
    elif not agent and not any((home / one).exists() for one in NAMED_AS_IDS):
        lacking = [name for name, data in hosts.items() if not data.get("ssh_key")]
        if lacking or not hosts:
            what = f"no SSH key to log in with: no agent, none in {home}"
            what += f", and no ssh_key of {', '.join(lacking)}" if lacking else ""
            yield _blocking("ssh-key", what, "ssh-keygen -t ed25519, then ssh-copy-id to each box")
    for what, cure in find_exposed_files(rigs.values()).items():
        yield _blocking("exposed-file", what, cure)


def _is_agent_alive(agent: str) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as tried:
        try:
            tried.settimeout(5)
            tried.connect(agent)
        except OSError:
            return False
    return True


def _check_connection(
    inventory: str, name: str, data: Mapping[str, Any], *, probe: Callable[[str, Mapping[str, Any]], ProbedHostKey]
) -> Diagnosis | None:
    """Why a host is not logged in to."""
    from roles.connection_failures import describe_unreachable_host
    from roles.first_contact import HostKeyUnavailable

    try:
        with progress.task(name, "connecting", quiet=True):
            contact = probe(name, data)
    except HostKeyUnavailable as error:
        return _blocking(
            "unreachable",
            describe_unreachable_host(str(error)),
            f"ssh -v {_ssh_target(name, data)[1]} shows where it stops",
        )
    if contact.found == contact.expected:
        return None
    known = f"another than {contact.expected.fingerprint}" if contact.expected else "which is unknown here"
    return _blocking(
        "host-key",
        f"it shows the host key {contact.found.fingerprint}, {known}",
        f"compare with `{contact.found.comparison_command}` on its console; then {prog_name()} key host "
        f"{shlex.quote(inventory)} --limit {name} prints the line to declare",
    )


def _check_root(box: ConnectedHost | UndeclaredHost) -> Diagnosis | None:
    """Why commands are not root's on a host; None if they are."""
    try:
        found = root_shell.run_command(box.target, "id -u", limit=60).lines
    except root_shell.RootDenied as error:
        return _blocking("no-root", error.denial, error.remedy)
    except root_shell.ConnectionGone as error:
        return _blocking("no-answer", f"its answer is invalid: {error}")
    if found == ["0"]:
        return None
    return _blocking("no-root", "the SSH user is not root", 'put "_sudo": True among its keys in the inventory')


def _check_deployability(inventory: str, box: ConnectedHost) -> Iterator[Diagnosis]:
    """The obstacles of a deploy to a host, and of serving there."""

    def again(verb: str) -> str:
        return f"{prog_name()} {verb} {shlex.quote(inventory)} --limit {box.name}"

    observed = observe_box(box, "served", "holder")
    box = observed.box
    served, wanted = box.read_serving_state(), box.resolve_desired()
    if holder := box.read_lock_holder():
        yield _blocking("deploy-lock", str(holder))
    for text in (*map(str, find_deploy_faults(box.rig)), *find_refusals(wanted, time.time())):
        yield _blocking("deploy-refused", text)
    if observed.look is None:
        yield _blocking("no-answer", f"its answer is invalid: {observed.why}")
    states = [observed.assess_state(one) for one in box.rig.instances] if observed.look else []
    undeployed = [one for one in states if one.remediation == ("deploy",)]
    aim = goal_for(served, wanted.generation)
    if served.activating and not served.job:
        yield _blocking("activation-cut-off", "an activation was cut off", again("deploy"))
    elif undeployed:
        yield _blocking("not-deployed", "; ".join(one.describe() for one in undeployed), again("deploy"))
    elif aim.number is None or aim.number != served.current:
        yield _blocking("other-generation", "its services differ from the inventory", again("deploy"))
    if observed.look and observed.look.reboot:
        yield _blocking("reboot-pending", "a reboot is pending", again("ssh --sudo") + " reboot")
    for one, state in zip(box.rig.instances, states, strict=False):
        if state.is_ready or state in undeployed:
            continue
        command = next_command(state, inventory, box.name) or again("status")
        yield Diagnosis(f"state-{state.state.replace(' ', '-')}", one.name, state.describe(), "", command, BLOCKING)
