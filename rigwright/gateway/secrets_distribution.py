"""Secrets of a gateway's programs: their paths on a host, their sources, the state observed there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rigwright.gateway.keys_file_version import ID, HostVersion, KeyVersion
from rigwright.host import script_output
from rigwright.host.script_output import matching, tolerant, word
from rigwright.host.systemd import STARTED_FROM_FOLDER
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.roots import Roots
from rigwright.render import render

GATEWAY, ROUTER = "rigwright_gateway", "rigwright_router"
"""Their units, and their folders below /run."""
ROUTER_SOCKET = f"{ROUTER}.socket"
# Decides which instances on demand are loaded; part of a gateway that has some.
RESIDENCY = "rigwright_residency"
RESIDENCY_UNIT, RESIDENCY_SOCKET = f"{RESIDENCY}.service", f"{RESIDENCY}.socket"
ROUTER_SOCKETS = f"{STARTED_FROM_FOLDER}/router"
ROUTER_UNIT, GATEWAY_UNIT = f"{ROUTER}.service", f"{GATEWAY}.service"
KEEPALIVED_UNIT, HEALTH_UNIT = "rigwright_keepalived.service", "rigwright_health.service"
"""The units of a gateway that shares an address with another one."""
# The secrets that root has given, by digest. Gone with a reboot, as what was given is.
KEYS_RECORD, CREDENTIALS_RECORD = f"{STARTED_FROM_FOLDER}/gateway-keys", f"{STARTED_FROM_FOLDER}/gateway-credentials"
# Files of a generation's folder `gateway`, which say what of its secrets the gateway is given.
ENGINE_KEYS, TLS = "engine-keys", "tls"
# Names in the place of a listener's: of the certificate by which other boxes know a gateway, and that of the port for
# gateways of others. No listener has an underscore.
FRONT, FLEET = "_front", "_fleet"
# States of a unit that has been given what was there when it began, and not what has come since.
RUNS = ("activating", "active", "reloading")
TRIES = 300  # five a second: for as long the unit's start may take
# Before the certificates, where TLS does not look (RFC 7468, 2): the SHA-256 of the key that was brought with them. So
# a host can tell that what lies there is whole, without telling what a key is.
FITS = re.compile(r"key ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class CertificateFacts:
    """The state of a pair on a host."""

    head: str
    """The text before the key in its file, of any kind."""
    key: str
    """SHA-256 of the rest; empty where others than root can read it."""

    @property
    def certificates(self) -> str:
        """Its certificates in PEM; empty where the key is not the one that was brought with them."""
        found = FITS.match(self.head)
        return self.head[found.end() :] if found and found[1] == self.key else ""


@dataclass(frozen=True)
class GatewaySecretFacts:
    """The state of secrets on a host."""

    keys: str = ""
    """SHA-256 of the file of keys; empty where it is not there, or not root's alone."""
    version: str = ""
    """Identifier of that file's version; empty without one."""
    keys_given: str = ""
    """SHA-256 of the keys that the router was given; empty where that is not known."""
    router: str = "inactive"
    """State of its unit; the gateway's likewise."""
    gateway: str = "inactive"
    credentials: str = ""
    """Digest of what the current generation's gateway is to be given of engines' keys and certificates."""
    credentials_given: str = ""
    """Digest of what it was given; empty where that is not known."""
    pairs: Mapping[str, CertificateFacts] = field(default_factory=dict)
    """Listener -> its certificate and key."""
    kept: frozenset[str] = frozenset()
    """Listeners that a generation on the host has certificates for."""

    def has_keys(self, wanted: str) -> bool:
        """Whether nothing is left to do for these keys."""
        return self.keys == wanted and (self.router not in RUNS or self.keys_given == wanted)

    @property
    def has_current_credentials(self) -> bool:
        """Whether the gateway, if it runs, was given what lies there."""
        return self.gateway not in RUNS or self.credentials_given == self.credentials


def has_only_known_keys(found: GatewaySecretFacts, none: Collection[str]) -> bool:
    """Whether a host has keys, and none but those that it was given: other files are to be taken away.

    The secrets that it was given are unknown between a boot and the router's start, and after keys could not be given.

    Args:
        found: Its keys.
        none: SHA-256 of no keys, as controllers of all versions write them.
    """
    return found.keys not in ("", *none) and found.keys_given in ("", found.keys)


# an operator may have put a file of any name there
_listener = tolerant(matching(r"_?[a-z0-9][a-z0-9-]{0,47}", "the name of a listener"))
SCHEMA: script_output.Schema = {
    "keys": (tolerant(script_output.sha256),),
    "version": (tolerant(matching(ID, "a version of keys")),),
    "keys_given": (tolerant(script_output.sha256),),
    "router": (tolerant(word, "inactive"),),
    "gateway": (tolerant(word, "inactive"),),
    "credentials": (tolerant(script_output.sha256),),
    "credentials_given": (tolerant(script_output.sha256),),
    "pair": (_listener, tolerant(script_output.sha256), script_output.text),
    "kept": (_listener,),
}
"""The output of templates/look/gateway.sh.j2."""


def keys_path(roots: Roots) -> str:
    """Where the keys lie on the host, for root alone."""
    return f"{roots.credentials}/gateway-keys.json"


def pair_path(roots: Roots, listener: str) -> str:
    """Where a listener's certificates and key lie, likewise."""
    return f"{roots.credentials}/gateway-{listener}.pem"


def gateway_state_values(roots: Roots) -> dict[str, object]:
    """The values of templates/look/gateway.sh.j2."""
    return {
        "credentials": roots.credentials,
        "generations": roots.generations,
        "current": f"{roots.config}/current/gateway",
        "keys": keys_path(roots),
        "keys_record": KEYS_RECORD,
        "credentials_record": CREDENTIALS_RECORD,
        "router_unit": ROUTER_UNIT,
        "gateway_unit": GATEWAY_UNIT,
    }


def render_state_query(roots: Roots) -> str:
    """The script whose output `parse` reads."""
    return render("look/gateway.sh.j2", **gateway_state_values(roots))


def parse(output: Iterable[str]) -> GatewaySecretFacts:
    """Read what it tells.

    Raises:
        ValueError: that is not what was asked for.
    """
    told = script_output.parse_output(output, SCHEMA)
    return GatewaySecretFacts(
        keys=told.one("keys"),
        version=told.one("version"),
        keys_given=told.one("keys_given"),
        router=told.one("router"),
        gateway=told.one("gateway"),
        credentials=told.one("credentials"),
        credentials_given=told.one("credentials_given"),
        # a shell's words lose the newlines that they end in
        pairs={name: CertificateFacts(f"{head}\n", key) for name, key, head in told.many("pair") if name},
        kept=frozenset(filter(None, told.all("kept"))),
    )


def render_root_programs(roots: Roots, accounts: ServiceAccounts) -> dict[str, str]:
    """Programs of root's in a generation's folder `gateway`, by name.

    `give-keys [PID]` is the router's ExecStartPre, and with its main process its ExecReload; `prepare` is the gateway's
    ExecStartPre, and the first of its ExecReload.
    """
    return {
        "give-keys": render(
            "gateway/keys.sh.j2",
            asked=f"{ROUTER_SOCKETS}/light.sock",
            keys=keys_path(roots),
            user=accounts.router,
            folder=f"/run/{ROUTER}",
            record=KEYS_RECORD,
        ),
        "prepare": render(
            "gateway/prepare.sh.j2",
            credentials=roots.credentials,
            user=accounts.gateway,
            folder=f"/run/{GATEWAY}",
            record=CREDENTIALS_RECORD,
        ),
    }


def render_name_lists(engine_keys: Mapping[str, str], listeners: Sequence[str]) -> dict[str, str]:
    """Files that `prepare` reads beside itself, by name.

    Args:
        engine_keys: Instance -> the name of its key's file among the credentials.
        listeners: Those with TLS.
    """
    return {
        ENGINE_KEYS: "".join(f"{instance} {file}\n" for instance, file in sorted(engine_keys.items())),
        TLS: "".join(f"{listener}\n" for listener in sorted(listeners)),
    }


def render_secret_install(path: str, wanted: str, version: KeyVersion | None = None) -> str:
    """The script that puts a secret from its standard input where it lies.

    Args:
        path: Where that is.
        wanted: The secret's SHA-256.
        version: Of keys: the script fails on a host whose keys they were not made from.
    """
    return render("gateway/bring.sh.j2", path=path, wanted=wanted, replaceable=render_replaceable(version))


def render_replaceable(version: KeyVersion | None, replaced: HostVersion | None = None) -> str:
    """Versions on a host that keys of this one replace, for templates/gateway/version.sh.j2.

    Args:
        version: Of the keys.
        replaced: Another one, which this host alone has reported, and which is to be replaced there.
    """
    also = (replaced.id,) if replaced else ()
    return f" {' '.join(('none', version.id, *version.before, *also))} " if version else ""


def render_keys_reload(wanted: str) -> str:
    """The script by which a running router reads the keys that lie there, of this SHA-256."""
    return render("gateway/reload.sh.j2", unit=ROUTER_UNIT, record=KEYS_RECORD, wanted=wanted, tries=TRIES)


def render_credentials_reload(roots: Roots) -> str:
    """The script by which a running gateway gets the engines' keys and certificates that lie there."""
    return render(
        "gateway/reload.sh.j2",
        **gateway_state_values(roots),
        unit=GATEWAY_UNIT,
        record=CREDENTIALS_RECORD,
        wanted="",
        tries=TRIES,
    )
