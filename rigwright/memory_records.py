"""Records of the memory of starts: read from hosts, and the accepted ones next to the inventory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from rigwright.engines import kinds
from rigwright.engines.memory_prediction import ComputedMemory, MeasuredMemory
from rigwright.engines.reported_memory import ReportedMemory, describe_memory_failure
from rigwright.local_files import read_content, write_atomically
from rigwright.model.rig import RECORDS_FOLDER
from rigwright.problems import FrozenModel, printable
from rigwright.validated_types import Name, Sha256, Text, matching

KEPT = 100  # records of an instance
KEPT_FAILURES = 10  # starts of an instance without an answer
MOST = 16 << 20  # bytes of a file
MOST_ANSWER = 2 << 20  # bytes of a host's file
Bytes = Annotated[int, Field(ge=0, le=1 << 48, strict=True)]
RecordMoment = Annotated[
    str, matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "a moment, such as 2026-06-10T12:00:00Z")
]
Count = Annotated[int, Field(ge=0, le=1 << 32, strict=True)]
CardUuid = Annotated[str, matching(r"GPU-[0-9a-f-]{8,64}", "the UUID of a card")]
Version = Annotated[str, matching(r"[0-9.]{0,32}", "a version of numbers and dots, or nothing")]
GroupFigure = Annotated[str, matching(r"[a-z_]{1,16}", "a figure of a control group")]
LogLine = Annotated[str, matching(r"[ -~]{0,300}", "a line of at most 300 printable characters")]


class HostModel(FrozenModel):
    """A part of a host's file; keys of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CardMemory(HostModel):
    """Memory on one card."""

    peak: Bytes
    settled: Bytes
    name: Text
    index: Annotated[int, Field(ge=0, le=255, strict=True)] | None = None


class RamMemory(HostModel):
    """RAM of the processes."""

    peak: Bytes
    settled: Bytes
    anon: Bytes = 0
    file: Bytes = 0
    shmem: Bytes = 0


class BoxCard(HostModel):
    """A card of the box while they ran."""

    index: Annotated[int, Field(ge=0, le=255, strict=True)]
    total: Bytes
    foreign: Bytes
    """Of the driver, and of processes that are no instance's."""


class MachineMemory(HostModel):
    """RAM of the machine while they ran."""

    MemTotal: Bytes = 0
    MemAvailable: Bytes = 0
    SwapFree: Bytes = 0
    shm: Bytes = 0
    others: Bytes | None = None
    """Of the other instances on it, without pages of files."""


class ComputedSizes(HostModel):
    """The computed sizes, as the controller wrote them: `ComputedMemory`."""

    engine: Text
    model: Sha256
    options: Sha256
    cards: Annotated[tuple[Text, ...], Field(max_length=64)]
    driver: Version = ""
    context: Count
    parallel: Annotated[int, Field(ge=1, le=1 << 20, strict=True)]
    weights: Bytes
    cache: Bytes
    work: Bytes = 0
    later: Bytes = 0
    host: Bytes = 0
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    indexes: Annotated[tuple[Count, ...], Field(max_length=64)] = ()
    """Of the cards, in their order."""


class StartMemory(HostModel):
    """One start of an instance."""

    outcome: Literal["ready", "failed", "stopped"] = "ready"
    """`failed` and `stopped`: a start without an answer, which is no measurement."""
    result: Annotated[str, matching(r"[a-z-]{0,24}", "a unit's result")] = ""
    """systemd's result of the unit, for a start without an answer."""
    failure_lines: Annotated[tuple[LogLine, ...], Field(max_length=20)] = ()

    schema_: Literal[1] = Field(default=1, alias="schema")
    fingerprint: Sha256
    seconds: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    cards: Annotated[dict[CardUuid, CardMemory], Field(max_length=64)] = Field(default={})
    box_cards: Annotated[dict[CardUuid, BoxCard], Field(max_length=64)] = Field(default={})
    host: RamMemory
    cgroup: Annotated[dict[GroupFigure, Bytes], Field(max_length=16)] = Field(default={})
    machine: MachineMemory = MachineMemory()
    driver: Version = ""
    moment: RecordMoment
    invocation: Annotated[str, matching(r"[0-9a-f]{32}", "an invocation of systemd")]
    computed: ComputedSizes | None = None
    lines: Annotated[tuple[LogLine, ...], Field(max_length=60)] = ()

    def parse_report(self) -> ReportedMemory:
        """The engine's own report in its lines."""
        name = self.computed.engine.partition(" ")[0] if self.computed else ""
        kind = kinds().get(name)
        return kind.parse_memory(self.lines) if kind else ReportedMemory()

    @property
    def memory_failure(self) -> str:
        """Why the start failed for lack of memory, in Rigwright's words; empty if it did not."""
        if self.outcome != "failed":
            return ""
        if self.result == "oom-kill" or self.cgroup.get("oom_kill"):
            return "the kernel ended it for lack of memory"
        return describe_memory_failure(self.failure_lines)

    def as_failure(self) -> MeasuredMemory | None:
        """The record as a start that failed for lack of memory; None if it did not, or without computed sizes."""
        if self.computed is None or not self.memory_failure:
            return None
        return MeasuredMemory(self._computed(self.computed), self.moment, (), 0, self.memory_failure)

    def _computed(self, sizes: ComputedSizes) -> ComputedMemory:
        return ComputedMemory(**{**sizes.model_dump(exclude={"indexes"}), "driver": self.driver})

    def as_measured(self) -> MeasuredMemory | None:
        """The record as a measured start; None without an answer or computed sizes, or if other cards than its own have
        its processes, or its figures contradict each other."""
        peaks = self._order_peaks()
        if self.outcome != "ready" or self.computed is None or peaks is None:
            return None
        computed = self._computed(self.computed)
        # an engine that takes its share has a larger KV cache than it needs
        available = self.parse_report().cache if computed.share else 0
        if computed.share and not 0 < available <= min(peaks, default=0):
            return None
        if computed.share:
            each = computed.cache // max(1, len(computed.cards))
            peaks = tuple(max(0, peak - available + each) for peak in peaks)
        # an engine that writes false lines of its own must make no other launch fit
        if computed.cards and sum(peaks) < computed.weights + computed.cache:
            return None
        # of a launch on cards, pages of files are free memory
        ram = self.host.anon + self.host.shmem if computed.cards else self.host.peak
        return MeasuredMemory(computed, self.moment, peaks, ram)

    def _order_peaks(self) -> tuple[int, ...] | None:
        """The peaks in the order of its declared cards; None where that is unknown."""
        declared = self.computed.cards if self.computed else ()
        if len(self.cards) != len(declared):
            return None
        if len(declared) < 2:
            return tuple(card.peak for card in self.cards.values())
        peaks = {card.index: card.peak for card in self.cards.values()}
        indexes = self.computed.indexes if self.computed else ()
        if None in peaks or sorted(indexes) != sorted(index for index in peaks if index is not None):
            return None
        return tuple(peaks[index] for index in indexes)

    @property
    def free_ram(self) -> int:
        """Bytes of RAM without any instance; 0 if unknown."""
        available, own = self.machine.MemAvailable, self.host.anon + self.host.shmem
        return available + own + (self.machine.others or 0) if available else 0


class _HostFile(HostModel):
    history: Annotated[tuple[StartMemory, ...], Field(max_length=KEPT)] = ()
    failures: Annotated[tuple[StartMemory, ...], Field(max_length=KEPT)] = ()
    invocation: str = ""


class UnreadableRecords(ValueError):
    """A file that has no records; says which, and its fault."""


def parse_host_records(text: bytes | str) -> tuple[StartMemory, ...]:
    """The records in a host's file: starts without an answer, then the others, the latest last.

    Raises:
        UnreadableRecords: it is invalid.
    """
    try:
        found = _HostFile.model_validate_json(text)
        # no start has answered yet
        if found.failures and not found.invocation:
            return found.failures
        return (*found.failures, *found.history, StartMemory.model_validate_json(text))
    except ValidationError as error:
        raise UnreadableRecords(_describe(error)) from None


def _describe(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return printable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")[:200]


class AcceptedRecords(FrozenModel):
    """The accepted records of one host."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    instances: dict[Name, Annotated[tuple[StartMemory, ...], Field(max_length=KEPT)]] = Field(default={})

    def with_records(self, instance: str, records: Iterable[StartMemory]) -> AcceptedRecords:
        """It with records of an instance, each start once, the latest last."""
        known = {one.invocation: one for one in (*self.instances.get(instance, ()), *records)}
        ordered = sorted(known.values(), key=lambda one: one.moment)
        failures = [one for one in ordered if one.outcome != "ready"][-KEPT_FAILURES:]
        ready = [one for one in ordered if one.outcome == "ready"][len(failures) - KEPT :]
        kept = tuple(sorted((*ready, *failures), key=lambda one: one.moment))
        return self.model_copy(update={"instances": {**self.instances, instance: kept}})


def records_path(inventory: str, host: str) -> Path:
    """The file of an inventory's host."""
    return Path(inventory).absolute().parent / RECORDS_FOLDER / f"{host}.json"


def load_accepted(file: Path) -> AcceptedRecords:
    """The records in a file; none where there is no file.

    Raises:
        UnreadableRecords: it is invalid.
    """
    try:
        if not file.exists():
            return AcceptedRecords()
        found = read_content(file, MOST)
    except (OSError, ValueError) as error:
        raise UnreadableRecords(f"{file}: {error}") from None
    try:
        return AcceptedRecords.model_validate_json(found)
    except ValidationError as error:
        raise UnreadableRecords(f"{file}: {_describe(error)}: restore it, or remove it") from None


def save_accepted(file: Path, records: AcceptedRecords) -> None:
    """Write it, whole or not at all."""
    value: Any = json.loads(records.model_dump_json(by_alias=True))
    write_atomically(file, json.dumps(value, indent=1) + "\n", makes_folder=True)


def load_all_records(inventory: str) -> dict[str, AcceptedRecords]:
    """Host -> the accepted records next to an inventory, of all hosts: those of equal cards count for each other.

    Raises:
        UnreadableRecords: a file is invalid.
    """
    folder = Path(inventory).absolute().parent / RECORDS_FOLDER
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return {file.stem: load_accepted(file) for file in files}


def as_measurements(books: Mapping[str, AcceptedRecords]) -> list[MeasuredMemory]:
    """All records as measured starts, or as starts that lacked memory; the latest last."""
    every = [one for book in books.values() for records in book.instances.values() for one in records]
    found = [one.as_measured() or one.as_failure() for one in sorted(every, key=lambda one: one.moment)]
    return [one for one in found if one is not None]
