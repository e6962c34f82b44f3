"""What an inventory declares of a rig's gateway, as it is written."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, model_validator

from rigwright.addresses import Cidr, CorsOrigin, HostName, TcpPort
from rigwright.gateway.types import ListenAddress, ServedName, Sticky
from rigwright.problems import Frozen
from rigwright.types import Name

# Each takes two of the 65,536 files that the units of the gateway may have open (LimitNOFILE=).
Waiting = Annotated[int, Field(ge=0, le=32_000, strict=True)]
# a deploy waits for it
Draining = Annotated[int, Field(ge=0, le=3600, strict=True)]

# Seconds. Answers of a few hundred tokens take less on the slowest of our cards.
DRAIN = 30


class ListenerEntry(Frozen):
    """One address and port that clients reach."""

    address: ListenAddress = Field(
        description="The host's own address that it listens on; `0.0.0.0` is all of IPv4, `::` all there are."
    )
    port: TcpPort = Field(description="The TCP port; below 1024 too.")
    tls: bool = Field(
        default=False,
        strict=True,
        description="Whether clients speak TLS, with a certificate of your own authority (`rigwright ca`) or of "
        "`cert_file`; else all that is said, keys too, can be read on the way.",
    )
    keys: bool = Field(
        default=True,
        strict=True,
        description="Whether clients need a key (`rigwright keys`). Without, whoever reaches it is served, and a key "
        "that one sends is not looked at.",
    )
    models: tuple[ServedName, ...] = Field(
        default=(), description="What is offered here of what the gateway offers; all of it without."
    )
    names: tuple[HostName, ...] = Field(
        default=(), description="Names that clients call it by, for its certificate; its address always is in it."
    )
    cert_file: str | None = Field(
        default=None,
        min_length=1,
        description="A PEM file on the operator's machine, from the inventory's folder, with its certificate and those "
        "above it. Needs `tls` and `key_file`.",
    )
    key_file: str | None = Field(
        default=None, min_length=1, description="The certificate's private key, likewise, without a passphrase."
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, as `ADDRESS:PORT`."""
        wide = ("0.0.0.0", "::") if self.address == "::" else (self.address,)  # noqa: S104 (as declared)
        return tuple(f"[{one}]:{self.port}" if ip_address(one).version == 6 else f"{one}:{self.port}" for one in wide)

    @model_validator(mode="after")
    def _fitting(self) -> ListenerEntry:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("cert_file and key_file together, or neither")
        if not self.tls and (idle := [key for key in ("cert_file", "names") if getattr(self, key)]):
            raise ValueError(f"tls = True beside {', '.join(idle)}")
        if self.tls and not (self.names or self.cert_file) and ip_address(self.address).is_unspecified:
            raise ValueError(
                "names that clients call it by: with tls, and all addresses, there is none for a certificate"
            )
        return self


class ModelEntry(Frozen):
    """One name that clients ask for, and who answers."""

    instances: tuple[Name, ...] = Field(min_length=1, description="Instances that answer, all of one variant.")
    queue: Waiting | None = Field(default=None, description="As the gateway's, for this model alone.")
    sticky: Sticky | None = Field(default=None, description="As the gateway's, for this model alone.")


class Gateway(Frozen):
    """The gateway of a rig: nginx, with what decides who may ask for what, and who answers."""

    listeners: dict[Name, ListenerEntry] = Field(min_length=1, description="Where clients reach it.")
    models: dict[ServedName, ModelEntry] = Field(
        default_factory=dict,
        description="Names that clients ask for, each with the instances that answer; without it each model of the "
        "catalogue that an instance serves, by all that serve it.",
    )
    aliases: dict[ServedName, ServedName] = Field(
        default_factory=dict, description='Further names of these, such as `{"gpt-4o": "qwen3.6-27b"}`.'
    )
    queue: Waiting = Field(
        default=64,
        description="Requests of a model that wait, beyond those that its instances work on at once; who comes then "
        "is told to come later (429).",
    )
    sticky: Sticky = Field(
        default="",
        description="How requests are kept to one of several equal instances: `header:NAME` by that header's value, "
        "`conversation` by how the conversation begins; without it the one with the fewest under way is chosen.",
    )
    origins: tuple[CorsOrigin, ...] = Field(
        default=(),
        description="Origins whose pages, or browser extensions, may ask: `https://chat.example.org`, "
        "`chrome-extension://ID`.",
    )
    scrapers: tuple[Cidr, ...] = Field(
        default=(), description="Networks that may read `/metrics` and `/metrics/INSTANCE`, on every listener."
    )
    drain: Draining = Field(
        default=DRAIN,
        description="Seconds that requests under way have to end before their instance is stopped, while new ones go "
        "elsewhere, or are told to come again (503); streams that are longer end with an error that says so.",
    )
    keys_file: str = Field(
        default="gateway-keys.toml",
        min_length=1,
        description="The file of keys on the operator's machine, from the inventory's folder; `rigwright keys` writes "
        "it, and there is no secret in it.",
    )

    @property
    def keyed(self) -> bool:
        """Whether any listener needs keys."""
        return any(one.keys for one in self.listeners.values())
