"""A rig: one host with its cards and what it serves, with every name resolved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rigwright.model.catalog import Card
from rigwright.model.containers.archive_tables import ContainerTables
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.debs.group import PackageGroup
from rigwright.model.engines.keys import EngineKeys, VariantKeys
from rigwright.model.entry import DriverEntry, Roots, ShareEntry
from rigwright.model.gateway.entry import Gateway
from rigwright.model.instance import CONTAINER_RUNTIME_FOLDER as CONTAINER_RUNTIME_FOLDER
from rigwright.model.instance import SOCKET_FOLDER as SOCKET_FOLDER
from rigwright.model.instance import EnvSpec as EnvSpec
from rigwright.model.instance import Instance as Instance
from rigwright.model.instance import ModelPart as ModelPart
from rigwright.model.instance import slice_of as slice_of
from rigwright.model.monitoring.entry import Monitoring, metrics_readers, service_users
from rigwright.model.monitoring.scrape_targets import ScrapeTarget
from rigwright.model.nvidia.driver_tables import DriverTables
from rigwright.patches.patch import Patch
from rigwright.problems import Problem
from rigwright.supply import image_manifest
from rigwright.supply.bundle import Bundle
from rigwright.supply.digest import supply_digest
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact, Lock

# What sets the cards' limits; it stands among the instances' units.
POWER_UNIT = "rigwright-power.service"
# Below it each instance has the folders of what it has compiled; systemd makes them (CacheDirectory=).
CACHES = "/var/cache/rigwright/instances"
# Where an instance sees its own, and where root keeps what others may begin with.
COMPILED, WARM = "/var/cache/rigwright/compiled", "/var/cache/rigwright/warm"
# The entry of our CUDA toolkit among patches: no engine or environment can have this name.
PATCHED_TOOLKIT = "CUDA toolkit"
# useradd(8): a name is no longer
USER_LENGTH = 32


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
    drivers: DriverTables
    """Which drivers there are."""
    driver_packages: dict[str, tuple[Artefact, ...]]
    """System -> the driver that is locked for it: its packages and its archive's key; only of a managed one."""
    driver_keys: dict[str, str]
    """System -> that archive's key, armoured, where the driver is NVIDIA's own."""
    containers: ContainersEntry | None
    container_tables: ContainerTables
    """Whose archives have what containers need."""
    container_groups: Mapping[str, PackageGroup]
    """Group of the lock -> packages that containers need; only of a rig that has some."""
    instances: tuple[Instance, ...]
    roots: Roots
    service_user: str
    mirrors: dict[str, tuple[str, ...]]
    proxy: str | None
    no_proxy: tuple[str, ...]
    ca_certificates: str
    """Certificates in PEM; empty without any."""
    peers: tuple[str, ...]
    share: ShareEntry | None
    gateway: Gateway | None
    monitoring: Monitoring | None
    scrape_targets: tuple[ScrapeTarget, ...]
    """The boxes that it asks, itself among them; none where it is not the one that asks."""
    hub_token_file: str | None
    """A path on the operator's machine."""
    hub_token_origin: str | None
    """What that token is for; None without one."""
    registry_logins: dict[str, str]
    """Registry of images -> the file on the operator's machine with its login."""
    redirects: tuple[str, ...]
    """Origins that sources of weights may lead to although they are not public."""
    fs_verity: bool
    keep_generations: int
    cuda_root: str | None
    """The operator's own toolkit; None where ours is brought."""
    cuda: tuple[Artefact, ...]
    """The wheels of our CUDA toolkit; none where no instance needs it."""
    also_build_for: tuple[str, ...]
    """Compute capabilities."""
    bundle_folder: str | None
    """Where its bundle lies on the operator's machine."""
    bundle: Bundle | None
    """That bundle; None without one, while it is being made, and where it cannot be read."""
    bundle_faults: tuple[Problem, ...]
    """What is wrong with it. A deploy is refused for that; looking, going back and removal need no bundle."""
    variants: tuple[VariantKeys, ...]
    """All of the catalogue, whatever of it is served: what is compiled is the same for each of an engine's."""
    engine_artefacts: dict[str, tuple[Artefact, ...]]
    """Engine name -> what of the lock it is installed from."""
    tools: tuple[Artefact, ...]
    """The wheels of the hosts' Python tools."""
    gpu_exporter: tuple[Artefact, ...]
    """The wheels of what tells of cards; none where nobody asks."""
    hub_client: tuple[Artefact, ...]
    """The wheels of the hub's own client; none where no weights are from there."""
    envs: tuple[EnvSpec, ...]
    """Its environments, by name."""
    installers: tuple[Artefact, ...]
    """The wheels of what puts environments together; none where it has no environment."""
    lock: Lock = field(compare=False, repr=False)
    """All of it that the inventory has, whatever of it is this rig's."""
    requests: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """Group of wheels or conda packages -> the requirements that the catalogue resolves it from."""
    toolkit_patches: tuple[Patch, ...] = ()
    """The patches of our CUDA toolkit."""

    def user(self, instance: Instance) -> str:
        """The system user that an instance runs as, and its group: no other instance's."""
        name = f"{self.service_user}-{instance.name}"
        if len(name) < USER_LENGTH:
            return name
        # the rest of a long name makes the difference; none that is not cut is as long
        return f"{name[: USER_LENGTH - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

    @property
    def users(self) -> tuple[str, ...]:
        """Those of all services: of instances, in their order, of the gateway, and of what watches."""
        gateway = (self.gateway_user, self.router_user) if self.gateway else ()
        asked = any(plugin.keys.selftest for one in self.instances for plugin in one.plugins)
        doctor = (self.doctor_user,) if asked else ()
        client = (self.hub_user,) if self.hub_client else ()
        instances = (self.user(instance) for instance in self.instances)
        return (*instances, *gateway, *self.exporter_users.values(), *doctor, *client)

    @property
    def exporter_users(self) -> dict[str, str]:
        """What tells of the box, and what asks all boxes -> the system user that it runs as."""
        return service_users(self.monitoring, self.service_user, cards=bool(self.cards))

    @property
    def gateway_user(self) -> str:
        """The system user that the gateway runs as; its group may connect to instances."""
        return f"{self.service_user[: USER_LENGTH - 9]}_gateway"

    @property
    def router_user(self) -> str:
        """The system user of what decides for the gateway."""
        return f"{self.service_user[: USER_LENGTH - 9]}_router"

    @property
    def doctor_user(self) -> str:
        """The system user of plugins' doctors: no instance's, which it could signal."""
        return f"{self.service_user[: USER_LENGTH - 9]}_doctor"

    @property
    def hub_user(self) -> str:
        """The system user of the hub's own client."""
        return f"{self.service_user[: USER_LENGTH - 9]}_hub"

    def socket_groups(self, instance: Instance) -> tuple[str, ...]:
        """The groups that may connect to an instance's socket: its own, and once it has answered the gateway's."""
        return (self.user(instance), *([self.gateway_user] if self.gateway else []))

    @property
    def scrapers(self) -> tuple[str, ...]:
        """Networks that may read the gateway's metrics; none without one."""
        return metrics_readers(self.gateway, self.monitoring)

    @property
    def engines(self) -> dict[str, EngineKeys]:
        """The engines of instances that are installed by themselves, by name; others run in environments."""
        return {one.engine_name: one.engine for one in self.instances if one.env is None}

    @property
    def patches(self) -> dict[str, tuple[Patch, ...]]:
        """Engine, environment or toolkit -> what of it is changed; only of those of which something is."""
        found = {PATCHED_TOOLKIT: self.toolkit_patches, **{one.name: one.patches for one in self.envs}}
        found |= {one.engine_name: one.patches for one in self.instances if one.env is None}
        return {name: patches for name, patches in found.items() if patches}

    @property
    def weights(self) -> tuple[Artefact, ...]:
        """The weights that instances load, in the lock's order; each once, though several inputs may select it."""
        found: dict[str, Artefact] = {}
        for artefact in sorted({a for i in self.instances for a in i.weights}, key=lambda artefact: artefact.order):
            found.setdefault(artefact.weight_path, artefact)
        return tuple(found.values())

    @property
    def power_limits(self) -> tuple[int | None, ...]:
        """The power limit of each declared card by GPU index, W; None where it is left alone."""
        return self.driver.power_limits(len(self.cards))

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """All that is locked for it, but a driver."""
        engines = [one for found in self.engine_artefacts.values() for one in found]
        envs = [one for env in self.envs for one in env.artefacts]
        return (*engines, *self.weights, *self.tools, *self.cuda, *envs, *self.installers)

    @property
    def digest(self) -> str:
        """The one of its lock and bundle."""
        return supply_digest(self.lock, self.bundle)

    @property
    def needs_toolkit(self) -> bool:
        """Whether an engine of it is made with a CUDA toolkit, or an environment compiles for its cards."""
        return needs_toolkit(bool(self.cards), self.instances, self.envs)

    @property
    def env_inputs(self) -> frozenset[str]:
        """The inputs that its environments are made of."""
        return frozenset(name for env in self.envs for name in env.inputs)

    @property
    def jobs(self) -> str:
        """The folder on the host for scripts and logs of long work."""
        return f"{self.roots.state}/jobs"

    @property
    def builds(self) -> str:
        """The folder on the host for what is being compiled."""
        return f"{self.roots.state}/build"

    @property
    def installations(self) -> str:
        """The folder on the host in which each engine has one."""
        return f"{self.roots.software}/engines"

    def installation_path(self, folder: str) -> str:
        """The absolute path of an installation's folder."""
        return f"{self.installations}/{folder}"

    @property
    def generations(self) -> str:
        """The folder on the host in which each generation has one."""
        return f"{self.roots.config}/generations"

    @property
    def startup_records(self) -> str:
        """The folder on the host for what instances have said when they were first started as they are."""
        return f"{self.roots.state}/starts"

    def program_path(self, name: str) -> str:
        """The absolute path of a program of the current generation's: one of `ServiceSpec.programs`."""
        return f"{self.roots.config}/current/programs/{name}"

    def cache_folder(self, instance: Instance) -> str:
        """The folder on the host in which an instance has one for each installation that it has compiled with."""
        return f"{CACHES}/{instance.name}"

    @property
    def credentials(self) -> str:
        """The folder on the host for what only root may read."""
        return f"{self.roots.config}/credentials"

    @property
    def ledger(self) -> str:
        """The file on the host that lists what we put there: `dir PATH`, `file PATH`, `user NAME`, `package NAME`."""
        return f"{self.roots.state}/owned"

    def weight_path(self, artefact: Artefact) -> str:
        """Where an artefact of kind `weight` lies on the host."""
        return self.roots.weight_path(artefact)

    def urls(self, artefact: Artefact) -> list[str]:
        """The http(s) addresses to try, in order; `index:` sources are not among them."""
        return artefact_urls(artefact, self.mirrors)


def needs_toolkit(cards: bool, instances: Iterable[Instance], envs: Iterable[EnvSpec]) -> bool:
    """Whether a CUDA toolkit is needed on a rig.

    Args:
        cards: Whether it has any.
        instances: Its instances.
        envs: Its environments.
    """
    if cards and any(env.keys.cuda for env in envs):
        return True
    return any(one.engine.needs_toolkit for one in instances if one.cards)


def artefact_urls(artefact: Artefact, mirrors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The http(s) addresses to try, in order, with the mirrors that a rig has.

    Sources `index:` and `hub:` are not among them: an index, or the hub's own client, says where those files are.
    """
    if artefact.kind == "image":
        return image_manifest.blob_addresses(artefact, mirrors)
    found = []
    for source in artefact.sources:
        scheme, _, rest = source.partition(":")
        if scheme in ("http", "https"):
            found.append(source)
        elif scheme not in ("index", HUB):
            found += [f"{base.rstrip('/')}/{rest}" for base in mirrors.get(scheme, ())]
    return found
