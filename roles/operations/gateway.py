"""What a gateway's programs are given of secrets: who may ask, the engines' keys, certificates."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

from pyinfra import host, state
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.file_lock import LockHeld
from rigwright.gateway import authority, given, keyring, pairs
from rigwright.gateway.given import Found
from rigwright.gateway.host_keys import Having, describe_refusal, having, having_script
from rigwright.gateway.keyring import Keyring
from rigwright.gateway.pairs import Pair, Wanted
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, counted
from roles.operations.ahead import Question
from roles.operations.look import Look


class Given(Look[Found]):
    """What lies there, and what was given of it."""

    default = Found

    def command(self, script: str) -> StringCommand:
        """The script of rigwright.gateway.given."""
        return Question(script)

    def read(self, output: list[str]) -> Found:
        """Read what it tells."""
        return given.parse(output)


class HostKeys(Look[Having]):
    """The keys that lie there, for a refusal that names them."""

    default = partial(Having, (), current=True)

    def command(self, script: str) -> StringCommand:
        """The script of rigwright.gateway.given."""
        return Question(script)

    def read(self, output: list[str]) -> Having:
        """Read what it tells."""
        return having(output)


@operation()
def keys(rig: Rig, file: str) -> Generator[StringCommand, None, None]:
    """Bring the keys of a file where they lie, and have the router read them; nobody's request notices.

    They are read as they are when this runs: who had a key taken away in the meantime does not get it back.

    + rig: the rig
    + file: the operator's file of keys
    """
    try:
        ring = _load_or_write_version(Path(file))
    except (Invalid, LockHeld) as error:
        yield _refused(str(error))
        return
    except OSError as error:
        yield _refused(keyring.describe_failure(Path(file), error))
        return
    text = keyring.keys_json(ring)
    found, wanted = host.get_fact(Given, script=given.script(rig)), keyring.digest(text)
    if refusal := _keys_refusal(rig, Path(file), ring, found):
        yield _refused(refusal)
        return
    if found.has_keys(wanted):
        host.noop(f"{counted(len(ring.keys), 'key')} of the gateway, up to date")
        return
    if found.keys != wanted:
        yield StringCommand(
            "sh", "-c", QuoteString(given.bring(given.keys_path(rig), wanted, ring.current_version)), _stdin=[text]
        )
    yield StringCommand("sh", "-c", QuoteString(given.give_keys(wanted)))


def _load_or_write_version(file: Path) -> Keyring:
    """The keys of a file, which a run has the version of: after an edit by hand it is written there."""
    return keyring.write_version(file, "deploy") if state.is_executing else keyring.load(file)


def keys_refusal(rig: Rig, file: str) -> str:
    """Why the host does not take the keys of a file, before anything on it is touched; empty if it takes them.

    Args:
        rig: The rig.
        file: The operator's keys file.
    """
    found = host.get_fact(Given, script=given.script(rig))
    try:
        return _keys_refusal(rig, Path(file), keyring.load(Path(file)), found)
    except Invalid as error:
        return str(error)


def _keys_refusal(rig: Rig, file: Path, ring: Keyring, found: Found) -> str:
    return describe_refusal(file, ring, found, lambda: host.get_fact(HostKeys, script=having_script(rig)))


@operation()
def certificates(rig: Rig, wanted: Sequence[Wanted]) -> Generator[StringCommand, None, None]:
    """Bring listeners their certificates; the operator's own authority makes one where it is lacking or about to end.

    What neither the rig nor a generation on the host has any more goes. Who is served by one notices nothing: nginx is
    given them by `credentials_given`.

    + rig: the rig
    + wanted: what each listener with TLS is to have
    """
    found = host.get_fact(Given, script=given.script(rig))
    brought = False
    for one in wanted:
        try:
            pair = _lacking(rig, one, found)
        except (ValueError, OSError) as error:
            yield _refused(f"listener {one.listener}: {error}")
            return
        if pair:
            path = given.pair_path(rig, one.listener)
            script = given.bring(path, hashlib.sha256(pair.text.encode()).hexdigest())
            yield StringCommand("sh", "-c", QuoteString(script), _stdin=[pair.text])
            brought = True
    gone = sorted(found.pairs.keys() - {one.listener for one in wanted} - found.kept)
    for listener in gone:
        yield StringCommand("rm -f", QuoteString(given.pair_path(rig, listener)))
    if not brought and not gone:
        host.noop(f"{counted(len(wanted), 'certificate')} up to date")


def _lacking(rig: Rig, wanted: Wanted, found: Found) -> Pair | None:
    """The pair that a listener is to get; None where the one that it has will do.

    Raises:
        ValueError: the operator's own, or the authority, cannot be used.
        OSError: no authority can be written.
    """
    there, now = found.pairs.get(wanted.listener), authority.today()
    if wanted.cert_file and wanted.key_file:
        own = pairs.read(wanted.cert_file, wanted.key_file, wanted.sans, now)
        return None if there == own.on_host else own
    signing = _signing(rig)
    return signing.issue(wanted.sans, now) if signing.reason(there, wanted.sans, now) else None


def _signing(rig: Rig) -> authority.Authority:
    folder, now = Path(rig.inventory).parent / authority.FOLDER, authority.today()
    if state.is_executing:
        return authority.authority(folder, now)
    # a plan makes none
    return authority.read(folder, now) or authority.passing(now)


@operation()
def credentials_given(rig: Rig) -> Generator[StringCommand, None, None]:
    """Have a gateway that runs given the engines' keys and certificates that lie there, by a reload.

    + rig: the rig
    """
    if host.get_fact(Given, script=given.script(rig)).credentials_settled:
        host.noop("the gateway has loaded its files")
        return
    yield StringCommand("sh", "-c", QuoteString(given.give_credentials(rig)))


def _refused(why: str) -> StringCommand:
    """What ends the run of this host, and no other's, with its reason."""
    return StringCommand("echo", QuoteString(why), ">&2; false")
