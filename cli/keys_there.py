"""Which keys the gateways of an inventory have, and how they are brought there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from checks.looking import Box, Gone, boxes, each
from checks.results import STATUS
from cli.declared import named, rig_of
from cli.ending import Unreached
from cli.tables import say
from rigwright.declaration.instances import beside
from rigwright.declaration.rig import Rig
from rigwright.gateway import given, keyring
from rigwright.gateway.given import Brought, Having
from rigwright.gateway.keyring import Keyring
from rigwright.problems import Invalid, counted, printable
from roles import root
from roles.deploy_lock import holder
from roles.unreached import away

PATIENCE = 120.0  # seconds that a host may take


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
        one for name in names for one in (*(offer.name for offer in rigs[name].offers), *_aliases(rigs[name]))
    )
    return Asked(inventory, limit, Path(file), {name: rigs[name] for name in names}, models)


def _aliases(rig: Rig) -> Collection[str]:
    return rig.gateway.aliases if rig.gateway else ()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """For a block in which no other run changes keys of this folder, or brings them: an older text would come last.

    Raises:
        click.ClickException: the folder cannot be opened.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        # gevent closes it later
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def everywhere(asked: Asked, no_hosts: bool) -> None:
    """Bring the keys to every host that has a gateway.

    Raises:
        click.exceptions.Exit: with 1, where one did not get them, with 3, where one is out of reach; each is named.
    """
    if no_hosts:
        say(f"{asked.file} is written; hosts get it with the next deploy", err=True)
        return
    found, gone = hosts_of(asked)
    missing = len(gone)
    for name, why in gone.items():
        say(f"{name}: {away(why)}; `bring` or the next deploy updates it", err=True)
    with alone(asked.file.parent):
        # another run may have changed them since
        text = keyring.keys_json(asked.load())
        became = each(found, lambda box: _brought(box, text))
    for box, one in zip(found, became, strict=True):
        line, there = _became(one)
        say(f"{box.name}: {line}", err=True)
        missing += not there
    if missing:
        raise click.exceptions.Exit(STATUS["not reached" if gone else "not as declared"])


def refuse_vanished(asked: Asked) -> None:
    """Refuse to go on without a file of keys where hosts have some: all of them would be taken away.

    Raises:
        click.ClickException: it is not there, and a host has keys.
        Unreached: it is not there, and a host cannot be asked.
    """
    if asked.file.exists() or asked.file.is_symlink():
        return
    found, gone = hosts_of(asked)
    for box, one in zip(found, each(found, having_of), strict=True):
        if one.rows:
            raise click.ClickException(
                f"{keyring.vanished(asked.file)}; {box.name} has {counted(len(one.rows), 'key')}"
            )
    if gone:
        away_from = ", ".join(gone)
        raise Unreached(
            f"{asked.file} is not there, and {away_from} cannot be asked for keys: --no-hosts begins a new one"
        )


def hosts_of(asked: Asked) -> tuple[list[Box], Gone]:
    """Connect to those that have a gateway; returns them, and those out of reach."""
    found, gone = boxes(asked.inventory, asked.limit)
    lost = {name: why for name, why in gone.items() if name in asked.rigs}
    return [box for box in found if box.name in asked.rigs], lost


def _brought(box: Box, text: str) -> Brought:
    script = given.bringing(box.rig, keyring.digest(text), holder("updating the gateway's keys"))
    try:
        answer = root.run(box.target, script, text, PATIENCE)
        return given.brought(answer.lines)
    except root.Gone as error:
        return Brought(wrong=f"the connection was lost: {printable(str(error))}")
    except ValueError as error:
        return Brought(wrong=str(error))


def _became(one: Brought) -> tuple[str, bool]:
    """What became of it, in words, and whether the host has it."""
    if one.refused:
        return f"{one.refused}; the running deploy may still update the keys, otherwise use `bring` afterwards", False
    if not one.deployed:
        return "nothing is deployed yet: the first deploy brings the keys", True
    if one.wrong:
        return f"the keys were not updated: {one.wrong}", False
    return "the keys are updated" if one.running else "the keys are updated, for when its gateway starts", True


def having_of(box: Box) -> Having:
    """Which keys a host has."""
    return box.read(given.having, given.having_script(box.rig))
