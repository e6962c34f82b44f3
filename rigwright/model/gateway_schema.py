"""The gateway in an inventory: keys and the types of their values."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from rigwright.address_types import PORT, ZONE, Cidr, HostName, TcpPort, canonical_host, describe_url_host
from rigwright.model.fleet_schema import FleetLinks, VirtualAddressEntry
from rigwright.model.secret_sources import SecretEntry
from rigwright.name_suggestions import suggestion
from rigwright.problems import InventoryModel
from rigwright.validated_types import LocalPath, Name, matching, refuse_violations

OPAQUE_ORIGIN = "null"
"""The origin that browsers send for a page without one: a sandboxed frame, a data: URL, a local file."""
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# RFC 6454, 6.2: scheme, host and a port that is not the scheme's usual one. Apps name pages of theirs by schemes of
# their own (RFC 3986, 3.1), and some have no host: file://.
_ORIGIN = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]{{0,31}})://([A-Za-z0-9._~-]{{0,253}}|\[[0-9A-Fa-f:.]+\])({PORT})")
_ORIGIN_ALLOWED = (
    "an origin without a path, such as https://chat.example.org, app://obsidian.md or chrome-extension://ID"
)


def _listen_address(value: str) -> str:
    wrong = ValueError(f"an IP address of the host, or 0.0.0.0 or :: for all{describe_url_host(value)}")
    try:
        found = ip_address(value)
    except ValueError:
        raise wrong from None
    if found.is_multicast:
        raise wrong
    if "%" in value:
        raise ValueError(f"{wrong}, {ZONE}")
    return str(found)


def _cors_origin(value: str) -> str:
    """An origin in the spelling that browsers send, by which the gateway compares it."""
    if value == OPAQUE_ORIGIN:
        return value
    found = _ORIGIN.fullmatch(value)
    if not found:
        begins = _ORIGIN.match(value)
        meant = f"; did you mean {begins[0]!r}?" if begins and value[begins.end() :][:1] == "/" else ""
        raise ValueError(_ORIGIN_ALLOWED + meant)
    scheme, name, port = found[1].lower(), found[2], found[3]
    if scheme not in _DEFAULT_PORTS:
        return f"{scheme}://{name}{port}"
    try:
        name = f"[{ip_address(name[1:-1])}]" if name[:1] == "[" else name if name == "0.0.0.0" else canonical_host(name)  # noqa: S104
    except ValueError as error:
        raise ValueError(f"{_ORIGIN_ALLOWED}: {error}") from None
    return f"{scheme}://{name}{'' if port == _DEFAULT_PORTS[scheme] else port}"


CorsOrigin = Annotated[str, AfterValidator(_cors_origin)]
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
ServedName = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}", "a model's name: letters, digits and ._:/@+-, at most 128")
]
Sticky = Annotated[
    str,
    matching(r"|conversation|header:[A-Za-z][A-Za-z0-9-]{0,63}", '"", "conversation" or "header:" and its name'),
    # names of headers are one in capitals and without
    AfterValidator(str.lower),
]


# The checks that a box makes of itself, of those whose failure can be about what instances answer.
ROTATION_CHECKS = (
    *("B03", "B04", "D01", "D02", "G01", "G02", "M05", "N01", "N02", "N14", "N15", "O08"),
    *("S01", "S02", "S04", "U01", "U02", "U04", "U09", "W01", "W06", "Y03"),
)


def _rotation_check(value: str) -> str:
    names = (*ROTATION_CHECKS, *dict.fromkeys(one[0] for one in ROTATION_CHECKS))
    if value not in names:
        hint = suggestion(value, names)
        raise ValueError(f"a check that a box makes of itself, or the letter of an area of them{hint}")
    return value


RotationCheck = Annotated[str, AfterValidator(_rotation_check)]
InstanceReference = Annotated[
    str,
    matching(
        r"([a-z0-9][a-z0-9-]{0,47}/)?[a-z0-9][a-z0-9-]{0,47}",
        "the name of an instance, or BOX/NAME for one of another box; at most 48 lowercase letters, digits and dashes",
        lambda value: "/".join(re.sub(r"[^a-z0-9]+", "-", one.lower()).strip("-") for one in value.split("/")),
    ),
]
# Each takes two of the 65,536 files that the units of the gateway may have open (LimitNOFILE=).
QueueLength = Annotated[int, Field(ge=0, le=32_000, strict=True)]
CacheIsolation = Literal["", "key"]
# a deploy waits for it
DrainSeconds = Annotated[int, Field(ge=0, le=3600, strict=True)]

# Clients of OpenAI and Anthropic give up after ten minutes by default
WaitSeconds = Annotated[int, Field(ge=1, le=3600, strict=True)]
WAIT = 120

# Seconds. Answers of a few hundred tokens take less on the slowest of our cards.
DRAIN = 30


class ListenerEntry(InventoryModel):
    """One address and port that clients reach."""

    address: ListenAddress = Field(
        description="The host address to listen on; `0.0.0.0` is all IPv4 addresses, `::` all addresses."
    )
    port: TcpPort = Field(description="The TCP port; may be below 1024.")
    tls: bool = Field(
        default=False,
        strict=True,
        description="Whether to use TLS, with a certificate of your own CA (`rigwright key ca`) or `cert_file`; "
        "otherwise all data, including keys, are sent in the clear.",
    )
    keys: bool = Field(
        default=True,
        strict=True,
        description="Whether clients need a key (`rigwright key`). Otherwise the listener serves every client and "
        "ignores keys.",
    )
    models: tuple[ServedName, ...] = Field(
        default=(),
        description="Models to offer on this listener, by name or alias, under all their names; default: all of the "
        "gateway's.",
    )
    names: tuple[HostName, ...] = Field(
        default=(),
        description="Host names for its certificate, in addition to its address. Without `keys`, the gateway refuses "
        "requests for other names, which prevents DNS rebinding; addresses and `localhost` are always valid.",
    )
    cert_file: LocalPath | None = Field(
        default=None,
        description="A PEM file on your machine, relative to the inventory, with its certificate chain. Needs `tls` "
        "and `key_file`.",
    )
    key_file: SecretEntry | None = Field(
        default=None,
        description="A file on your machine with the certificate's private key, without a passphrase; or a command "
        "that prints it.",
    )

    evict: bool | None = Field(
        default=None,
        strict=True,
        description="Whether a request for a sleeping model may stop an idle one that is in its way, if its key may, "
        "too; default: the value of `keys`.",
    )

    _source: str = PrivateAttr(default="")

    @property
    def may_evict(self) -> bool:
        """Whether requests of its clients may have an idle model stopped."""
        return self.keys if self.evict is None else self.evict

    def with_source(self, source: str) -> ListenerEntry:
        """The same listener at an address that two gateways share; this box's own one is `source`."""
        made = self.model_copy()
        made._source = source
        return made

    @property
    def own_address(self) -> str:
        """The address that this box always has: of an address that two gateways share, the other one may have it."""
        return self._source or self.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, as `ADDRESS:PORT`."""
        also = ("0.0.0.0",) if self.address == "::" else ()  # noqa: S104 (as declared)
        wide = (*also, self.address, *([self._source] if self._source else []))
        return tuple(f"[{one}]:{self.port}" if ip_address(one).version == 6 else f"{one}:{self.port}" for one in wide)

    @model_validator(mode="after")
    def _check_consistent(self) -> ListenerEntry:
        is_nameless = not (self.names or self.cert_file) and ip_address(self.address).is_unspecified
        refuse_violations(
            (bool(self.cert_file) != bool(self.key_file), "cert_file and key_file together, or neither"),
            (not self.tls and bool(self.cert_file), "tls = True if cert_file is set"),
            (not self.tls and self.keys and bool(self.names), "tls = True, or keys = False, if names is set"),
            (self.tls and is_nameless, "given names for the certificate, since it listens with TLS on all addresses"),
        )
        return self


class ModelEntry(InventoryModel):
    """One name that clients ask for, and the instances that answer."""

    instances: tuple[InstanceReference, ...] = Field(
        min_length=1,
        description="Instances that serve it, all of one variant; `BOX/NAME` is one of another box, which has `fleet`.",
    )
    queue: QueueLength | None = Field(default=None, description="Overrides the gateway's, for this model.")
    sticky: Sticky | None = Field(default=None, description="Overrides the gateway's, for this model.")
    allow_fields: tuple[str, ...] | None = Field(default=None, description="Overrides the gateway's, for this model.")
    cache_isolation: CacheIsolation | None = Field(default=None, description="Overrides the gateway's, for this model.")


class Gateway(InventoryModel):
    """The gateway of a rig: nginx, with the rules for clients, their rights, and the instances that answer."""

    EXAMPLE: ClassVar[str] = '{"listeners": {"lan": {"address": "192.0.2.7", "port": 8443}}}'
    FOREIGN: ClassVar[dict[str, str]] = dict.fromkeys(("port", "address", "listen", "host", "bind", "tls"), "listeners")

    listeners: dict[Name, ListenerEntry] = Field(
        min_length=1,
        examples=['{"lan": {"address": "192.0.2.7", "port": 8443}}'],
        description="Addresses and ports for clients.",
    )
    models: dict[ServedName, ModelEntry] = Field(
        default_factory=dict,
        description="Model names, each with its instances; default: every catalogue model served by an instance, with "
        "all instances that serve it.",
    )
    aliases: dict[ServedName, ServedName] = Field(
        default_factory=dict, description='Aliases, such as `{"gpt-4o": "qwen3.6-27b"}`.'
    )
    queue: QueueLength = Field(
        default=64,
        description="Queue length per model, beyond the parallel sequences of its instances; further requests get 429.",
    )
    sticky: Sticky = Field(
        default="",
        description="Session affinity among equal instances: `header:NAME` by that header's value, `conversation` by "
        "the start of the conversation; default: the least busy instance.",
    )
    allow_fields: tuple[str, ...] = Field(
        default=(),
        description="Names of request field rules to switch off. Fields that these rules refuse then reach the "
        "engine and may crash it.",
    )
    cache_isolation: CacheIsolation = Field(
        default="",
        description="`key` separates the prefix caches of vLLM by client key, so that clients cannot infer the "
        "prompts of others from the time to the first token; the engine computes prompts that several keys share "
        "once per key. Default: one cache for all clients of an instance.",
    )
    origins: tuple[CorsOrigin, ...] = Field(
        default=(),
        description="Origins that may send requests from a browser engine, as their `Origin` header has them: of pages "
        "(`https://chat.example.org`), extensions (`chrome-extension://ID`, `moz-extension://ID`) and apps "
        "(`app://obsidian.md`, `tauri://localhost`, `capacitor://localhost`, `vscode-webview://ID`, `file://`); "
        "`null`, which any web page can send, only if every listener needs keys.",
    )
    scrapers: tuple[Cidr, ...] = Field(
        default=(), description="Networks allowed to read `/metrics` and `/metrics/INSTANCE`, on every listener."
    )
    drain: DrainSeconds = Field(
        default=DRAIN,
        description="Seconds in which running requests can finish before their instance stops; new requests go to "
        "other instances or get 503 with `Retry-After`, and longer streams end with an error event.",
    )
    wait: WaitSeconds = Field(
        default=WAIT,
        description="Seconds that a request without `stream` waits for a sleeping model; beyond it 503 with "
        "`Retry-After`. Streams wait up to an hour.",
    )
    rotation_checks: tuple[RotationCheck, ...] = Field(
        default=("W01",),
        description="Checks that the box makes of itself every five minutes, by id (`W01`) or area (`W`): while one "
        "fails, the instances that it is about get a request only if no other instance of the model can answer it. "
        "`[]`: none. A lost card, an Xid that leaves a card unusable, and a nearly full disk need no check.",
    )
    virtual_address: VirtualAddressEntry | None = Field(
        default=None,
        description="An address that this gateway shares with the gateway of one other box of the inventory, which has "
        "the same settings: when one is lost, the other gets the address.",
    )
    keys_file: LocalPath = Field(
        default="gateway-keys.toml",
        description="The keys file on your machine, relative to the inventory; written by `rigwright key`, contains "
        "no secrets.",
    )

    _fleet: FleetLinks = PrivateAttr(default_factory=FleetLinks)

    @model_validator(mode="after")
    def _add_sources(self) -> Gateway:
        if shared := self.virtual_address:
            for name, one in self.listeners.items():
                if one.address == shared.host:
                    self.listeners[name] = one.with_source(shared.source)
        return self

    @property
    def fleet(self) -> FleetLinks:
        """The connections of the box with others of its inventory; no key of an inventory."""
        return self._fleet

    def with_fleet(self, links: FleetLinks) -> Gateway:
        """The same gateway of a box that has to do with others."""
        made = self.model_copy()
        made._fleet = links
        return made

    @property
    def uses_other_boxes(self) -> bool:
        """Whether a model names an instance of another box."""
        return any("/" in name for model in self.models.values() for name in model.instances)

    @property
    def serves_clients(self) -> bool:
        """Whether clients reach it: the gateway of a box that only lends its instances has no listener for them."""
        return bool(self.listeners)

    @property
    def needs_keys(self) -> bool:
        """Whether any listener needs keys."""
        return any(one.keys for one in self.listeners.values())

    def has_model(self, listener: ListenerEntry, model: str) -> bool:
        """Whether a listener offers a model: it names none, or this one or an alias of it."""
        return not listener.models or model in {self.aliases.get(one, one) for one in listener.models}
