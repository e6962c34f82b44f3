"""A rig: one host with its cards and what it serves, with every name resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rigwright.model.accounts import ServiceAccounts
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.container_supply import ContainerSupply
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.engine_schema import VariantKeys
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import EnvSpec, Instance, loaded_weights
from rigwright.model.instance_schema import OnDemandEntry
from rigwright.model.inventory_schema import DriverEntry, ShareEntry
from rigwright.model.monitoring_schema import Monitoring, ScrapeTarget
from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec
from rigwright.model.pull_schema import PullEntry
from rigwright.model.roots import Roots
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.problems import Problem
from rigwright.supply.bundle import Bundle, supply_digest
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.supply_signatures import SupplySignature

if TYPE_CHECKING:
    from rigwright.signing.trusted_signers import TrustedSigners


RECORDS_FOLDER = "memory"
"""The folder of accepted records of memory, next to an inventory."""


@dataclass(frozen=True)
class Rig:
    """One host with its cards, with every name resolved."""

    name: str
    inventory: str
    """The file that declares it."""
    cards: tuple[Card, ...]
    reserved_gpus: tuple[int, ...]
    """GPU indexes of the cards that other work has, in order."""
    driver: DriverEntry
    driver_supply: DriverSupply
    containers: ContainersEntry | None
    container_supply: ContainerSupply
    instances: tuple[Instance, ...]
    roots: Roots
    accounts: ServiceAccounts
    """The system users of its services."""
    network: DownloadNetwork
    share: ShareEntry | None
    gateway: Gateway | None
    monitoring: Monitoring | None
    scrape_targets: tuple[ScrapeTarget, ...]
    """The boxes that it asks, itself among them; none where it is not the one that asks."""
    fs_verity: bool
    keep_generations: int
    maintenance_windows: tuple[str, ...]
    """When a rollout begins a batch with it; empty for always."""
    toolkit: ToolkitSpec
    also_build_for: tuple[str, ...]
    """Compute capabilities."""
    bundle_folder: str | None
    """Where its bundle lies on the operator's machine."""
    bundle: Bundle | None
    """That bundle; None without one, while it is being made, and where it cannot be read."""
    bundle_faults: tuple[Problem, ...]
    """Its problems. A deploy is refused for that; looking, going back and removal need no bundle."""
    signers: TrustedSigners | None
    """The keys that may sign; None where no signature is required."""
    signatures: tuple[SupplySignature, ...]
    """The valid signatures of lock and bundle."""
    signature_faults: tuple[Problem, ...]
    """Problems of the others. A deploy is refused for them, as for those of the bundle."""
    variants: tuple[VariantKeys, ...]
    """All of the catalogue, served or not: a build is the same for each of an engine's."""
    engine_artefacts: dict[str, tuple[Artefact, ...]]
    """Engine name -> what of the lock it is installed from."""
    tools: tuple[Artefact, ...]
    """The wheels of the hosts' Python tools."""
    gpu_exporter: tuple[Artefact, ...]
    """The wheels of the exporter of cards; empty if the rig has none."""
    hub_client: tuple[Artefact, ...]
    """The wheels of the hub's own client; none where no weights are from there."""
    envs: tuple[EnvSpec, ...]
    """Its environments, by name."""
    installers: tuple[Artefact, ...]
    """The wheels of what puts environments together; none where it has no environment."""
    pull: PullEntry | None
    """Where it fetches its generations itself."""
    waivers: tuple[WaiverEntry, ...]
    """Failing checks that its operator accepts."""
    lock: Lock = field(compare=False, repr=False)
    """All of it that the inventory has, whatever of it is this rig's."""
    requests: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Group of wheels or conda packages -> the requirements that the catalogue resolves it from."""
    on_demand: OnDemandEntry = field(default_factory=OnDemandEntry)
    """The settings for its instances on demand."""

    @property
    def memory_records(self) -> Path:
        """The folder of accepted records of its instances' memory, next to its inventory."""
        return Path(self.inventory).absolute().parent / RECORDS_FOLDER

    @property
    def supply_faults(self) -> tuple[Problem, ...]:
        """All problems of its bundle and of the signatures of lock and bundle."""
        return (*self.bundle_faults, *self.signature_faults)

    @property
    def digest(self) -> str:
        """The one of its lock and bundle."""
        return supply_digest(self.lock, self.bundle)


def account_names(rig: Rig) -> tuple[str, ...]:
    """The system users of all services: instances in their order, gateway, monitoring, self-tests, hub client
    and pulls."""
    accounts = rig.accounts
    gateway = (accounts.gateway, accounts.router) if rig.gateway else ()
    exporters = accounts.exporters(rig.monitoring, cards=bool(rig.cards)).values()
    doctor = (accounts.doctor,) if any(p.keys.selftest for one in rig.instances for p in one.plugins) else ()
    hub = (accounts.hub,) if rig.hub_client else ()
    pull = (accounts.pull,) if rig.pull else ()
    return (*map(accounts.of_instance, rig.instances), *gateway, *exporters, *doctor, *hub, *pull)


def locked_artefacts(rig: Rig) -> tuple[Artefact, ...]:
    """All locked artefacts of a rig except its driver."""
    engines = [one for artefacts in rig.engine_artefacts.values() for one in artefacts]
    envs = [one for env in rig.envs for one in env.artefacts]
    tools = (*rig.tools, *rig.toolkit.wheels, *rig.installers, *rig.gpu_exporter)
    return (*engines, *loaded_weights(rig.instances), *tools, *envs)
