"""Batches of a rollout: their order, their size, and the instances of each model that keep serving."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rigwright.model.maintenance_window import find_common_opening
from rigwright.problems import describe_unknown


@dataclass(frozen=True)
class RolloutBox:
    """One box of the inventory, as it is before the rollout."""

    name: str
    sources: frozenset[str] = frozenset()
    """Boxes that it fetches weights from."""
    serving: Mapping[str, int] = field(default_factory=dict)
    """Model -> ready instances."""
    interrupted: Mapping[str, int] = field(default_factory=dict)
    """Model -> ready instances that a deploy interrupts."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Another name of a model -> the model."""
    fault: str = ""
    """Why the box does not serve all that it should; empty if it does, and for a box without a deploy."""
    seconds: float | None = None
    """Expected duration of the deploy; None without a record."""
    generation: int | None = None
    """The served one; None if it serves none, or does not answer."""
    partner: str = ""
    """The box whose gateway shares an address with its own; empty without one."""
    builds: frozenset[str] = frozenset()
    """Trees of engines that its deploy compiles."""
    built: frozenset[str] = frozenset()
    """Those that it needs and has."""
    drivers: tuple[str, str] | None = None
    """Of a driver rollback: the installed driver, and the one to which it returns."""
    windows: tuple[str, ...] = ()
    """Its maintenance windows; empty for always."""


@dataclass(frozen=True)
class BatchLimits:
    """Sizes that the operator asks for."""

    canary: int = 1
    """Boxes of the first batch; 0 for no canary."""
    batch: int = 1
    """Boxes of each further batch."""
    max_unavailable: int | None = None
    """Boxes that may be out of service at the same time."""
    allowed_outages: frozenset[str] = frozenset()
    """Models, or aliases, whose last instance may be interrupted."""
    soak_minutes: int = 0
    """Between two batches."""


@dataclass(frozen=True)
class RolloutBatch:
    """Boxes that are deployed at the same time."""

    boxes: tuple[str, ...]
    is_canary: bool
    capacity: Mapping[str, tuple[int, int]]
    """Model -> ready instances during the batch, and before the rollout."""
    seconds: float | None
    """Expected duration of the deploy; None if no box has a record."""
    opening: datetime | None
    """When it may begin, if each batch before it takes its expected duration; None for boxes without windows."""


class RolloutRefused(Exception):
    """The rollout cannot start; `reasons` has all of them."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("\n".join(reasons))


def resolve_batch_size(text: str, boxes: int) -> int:
    """The size that `--batch` names: a number of boxes, or a share of them, rounded down, at least one."""
    return max(1, boxes * int(text[:-1]) // 100) if text.endswith("%") else int(text)


def plan_batches(
    boxes: Sequence[RolloutBox], targets: Collection[str], limits: BatchLimits, now: datetime
) -> tuple[RolloutBatch, ...]:
    """Divide a rollout into batches.

    A box comes after the boxes that it fetches weights from. A batch leaves at least one instance of each model, and
    never exceeds `max_unavailable`. Two gateways with one address are in different batches, and so are boxes whose
    maintenance windows have no common time.

    Args:
        boxes: All boxes of the inventory, in its order.
        targets: Names of the boxes to deploy.
        limits: Sizes and consent.
        now: The present moment.

    Raises:
        RolloutRefused: a batch of one box would interrupt a model's last instance without consent, or no box may
            become unavailable.
    """
    ready = _sum_instances(box.serving for box in boxes)
    allowed = _resolve_outages(boxes, ready, limits.allowed_outages)
    waiting = [box for box in boxes if box.name in targets]
    reasons = [
        f"{box.name} has the last instance of {model}: --allow-outage {model} consents to its interruption"
        for box in waiting
        for model in _find_outages([box], ready, allowed)
    ]
    down = [f"{box.name}: {box.fault}" for box in boxes if box.fault]
    room = None if limits.max_unavailable is None else limits.max_unavailable - len(down)
    if room is not None and room < 1:
        reasons.append(
            f"--max-unavailable {limits.max_unavailable}: {len(down)} already unavailable ({'; '.join(down)})"
        )
    if reasons:
        raise RolloutRefused(reasons)
    batches: list[RolloutBatch] = []
    while waiting:
        is_canary = not batches and limits.canary > 0
        size = limits.canary if is_canary else limits.batch
        members = _choose_members(waiting, min(size, room or size), ready, allowed, now)
        batches.append(_describe_batch(members, is_canary, ready, now))
        now = (batches[-1].opening or now) + timedelta(seconds=batches[-1].seconds or 0, minutes=limits.soak_minutes)
        waiting = [box for box in waiting if box not in members]
    return tuple(batches)


def _choose_members(
    waiting: Sequence[RolloutBox], size: int, ready: Mapping[str, int], allowed: Collection[str], now: datetime
) -> list[RolloutBox]:
    """The next boxes: each has its sources behind it, together they interrupt no model's last instance and have a
    common maintenance window, and of two gateways with one address only one is among them.
    """
    names = {box.name for box in waiting}
    # boxes that fetch from each other have no order: the inventory's counts
    first = [box for box in waiting if not (box.sources - {box.name}) & names] or [waiting[0]]
    members: list[RolloutBox] = []
    for box in first:
        together = [*members, box]
        if len(members) == size or box.name in {one.partner for one in members}:
            continue
        if not _find_outages(together, ready, allowed) and find_common_opening([o.windows for o in together], now):
            members.append(box)
    return members


def _find_outages(boxes: Sequence[RolloutBox], ready: Mapping[str, int], allowed: Collection[str]) -> list[str]:
    """Models without a ready instance while these boxes are deployed, except those with consent."""
    interrupted = _sum_instances(box.interrupted for box in boxes)
    return sorted(
        model for model, count in interrupted.items() if count >= ready.get(model, 0) and model not in allowed
    )


def _describe_batch(
    members: Sequence[RolloutBox], is_canary: bool, ready: Mapping[str, int], now: datetime
) -> RolloutBatch:
    interrupted = _sum_instances(box.interrupted for box in members)
    known = [box.seconds for box in members if box.seconds is not None]
    return RolloutBatch(
        tuple(box.name for box in members),
        is_canary,
        {model: (count - interrupted.get(model, 0), count) for model, count in sorted(ready.items())},
        max(known, default=None),
        find_common_opening([box.windows for box in members], now) if any(box.windows for box in members) else None,
    )


def _sum_instances(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for model, count in one.items():
            total[model] = total.get(model, 0) + count
    return total


def _resolve_outages(boxes: Sequence[RolloutBox], ready: Mapping[str, int], names: Collection[str]) -> frozenset[str]:
    """The models that `--allow-outage` names, by their own names."""
    aliases = {alias: model for box in boxes for alias, model in box.aliases.items()}
    known = {*ready, *aliases, *aliases.values(), *(model for box in boxes for model in box.interrupted)}
    if wrong := sorted({*names} - known):
        raise RolloutRefused([f"--allow-outage: {describe_unknown('model', one, known)}" for one in wrong])
    return frozenset(aliases.get(one, one) for one in names)
