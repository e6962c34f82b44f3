"""Operations on secrets: API keys of instances, clients' keys and certificates of a gateway."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyinfra import host, state
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.file_lock import FileLockHeld
from rigwright.gateway import keyring, secrets_distribution
from rigwright.gateway.deployed_keys import DeployedKeys, describe_refusal, parse_deployed_keys, render_keys_query
from rigwright.gateway.keyring import ClientKeyring
from rigwright.gateway.secrets_distribution import GatewaySecretFacts
from rigwright.model.roots import Roots
from rigwright.problems import Invalid, format_count
from roles.operations.facts import ChannelFact, ReadOnlyScript
from roles.operations.files import PathEntriesFact, PathEntry

if TYPE_CHECKING:
    from rigwright.gateway.certificate_authority import Authority
    from rigwright.gateway.certificates import CertificatePair, CertificateSpec

# A power cut can leave a file without its content, and llama-server takes an empty key file for "no key needed".
EMPTY = {hashlib.sha256(text).hexdigest() for text in (b"", b"\n")}


@operation()
def install_credentials(keys: Mapping[str, str | None]) -> Generator[StringCommand, None, None]:
    """Put API keys where systemd reads them, or have the host make some that never leave it.

    A key travels through standard input: arguments are seen by every process, and by logs.

    + keys: the key's file, to have mode 600 -> the key; None keeps the one that is there, or makes 256 random bits
    """
    found = host.get_fact(PathEntriesFact, paths=list(keys)) if keys else {}
    wrong = {path: key for path, key in keys.items() if not _is_as_declared(found.get(path, PathEntry()), key)}
    if not wrong:
        host.noop(f"in place: {format_count(len(keys), 'key')}")
    for path, key in wrong.items():
        place, new = QuoteString(path), QuoteString(f"{path}.rigwright-new")
        settle = ("&& chmod 600", new, "&& chown root:root", new, "&& sync -d", new, "&& mv -fT", new, place)
        if key is not None:
            yield StringCommand("umask 077 && cat >", new, *settle, _stdin=[f"{key}\n"])
        elif _is_present(found.get(path, PathEntry())):
            yield StringCommand("chmod 600", place, "&& chown root:root", place)
        else:
            made = "umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >"
            yield StringCommand(made, new, "&& echo >>", new, *settle)


def _is_present(entry: PathEntry) -> bool:
    return entry.kind == "file" and entry.sha256 not in EMPTY


def _is_as_declared(entry: PathEntry, key: str | None) -> bool:
    kept = key is None or entry.sha256 == hashlib.sha256(f"{key}\n".encode()).hexdigest()
    return _is_present(entry) and (entry.mode, entry.user) == ("600", "root") and kept


class GatewaySecretsFact(ChannelFact[GatewaySecretFacts]):
    """The secrets that lie there, and those that were given."""

    default = GatewaySecretFacts

    def command(self, script: str) -> StringCommand:
        """The script of rigwright.gateway.secrets_distribution."""
        return ReadOnlyScript(script)

    def read(self, output: list[str]) -> GatewaySecretFacts:
        """Read what it tells."""
        return secrets_distribution.parse(output)


class KeysOnHostFact(ChannelFact[DeployedKeys]):
    """The keys that lie there, for a refusal that names them."""

    default = partial(DeployedKeys, (), current=True)

    def command(self, script: str) -> StringCommand:
        """The script of rigwright.gateway.secrets_distribution."""
        return ReadOnlyScript(script)

    def read(self, output: list[str]) -> DeployedKeys:
        """Read what it tells."""
        return parse_deployed_keys(output)


@operation()
def install_client_keys(roots: Roots, file: str) -> Generator[StringCommand, None, None]:
    """Bring the keys of a file where they lie, and have the router read them; requests go on undisturbed.

    They are read as they are when this runs: a key that was revoked in the meantime does not come back.

    + roots: paths on the host
    + file: the operator's file of keys
    """
    try:
        ring = _load_or_write_version(Path(file))
    except (Invalid, FileLockHeld) as error:
        yield _render_failure(str(error))
        return
    except OSError as error:
        yield _render_failure(keyring.describe_failure(Path(file), error))
        return
    text = keyring.keys_json(ring)
    found, wanted = (
        host.get_fact(GatewaySecretsFact, script=secrets_distribution.render_state_query(roots)),
        keyring.keys_digest(text),
    )
    if refusal := _describe_keys_refusal(roots, Path(file), ring, found):
        yield _render_failure(refusal)
        return
    if found.has_keys(wanted):
        host.noop(f"{format_count(len(ring.keys), 'key')} of the gateway, up to date")
        return
    if found.keys != wanted:
        yield StringCommand(
            "sh",
            "-c",
            QuoteString(
                secrets_distribution.render_secret_install(
                    secrets_distribution.keys_path(roots), wanted, ring.current_version
                )
            ),
            _stdin=[text],
        )
    yield StringCommand("sh", "-c", QuoteString(secrets_distribution.render_keys_reload(wanted)))


def _load_or_write_version(file: Path) -> ClientKeyring:
    """The keys of a file, which a run has the version of: after an edit by hand it is written there."""
    return keyring.write_version(file, "deploy") if state.is_executing else keyring.load_keyring(file)


def describe_keys_refusal(roots: Roots, file: str) -> str:
    """Why the host does not take the keys of a file, before anything on it is touched; empty if it takes them.

    Args:
        roots: Directories on the host.
        file: The operator's keys file.
    """
    found = host.get_fact(GatewaySecretsFact, script=secrets_distribution.render_state_query(roots))
    try:
        return _describe_keys_refusal(roots, Path(file), keyring.load_keyring(Path(file)), found)
    except Invalid as error:
        return str(error)


def _describe_keys_refusal(roots: Roots, file: Path, ring: ClientKeyring, found: GatewaySecretFacts) -> str:
    return describe_refusal(file, ring, found, lambda: host.get_fact(KeysOnHostFact, script=render_keys_query(roots)))


@operation()
def install_certificates(
    inventory: str, roots: Roots, wanted: Sequence[CertificateSpec]
) -> Generator[StringCommand, None, None]:
    """Bring listeners their certificates; the operator's own authority makes one where it is lacking or about to end.

    Certificates that neither the rig nor a generation on the host has any more go. Clients of a certificate notice
    nothing: nginx is given them by `reload_credentials`.

    + inventory: the inventory's path, for messages
    + roots: paths on the host
    + wanted: the target certificate of each listener with TLS
    """
    found = host.get_fact(GatewaySecretsFact, script=secrets_distribution.render_state_query(roots))
    brought = False
    for one in wanted:
        try:
            pair = _needed_certificate(inventory, one, found)
        except (ValueError, OSError) as error:
            yield _render_failure(f"listener {one.listener}: {error}")
            return
        if pair:
            path = secrets_distribution.pair_path(roots, one.listener)
            script = secrets_distribution.render_secret_install(path, hashlib.sha256(pair.text.encode()).hexdigest())
            yield StringCommand("sh", "-c", QuoteString(script), _stdin=[pair.text])
            brought = True
    gone = sorted(found.pairs.keys() - {one.listener for one in wanted} - found.kept)
    for listener in gone:
        yield StringCommand("rm -f", QuoteString(secrets_distribution.pair_path(roots, listener)))
    if not brought and not gone:
        host.noop(f"{format_count(len(wanted), 'certificate')} up to date")


def _needed_certificate(inventory: str, wanted: CertificateSpec, found: GatewaySecretFacts) -> CertificatePair | None:
    """The pair that a listener is to get; None where the one that it has will do.

    Raises:
        ValueError: the operator's own, or the authority, cannot be used.
        OSError: no authority can be written.
    """
    # a slow import, which hosts without TLS do not need
    from rigwright.gateway import certificate_authority, certificate_revocations, certificates

    there, now = found.pairs.get(wanted.listener), certificate_authority.certificate_now()
    if wanted.cert_file and wanted.key_file:
        own = certificates.load_pair(wanted.cert_file, wanted.key_file, wanted.sans, now)
        return None if there == own.expected_facts else own
    signing = _load_signing_authority(inventory, now)
    folder = Path(inventory).parent / certificate_authority.FOLDER
    above = signing.pem + _load_revocations(folder, signing, now) if wanted.between_boxes else ""
    if not signing.renewal_reason(there, wanted.sans, now) and there and there.certificates.endswith(above):
        return None
    pair = signing.issue(wanted.sans, now, is_client=wanted.between_boxes == "client")
    if wanted.between_boxes and state.is_executing:
        certificate_revocations.record_issued(folder, pair)
    return replace(pair, certificates=pair.certificates + above)


def _load_signing_authority(inventory: str, now: datetime) -> Authority:
    from rigwright.gateway import certificate_authority

    folder = Path(inventory).parent / certificate_authority.FOLDER
    if state.is_executing:
        return certificate_authority.ensure_authority(folder, now)
    # a plan makes none
    return certificate_authority.load_authority(folder, now) or certificate_authority.temporary_authority(now)


def _load_revocations(folder: Path, signing: Authority, now: datetime) -> str:
    from rigwright.gateway.certificate_revocations import ensure_revocations, load_revocations

    # a plan writes none
    return (ensure_revocations if state.is_executing else load_revocations)(folder, signing, now)


@operation()
def reload_credentials(roots: Roots) -> Generator[StringCommand, None, None]:
    """Have a gateway that runs given the engines' keys and certificates that lie there, by a reload.

    + roots: paths on the host
    """
    if host.get_fact(GatewaySecretsFact, script=secrets_distribution.render_state_query(roots)).has_current_credentials:
        host.noop("the gateway has loaded its files")
        return
    yield StringCommand("sh", "-c", QuoteString(secrets_distribution.render_credentials_reload(roots)))


def _render_failure(why: str) -> StringCommand:
    """The end of the run of this host, and no other's, with its reason."""
    return StringCommand("echo", QuoteString(why), ">&2; false")
