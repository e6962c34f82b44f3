"""Interface of an engine kind: how it is declared, installed, started, judged and looked at.

Nothing outside of a kind's folder knows which kinds there are. All of it is decided here, from what is declared and
locked, and carried out by roles and checks that are the same for every kind.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rigwright.engines.api_paths import COMPLETIONS
from rigwright.engines.capabilities import Ability
from rigwright.engines.container_spec import ContainerSpec
from rigwright.engines.instance_request import MODELS, ONE_TOKEN, STREAMED, InstanceRequest
from rigwright.engines.known_issue_rule import KnownIssue
from rigwright.engines.log_causes import Cause, StartupFacts
from rigwright.engines.metrics import MetricNames
from rigwright.engines.sandbox import Sandbox as Sandbox
from rigwright.host.systemd import ExpandedWord
from rigwright.model.engine_schema import EngineKeys, VariantKeys
from rigwright.model.installation import Installation, Installer
from rigwright.supply import lock
from rigwright.supply.lock import Artefact

if TYPE_CHECKING:
    from rigwright.engines.known_issue_rule import PlacedInstance
    from rigwright.engines.memory_fit import MemoryNeed
    from rigwright.engines.offline_bench import OfflineBench, OfflineBenchSpec
    from rigwright.engines.reported_memory import ReportedMemory
    from rigwright.model.catalog_schema import Catalog, ModelKeys, ModelSelection
    from rigwright.model.fact_types import HostFacts
    from rigwright.model.instance import Instance, ModelPart
    from rigwright.model.rig import Rig
    from rigwright.model.roots import Roots


# Where a unit finds its API key.
KEY_FILE = ExpandedWord("${CREDENTIALS_DIRECTORY}/api-key")


@dataclass(frozen=True)
class ServiceSpec:
    """How an instance is run."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Beside which cards it may see."""
    sandbox: Sandbox
    private: Mapping[str, str] = field(default_factory=dict)
    """Variables that its process has and no other command of its unit: an inventory may allow any name, such as
    LD_PRELOAD, and root's commands would do as they say."""
    asked: tuple[str, ...] = ()
    """Arguments of its command for the model and its options, which a plugin's self-test gets as well."""
    about: str = ""
    """The end of its unit's description."""
    ready: InstanceRequest = ONE_TOKEN
    """Answered with a status of 200 once it serves."""
    ready_again: InstanceRequest | None = None
    """A cheaper request for later starts on demand of an instance that has answered `ready`; None: `ready` again."""
    warm_up: tuple[InstanceRequest, ...] = ()
    """Made once after that, before clients are sent there; their answers do not matter."""
    streamed: InstanceRequest | None = STREAMED
    """Answered in server-sent events that end with `[DONE]`; None where it has no such answers."""
    models: InstanceRequest | None = MODELS
    """Answered with what it serves, by the model's name; None where it does not say it."""
    health: str = "/health"
    """The path that says whether it is up, without a key."""
    completions: str = "/v1/completions"
    """The path at which bench/load_generator.py asks for tokens."""
    metrics: str | None = None
    """The path of its metrics, in Prometheus' format; None where it has none."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """The programs that start it, in addition to its installation: name (`Rig.program`) -> text. Another text has
    another name."""
    cache: str = ""
    """The folder that it writes what it compiles to, in `Rig.cache`; none without."""
    container: ContainerSpec | None = None
    """The container that `command` starts; None where that is the engine itself."""
    after: tuple[str, ...] = ()
    """Units that are started before it, and whose end it waits for, however that comes."""


class Kind(ABC):
    """One kind of engine: it is installed by itself (`InstallingKind`), or runs in an environment."""

    name: ClassVar[str]
    """As catalogues name it."""
    engine_keys: ClassVar[type[EngineKeys]]
    variant_keys: ClassVar[type[VariantKeys]]
    packages: ClassVar[tuple[str, ...]] = ()
    """The distribution's packages that installing or running it takes, on one release or another."""

    cpu_features: ClassVar[tuple[str, ...]] = ()
    """CPU features that its machine code needs and does not check by itself, as /proc/cpuinfo lists them."""

    container_engine: ClassVar[str] = ""
    """The program that runs its instances' containers (`Service.container`) where a release's is new enough, as
    `containers.engines` calls it; else empty."""
    validates_model_name: ClassVar[bool] = False
    """Whether it refuses requests for another model than the one that it serves."""
    salts_prompts: ClassVar[bool] = False
    """Whether requests may have a `cache_salt`, by which its prefix cache keeps them apart from all others."""
    has_stream_usage: ClassVar[bool] = False
    """Whether its streams name their tokens if a request has `stream_options.include_usage`."""
    has_offline_bench: ClassVar[bool] = False
    """Whether it brings a program that measures it without a server (`offline`)."""
    unsalted_paths: ClassVar[tuple[str, ...]] = ()
    """Those of its paths that ignore a `cache_salt`."""
    causes: ClassVar[tuple[Cause, ...]] = ()
    """Known causes that its log shows, specific ones first."""
    request_log: ClassVar[str] = ""
    """Regular expression for the start of the lines that its log has for each request that succeeds; empty without
    such lines. Python and PCRE2 read it alike.
    """
    log_marker: ClassVar[str] = ""
    """Regular expression of what only its log contains; empty for a kind whose log another kind's engine writes."""
    metric_names: ClassVar[MetricNames] = MetricNames()
    """Its names for the figures at `Service.metrics`."""
    startup_patterns: ClassVar[tuple[str, ...]] = ()
    """Patterns of the lines of its log that `parse_startup` reads; at most twenty lines of a start are kept."""

    memory_patterns: ClassVar[tuple[str, ...]] = ()
    """Texts of the lines of its log that a record of a start's memory keeps."""

    def rules(self) -> tuple[KnownIssue, ...]:
        """Known problems of its instances."""
        return ()

    def memory(self, one: PlacedInstance) -> MemoryNeed | None:
        """The memory that one of its instances keeps; None if unknown."""
        return None

    def parse_memory(self, lines: Iterable[str]) -> ReportedMemory:
        """The engine's own report of its memory in such lines; a process that was taken over may have written any."""
        from rigwright.engines.reported_memory import ReportedMemory

        return ReportedMemory()

    def contention(self, instance: Instance) -> str:
        """Why two of it at once would keep each other waiting, whatever memory there is; empty where they would not."""
        return ""

    def parse_startup(self, lines: Iterable[str]) -> StartupFacts:
        """The facts in such lines; a process that was taken over may have written any."""
        return StartupFacts()

    def needs(self, system: str) -> tuple[str, ...]:
        """Those of its packages that a release takes, such as debian-12; all of them without one."""
        return self.packages

    def paths(self, instance: Instance) -> tuple[str, ...]:
        """The paths of OpenAI's and Anthropic's APIs that an instance answers, after `/v1/`, for a gateway to open."""
        return COMPLETIONS

    def abilities(self, instance: Instance) -> frozenset[Ability]:
        """The declared capabilities of an instance, in addition to answering."""
        return frozenset()

    def progress_metric(self, instance: Instance) -> tuple[str, MetricNames]:
        """The path at which an instance shows that it computes, and the names of what it counts there; without names
        the whole answer is another one once it has. Empty where it does not show it.
        """
        return "", MetricNames()

    def sleep_query(self, instance: Instance) -> tuple[str, str]:
        """The path at which an instance that unloads its model when idle answers without loading it, and the regular
        expression that its answer matches while the model is unloaded; empty for an instance that never unloads it.
        """
        return "", ""

    @abstractmethod
    def parts(self, model: ModelKeys, selection: ModelSelection) -> tuple[ModelPart, ...]:
        """The files of a model that it reads, its own weights first.

        Raises:
            rigwright.model.catalog_schema.MissingModelFile: with every key that stands for nothing, a line each.
        """

    def version_data(self, catalog: Catalog, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> object:
        """The catalogue's data about this very version, such as the options that it takes.

        Raises:
            rigwright.problems.Invalid: the data about it cannot be read.
        """
        return None

    def refusals(
        self, instance: Instance, roots: Roots, folder: Path, capabilities: frozenset[str] = frozenset()
    ) -> list[str]:
        """Why this version would not start with what an instance's keys become, a line each.

        Args:
            instance: The instance.
            roots: Where things lie on its host.
            folder: The inventory's.
            capabilities: The compute capabilities of its cards.
        """
        return []

    def shared_memory(self, instance: Instance) -> str:
        """The most that an instance may keep in its /dev/shm, as systemd reads it; empty where nothing says so."""
        return ""

    def notes(self, instance: Instance) -> list[str]:
        """The notes of a plan about an instance, a line each."""
        return []

    def forbidden_keys(self, instance: Instance) -> dict[str, str]:
        """The keys of an instance's variant and engine that a catalogue may not set by itself, since they would choose
        a program, a file, a folder, a server or a listener: the key, as an inventory's `allow` names it -> why, for
        people.
        """
        return {}

    @abstractmethod
    def service(self, rig: Rig, instance: Instance, made: Installation) -> ServiceSpec:
        """How an instance is run.

        Args:
            rig: Its rig.
            instance: The instance.
            made: Its engine's installation, or the environment that it runs in.
        """

    def offline(
        self, rig: Rig, instance: Instance, made: Installation, wanted: OfflineBenchSpec
    ) -> OfflineBench | None:
        """The program that measures its engine without a server, as the engine brings it; None where it brings none.

        Args:
            rig: Its rig.
            instance: The instance.
            made: Its engine's installation, or the environment that it runs in.
            wanted: The measurement.
        """
        return None

    def compose(self, rig: Rig, instance: Instance) -> dict[str, str]:
        """An instance for Docker's compose: its file, and those beside it; none where it runs in no container."""
        return {}

    def count_answer_tokens(self, said: str) -> int | None:
        """The tokens in an answer to `Service.ready`; None where it is no answer."""
        try:
            found = json.loads(said)["usage"]["completion_tokens"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return found if isinstance(found, int) else None


class InstallingKind(Kind, Installer):
    """A kind whose engines are installed by themselves."""

    @abstractmethod
    def inputs(self, engine: EngineKeys) -> Mapping[str, lock.ArtefactKind]:
        """Inputs of the catalogue that it is installed from -> the kind of their artefacts in the lock."""

    def patchable(self, engine: EngineKeys, artefacts: tuple[Artefact, ...]) -> Mapping[str, str]:
        """The parts of an engine that patches may change -> their versions; names as an index spells them."""
        return {}

    @abstractmethod
    def installation(self, rig: Rig, name: str, engine: EngineKeys, facts: HostFacts) -> Installation:
        """The installation of an engine of a rig on one host."""
