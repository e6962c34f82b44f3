"""Declarations of an inventory about containers."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from rigwright.model.containers.archive_tables import ContainerEngine
from rigwright.problems import InventoryModel, suggestion

# Options of dockerd's configuration file (docs.docker.com/reference/cli/dockerd, "Daemon configuration file").
_OPTIONS = """
    allow-direct-routing allow-nondistributable-artifacts api-cors-header authorization-plugins bip bip6 bridge
    bridge-accept-fwmark builder cgroup-parent containerd containerd-namespace containerd-plugins-namespace data-root
    debug default-address-pools default-cgroupns-mode default-gateway default-gateway-v6 default-ipc-mode
    default-network-opts default-runtime default-shm-size default-ulimits dns dns-opts dns-search exec-opts exec-root
    experimental features firewall-backend fixed-cidr fixed-cidr-v6 group host-gateway-ip host-gateway-ips hosts
    http-proxy https-proxy icc init init-path insecure-registries ip ip-forward ip-forward-no-drop ip-masq ip6tables
    iptables ipv6 labels live-restore log-driver log-format log-level log-opts max-concurrent-downloads
    max-concurrent-uploads max-download-attempts metrics-addr min-api-version mtu no-new-privileges no-proxy
    node-generic-resources pidfile proxies raw-logs registry-mirrors rootless runtimes seccomp-profile selinux-enabled
    shutdown-timeout storage-driver storage-opts swarm-default-advertise-addr tls tlscacert tlscert tlskey tlsverify
    userland-proxy userland-proxy-path userns-remap cdi-spec-dirs
"""
OPTIONS = frozenset(_OPTIONS.split())
# Options that are set without a declaration, and options that would open the daemon, which is root, to others.
MANAGED_OPTIONS = frozenset({"runtimes", "features", "default-runtime", "cdi-spec-dirs"})
EXPOSING_OPTIONS = frozenset(
    {"hosts", "group", "authorization-plugins", "tls", "tlscacert", "tlscert", "tlskey", "tlsverify"}
)
LARGEST = 64 << 10  # bytes of all that is declared


def _options(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError("a table of options")
    for name in value:
        if name in MANAGED_OPTIONS:
            raise ValueError(f"without {name}: Rigwright sets it itself")
        if name in EXPOSING_OPTIONS:
            raise ValueError(
                f"without {name}: access to the Docker daemon is root access, so it listens only on its socket"
            )
        if name not in OPTIONS:
            raise ValueError(f"a table of dockerd options: {name!r} is not one{suggestion(name, OPTIONS)}")
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("a table of strings, numbers, booleans, lists and tables") from None
    if len(written) > LARGEST:
        raise ValueError(f"at most {LARGEST >> 10} KiB")
    read: dict[str, Any] = json.loads(written)
    return read


def _refuse_repeats(engines: tuple[ContainerEngine, ...]) -> tuple[ContainerEngine, ...]:
    if len(set(engines)) != len(engines):
        raise ValueError("no duplicates")
    return engines


class ContainersEntry(InventoryModel):
    """The runtimes of containers. On a rig with cards NVIDIA's container toolkit comes along, and the specs of its
    cards."""

    engines: Annotated[tuple[ContainerEngine, ...], AfterValidator(_refuse_repeats)] = Field(
        min_length=1, description="Container engines: `docker`, `podman` or both."
    )
    docker: Literal["distribution", "docker"] | None = Field(
        default=None,
        description="Archive to install Docker from; by default the installed one if it is new enough, else the locked "
        "one, else the distribution's.",
    )
    daemon: Annotated[dict[str, Any], PlainValidator(_options)] = Field(
        default_factory=dict,
        description='Docker daemon options, such as `{"live-restore": True}`: merged into the existing `daemon.json`.',
    )
    restart: bool = Field(
        default=False,
        strict=True,
        description="Whether deploys may restart the Docker daemon when that stops running containers; without it "
        "such a deploy is refused.",
    )

    @model_validator(mode="after")
    def _check_docker(self) -> ContainersEntry:
        idle = sorted(self.model_fields_set & {"docker", "daemon", "restart"})
        if "docker" not in self.engines and idle:
            raise ValueError(f"docker among the engines if {', '.join(idle)} is set")
        return self
