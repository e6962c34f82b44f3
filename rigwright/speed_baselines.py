"""Baselines of speed: accepted measurements, their history and comparisons with them.

There it outlives the box: a rebuilt one is compared with what it was. Moving the folder moves the book, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from rigwright.local_files import read_content, write_atomically
from rigwright.model.instance import Instance
from rigwright.nvidia.cards.smi import Gpu
from rigwright.problems import FrozenModel, printable
from rigwright.validated_types import Digits, Name, Sha256, Text, VariantName, matching

Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Moment = Annotated[
    str,
    matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "a moment, such as 2026-06-10T12:00:00Z"),
]


class Fingerprint(FrozenModel):
    """The facts that have to be the same for two runs to be of the same box."""

    driver: Annotated[str, matching(r"[0-9.]{0,32}", "a version of numbers and dots, or nothing")]
    """NVIDIA's; empty without cards."""
    cards: tuple[Text, ...]
    """Names of the instance's cards, as they say them."""
    power_w: tuple[Amount | None, ...]
    """Their limits that are in force."""
    lanes: tuple[int | None, ...]
    """Of their PCI links."""
    lock: Sha256
    """Of every file from outside."""
    variant: VariantName
    settings: Digits
    """Of all that its service is started from."""

    @classmethod
    def of_instance(cls, lock_digest: str, instance: Instance, started_from: str, cards: Sequence[Gpu]) -> Fingerprint:
        """An instance's.

        Args:
            lock_digest: The digest of its lock and bundle.
            instance: The instance.
            started_from: SHA-256 of the files that its service is started from.
            cards: Its cards as they answer, in its order.

        Raises:
            ValueError: a card reports an unknown word.
        """
        return cls(
            driver=cards[0].driver if cards else "",
            cards=tuple(printable(gpu.name)[:200] for gpu in cards),
            power_w=tuple(gpu.limit_w for gpu in cards),
            lanes=tuple(gpu.width for gpu in cards),
            lock=lock_digest,
            variant=instance.variant_name,
            settings=started_from[:12],
        )

    def describe_changes(self, before: Fingerprint) -> Iterator[str]:
        """The differences from before, in words."""
        words = {"driver": "driver", "lock": "lock", "variant": "variant", "settings": "the variant's settings"}
        words |= {"cards": "cards", "power_w": "power limit (W)", "lanes": "lanes"}
        for name, word in words.items():
            was, now = getattr(before, name), getattr(self, name)
            if was != now:
                yield f"{word}: {_format_value(was)} \N{RIGHTWARDS ARROW} {_format_value(now)}"


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join("?" if one is None else f"{one:g}" if isinstance(one, float) else str(one) for one in value)
    text = str(value)
    return text[:12] if len(text) == 64 else text or "none"


class Series(FrozenModel):
    """Values of one figure, a value each time that it was measured."""

    values: tuple[Amount, ...] = Field(min_length=1, max_length=1000)

    @property
    def mean(self) -> float:
        """Of the values."""
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """A sample's standard deviation; 0 of one value."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def variation(self) -> float:
        """The deviation in terms of the mean (CV)."""
        return self.deviation / self.mean if self.mean else 0.0


class BaselineRun(FrozenModel):
    """One run, whole or as far as it came."""

    date: Moment
    """When it began."""
    boot: Digits
    """Of the start of the engine's process: differences between starts are the same in all runs of one."""
    fingerprint: Fingerprint
    rates: dict[Annotated[str, matching(r"[a-z0-9 /]{1,40}", "small letters, digits and /")], Series]
    """Name -> tokens a second: more is better."""
    temperatures: tuple[Amount | None, ...] = ()
    """Of the cards, the highest that was seen, in degrees Celsius."""
    quick: bool = False
    """Fewer requests than the protocol has."""
    ended: Literal["", "interrupted", "host lost", "refused", "failed"] = ""
    """Why it is not whole; empty for one that is."""
    contaminated: bool = False
    """Whether the instance has served others meanwhile."""

    @property
    def is_comparable(self) -> bool:
        """Whether it is judged."""
        return bool(self.rates) and not (self.quick or self.ended or self.contaminated)

    @property
    def unusable_rates(self) -> dict[str, float]:
        """Rate -> its variation (CV), where that is too large for a baseline."""
        return {name: rate.variation for name, rate in self.rates.items() if rate.variation > MOST_VARIATION}

    @property
    def is_acceptable(self) -> bool:
        """Whether it may become a part of a baseline."""
        return self.is_comparable and not self.unusable_rates


FOLDER = "baselines"
MOST_VARIATION = 0.25
"""The largest variation (CV) of a baseline's rate: later rates within two deviations are not slower, and with more than
this a rate of half the mean would pass."""
RUNS = 50  # of an instance, that are kept
MOST = 16 << 20  # bytes of a book, far beyond what as many runs take
ACCEPTED = 10  # fingerprints of an instance, of which accepted runs are kept


class UnreadableHistory(ValueError):
    """A file that is no book; says which, and what is wrong with it."""


class AcceptedRuns(FrozenModel):
    """Runs of one fingerprint that were accepted."""

    fingerprint: Fingerprint
    runs: tuple[BaselineRun, ...] = Field(min_length=1, max_length=RUNS)


class InstanceHistory(FrozenModel):
    """One instance's."""

    runs: tuple[BaselineRun, ...] = Field(default=(), max_length=RUNS)
    """The latest last."""
    accepted: tuple[AcceptedRuns, ...] = Field(default=(), max_length=ACCEPTED)
    """The latest last."""

    @property
    def last_run(self) -> BaselineRun | None:
        """The latest run that is judged; None without one."""
        return next((run for run in reversed(self.runs) if run.is_comparable), None)

    def find_accepted(self, run: BaselineRun) -> AcceptedRuns | None:
        """The reference of a run: the values that were accepted under its fingerprint, or else under the one before."""
        same = [one for one in self.accepted if one.fingerprint == run.fingerprint]
        return next(reversed(same or self.accepted), None)

    def with_run(self, run: BaselineRun) -> InstanceHistory:
        """It with one more run."""
        return self.model_copy(update={"runs": (*self.runs, run)[-RUNS:]})

    def with_last_accepted(self) -> InstanceHistory:
        """It with all runs accepted that are like the last one, which is then what runs are compared with.

        Raises:
            ValueError: there is none to accept.
        """
        last = next((run for run in reversed(self.runs) if run.is_acceptable), None)
        if last is None:
            raise ValueError("no run to accept: one that is whole, not quick, and had the instance to itself")
        runs = tuple(run for run in self.runs if run.is_acceptable and run.fingerprint == last.fingerprint)
        others = tuple(one for one in self.accepted if one.fingerprint != last.fingerprint)
        mine = AcceptedRuns(fingerprint=last.fingerprint, runs=runs)
        return self.model_copy(update={"accepted": (*others, mine)[-ACCEPTED:]})


class BaselineHistory(FrozenModel):
    """One box's."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    instances: dict[Name, InstanceHistory] = Field(default={})

    def for_instance(self, instance: str) -> InstanceHistory:
        """An instance's."""
        return self.instances.get(instance, InstanceHistory())

    def with_instance(self, instance: str, page: InstanceHistory) -> BaselineHistory:
        """It with another page of an instance."""
        return self.model_copy(update={"instances": {**self.instances, instance: page}})


def history_path(inventory: str, host: str) -> Path:
    """Where the book of an inventory's host lies."""
    return Path(inventory).absolute().parent / FOLDER / f"{host}.json"


def load_history(file: Path) -> BaselineHistory:
    """The book in a file; an empty one where there is none.

    Raises:
        UnreadableHistory: it is invalid.
    """
    try:
        if not file.exists():
            return BaselineHistory()
        found = read_content(file, MOST)
    except (OSError, ValueError) as error:
        raise UnreadableHistory(f"{file}: {error}") from None
    try:
        return BaselineHistory.model_validate_json(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = printable(f"{where}: {first['msg']}")
        raise UnreadableHistory(f"{file}: {said}: restore it, or remove it") from None


def save_history(file: Path, book: BaselineHistory) -> None:
    """Write it, whole or not at all."""
    text = json.dumps(json.loads(book.model_dump_json(by_alias=True)), indent=1)
    write_atomically(file, text + "\n", makes_folder=True)


def find_reference(page: InstanceHistory, run: BaselineRun) -> tuple[AcceptedRuns | None, Sequence[str]]:
    """The reference of a run, and the box's differences from then."""
    before = page.find_accepted(run)
    return before, list(run.fingerprint.describe_changes(before.fingerprint)) if before else []


SLOWER = 0.05
"""Of what was accepted, by which a rate has to be below it; public write-ups see as much between two starts of one
engine on one card.
"""
BOOTS = 2
"""Starts of the engine, of which runs have to be accepted before anything is called slower: how much they differ is not
known from one.
"""
WIDTH = 2.0
"""Standard deviations between starts that are noise."""
RateVerdict = Literal["same", "slower", "faster", "unjudged"]


@dataclass(frozen=True)
class AcceptedLevel:
    """The accepted values of one rate."""

    mean: float
    """Tokens a second, of all starts alike."""
    noise: float | None
    """Tokens a second by which starts differ; None of fewer than BOOTS."""
    boots: int


def compute_level(runs: Sequence[BaselineRun], name: str) -> AcceptedLevel | None:
    """The values of accepted runs; None where none of them has this rate."""
    boots: dict[str, list[float]] = {}
    for run in runs:
        if name in run.rates:
            boots.setdefault(run.boot, []).append(run.rates[name].mean)
    means = [fmean(values) for values in boots.values()]
    if not means:
        return None
    return AcceptedLevel(fmean(means), WIDTH * stdev(means) if len(means) >= BOOTS else None, len(means))


@dataclass(frozen=True)
class RateComparison:
    """One rate of a run beside what was accepted."""

    name: str
    now: float
    """Tokens a second."""
    before: AcceptedLevel
    verdict: RateVerdict

    @property
    def change(self) -> float:
        """In terms of what was accepted: -0.1 is a tenth less."""
        return self.now / self.before.mean - 1 if self.before.mean else 0.0

    @property
    def description(self) -> str:
        """In words."""
        noise = self.before.noise
        known = f"noise \N{PLUS-MINUS SIGN}{noise:.1f}" if noise is not None else "noise unknown: one start"
        return f"{self.name}: {self.now:.1f} tokens/s, {100 * self.change:+.1f} % of {self.before.mean:.1f} ({known})"


def compare_rates(run: BaselineRun, accepted: Sequence[BaselineRun]) -> list[RateComparison]:
    """Each rate of a run that was accepted before, too."""
    found = []
    for name, series in run.rates.items():
        before = compute_level(accepted, name)
        if before is not None:
            found.append(RateComparison(name, series.mean, before, _verdict(series.mean, before)))
    return found


def _verdict(now: float, before: AcceptedLevel) -> RateVerdict:
    if before.noise is None:
        return "unjudged"
    off = now - before.mean
    if abs(off) <= SLOWER * before.mean or abs(off) <= before.noise:
        return "same"
    return "slower" if off < 0 else "faster"
