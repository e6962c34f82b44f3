"""Entries of an inventory: a host's keys and those of its instances."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from rigwright.address_types import Address, Cidr, HostName, HttpUrl, Origin, Port
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.download_origins import RegistryEntry
from rigwright.model.fleet_schema import FleetEntry
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance_schema import InstanceEntry, OnDemandEntry
from rigwright.model.monitoring_schema import Monitoring
from rigwright.model.pull_schema import PullEntry
from rigwright.model.roots import Roots
from rigwright.model.secret_sources import SecretEntry
from rigwright.model.signer_schema import RevokedKey, SignerEntry, SignerName
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.problems import InventoryModel
from rigwright.validated_types import (
    RISING,
    AbsolutePath,
    Archive,
    Capability,
    CardIndex,
    CardReference,
    CatalogName,
    Flavour,
    KernelNumber,
    Lanes,
    LocalPath,
    ModuleOption,
    Name,
    ReservedKey,
    SysctlName,
    UserName,
    refuse_violations,
)

Watts = Annotated[int, Field(ge=50, le=2000, strict=True)]
Megahertz = Annotated[int, Field(ge=100, le=5000, strict=True)]
# Keys that only a managed driver has: options of the module count from when it is loaded, with initial file systems and
# reboots that are the operator's own where the driver is.
NEEDS_MANAGED = frozenset({"reboot", "module_options"})


# told apart before they are looked at: a wrong value is one mistake, not one of each
PowerLimit = Annotated[
    Annotated[Watts, Tag("[number]")] | Annotated[tuple[Watts, ...], Tag("[list]")],
    Discriminator(lambda value: "[list]" if isinstance(value, (list, tuple)) else "[number]"),
]


class DriverEntry(InventoryModel):
    """The NVIDIA driver of a rig with cards, and what the cards are set to. `rigwright plan` says what it comes to."""

    EXAMPLE: ClassVar[str] = '{"managed": True, "branch": 580}'
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("version", "major", "release"), "branch"),
        **dict.fromkeys(("power", "powerlimit", "pl", "watts"), "power_w"),
        **dict.fromkeys(("clocks", "lockgpuclocks", "clock"), "clocks_mhz"),
        **dict.fromkeys(("install", "enabled"), "managed"),
    }
    RENAMED: ClassVar[dict[str, str]] = {"lanes": "pcie_link_width", "open_despite_cards": "force_open_modules"}

    managed: bool = Field(
        default=False,
        strict=True,
        description="Whether deploys install and configure the driver as declared here; otherwise you install it, and "
        "checks only verify that it fits the cards.",
    )
    branch: int | None = Field(
        default=None,
        ge=1,
        le=999,
        strict=True,
        description="The driver branch (major version); by default the locked driver's, else the published one with "
        "the longest support.",
    )
    flavour: Flavour | None = Field(
        default=None,
        description="Kernel module flavour; by default what the cards need, and open where both work. One module "
        "serves all cards: with a Blackwell card it is the open one.",
    )
    source: Archive | None = Field(
        default=None,
        description="Archive to install from; by default the locked driver's, else the distribution's if it has the "
        "branch.",
    )
    force_open_modules: bool = Field(
        default=False,
        strict=True,
        description="Run open modules also where a declared card is known to fail with them (`module` is `proprietary` "
        "in its description), such as a 2080 Ti with replaced memory next to a 5090. The card may fail.",
    )
    reboot: bool = Field(
        default=False,
        strict=True,
        description="Whether every deploy may reboot the host if the driver needs it; otherwise `--reboot` allows it "
        "for one deploy. Needs `managed`.",
    )
    power_w: PowerLimit | None = Field(
        default=None,
        description="Power limit, W: one for all cards, or one per card by GPU index; by default each card's own.",
    )
    clocks_mhz: Annotated[tuple[Megahertz, Megahertz], RISING] | None = Field(
        default=None, description="Lowest and highest clock for all cards, MHz."
    )
    pcie_link_width: tuple[Lanes, ...] = Field(
        default=(),
        description="PCIe link width (lanes) of each card, by GPU index, for boards that give a slot fewer lanes than "
        "the card has; by default the full width of card and slot.",
    )
    nvlinks: tuple[tuple[CardIndex, CardIndex], ...] = Field(
        default=(), description="Pairs of cards, by GPU index, that have an NVLink bridge."
    )
    module_options: dict[ModuleOption, KernelNumber] = Field(
        default_factory=dict,
        description='Kernel module options, such as `{"NVreg_EnableResizableBar": 1}`. Needs `managed`.',
    )
    sysctl: dict[SysctlName, KernelNumber] = Field(
        default_factory=dict,
        description='Sysctl settings, such as `{"vm.swappiness": 10}`: below `vm`, `kernel`, `net` or `fs`.',
    )

    @property
    def sets_cards(self) -> bool:
        """Whether cards are to have limits or clocks that are not their own."""
        return self.power_w is not None or self.clocks_mhz is not None

    def power_limits(self, cards: int) -> tuple[int | None, ...]:
        """The power limit of each of so many cards by GPU index, W; None where it is left alone."""
        return self.power_w if isinstance(self.power_w, tuple) else (self.power_w,) * cards

    @model_validator(mode="after")
    def _check_consistent(self) -> DriverEntry:
        idle = [] if self.managed else sorted(self.model_fields_set & NEEDS_MANAGED)
        closed = self.flavour == "proprietary"
        refuse_violations(
            (closed and self.force_open_modules, "without force_open_modules where the flavour is proprietary"),
            (any(one == other for one, other in self.nvlinks), "nvlinks between two cards each"),
            (len({*map(frozenset, self.nvlinks)}) < len(self.nvlinks), "nvlinks that name each pair of cards once"),
            (bool(idle), f"managed = True if {', '.join(idle)} is set"),
        )
        return self


class ShareEntry(InventoryModel):
    """Where a box gives the weights that it has verified to others."""

    address: Address = Field(description="The host address to listen on.")
    port: Port = Field(default=8090, description="The TCP port; must not be an instance's.")
    allow: tuple[Cidr, ...] = Field(min_length=1, description="Networks allowed to download, such as 10.0.0.0/24.")


def _kind(card: object) -> str:
    return "[table]" if isinstance(card, (dict, Card)) else "[name]"


# a discriminator's marks are left out of what an error says (rigwright.problems)
CardEntry = Annotated[
    Annotated[CardReference, Tag("[name]")] | Annotated[Card, Tag("[table]")],
    Discriminator(_kind),
]


def _check_window(text: str) -> str:
    from rigwright.model.maintenance_window import parse_window  # of inventories with windows alone

    parse_window(text)
    return text


WindowText = Annotated[str, AfterValidator(_check_window)]


class RigEntry(InventoryModel):
    """One rig, as declared in an inventory."""

    EXAMPLE: ClassVar[str] = '{"ssh_hostname": "192.0.2.7", "ssh_user": "ops", "_sudo": True}'
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("host", "hostname", "address", "ip", "ansiblehost", "server"), "ssh_hostname"),
        **dict.fromkeys(("user", "username", "ansibleuser", "login"), "ssh_user"),
        **dict.fromkeys(("port", "ansibleport"), "ssh_port"),
        **dict.fromkeys(("key", "keyfile", "identityfile", "privatekey", "ansiblesshprivatekeyfile"), "ssh_key"),
        **dict.fromkeys(("sudo", "become", "ansiblebecome", "usesudo"), "_sudo"),
        **dict.fromkeys(("fingerprint", "hostkey", "knownhosts"), "ssh_host_key"),
        **dict.fromkeys(("gpu", "gpus", "devices", "card"), "cards"),
        **dict.fromkeys(("nvidia", "nvidiadriver", "cuda"), "driver"),
        **dict.fromkeys(("docker", "podman", "container", "nvidiacontainertoolkit"), "containers"),
        **dict.fromkeys(("service", "services", "models", "model", "variant", "variants", "servers"), "instances"),
        **dict.fromkeys(("nginx", "proxyserver", "tls", "ssl", "https", "listen", "listeners", "apikeys"), "gateway"),
        **dict.fromkeys(("prometheus", "metrics", "alerts"), "monitoring"),
        **dict.fromkeys(("maintenance", "maintenancewindow", "window", "windows"), "maintenance_windows"),
        **dict.fromkeys(("waiver", "exceptions", "exemptions", "suppressions", "ignorechecks"), "waivers"),
        **dict.fromkeys(("token", "hftoken", "hubtoken", "huggingfacetoken"), "hub_token_file"),
        **dict.fromkeys(
            ("password", "pass", "ansiblepassword", "ansiblebecomepassword", "sudopassword"),
            "passwords are not supported: use an SSH key and sudo without a password",
        ),
    }
    RENAMED: ClassVar[dict[str, str]] = {
        "lent": "reserved_gpus",
        "also_build_for": "extra_capabilities",
        "hub_token_for": "hub_token_origin",
    }

    cards: tuple[CardEntry, ...] = Field(
        default=(),
        examples=['["rtx-3090", "rtx-3090"]: a catalogue name for each card'],
        max_length=16,
        description="Its cards by GPU index (PCI bus order): catalogue names, or descriptions.",
    )
    reserved_gpus: tuple[CardIndex, ...] = Field(
        default=(),
        description="GPU indexes of cards reserved for other work: no instance gets one, and other processes may use "
        "them. `driver` settings for all cards still apply.",
    )
    driver: DriverEntry = Field(default=DriverEntry(), description="The NVIDIA driver of a rig with cards.")
    containers: ContainersEntry | None = Field(
        default=None,
        description="Container engines, also for your own containers; without it Rigwright does not change them.",
    )
    instances: dict[Name, InstanceEntry] = Field(
        default_factory=dict,
        examples=[f'{{"chat": {InstanceEntry.EXAMPLE}}}'],
        description="Instances to serve. A name becomes the unit `rigwright-NAME.service`.",
    )
    on_demand: OnDemandEntry = Field(
        default=OnDemandEntry(), description='Settings for all instances with `start = "on-demand"`.'
    )
    envs: tuple[CatalogName, ...] = Field(
        default=(),
        description="Catalogue environments to install although no instance uses them; `rigwright ssh --in NAME` "
        "enters one.",
    )
    allow: tuple[ReservedKey, ...] = Field(
        default=(),
        description="Catalogue settings allowed on this rig although they name a program, file, folder, server or "
        "listener, such as `flags.slot-save-path` or `options.CMAKE_CXX_FLAGS`, and groups of `locks/` next to the "
        "inventory with programs that root runs, such as `locks.hub-client`; a refusal states the name.",
    )
    roots: Roots = Field(default=Roots(), description="Directories on the host.")
    service_user: UserName = Field(
        default="rigwright",
        description="Prefix of service user names: each instance runs as its own user `rigwright-NAME`; never root or "
        "the SSH user.",
    )
    mirrors: dict[Name, tuple[HttpUrl, ...]] = Field(
        default_factory=dict,
        description="Base URLs, in order, for sources that the lock names; `apt`, `index`, `nvidia` and `hub` replace "
        "the host's defaults.",
    )
    proxy: HttpUrl | None = Field(default=None, description="Proxy for everything that the host downloads.")
    no_proxy: tuple[HostName, ...] = Field(
        default=(), description="Hosts and domains to reach without the proxy; the host itself always is."
    )
    ca_file: LocalPath | None = Field(
        default=None,
        description="A PEM file on your machine, relative to the inventory, with CA certificates that the host also "
        "trusts for downloads.",
    )
    peers: tuple[HttpUrl, ...] = Field(
        default=(),
        description="Base URLs, in order, of boxes that share their weights, or of any server with the same layout: "
        "tried before all other sources.",
    )
    share: ShareEntry | None = Field(default=None, description="Shares this box's weights with others.")
    pull: PullEntry | None = Field(
        default=None,
        description="Where the box fetches its signed generations itself; needs `signers`.",
    )
    gateway: Gateway | None = Field(
        default=None, description="The gateway for clients; without it each instance is only reachable at its own port."
    )
    fleet: FleetEntry | None = Field(
        default=None, description="Where gateways of other boxes of the inventory reach this box's instances."
    )
    monitoring: Monitoring | None = Field(
        default=None, description="Metrics of this box, and whether it is the Prometheus server for all of them."
    )
    hub_token_file: SecretEntry | None = Field(
        default=None,
        description="A file on your machine, relative to the inventory, with a hub token on its only line, or a "
        "command that prints it, for repositories that require one.",
    )
    hub_token_origin: Origin | None = Field(
        default=None,
        description="The mirror of `hub` that the token is for, such as https://hub.example.org; by default the hub "
        "itself. The token is never sent elsewhere, or over plain http.",
    )
    registries: dict[Name, RegistryEntry] = Field(
        default_factory=dict,
        description="Image registries that need a login, by their source names, such as `ghcr`.",
    )
    redirects: tuple[Origin, ...] = Field(
        default=(),
        description="Non-public addresses that downloads may lead to, such as http://10.0.0.5:8081, by a redirect, an "
        "index page or a URL in a lock; mirrors are always allowed.",
    )
    fs_verity: bool = Field(
        default=False,
        strict=True,
        description="Whether the kernel verifies weights at every read (fs-verity), where kernel and file system "
        "support it.",
    )
    keep_generations: int = Field(
        default=5,
        ge=1,
        le=100,
        strict=True,
        description="Generations to keep on the host, including the current one.",
    )
    maintenance_windows: tuple[WindowText, ...] = Field(
        default=(),
        max_length=100,
        examples=['["Sat 02:00-05:00 Europe/Berlin"]'],
        description="Times at which `rigwright rollout` begins a batch with this box; without it at any time. Other "
        "commands do not wait.",
    )
    cuda_root: AbsolutePath | None = Field(
        default=None,
        description="Your own CUDA toolkit on the host, to build engines with; without it the locked one is installed.",
    )
    extra_capabilities: tuple[Capability, ...] = Field(
        default=(),
        description="Compute capabilities to compile GPU engines for in addition to those of the rig's cards; CPU "
        "engines are not affected.",
    )
    bundle: LocalPath | None = Field(
        default=None,
        description="A folder on your machine, relative to the inventory, made by `rigwright bundle`: deploys send "
        "missing files from it over SSH, and the host downloads nothing.",
    )
    signers: dict[SignerName, SignerEntry] = Field(
        default_factory=dict,
        min_length=1,
        examples=[f'{{"alice": {SignerEntry.EXAMPLE}}}'],
        description="Keys that may sign. With signers, a lock or bundle without a valid signature is refused.",
    )
    revoked_keys: tuple[RevokedKey, ...] = Field(
        default=(),
        description="Public keys or fingerprints whose signatures are refused, whatever their time.",
    )
    signed_as: SignerName | None = Field(
        default=None,
        description="The name in signatures of the lock and bundles, which count for no other one; without it, the "
        "inventory's file name counts. Inventories with the same file name need it.",
    )
    waivers: tuple[WaiverEntry, ...] = Field(
        default=(),
        max_length=200,
        examples=[f"[{WaiverEntry.EXAMPLE}]"],
        description="Failing checks that are accepted for an observed value until a day; another value or a later day "
        "fails again.",
    )
