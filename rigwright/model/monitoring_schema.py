"""Monitoring as declared: keys of an inventory and scrape targets."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, model_validator

from rigwright.address_types import Address, Cidr, HttpUrlWithQuery, Port
from rigwright.model.secret_sources import SecretEntry
from rigwright.problems import FrozenModel, InventoryModel
from rigwright.validated_types import Name, Positive, Text

if TYPE_CHECKING:
    from rigwright.model.gateway_schema import Gateway


class GatewayEndpoint(FrozenModel):
    """A listener of a gateway, as others reach it."""

    address: Address
    port: int = Field(ge=1, le=65535, strict=True)
    tls: bool = Field(strict=True)

    @property
    def endpoint(self) -> str:
        """`ADDRESS:PORT`."""
        return format_endpoint(self.address, self.port)

    @property
    def scheme(self) -> str:
        """The URL scheme of the endpoint."""
        return "https" if self.tls else "http"


class ScrapedInstance(FrozenModel):
    """An instance that a gateway offers."""

    name: Name
    variant: Text
    model: Text
    engine: Text


class ScrapeTarget(FrozenModel):
    """A box with exporters."""

    name: Name
    address: Address
    node_port: Port
    gpu_port: Port | None
    """None where it has no cards."""
    doors: tuple[GatewayEndpoint, ...]
    """Of its gateway; the first is asked for metrics."""
    instances: tuple[ScrapedInstance, ...]


def format_endpoint(address: str, port: int) -> str:
    """`ADDRESS:PORT`, as in an address of the web."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"


# Exporters of a box and of its cards, and the programs of the server.
EXPORTERS, CARD_EXPORTERS, SERVER_PROGRAMS = ("node",), ("gpu",), ("prometheus", "alertmanager", "blackbox")
Percent = Annotated[int, Field(ge=1, le=99, strict=True)]
Seconds = Annotated[float, Field(gt=0, le=3600, strict=True, allow_inf_nan=False)]


class AlertReceiver(InventoryModel):
    """A receiver of alerts: a webhook in Alertmanager's format."""

    url: HttpUrlWithQuery | None = Field(
        default=None, description="URL to post alerts to; every user of the monitoring server can read it."
    )
    url_file: SecretEntry | None = Field(
        default=None,
        description="Instead of `url`, for an address that is itself a secret: a file on your machine, relative to the "
        "inventory, with the address on its only line, or a command that prints it. Not on Debian 12.",
    )
    token_file: SecretEntry | None = Field(
        default=None,
        description="A file on your machine, relative to the inventory, with a token on its only line, or a command "
        "that prints it; sent as `Authorization: Bearer`.",
    )

    @model_validator(mode="after")
    def _require_url(self) -> AlertReceiver:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("either url or url_file")
        return self


class AlertThresholds(InventoryModel):
    """Alert thresholds."""

    RENAMED: ClassVar[dict[str, str]] = {"verdict_hours": "check_hours"}

    ttft_p99_s: Seconds | None = Field(
        default=None,
        description="Time to first token in seconds, 99th percentile over 10 minutes; no alert if unset. Only "
        "for vLLM, which reports it.",
    )
    queue: Positive = Field(default=16, description="Waiting requests of an instance, for 5 minutes.")
    kv_percent: Percent = Field(
        default=95, description="Percent of an instance's KV cache in use, for 5 minutes. Only for vLLM."
    )
    temperature_c: Annotated[int, Field(ge=40, le=110, strict=True)] = Field(
        default=88, description="Temperature of a card in degrees Celsius, for 5 minutes."
    )
    disk_percent: Percent = Field(default=10, description="Percent of a file system that is free.")
    certificate_days: Positive = Field(default=14, description="Days until a gateway's certificate expires.")
    check_hours: Positive = Field(default=26, description="Hours since the last `rigwright check` of a box.")


class MonitoringServer(InventoryModel):
    """The Prometheus server that scrapes all boxes of an inventory, stores the samples and sends alerts."""

    RENAMED: ClassVar[dict[str, str]] = {"dead_man": "heartbeat_receiver", "limits": "alert_thresholds"}

    port: Port = Field(default=9090, description="Prometheus' TCP port, on the box's `address`.")
    alertmanager_port: Port = Field(default=9093, description="Alertmanager's, on the loopback interface.")
    blackbox_port: Port = Field(default=9115, description="Port of the prober of gateways, on the loopback interface.")
    allow: tuple[Cidr, ...] = Field(
        default=(),
        description="Networks that may query Prometheus, such as a Grafana server's; the box itself always may.",
    )
    interval_s: Annotated[int, Field(ge=5, le=60, strict=True)] = Field(
        default=15, description="Seconds between two scrapes of a target."
    )
    retention_days: Annotated[int, Field(ge=1, le=3650, strict=True)] = Field(
        default=30, description="Days to keep samples."
    )
    size_gb: Annotated[int, Field(ge=1, le=10_000, strict=True)] = Field(
        default=10, description="Maximum size of the samples in GB, below `roots.state`; the oldest are deleted first."
    )
    receivers: dict[Name, AlertReceiver] = Field(
        default_factory=dict, description="Receivers of alerts; without any, only Prometheus shows alerts."
    )
    heartbeat_receiver: Name | None = Field(
        default=None,
        description="The receiver that gets a heartbeat every minute and no other alert: it raises the alarm when "
        "heartbeats stop.",
    )
    alert_thresholds: AlertThresholds = Field(default=AlertThresholds(), description="Alert thresholds.")

    @model_validator(mode="after")
    def _check_consistent(self) -> MonitoringServer:
        if self.heartbeat_receiver is not None and self.heartbeat_receiver not in self.receivers:
            raise ValueError(
                "a server whose heartbeat_receiver is one of its receivers: "
                f"{', '.join(sorted(self.receivers)) or 'it has none'}"
            )
        return self


class Monitoring(InventoryModel):
    """Exporters of a box, and the networks that may scrape them."""

    address: Address = Field(description="The host's own address on which its exporters listen.")
    node_port: Port = Field(default=9100, description="TCP port of the host's exporter.")
    gpu_port: Port = Field(default=9400, description="TCP port of the cards' exporter, if the rig declares cards.")
    scrapers: tuple[Cidr, ...] = Field(
        default=(),
        description="Networks that may scrape the exporters and the gateway's `/metrics` and `/metrics/INSTANCE`; "
        "the box "
        "itself always may.",
    )
    server: MonitoringServer | None = Field(
        default=None,
        description="Makes this box the Prometheus server for all boxes of the inventory that declare `monitoring`.",
    )

    @property
    def ports(self) -> dict[str, int]:
        """Key -> port, for all declared ports."""
        found = {"node_port": self.node_port, "gpu_port": self.gpu_port}
        if self.server:
            keys = ("port", "alertmanager_port", "blackbox_port")
            found |= {f"server.{key}": getattr(self.server, key) for key in keys}
        return found

    @model_validator(mode="after")
    def _refuse_shared_ports(self) -> Monitoring:
        if twice := sorted(port for port, times in Counter(self.ports.values()).items() if times > 1):
            raise ValueError(f"a distinct port for each service: {twice[0]} occurs twice")
        return self


def service_users(monitoring: Monitoring | None, prefix: str, *, cards: bool) -> dict[str, str]:
    """Service -> the system user that it runs as.

    Args:
        monitoring: As it is declared.
        prefix: Prefix of the names of all service users.
        cards: Whether the rig declares any.
    """
    if not monitoring:
        return {}
    wanted = [*EXPORTERS, *(CARD_EXPORTERS if cards else ()), *(SERVER_PROGRAMS if monitoring.server else ())]
    names = all_service_users(prefix)
    return {name: names[name] for name in wanted}


def all_service_users(prefix: str) -> dict[str, str]:
    """Service -> user, for every service that monitoring can have."""
    # useradd(8) takes 32 characters, and the longest of these has 13
    return {name: f"{prefix[:19]}_{name}" for name in (*EXPORTERS, *CARD_EXPORTERS, *SERVER_PROGRAMS)}


def allowed_scrapers(monitoring: Monitoring) -> tuple[str, ...]:
    """The networks that may ask a box, and the box itself: its checks do."""
    return tuple(dict.fromkeys((*monitoring.scrapers, str(ip_network(monitoring.address)))))


def metrics_readers(gateway: Gateway | None, monitoring: Monitoring | None) -> tuple[str, ...]:
    """The networks that may read a gateway's metrics; none without one."""
    if not gateway:
        return ()
    return tuple(dict.fromkeys((*gateway.scrapers, *(allowed_scrapers(monitoring) if monitoring else ()))))
