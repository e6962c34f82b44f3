"""`rigwright sign`: signatures of locks and bundles."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import click

from cli.default_inventory import InventoryArgument
from cli.inventory_loading import InventoryPath, load_host_rigs, load_hosts
from cli.option_types import WholeNumber
from cli.tables import print_prose
from rigwright import local_files
from rigwright.local_files import write_atomically
from rigwright.problems import Invalid, Problem
from rigwright.signing.dsse import parse_envelope
from rigwright.signing.public_keys import PublicKey, parse_public_key
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_statement, verify_envelope
from rigwright.signing.statements import SignedKind, Statement, parse_statement
from rigwright.signing.timestamps import current_time
from rigwright.signing.trusted_signers import TrustedSigners
from rigwright.supply.bundle import INDEX, load_bundle
from rigwright.supply.supply_signatures import (
    BUNDLE_SUBJECT,
    LARGEST_SIGNATURE,
    LOCK_SUBJECT,
    bundle_signature_path,
    describe_statement,
    lock_signature_path,
    name_inventory,
)
from roles.ssh_keygen import list_agent_keys

DEFAULT_DAYS = 180
MOST_DAYS = 3660
LARGEST_KEY = 64 << 10  # bytes of a key file


class SigningTarget(InventoryPath):
    """The path of an inventory, or of a bundle's folder."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse any other path."""
        return value if Path(value, INDEX).is_file() else super().convert(value, param, ctx)


@click.command()
@click.argument("inventory", metavar="[INVENTORY|BUNDLE]", cls=InventoryArgument, type=SigningTarget())
@click.option(
    "--key",
    "key_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Private key, or public key of ssh-agent's; default: the agent's key of a signer.",
)
@click.option(
    "--expires",
    "days",
    type=WholeNumber(1, MOST_DAYS),
    default=DEFAULT_DAYS,
    show_default=True,
    metavar="DAYS",
    help="Days after which the signature expires.",
)
@click.option(
    "--publish",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the signed generations of boxes that pull to this folder, instead.",
)
@click.option("--renew", is_flag=True, help="With --publish: only renew the timestamp; no host is reached.")
def sign(inventory: str, key_file: Path | None, days: int, folder: Path | None, renew: bool) -> None:
    """Sign and publish inputs.

    Signs INVENTORY's lock and its rigs' bundles, or the folder BUNDLE, with ssh-keygen. The inventory must have
    `signers`; its hosts then accept no other lock or bundle, and none with an earlier serial.
    Example: rigwright sign rig.py --key ~/.ssh/id_ed25519
    """
    if renew and not folder:
        raise click.UsageError("--renew renews the timestamp of a folder: name it with --publish")
    if sys.stderr.isatty():
        click.echo("ssh-keygen may ask for a passphrase, or wait for a touch of the security token", err=True)
    try:
        if Path(inventory, INDEX).is_file():
            if folder:
                raise click.UsageError("--publish needs an inventory, and no bundle")
            _sign_bundle(Path(inventory), key_file, days)
        elif folder:
            _publish(inventory, key_file, days, folder, renew=renew)
        else:
            _sign_inventory(inventory, key_file, days)
    except (Invalid, SignatureRefused) as error:
        raise click.ClickException(str(error)) from None


def _sign_bundle(folder: Path, key_file: Path | None, days: int) -> None:
    if not key_file:
        raise click.UsageError("a bundle without its inventory has no signers: name the key with --key")
    key_file = _require_key(key_file)
    path = bundle_signature_path(folder)
    serial = _next_serial([("bundle", path)])
    statement = _make_statement("bundle", ((BUNDLE_SUBJECT, load_bundle(folder).index_sha256),), serial, days, {})
    content = sign_statement(statement, key_file).render()
    _write_signature(path, content, statement)


def _sign_inventory(inventory: str, key_file: Path | None, days: int) -> None:
    rigs = [*load_host_rigs(load_hosts(inventory, None)).values()]
    signers = _load_signers(inventory)
    subjects: dict[tuple[SignedKind, Path], tuple[tuple[str, str], ...]] = {}
    unsigned: dict[Problem, None] = {}
    for rig in rigs:
        lock = (LOCK_SUBJECT, rig.lock.digest)
        subjects["lock", lock_signature_path(Path(rig.inventory))] = (lock,)
        # only a signed lock makes a bundle: its signature comes before there is one
        unsigned |= dict.fromkeys(rig.bundle_faults)
        if rig.bundle and not rig.bundle_faults:
            place = bundle_signature_path(rig.bundle.folder)
            subjects["bundle", place] = ((BUNDLE_SUBJECT, rig.bundle.index_sha256), lock)
    signed, serial = [], _next_serial(subjects)
    with _select_key(key_file, signers, {kind for kind, _ in subjects}) as key:
        for (kind, path), named in subjects.items():
            statement = _make_statement(kind, named, serial, days, name_inventory(Path(rigs[0].inventory), signers))
            content = sign_statement(statement, key).render()
            verify_envelope(content, kind, signers)
            signed.append((path, content, statement))
    for path, content, statement in signed:
        _write_signature(path, content, statement)
    if unsigned:
        print_prose("no signature of a bundle that does not fit the lock; make it, and sign again:")
        for problem in unsigned:
            print_prose(str(problem))


def _publish(inventory: str, key_file: Path | None, days: int, folder: Path, *, renew: bool) -> None:
    # here, for signatures of locks need no connections
    from cli.publish import publish_inventory

    signers = _load_signers(inventory)
    kinds: set[SignedKind] = {"timestamp"} if renew else {"generation", "timestamp"}
    with _select_key(key_file, signers, kinds) as key:
        publish_inventory(inventory, folder, signers, key, days, only_timestamp=renew)


def _load_signers(inventory: str) -> TrustedSigners:
    # all of its rigs have the same
    signers = next(iter(load_host_rigs(load_hosts(inventory, None)).values())).signers
    if not signers:
        raise click.ClickException(
            f'{inventory}: no rig has signers: add signers={{"NAME": {{"key": "ssh-ed25519 AAAA..."}}}} to hosts()'
        )
    return signers


def _make_statement(
    kind: SignedKind, subjects: tuple[tuple[str, str], ...], serial: int, days: int, details: Mapping[str, str]
) -> Statement:
    now = current_time()
    return Statement(kind, subjects, serial, now, now + timedelta(days=days), details)


def _next_serial(places: Iterable[tuple[SignedKind, Path]]) -> int:
    """A serial of the clock, which no lost file sets back, and another than those of the last signatures."""
    present = set()
    for kind, path in places:
        # one that is broken, or of another program, is written anew
        with suppress(SignatureRefused, ValueError):
            content = local_files.read_content(path, LARGEST_SIGNATURE)
            present.add(parse_statement(parse_envelope(content), kind).serial)
    serial = int(current_time().strftime("%Y%m%d%H%M%S"))
    return next(one for one in range(serial, serial + len(present) + 1) if one not in present)


def _write_signature(path: Path, content: bytes, statement: Statement) -> None:
    try:
        write_atomically(path, content.decode(), makes_folder=True)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    print_prose(f"{path}: signed, {describe_statement(statement)}")


def _require_key(path: Path) -> Path:
    """A key file; a private one that others can read is refused."""
    try:
        content = local_files.read_content(path, LARGEST_KEY)
    except ValueError as error:
        raise click.ClickException(f"{path} {error}") from None
    if b"PRIVATE KEY" in content and (fault := local_files.describe_exposure(path)):
        raise click.ClickException(f"{path} {fault}")
    return path


@contextmanager
def _select_key(key_file: Path | None, signers: TrustedSigners, kinds: set[SignedKind]) -> Iterator[Path]:
    """The file of the key to sign with: the named one, or the public one of the agent's that may sign."""
    if key_file:
        yield _require_key(key_file)
        return
    able = [key for key in _agent_keys() if _may_sign(key, signers, kinds)]
    if len(able) != 1:
        count = "has no key" if not able else f"has {len(able)} keys"
        raise click.ClickException(f"ssh-agent {count} of a signer: name the key with --key")
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
        file.write(f"{able[0]}\n")
        file.flush()
        yield Path(file.name)


def _agent_keys() -> list[PublicKey]:
    found = []
    for line in list_agent_keys():
        try:
            found.append(parse_public_key(line))
        except SignatureRefused:
            continue  # a key of a type that does not sign
    return found


def _may_sign(key: PublicKey, signers: TrustedSigners, kinds: set[SignedKind]) -> bool:
    try:
        return kinds <= {*signers.find(key).kinds}
    except SignatureRefused:
        return False
