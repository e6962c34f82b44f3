"""Declarations of an inventory about an instance with every name resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rigwright.local_files import SecretUnavailable
from rigwright.model import api_keys
from rigwright.model.catalog_schema import EnvKeys
from rigwright.model.engine_schema import EngineKeys, VariantKeys
from rigwright.model.secret_sources import CommandSource, SecretSource
from rigwright.patches.patch import Patch
from rigwright.plugins.plugin import Plugin
from rigwright.supply.lock import Artefact

# Below it each instance has the folder with its socket.
SOCKET_FOLDER = "/run/rigwright/instances"
# Below it each instance that runs in a container has the folder that podman keeps that in.
CONTAINER_RUNTIME_FOLDER = "/run/rigwright/containers"
# Below it each instance has the folders of what it has compiled; systemd makes them (CacheDirectory=).
CACHES = "/var/cache/rigwright/instances"
# Where an instance sees its own, and where root keeps what others may begin with.
COMPILED, WARM = "/var/cache/rigwright/compiled", "/var/cache/rigwright/warm"
# The unit that sets the cards' limits; it stands among the instances' units.
POWER_UNIT = "rigwright-power.service"
# The entry of our CUDA toolkit among patches: no engine or environment can have this name.
PATCHED_TOOLKIT = "CUDA toolkit"


def instance_of(unit: str) -> str:
    """The name of the instance of a unit."""
    return unit.removeprefix("rigwright-").removesuffix(".service")


def slice_of(unit: str) -> str:
    """The name of the slice of an instance's unit: an unescaped dash would put that of `a-b` into that of `a`."""
    escaped = instance_of(unit).replace("-", r"\x2d")
    return f"rigwright-{escaped}.slice"


@dataclass(frozen=True)
class ModelPart:
    """One of the things that a model is made of."""

    option: str
    """The option that names it to the engine, without dashes."""
    files: tuple[Artefact, ...]
    """The file that the option names, then those that the engine finds by it: the rest of a model in several files."""


@dataclass(frozen=True)
class EnvSpec:
    """An environment of the catalogue with what is locked for it."""

    name: str
    keys: EnvKeys
    python: tuple[Artefact, ...]
    """The conda packages of its Python."""
    packages: tuple[Artefact, ...]
    """Its wheels."""
    for_other_cards: tuple[str, ...] = ()
    """Patterns of files in them that other cards than the rig's may need."""
    patches: tuple[Patch, ...] = ()
    """The changes to them."""
    plugins: tuple[Plugin, ...] = ()
    """The plugins that are installed with them."""

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """All that it is made of."""
        return (*self.python, *self.packages, *(one.row for one in self.plugins))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that it is made of."""
        return (self.keys.python, self.keys.packages, *(one.keys.input for one in self.plugins))

    @property
    def version(self) -> str:
        """That of the package that it is named after."""
        named = canonicalize_name(self.keys.distribution)
        return next((one.version for one in self.packages if canonicalize_name(one.name) == named), "0")


@dataclass(frozen=True)
class Instance:
    """A variant running on chosen cards and a port of a rig; one systemd unit."""

    name: str
    variant_name: str
    variant: VariantKeys
    model_name: str
    parts: tuple[ModelPart, ...]
    """The files of the model, its own weights first."""
    engine_name: str
    engine: EngineKeys
    artefacts: tuple[Artefact, ...]
    """The artefacts of the lock that its engine is installed from."""
    known: object
    """The facts of its engine's kind about this version (`Kind.known`)."""
    cards: tuple[int, ...]
    port: int
    memory_max: str
    """The most memory that it may have, as systemd reads it."""
    tasks_max: int
    """The most processes and threads that it may have."""
    api_key_file: SecretSource | None
    """The operator's; None where the host makes the key."""
    key_fingerprint: str | None
    """Of the operator's key; None where the host makes the key, and for a command until the name is needed."""
    patches: tuple[Patch, ...] = ()
    """The changes to its engine, where that is installed by itself."""
    plugins: tuple[Plugin, ...] = ()
    """Those of the environment that it runs in."""
    start: str = "boot"
    """`boot`, or `on-demand`: the residency service starts and stops it."""
    idle: int = 0
    """Seconds without requests after which one on demand is stopped; 0: only for another one's memory."""
    priority: int = 0
    """Of those on demand, those with a lower one are stopped first."""
    keep_warm: bool = False
    """Whether one on demand is loaded at boot and not stopped for others."""
    beside: bool = False
    """Whether it runs beside the one in whose place it is to come, as a unit of its own with a socket of its own."""

    @property
    def key_name(self) -> str:
        """Name of the key's file on the host. One of the operator's has its fingerprint in it: an earlier generation
        finds the key that it was made with.

        Raises:
            SecretUnavailable: the command that prints the key fails.
        """
        fingerprint = self.key_fingerprint
        if fingerprint is None and isinstance(self.api_key_file, CommandSource):
            try:
                fingerprint = api_keys.key_fingerprint(api_keys.load_api_key(self.api_key_file), self.name)
            except ValueError as error:
                raise SecretUnavailable(f"instance {self.name}: api_key_file: {self.api_key_file} {error}") from None
        return f"{self.name}.{fingerprint}.api-key" if fingerprint else f"{self.name}.api-key"

    @property
    def is_on_demand(self) -> bool:
        """Whether the residency service starts and stops it."""
        return self.start == "on-demand"

    @property
    def weights(self) -> tuple[Artefact, ...]:
        """All files that it loads, the model's own first."""
        return tuple(dict.fromkeys(file for part in self.parts for file in part.files))

    @property
    def env(self) -> str | None:
        """The environment that it runs in, if it is one."""
        return self.engine.environment

    @property
    def installed_as(self) -> str:
        """The name of the installation that it is run from: its engine's, or that of an environment."""
        return self.env or self.engine_name

    @property
    def unit(self) -> str:
        """The systemd unit's name."""
        return f"rigwright{'_beside' if self.beside else ''}-{self.name}.service"

    @property
    def seat(self) -> str:
        """The name of the folder of its socket, and of the gateway's link to that."""
        return f"{self.name}.beside" if self.beside else self.name

    @property
    def socket(self) -> str:
        """The unix socket that its engine listens on, and nothing else."""
        return f"{SOCKET_FOLDER}/{self.seat}/api.sock"

    @property
    def cache_folder(self) -> str:
        """The folder on the host with one folder for each installation that it has compiled with."""
        return f"{CACHES}/{self.name}"

    @property
    def slice(self) -> str:
        """The slice that its processes are the subtree of."""
        return slice_of(f"rigwright-{self.name}.service")


def standalone_engines(instances: Iterable[Instance]) -> dict[str, EngineKeys]:
    """The engines that are installed by themselves, by name; others run in environments."""
    return {one.engine_name: one.engine for one in instances if one.env is None}


def loaded_weights(instances: Iterable[Instance]) -> tuple[Artefact, ...]:
    """The weights that instances load, in the lock's order; each once, though several inputs may select it."""
    found: dict[str, Artefact] = {}
    for artefact in sorted({a for one in instances for a in one.weights}, key=lambda artefact: artefact.order):
        found.setdefault(artefact.weight_path, artefact)
    return tuple(found.values())


def patches_by_target(
    instances: Iterable[Instance], envs: Iterable[EnvSpec], toolkit: tuple[Patch, ...]
) -> dict[str, tuple[Patch, ...]]:
    """Engine, environment or toolkit -> its patches; targets without a patch are left out."""
    found = {PATCHED_TOOLKIT: toolkit, **{one.name: one.patches for one in envs}}
    found |= {one.engine_name: one.patches for one in instances if one.env is None}
    return {name: patches for name, patches in found.items() if patches}


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
