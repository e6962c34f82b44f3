"""What an inventory declares of a rig, as it is written: every key with its rule."""

from __future__ import annotations

from itertools import permutations
from typing import Annotated, ClassVar

from pydantic import Discriminator, Field, Tag, model_validator

from rigwright.addresses import Address, Cidr, HostName, HttpUrl, Origin, Port
from rigwright.containers.entry import Containers
from rigwright.declaration.catalog import Card
from rigwright.declaration.instance_entry import InstanceEntry
from rigwright.declaration.registries import Registry
from rigwright.gateway.entry import Gateway
from rigwright.monitoring.entry import Monitoring
from rigwright.problems import Frozen
from rigwright.supply.lock import Artefact
from rigwright.types import (
    RISING,
    AbsolutePath,
    Archive,
    Capability,
    CardIndex,
    CatalogName,
    Flavour,
    KernelNumber,
    Lanes,
    ModuleOption,
    Name,
    ReservedKey,
    Root,
    SysctlName,
    UserName,
)

Watts = Annotated[int, Field(ge=50, le=2000, strict=True)]
Megahertz = Annotated[int, Field(ge=100, le=5000, strict=True)]
# Keys that only a managed driver has: options of the module count from when it is loaded, with initial file systems and
# reboots that are the operator's own where the driver is.
NEEDS_MANAGED = frozenset({"reboot", "module_options"})


class Roots(Frozen):
    """Where things go on the host; a box with a data disk moves them there. No two are the same or one in another."""

    software: Root = Field(default="/opt/rigwright", description="Compiled engines and tools.")
    models: Root = Field(
        default="/srv/models",
        description="Weights, as `OWNER/NAME/COMMIT/FILE`, or `NAME/VERSION/FILE` where they are your own. A file that "
        "lies there already is taken if its bytes are the locked ones.",
    )
    state: Root = Field(
        default="/var/lib/rigwright",
        description="Records, jobs and their logs; `owned`, the list of what was put on the host.",
    )
    config: Root = Field(
        default="/etc/rigwright",
        description="What the rig is, and its secrets: `generations/`, `current`, `credentials/`. Always below `/etc`.",
    )

    @model_validator(mode="after")
    def _apart(self) -> Roots:
        paths = [self.software, self.models, self.state, self.config]
        for one, other in permutations(paths, 2):
            if other == one or other.startswith(f"{one}/"):
                raise ValueError(f"roots that lie apart: {other} is in {one}")
        if not self.config.startswith("/etc/"):
            raise ValueError("a config below /etc: systemd reads units before other disks are mounted")
        return self

    def weight_path(self, artefact: Artefact) -> str:
        """Where an artefact of kind `weight` lies on the host."""
        return f"{self.models}/{artefact.weight_path}"


# told apart before they are looked at: a wrong value is one mistake, not one of each
PowerLimit = Annotated[
    Annotated[Watts, Tag("[number]")] | Annotated[tuple[Watts, ...], Tag("[list]")],
    Discriminator(lambda value: "[list]" if isinstance(value, (list, tuple)) else "[number]"),
]


class Driver(Frozen):
    """The NVIDIA driver of a rig with cards, and what the cards are set to. `rigwright plan` says what it comes to."""

    RENAMED: ClassVar[dict[str, str]] = {"lanes": "pcie_link_width"}

    managed: bool = Field(
        default=False,
        strict=True,
        description="Whether deploys bring the driver, and hold it and the cards to what stands here; else it is the "
        "operator's to install, and checks hold it to what the cards need.",
    )
    branch: int | None = Field(
        default=None,
        ge=1,
        le=999,
        strict=True,
        description="The driver's first number; without it the locked driver's, or else the one with the longest "
        "support that is published.",
    )
    flavour: Flavour | None = Field(
        default=None,
        description="Of the kernel modules; without it, what the cards need, and open where both will do. One module "
        "drives all cards: with a Blackwell card it is the open one.",
    )
    source: Archive | None = Field(
        default=None,
        description="Whose archive it is from; without it the locked driver's, or else the distribution's where that "
        "has the branch.",
    )
    open_despite_cards: bool = Field(
        default=False,
        strict=True,
        description="Run open modules also where a declared card is known to fail with them (`module` is `proprietary` "
        "in its description), such as a 2080 Ti with exchanged memory beside a 5090. It may be lost.",
    )
    reboot: bool = Field(
        default=False,
        strict=True,
        description="Whether every deploy may reboot the host where the driver needs it; without it, `--reboot` says "
        "so for one. Needs `managed`.",
    )
    power_w: PowerLimit | None = Field(
        default=None,
        description="Power limit, W: one for all cards, or one a card by GPU index; without it, each card's own "
        "default. Needs `managed`.",
    )
    clocks_mhz: Annotated[tuple[Megahertz, Megahertz], RISING] | None = Field(
        default=None, description="Lowest and highest clock that all cards are held to, MHz. Needs `managed`."
    )
    pcie_link_width: tuple[Lanes, ...] = Field(
        default=(),
        description="Width of each card's PCIe link (lanes), by GPU index, for boards that give a slot fewer than the "
        "card has; without it, as many as card and slot have.",
    )
    nvlinks: tuple[tuple[CardIndex, CardIndex], ...] = Field(
        default=(), description="Pairs of cards, by GPU index, that have an NVLink bridge."
    )
    module_options: dict[ModuleOption, KernelNumber] = Field(
        default_factory=dict,
        description='Options of the kernel module, such as `{"NVreg_EnableResizableBar": 1}`. Needs `managed`.',
    )
    sysctl: dict[SysctlName, KernelNumber] = Field(
        default_factory=dict,
        description='The kernel\'s own settings, such as `{"vm.swappiness": 10}`: below `vm`, `kernel`, `net` or `fs`. '
        "Needs `managed`.",
    )

    @property
    def sets_cards(self) -> bool:
        """Whether cards are to have limits or clocks that are not their own."""
        return self.power_w is not None or self.clocks_mhz is not None

    def power_limits(self, cards: int) -> tuple[int | None, ...]:
        """The power limit of each of so many cards by GPU index, W; None where it is left alone."""
        return self.power_w if isinstance(self.power_w, tuple) else (self.power_w,) * cards

    @model_validator(mode="after")
    def _fitting(self) -> Driver:
        if self.open_despite_cards and self.flavour == "proprietary":
            raise ValueError("without open_despite_cards where the flavour is proprietary")
        if any(one == other for one, other in self.nvlinks):
            raise ValueError("nvlinks between two cards each")
        if len({frozenset(pair) for pair in self.nvlinks}) < len(self.nvlinks):
            raise ValueError("nvlinks that name each pair of cards once")
        if not self.managed and (idle := sorted(self.model_fields_set & NEEDS_MANAGED)):
            raise ValueError(f"managed = True beside {', '.join(idle)}: nothing else brings them about")
        return self


class Share(Frozen):
    """Where a box gives the weights that it has verified to others."""

    address: Address = Field(description="The host's own address that it listens on.")
    port: Port = Field(default=8090, description="The TCP port; one that no instance has.")
    allow: tuple[Cidr, ...] = Field(min_length=1, description="Networks that may fetch, such as 10.0.0.0/24.")


def _kind(card: object) -> str:
    return "[table]" if isinstance(card, (dict, Card)) else "[name]"


# a discriminator's marks are left out of what an error says (rigwright.problems)
CardEntry = Annotated[
    Annotated[CatalogName, Tag("[name]")] | Annotated[Card, Tag("[table]")],
    Discriminator(_kind),
]


class RigEntry(Frozen):
    """One rig, as declared in an inventory."""

    cards: tuple[CardEntry, ...] = Field(
        default=(),
        max_length=16,
        description="Its cards by GPU index (order of the PCI bus): the catalogue's name of each, or its description.",
    )
    lent: tuple[CardIndex, ...] = Field(
        default=(),
        description="GPU indexes of cards that are lent to other work: no instance gets one, and who computes there is "
        "no mistake. What `driver` says of all cards holds for them too.",
    )
    driver: Driver = Field(default=Driver(), description="The NVIDIA driver of a rig with cards.")
    containers: Containers | None = Field(
        default=None, description="What runs containers, the operator's own among them; without it that is theirs."
    )
    instances: dict[Name, InstanceEntry] = Field(
        default_factory=dict,
        description="What is served. A name becomes the unit `rigwright-NAME.service`.",
    )
    envs: tuple[CatalogName, ...] = Field(
        default=(),
        description="Environments of the catalogue that it has although no instance runs in them: `rigwright shell` "
        "enters one.",
    )
    allow: tuple[ReservedKey, ...] = Field(
        default=(),
        description="What the catalogue may say on this rig although it names a program, a file, a folder, a server or "
        "a listener, such as `flags.slot-save-path` or `options.CMAKE_CXX_FLAGS`: the refusal of it says the name.",
    )
    roots: Roots = Field(default=Roots(), description="Where things go on the host.")
    service_user: UserName = Field(
        default="rigwright",
        description="What the names of the services' users begin with: an instance runs as `rigwright-NAME`, a user of "
        "its own; never root, nor the one who logs in.",
    )
    mirrors: dict[Name, tuple[HttpUrl, ...]] = Field(
        default_factory=dict,
        description="Base addresses, in order, of the sources that the lock only names; `apt`, `index`, `nvidia` and "
        "`hub` stand for what the host would else use.",
    )
    proxy: HttpUrl | None = Field(default=None, description="What the host goes through to fetch anything.")
    no_proxy: tuple[HostName, ...] = Field(
        default=(), description="Hosts and domains that are reached without it; the host itself always is."
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="A PEM file on the operator's machine, from the inventory's folder, with authorities that the "
        "host trusts for fetching beside the system's.",
    )
    peers: tuple[HttpUrl, ...] = Field(
        default=(),
        description="Base addresses of boxes that share their weights, or of any server with the same folders, in "
        "order: they are asked before all other sources.",
    )
    share: Share | None = Field(default=None, description="Gives this box's weights to others.")
    gateway: Gateway | None = Field(
        default=None, description="The way in for clients: without it an instance is reached at its own port alone."
    )
    monitoring: Monitoring | None = Field(
        default=None, description="What the box tells of itself, and whether it is the one that asks all of them."
    )
    hub_token_file: str | None = Field(
        default=None,
        min_length=1,
        description="A file on the operator's machine, from the inventory's folder, with a token of the hub on its "
        "only line, for repositories that ask for one.",
    )
    hub_token_for: Origin | None = Field(
        default=None,
        description="The one of the mirrors `hub` that the token is for, such as https://hub.example.org; without it "
        "the hub's own address. The token is sent nowhere else, and never over plain http.",
    )
    registries: dict[Name, Registry] = Field(
        default_factory=dict,
        description="Registries of images that ask for a login, by the names that sources have, such as `ghcr`.",
    )
    redirects: tuple[Origin, ...] = Field(
        default=(),
        description="Where a source of weights may lead although its address is not public, such as "
        "http://10.0.0.5:8081; a source's own origin always may.",
    )
    fs_verity: bool = Field(
        default=False,
        strict=True,
        description="Whether the host's kernel guards the weights at every read, where it and the file system can.",
    )
    keep_generations: int = Field(
        default=5,
        ge=1,
        le=100,
        strict=True,
        description="Generations that stay on the host, the current one among them.",
    )
    cuda_root: AbsolutePath | None = Field(
        default=None,
        description="A CUDA toolkit of the operator's own on the host, to build engines with; without it the lock's is "
        "brought there.",
    )
    also_build_for: tuple[Capability, ...] = Field(
        default=(),
        description="Compute capabilities that engines for cards are compiled for beside those of the rig's own "
        "cards; an engine for the CPU is not touched by it.",
    )
    bundle: str | None = Field(
        default=None,
        min_length=1,
        description="A folder on the operator's machine, from the inventory's folder, that `rigwright bundle` made: "
        "what the host lacks comes from there over SSH, and the host fetches nothing.",
    )
