"""One run of `bench speed`: under which conditions, and how fast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import Annotated, Literal

from pydantic import Field

from rigwright.model.instance import Instance
from rigwright.nvidia.cards.smi import Gpu
from rigwright.problems import FrozenModel, printable
from rigwright.types import Digits, Sha256, Text, VariantName, matching

Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Moment = Annotated[
    str,
    matching(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "a moment, such as 2026-06-10T12:00:00Z"),
]


class Fingerprint(FrozenModel):
    """What has to be the same for two runs to be of the same box."""

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
            ValueError: a card says something that is none of its words.
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
        """What is another than before, in words."""
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
    """Of the start of the engine's process: what differs from start to start is the same in all runs of one."""
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
        """Whether it is judged, and may be accepted."""
        return bool(self.rates) and not (self.quick or self.ended or self.contaminated)
