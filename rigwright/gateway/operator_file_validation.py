"""The operator's files that a gateway is declared with, looked at before any host is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rigwright.gateway import keyring
from rigwright.model.gateway_schema import Gateway
from rigwright.problems import Invalid


def refuse_files(gateway: Gateway, beside: Callable[[str], str], refuse: Callable[[str, str], None]) -> None:
    """Refuse a file of keys, or certificates, that cannot be used.

    Args:
        gateway: As it is declared.
        beside: The path of a file that the inventory names.
        refuse: Is told a key of the rig and what is wrong with it.
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
            try:
                certificates.load_pair(
                    beside(one.cert_file), beside(one.key_file), wanted, certificate_authority.certificate_now()
                )
            except certificates.UnusableCertificate as error:
                refuse(f"gateway.listeners.{name}.{error.field}", str(error))
