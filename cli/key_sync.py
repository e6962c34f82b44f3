"""Which keys the gateways of an inventory have, and how they are brought there."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from checks.connections import ConnectedHost, HostReadFailed, UnreachableHosts, map_hosts, map_inventory
from checks.results import STATUS
from cli.exit_codes import HostUnreached
from cli.inventory_loading import load_host_rigs, load_hosts
from cli.prog_name import prog_name
from cli.tables import print_prose
from rigwright.file_lock import FileLockHeld
from rigwright.gateway import deployed_keys, keyring
from rigwright.gateway.deployed_keys import DeployedKeys, KeyDelivery
from rigwright.gateway.keyring import ClientKeyring
from rigwright.gateway.keys_file_version import HostVersion, describe_effect, format_key_names, is_replaceable
from rigwright.gateway.served_models import offers_of
from rigwright.host.deploy_lock_state import render_holder_record
from rigwright.host_selection import format_hosts
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.gateway_schema import Gateway
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, format_count, printable
from roles import root_shell
from roles.connection_failures import describe_unreachable_host

T = TypeVar("T")
PATIENCE = 120.0  # seconds that a host may take
HOST_LOCK_TIMEOUT_S = (
    10  # seconds that a host waits for another change of its keys; a deploy takes longer, and is named
)
RUNS = 3  # times that keys are sent while other runs of this machine change them


@dataclass(frozen=True)
class KeyTargets:
    """The inventory, and those of its hosts that have a gateway."""

    inventory: str
    limit: str | None
    file: Path
    rigs: Mapping[str, Rig]
    models: frozenset[str] = frozenset()
    """Names that clients ask for at any of them, aliases too: a key follows an alias to what it stands for."""

    @property
    def has_file(self) -> bool:
        """Whether the keys file is there, or a link in its place."""
        return self.file.exists() or self.file.is_symlink()

    def load_keyring(self) -> ClientKeyring:
        """The keys that there are.

        Raises:
            click.ClickException: the file is refused.
        """
        try:
            return keyring.load_keyring(self.file)
        except Invalid as error:
            raise click.ClickException(str(error)) from None


def load_targets(inventory: str, limit: str | None) -> KeyTargets:
    """The targets of a verb about keys; of two gateways with one address always both.

    Raises:
        click.ClickException: the inventory is refused, no host of it has a gateway, or there are two files of keys.
    """
    rigs = load_host_rigs(load_hosts(inventory, limit))
    gateways = [rig.gateway for rig in rigs.values() if rig.gateway]
    partners = {one.fleet.pair.partner for one in gateways if one.fleet.pair} - rigs.keys()
    if limit and partners:
        return load_targets(inventory, ",".join([limit, *sorted(partners)]))
    files: dict[str, list[str]] = {}
    for name, rig in rigs.items():
        if rig.gateway and rig.gateway.serves_clients:
            files.setdefault(resolve_inventory_path(Path(rig.inventory).parent, rig.gateway.keys_file), []).append(name)
    if not files:
        raise click.ClickException(f"{inventory}: no host has a gateway")
    if len(files) > 1:
        listed = "; ".join(f"{', '.join(names)} have {file}" for file, names in sorted(files.items()))
        raise click.ClickException(f"{inventory}: choose a keys file with --limit: {listed}")
    ((file, names),) = files.items()
    models = frozenset(
        one
        for name in names
        for one in (
            *(offer.name for offer in offers_of(rigs[name].instances, rigs[name].gateway)),
            *_model_aliases(rigs[name].gateway),
        )
    )
    return KeyTargets(inventory, limit, Path(file), {name: rigs[name] for name in names}, models)


def _model_aliases(gateway: Gateway | None) -> Collection[str]:
    return gateway.aliases if gateway else ()


class FileAccessFailed(click.ClickException):
    """The keys file, or its lock, cannot be had; the text says why."""


@contextmanager
def file_access(file: Path) -> Iterator[None]:
    """Report what goes wrong with the keys file in the block as the command's own error.

    Raises:
        FileAccessFailed: it is refused, cannot be written, or another process holds its lock.
    """
    try:
        yield
    except (Invalid, FileLockHeld) as error:
        raise FileAccessFailed(str(error)) from None
    except OSError as error:
        raise FileAccessFailed(keyring.describe_failure(file, error)) from None


@dataclass(frozen=True)
class GatewayHosts:
    """Connected hosts that have a gateway, with their keys, and hosts out of reach."""

    boxes: list[ConnectedHost]
    gone: UnreachableHosts
    answers: Mapping[str, DeployedKeys | HostReadFailed]
    """Host -> its keys, or the fault of its answer."""

    def require_keys(self) -> dict[str, DeployedKeys]:
        """Host -> its keys.

        Raises:
            HostReadFailed: the answer of a host is invalid.
        """
        for one in self.answers.values():
            if isinstance(one, HostReadFailed):
                raise one
        return {name: one for name, one in self.answers.items() if isinstance(one, DeployedKeys)}


def sync_keys(
    asked: KeyTargets,
    *,
    no_hosts: bool = False,
    reach: GatewayHosts | None = None,
    replaced: Mapping[str, HostVersion] | None = None,
    changed: str = "",
) -> None:
    """Bring the keys to every host that has a gateway.

    No lock is held meanwhile, so that a slow host delays no other change: each host compares versions itself.

    Args:
        asked: The inventory.
        no_hosts: Whether only the file is written.
        reach: Its hosts, if they are connected; None: each gets the keys as soon as it is connected.
        replaced: Host -> its own version, which the keys replace there, and nowhere else.
        changed: The name of the only key that changes; empty for all keys.

    Raises:
        click.exceptions.Exit: with 1, where one did not get them, or may ignore a right of a key that changes; with 3,
            where one is out of reach; each is named.
        FileAccessFailed: the file is refused, or cannot be written. Hosts without a result are named, also after an
            interrupt.
    """
    if no_hosts:
        print_prose(f"{asked.file} is written; hosts get it with the next deploy", err=True)
        return
    ring = _write_version(asked)
    has_keys: dict[str, bool] = {}
    """Host with a result -> whether it has the keys."""

    def report(box: ConnectedHost, one: KeyDelivery) -> None:
        line, has_keys[box.name] = _describe_sync(asked, one, changed)
        print_prose(f"{box.name}: {line}", err=True)

    def send(box: ConnectedHost) -> KeyDelivery:
        one = _send_keys(box, ring, replaced or {})
        if not one.newer:
            report(box, one)
        return one

    try:
        if reach:
            became, gone = list(zip(reach.boxes, map_hosts(reach.boxes, send), strict=True)), reach.gone
        else:
            became, gone = map_gateways(asked, send)
        for name, why in gone.items():
            has_keys[name] = False
            print_prose(f"{name}: {describe_unreachable_host(why)}; `key sync` or the next deploy updates it", err=True)
        diverged = [(box, one.newer) for box, one in became if one.newer]
        for box, one in _send_again(asked, diverged, ring, replaced or {}):
            report(box, one)
    except BaseException:
        reached = [box.name for box in reach.boxes] if reach else [*asked.rigs]
        if left := [name for name in reached if name not in has_keys]:
            print_prose(f"{format_hosts(left)}: without a result; `key sync` sends the keys again", err=True)
        raise
    if not all(has_keys.values()):
        raise click.exceptions.Exit(STATUS["not reached" if gone else "not as declared"])


def _send_again(
    asked: KeyTargets,
    diverged: list[tuple[ConnectedHost, DeployedKeys]],
    ring: ClientKeyring,
    replaced: Mapping[str, HostVersion],
) -> Iterator[tuple[ConnectedHost, KeyDelivery]]:
    """The results of hosts with newer keys; they get the file's again if another run on this machine changed both."""
    became = [(box, KeyDelivery(newer=newer)) for box, newer in diverged]
    for _ in range(RUNS - 1):
        sent, ring = ring, _write_version(asked)
        pending = [box for box, one in became if one.newer and accepts_keys(ring, one.newer)]
        if not pending or ring == sent:
            break
        answers = map_hosts(pending, partial(_send_keys, ring=ring, replaced=replaced))
        again = {box.name: one for box, one in zip(pending, answers, strict=True)}
        became = [(box, again.get(box.name, one)) for box, one in became]
    yield from became


def _write_version(asked: KeyTargets) -> ClientKeyring:
    with file_access(asked.file):
        return keyring.write_version(asked.file, f"keys of {asked.inventory}")


def accepts_keys(ring: ClientKeyring, host: DeployedKeys) -> bool:
    """Whether a host takes these keys."""
    return is_replaceable(ring.current_version, host.version.id if host.version else "")


def refuse_diverged(asked: KeyTargets, reach: GatewayHosts) -> None:
    """Refuse to change the file where a host would not take it: a new key would not work there.

    A host that does not answer is left out: its error is reported when it is sent the keys.

    Raises:
        click.ClickException: a host has other keys; the effect of these there is named.
    """
    ring = asked.load_keyring()
    if refused := [
        f"{box.name}: {deployed_keys.describe_key_divergence(asked.file, ring, one)}"
        for box, one in _collect_diverged(ring, reach)
    ]:
        raise click.ClickException("\n".join((*refused, "Nothing was changed")))


def collect_newer(asked: KeyTargets, reach: GatewayHosts) -> dict[str, HostVersion]:
    """Name what the file's keys do on hosts in reach that have others, and make them the next version.

    A host may report any version, such as one that another host has: it is replaced on that host alone, and never gets
    into the file, so that no other host takes these keys unless it was asked itself.

    Returns:
        Host -> the version to replace there.

    Raises:
        FileAccessFailed: the file is refused, or cannot be written.
    """
    ring = asked.load_keyring()
    diverged = _collect_diverged(ring, reach)
    for box, one in diverged:
        effect = describe_effect((*keyring.key_rows(ring), *keyring.expiring_rows(ring)), one.valid_rows)
        serial = f"serial {one.version.serial}" if one.version else "keys"
        print_prose(f"{box.name}: {'; '.join((f'{serial} is replaced', *effect))}", err=True)
    if diverged:
        with file_access(asked.file):
            keyring.write_version(asked.file, f"keys of {asked.inventory}", advance=True)
    return {box.name: one.version for box, one in diverged if one.version}


def _collect_diverged(ring: ClientKeyring, reach: GatewayHosts) -> list[tuple[ConnectedHost, DeployedKeys]]:
    answers = ((box, reach.answers[box.name]) for box in reach.boxes)
    return [(box, one) for box, one in answers if isinstance(one, DeployedKeys) and not accepts_keys(ring, one)]


def refuse_vanished(asked: KeyTargets, reach: GatewayHosts) -> None:
    """Refuse to go on without a file of keys where hosts have some: all of them would be taken away.

    Raises:
        click.ClickException: it is not there, and a host has keys.
        HostUnreached: it is not there, and a host cannot be asked.
    """
    if asked.has_file:
        return
    for name, one in reach.require_keys().items():
        if one.rows:
            raise click.ClickException(
                f"{keyring.describe_missing_file(asked.file)}; {name} has {format_count(len(one.rows), 'key')}"
            )
    if reach.gone:
        away_from = ", ".join(reach.gone)
        raise HostUnreached(
            f"{asked.file} is not there, and {away_from} cannot be asked for keys: --no-hosts begins a new one"
        )


def map_gateways(
    asked: KeyTargets, look: Callable[[ConnectedHost], T]
) -> tuple[list[tuple[ConnectedHost, T]], UnreachableHosts]:
    """Call a function with each host that has a gateway, as soon as it is connected."""
    found, gone = map_inventory(
        asked.inventory, asked.limit, lambda box: (look(box),) if box.name in asked.rigs else None
    )
    return [(box, one[0]) for box, one in found if one], {name: why for name, why in gone.items() if name in asked.rigs}


def read_gateways(asked: KeyTargets) -> GatewayHosts:
    """Connect to the hosts that have a gateway, and read their keys."""

    def read(box: ConnectedHost) -> DeployedKeys | HostReadFailed:
        try:
            return box.run_and_parse(deployed_keys.parse_deployed_keys, deployed_keys.render_keys_query(box.rig.roots))
        except HostReadFailed as error:
            return error

    found, gone = map_gateways(asked, read)
    return GatewayHosts([box for box, _ in found], gone, {box.name: one for box, one in found})


def _send_keys(box: ConnectedHost, ring: ClientKeyring, replaced: Mapping[str, HostVersion]) -> KeyDelivery:
    text = keyring.keys_json(ring)
    record = render_holder_record("updating the gateway's keys")
    mine = replaced.get(box.name)
    script = deployed_keys.render_key_delivery(
        box.rig.roots, keyring.keys_digest(text), ring.current_version, record, HOST_LOCK_TIMEOUT_S, mine
    )
    try:
        answer = root_shell.run_command(box.target, script, text, PATIENCE)
        delivery = deployed_keys.parse_key_delivery(answer.lines)
    except root_shell.RootDenied as error:
        return KeyDelivery(wrong=printable(str(error)))
    except root_shell.ConnectionGone as error:
        return KeyDelivery(lost=f"the connection was lost: {printable(str(error))}")
    except ValueError as error:
        return KeyDelivery(lost=str(error))
    return _check_programs(box, ring.restricted_names, delivery) if delivery.has_arrived else delivery


def _check_programs(box: ConnectedHost, restricted: tuple[str, ...], delivery: KeyDelivery) -> KeyDelivery:
    """A delivery with the names of keys without a right that the host's gateway may not know."""
    if not restricted:
        return delivery
    try:
        answer = root_shell.run_command(box.target, deployed_keys.render_programs_query(box.rig.roots), "", PATIENCE)
        is_other = deployed_keys.has_other_programs(answer.lines)
    except root_shell.RootDenied as error:
        return replace(delivery, restricted=restricted, unchecked=printable(str(error)))
    except root_shell.ConnectionGone as error:
        return replace(delivery, restricted=restricted, unchecked=f"the connection was lost: {printable(str(error))}")
    except ValueError as error:
        return replace(delivery, restricted=restricted, unchecked=str(error))
    return replace(delivery, restricted=restricted if is_other else ())


def _describe_sync(asked: KeyTargets, one: KeyDelivery, changed: str) -> tuple[str, bool]:
    """The result in words, and whether the host has it.

    Args:
        asked: The inventory.
        one: The result.
        changed: The name of the only key that changes; empty for all keys.
    """
    if one.refused:
        return (
            f"{one.refused}; the running deploy may still update the keys; otherwise run `key sync` after it",
            False,
        )
    if not one.deployed:
        return "nothing is deployed yet: the first deploy sends the keys", True
    if one.newer:
        return (
            f"the keys were not updated: "
            f"{deployed_keys.describe_key_divergence(asked.file, asked.load_keyring(), one.newer)}",
            False,
        )
    if one.wrong:
        return f"the keys were not updated: {one.wrong}", False
    if one.lost:
        return f"whether the keys are updated is unknown: {one.lost}; `key sync` sends them again", False
    updated = "the keys are updated" if one.running else "the keys are updated, for when its gateway starts"
    if not one.restricted:
        return updated, True
    names, is_followed = format_key_names(one.restricted), bool(changed) and changed not in one.restricted
    if one.unchecked:
        unknown = f"whether its gateway follows `wake` and `evict` of {names} is unknown: {one.unchecked}"
        return f"{updated}; {unknown}; `key sync` asks again", is_followed
    return (
        f"{updated}; the gateway has programs of another version of Rigwright, which may ignore `wake` and `evict` "
        f"of {names}; next: `{prog_name()} deploy {shlex.quote(asked.inventory)}`",
        is_followed,
    )
