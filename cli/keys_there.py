"""Which keys the gateways of an inventory have, and how they are brought there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from checks.looking import Box, Gone, Unseen, boxes, each
from checks.results import STATUS
from cli.declared import named, rig_of
from cli.ending import Unreached
from cli.tables import say
from rigwright.file_lock import LockHeld
from rigwright.gateway import host_keys, keyring
from rigwright.gateway.host_keys import Brought, Having
from rigwright.gateway.key_version import HostVersion, describe_effect, is_replaceable
from rigwright.gateway.keyring import Keyring
from rigwright.gateway.offers import offers_of
from rigwright.host.deploy_lock import holder_record
from rigwright.model.keys import beside
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, counted, printable
from roles import root
from roles.unreached import away

PATIENCE = 120.0  # seconds that a host may take
TURN = 10  # seconds that a host waits for another change of its keys; a deploy takes longer, and is named
RUNS = 3  # times that keys are sent while other runs of this machine change them


@dataclass(frozen=True)
class Asked:
    """The inventory, and those of its hosts that have a gateway."""

    inventory: str
    limit: str | None
    file: Path
    rigs: Mapping[str, Rig]
    models: frozenset[str] = frozenset()
    """Names that clients ask for at any of them, aliases too: a key follows an alias to what it stands for."""

    def load(self) -> Keyring:
        """The keys that there are.

        Raises:
            click.ClickException: the file is refused.
        """
        try:
            return keyring.load(self.file)
        except Invalid as error:
            raise click.ClickException(str(error)) from None


def asked_of(inventory: str, limit: str | None) -> Asked:
    """What a verb about keys is asked for.

    Raises:
        click.ClickException: the inventory is refused, no host of it has a gateway, or there are two files of keys.
    """
    rigs = {name: rig_of(name, data.get("rig")) for name, data in named(inventory, limit).items()}
    files: dict[str, list[str]] = {}
    for name, rig in rigs.items():
        if rig.gateway:
            files.setdefault(beside(Path(rig.inventory).parent, rig.gateway.keys_file), []).append(name)
    if not files:
        raise click.ClickException(f"{inventory}: no host has a gateway")
    if len(files) > 1:
        listed = "; ".join(f"{', '.join(names)} have {file}" for file, names in sorted(files.items()))
        raise click.ClickException(f"{inventory}: choose a keys file with --limit: {listed}")
    ((file, names),) = files.items()
    models = frozenset(
        one for name in names for one in (*(offer.name for offer in offers_of(rigs[name])), *_aliases(rigs[name]))
    )
    return Asked(inventory, limit, Path(file), {name: rigs[name] for name in names}, models)


def _aliases(rig: Rig) -> Collection[str]:
    return rig.gateway.aliases if rig.gateway else ()


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
    except (Invalid, LockHeld) as error:
        raise FileAccessFailed(str(error)) from None
    except OSError as error:
        raise FileAccessFailed(keyring.describe_failure(file, error)) from None


@dataclass(frozen=True)
class Reach:
    """Connected hosts that have a gateway, and those out of reach."""

    boxes: list[Box]
    gone: Gone


def everywhere(asked: Asked, reach: Reach | None, replaced: Mapping[str, HostVersion] | None = None) -> None:
    """Bring the keys to every host that has a gateway.

    No lock is held meanwhile, so that a slow host delays no other change: each host compares versions itself.

    Args:
        asked: The inventory.
        reach: Its hosts; None for none: only the file is written.
        replaced: Host -> its own version, which the keys replace there, and nowhere else.

    Raises:
        click.exceptions.Exit: with 1, where one did not get them, with 3, where one is out of reach; each is named.
        FileAccessFailed: the file is refused, or cannot be written.
    """
    if reach is None:
        say(f"{asked.file} is written; hosts get it with the next deploy", err=True)
        return
    missing = len(reach.gone)
    for name, why in reach.gone.items():
        say(f"{name}: {away(why)}; `bring` or the next deploy updates it", err=True)
    ring = _write_version(asked)
    became = _bring_all(asked, reach.boxes, ring, replaced or {})
    for box in reach.boxes:
        line, there = _became(asked, became[box.name])
        say(f"{box.name}: {line}", err=True)
        missing += not there
    if missing:
        raise click.exceptions.Exit(STATUS["not reached" if reach.gone else "not as declared"])


def _bring_all(
    asked: Asked, boxes: list[Box], ring: Keyring, replaced: Mapping[str, HostVersion]
) -> dict[str, Brought]:
    became: dict[str, Brought] = {}
    pending = boxes
    for _ in range(RUNS):
        sent = ring
        answers = each(pending, partial(_send_keys, ring=sent, replaced=replaced))
        became |= {box.name: one for box, one in zip(pending, answers, strict=True)}
        ring = _write_version(asked)
        # another run of this machine has changed the file since, and was there first
        pending = [box for box in pending if (newer := became[box.name].newer) and is_accepted(ring, newer)]
        if not pending or ring == sent:
            break
    return became


def _write_version(asked: Asked) -> Keyring:
    with file_access(asked.file):
        return keyring.write_version(asked.file, f"keys of {asked.inventory}")


def is_accepted(ring: Keyring, host: Having) -> bool:
    """Whether a host takes these keys."""
    return is_replaceable(ring.current_version, host.version.id if host.version else "")


def refuse_diverged(asked: Asked, reach: Reach) -> None:
    """Refuse to change the file where a host would not take it: a new key would not work there.

    A host that does not answer is left out: what is wrong there is reported when it is sent the keys.

    Raises:
        click.ClickException: a host has other keys; what these would do there is named.
    """
    ring = asked.load()
    if refused := [
        f"{box.name}: {host_keys.divergence(asked.file, ring, one)}" for box, one in _collect_diverged(ring, reach)
    ]:
        raise click.ClickException("\n".join((*refused, "Nothing was changed")))


def replace_newer(asked: Asked, reach: Reach) -> dict[str, HostVersion]:
    """Name what the file's keys do on hosts in reach that have others, and make them the next version.

    A host may report any version, such as one that another host has: it is replaced on that host alone, and never gets
    into the file, so that no other host takes these keys unless it was asked itself.

    Returns:
        Host -> the version to replace there.

    Raises:
        FileAccessFailed: the file is refused, or cannot be written.
    """
    ring = asked.load()
    diverged = _collect_diverged(ring, reach)
    for box, one in diverged:
        effect = describe_effect((*keyring.rows(ring), *keyring.ending(ring)), one.valid)
        serial = f"serial {one.version.serial}" if one.version else "keys"
        say(f"{box.name}: {'; '.join((f'{serial} is replaced', *effect))}", err=True)
    if diverged:
        with file_access(asked.file):
            keyring.write_version(asked.file, f"keys of {asked.inventory}", advance=True)
    return {box.name: one.version for box, one in diverged if one.version}


def _collect_diverged(ring: Keyring, reach: Reach) -> list[tuple[Box, Having]]:
    answers = each(reach.boxes, _having_or_none)
    return [(box, one) for box, one in zip(reach.boxes, answers, strict=True) if one and not is_accepted(ring, one)]


def _having_or_none(box: Box) -> Having | None:
    with suppress(Unseen):
        return having_of(box)
    return None


def refuse_vanished(asked: Asked, reach: Reach) -> None:
    """Refuse to go on without a file of keys where hosts have some: all of them would be taken away.

    Raises:
        click.ClickException: it is not there, and a host has keys.
        Unreached: it is not there, and a host cannot be asked.
    """
    if asked.file.exists() or asked.file.is_symlink():
        return
    for box, one in zip(reach.boxes, each(reach.boxes, having_of), strict=True):
        if one.rows:
            raise click.ClickException(
                f"{keyring.vanished(asked.file)}; {box.name} has {counted(len(one.rows), 'key')}"
            )
    if reach.gone:
        away_from = ", ".join(reach.gone)
        raise Unreached(
            f"{asked.file} is not there, and {away_from} cannot be asked for keys: --no-hosts begins a new one"
        )


def connect_hosts(asked: Asked) -> Reach:
    """Connect to the hosts that have a gateway."""
    found, gone = boxes(asked.inventory, asked.limit)
    lost = {name: why for name, why in gone.items() if name in asked.rigs}
    return Reach([box for box in found if box.name in asked.rigs], lost)


def _send_keys(box: Box, ring: Keyring, replaced: Mapping[str, HostVersion]) -> Brought:
    text = keyring.keys_json(ring)
    record = holder_record("updating the gateway's keys")
    mine = replaced.get(box.name)
    script = host_keys.bringing(box.rig, keyring.digest(text), ring.current_version, record, TURN, mine)
    try:
        answer = root.run(box.target, script, text, PATIENCE)
        return host_keys.brought(answer.lines)
    except root.Gone as error:
        return Brought(wrong=f"the connection was lost: {printable(str(error))}")
    except ValueError as error:
        return Brought(wrong=str(error))


def _became(asked: Asked, one: Brought) -> tuple[str, bool]:
    """What became of it, in words, and whether the host has it."""
    if one.refused:
        return f"{one.refused}; the running deploy may still update the keys, otherwise use `bring` afterwards", False
    if not one.deployed:
        return "nothing is deployed yet: the first deploy brings the keys", True
    if one.newer:
        return f"the keys were not updated: {host_keys.divergence(asked.file, asked.load(), one.newer)}", False
    if one.wrong:
        return f"the keys were not updated: {one.wrong}", False
    return "the keys are updated" if one.running else "the keys are updated, for when its gateway starts", True


def having_of(box: Box) -> Having:
    """Which keys a host has."""
    return box.read(host_keys.having, host_keys.having_script(box.rig))
