"""Keys of clients on a host: which ones it has, whether it takes those of a file, and how a command brings them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigwright.gateway import keyring, secrets_distribution
from rigwright.gateway.gateway_units import FOLDER, load_router_modules
from rigwright.gateway.keyring import ClientKeyring
from rigwright.gateway.keys_file_version import (
    HostVersion,
    KeyVersion,
    describe_divergence,
    is_replaceable,
    parse_host_version,
)
from rigwright.gateway.nginx_conf import load_lua_modules
from rigwright.gateway.secrets_distribution import (
    KEYS_RECORD,
    ROUTER_UNIT,
    TRIES,
    GatewaySecretFacts,
    keys_path,
    render_replaceable,
)
from rigwright.host import deploy_lock_state, script_output
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.host.script_output import tolerant, word
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.gateway_schema import Gateway
from rigwright.model.roots import Roots
from rigwright.render import render

REMEDY = (
    "Take the newer file from the controller that changed the keys last, or replace the host's keys with these by "
    "`key sync INVENTORY --replace-newer`"
)


KEYS_SCHEMA: script_output.Schema = {
    "file": (script_output.text,),
    "given": (tolerant(script_output.sha256),),
    "router": (tolerant(word, "inactive"),),
}
"""The output of templates/gateway/having.sh.j2."""


@dataclass(frozen=True)
class DeployedKeys:
    """Which keys a host has."""

    rows: tuple[Mapping[str, object], ...]
    """As `rigwright.gateway.keyring.key_rows` makes them; hostile."""
    current: bool
    """Whether the router, if it runs, has these."""
    ending: tuple[Mapping[str, object], ...] = ()
    """As `rigwright.gateway.keyring.expiring_rows` makes them; hostile."""
    version: HostVersion | None = None
    """None for keys from before there were versions, and without keys."""

    @property
    def valid_rows(self) -> tuple[Mapping[str, object], ...]:
        """All keys, those that are about to expire too."""
        return (*self.rows, *self.ending)


def render_keys_query(roots: Roots) -> str:
    """The script whose output `parse_deployed_keys` reads."""
    return render("gateway/having.sh.j2", **secrets_distribution.gateway_state_values(roots))


def parse_deployed_keys(output: Iterable[str]) -> DeployedKeys:
    """Read what it tells.

    Raises:
        ValueError: that is not what was asked for.
    """
    told = script_output.parse_output(output, KEYS_SCHEMA)
    text = str(told.one("file"))
    digest = hashlib.sha256(f"{text}\n".encode()).hexdigest()
    return _parse_keys_json(text, told.one("router") != "active" or told.one("given") == digest)


def _parse_keys_json(text: str, current: bool) -> DeployedKeys:
    try:
        found = json.loads(text or '{"keys":[]}')
        keys, ending = (
            tuple(row for row in rows if isinstance(row, dict)) for rows in (found["keys"], _expiring_rows(found))
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the gateway's keys file is invalid") from None
    return DeployedKeys(keys, current, ending, parse_host_version(found.get("version")))


def describe_key_divergence(file: Path, ring: ClientKeyring, host: DeployedKeys) -> str:
    """Why a host does not take the keys of a file, what they would do there, and how to go on.

    Args:
        file: The operator's keys file.
        ring: Its keys.
        host: The host's.
    """
    ours = (*keyring.key_rows(ring), *keyring.expiring_rows(ring))
    found = describe_divergence(str(file), ring.current_version, ours, host.version, host.valid_rows)
    return f"{found}. {REMEDY}"


def _expiring_rows(found: Mapping[str, object]) -> Iterable[object]:
    rows = found.get("ending")
    return rows if isinstance(rows, list) else ()


def keys_file_path(inventory: str, declared: Gateway) -> Path:
    """The operator's keys file of a rig with this gateway."""
    return Path(resolve_inventory_path(Path(inventory).parent, declared.keys_file))


def describe_refusal(
    file: Path, ring: ClientKeyring, found: GatewaySecretFacts, read_host: Callable[[], DeployedKeys]
) -> str:
    """Why a host does not take the keys of a file, for the operator; empty if it takes them.

    Args:
        file: The operator's keys file.
        ring: Its keys.
        found: The host's keys.
        read_host: Reads the host's keys, which only a refusal needs.
    """
    if not file.exists() and secrets_distribution.has_only_known_keys(found, keyring.digests_of_none()):
        return f"{keyring.describe_missing_file(file)}; this host has keys that you gave it"
    return (
        "" if is_replaceable(ring.current_version, found.version) else describe_key_divergence(file, ring, read_host())
    )


PROGRAMS_SCHEMA: script_output.Schema = {"programs": (script_output.text,)}
"""The output of templates/look/gateway_programs.sh.j2."""


def render_programs_query(roots: Roots) -> str:
    """The script whose output `has_other_programs` reads."""
    return render("look/gateway_programs.sh.j2", folder=f"{roots.config}/current/{FOLDER}")


def has_other_programs(output: Iterable[str]) -> bool:
    """Whether a gateway loads models on demand with other programs than these, which may not know each right of a key.

    Raises:
        ValueError: that is not what was asked for.
    """
    told = script_output.parse_output(output, PROGRAMS_SCHEMA)
    return told.one("programs") not in ("", digest_programs())


def digest_programs() -> str:
    """SHA-256 of the programs of nginx and the router, as sha256sum(1) lists them."""
    texts = {**load_lua_modules(), **{f"router/{name}": text for name, text in load_router_modules().items()}}
    lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  ./{path}\n" for path, text in sorted(texts.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class KeyDelivery:
    """The result of keys that were brought to a host."""

    refused: str = ""
    """The process that is at work there, for people; empty if none is."""
    deployed: bool = True
    """Whether there is a place for them."""
    wrong: str = ""
    """The error, likewise."""
    running: bool = False
    """Whether the router has them now; else it will when it starts."""
    newer: DeployedKeys | None = None
    """The host's keys where they stay, as these were not made from them."""
    lost: str = ""
    """The error that ended the connection before the result; the host may have the keys, or not."""
    restricted: tuple[str, ...] = ()
    """Names of keys without a right that the host's gateway may not know, for it has other programs."""
    unchecked: str = ""
    """The error that left it open whether they are restricted there; empty if that is known."""

    @property
    def has_arrived(self) -> bool:
        """Whether the host has the keys."""
        return self.deployed and not (self.refused or self.wrong or self.newer or self.lost)


DELIVERY_SCHEMA: script_output.Schema = {
    **deploy_lock_state.SCHEMA,
    "blank": (),
    "wrong": (script_output.free_text,),
    "router": (tolerant(word, "inactive"),),
    "newer": (script_output.text,),
}
"""The output of templates/gateway/bringing.sh.j2."""


def render_key_delivery(
    roots: Roots, wanted: str, version: KeyVersion, holder: str, patience: int, replaced: HostVersion | None = None
) -> str:
    """The script that takes a host's deploy lock, and does the work of `key sync` and `render_keys_reload`.

    Args:
        roots: Directories on the host.
        wanted: SHA-256 of the keys, which are its standard input.
        version: The version of these keys.
        holder: The record of the lease's holder, without a newline.
        patience: Seconds to wait for another holder.
        replaced: The host's own version, which these keys replace though they were not made from it.
    """
    return render(
        "gateway/bringing.sh.j2",
        locks=LOCKS,
        holder=holder,
        patience=patience,
        replaceable=render_replaceable(version, replaced),
        folder=roots.credentials,
        path=keys_path(roots),
        wanted=wanted,
        unit=ROUTER_UNIT,
        record=KEYS_RECORD,
        tries=TRIES,
    )


def parse_key_delivery(output: Iterable[str]) -> KeyDelivery:
    """Read what it tells.

    Raises:
        ValueError: that is not what was asked for.
    """
    told = script_output.parse_output(output, DELIVERY_SCHEMA)
    if told.many("removal"):
        return KeyDelivery(refused=deploy_lock_state.REMOVAL)
    if held := told.all("held"):
        return KeyDelivery(refused=str(held[0]))
    if told.many("blank"):
        return KeyDelivery(deployed=False)
    if newer := told.all("newer"):
        return KeyDelivery(newer=_parse_keys_json(str(newer[0]), current=True))
    if wrong := told.all("wrong"):
        return KeyDelivery(wrong=wrong[0] or "it gave no reason")
    return KeyDelivery(running=told.one("router") == "active")
