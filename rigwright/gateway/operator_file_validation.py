"""The operator's files that a gateway is declared with, looked at before any host is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rigwright.gateway import keyring
from rigwright.local_files import SecretUnavailable
from rigwright.model.gateway_schema import Gateway
from rigwright.model.secret_sources import CommandSource, SecretCommand, SecretSource, is_readable
from rigwright.problems import Invalid


def refuse_files(
    gateway: Gateway,
    beside: Callable[[str], str],
    resolve: Callable[[str | SecretCommand], SecretSource],
    refuse: Callable[[str, str], None],
) -> None:
    """Refuse a file of keys, or certificates, that cannot be used.

    Args:
        gateway: As it is declared.
        beside: The path of a file that the inventory names.
        resolve: Resolves the source of a secret from the inventory's folder.
        refuse: Gets a key of the rig and its problem.
    """
    try:
        keyring.load_keyring(Path(beside(gateway.keys_file)))
    except Invalid as error:
        for problem in error.problems:
            refuse("gateway.keys_file", str(problem))
    for name, one in gateway.listeners.items():
        if one.cert_file and one.key_file:
            # slow to load, and for few
            from rigwright.gateway import certificate_authority, certificates

            wanted = certificates.subject_alt_names(one.names, [one.address])
            key, now = resolve(one.key_file), certificate_authority.certificate_now()
            try:
                if is_readable(key):
                    if faults := certificates.find_unreadable_files(beside(one.cert_file), key):
                        for fault in faults:
                            refuse(f"gateway.listeners.{name}.{fault.field}", str(fault))
                        continue
                    certificates.load_pair(beside(one.cert_file), key, wanted, now)
                elif not isinstance(key, str):
                    _refuse_missing_program(f"gateway.listeners.{name}.key_file", key, refuse)
                    certificates.validate_certificates(beside(one.cert_file), wanted, now)
            except SecretUnavailable as error:
                refuse(f"gateway.listeners.{name}.key_file", f"{key} {error}")
            except certificates.UnusableCertificate as error:
                refuse(f"gateway.listeners.{name}.{error.field}", str(error))


def _refuse_missing_program(place: str, command: CommandSource, refuse: Callable[[str, str], None]) -> None:
    try:
        command.find_program()
    except SecretUnavailable as error:
        refuse(place, f"{command} {error}")
