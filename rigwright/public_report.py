"""The public report: a page for a forum or an issue, of values that a list allows.

Whatever a host, an inventory or a file calls anything is not among those: hosts and instances have numbers, and a name
that the shipped catalogue does not have is "the operator's own". So nothing has to be taken out of it again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rigwright.engines.log_causes import UNKNOWN_CAUSE
from rigwright.problems import format_count

OPERATORS_OWN = "the operator's own"
WITHHELD = "withheld"
# of at most three numbers: an address has four
VERSION = re.compile(
    r"v?[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}(?:(?:rc|[.](?:post|dev))[0-9]{1,5})?(?:\+(?:cpu|cu[0-9]{2,3}))?"
)
# The parts of /etc/os-release and of the kernel's release that every host with the same installation has.
SYSTEM = re.compile(r"(?:Debian GNU/Linux|Ubuntu) [0-9]{1,2}(?:\.[0-9]{1,2}){0,2}(?= |\Z)")
KERNEL = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}(?:-[0-9]{1,3})?(?=[+.-]|\Z)")
DIGEST = re.compile("[0-9a-f]{64}")
SEVERITIES = ("critical", "high", "low")
VERDICTS = ("ok", "fail", "waived", "changed", "skip")


def safe_version(text: str) -> str:
    """A version, or that there is one which has not the shape of one."""
    return text if VERSION.fullmatch(text) else WITHHELD


def safe_prefix(pattern: re.Pattern[str], text: str) -> str:
    """The beginning of a text, as far as it is allowed."""
    found = pattern.match(text)
    return found[0] if found else WITHHELD


def shipped_name(name: str, shipped: Collection[str]) -> str:
    """A name that we ship."""
    return name if name in shipped else OPERATORS_OWN


@dataclass(frozen=True)
class ReportedSymptom:
    """A sign in an instance's log that our tables know."""

    means: str
    """Our own words."""
    check: str
    harmless: bool
    times: int


@dataclass(frozen=True)
class ReportedCause:
    """A cause that `rigwright doctor` finds."""

    id: str
    """Of the symptom."""
    instance: int | None
    """The number of the one that has it; None for the box or a card."""
    times: int


@dataclass(frozen=True)
class ReportedRate:
    """How fast, when it was measured last."""

    name: str
    now: float
    """Tokens a second."""
    accepted: float | None
    verdict: str


@dataclass(frozen=True)
class ReportedRun:
    """The last run of `bench speed`."""

    date: str
    rates: Sequence[ReportedRate]
    driver: str
    power_w: Sequence[float | None]
    lanes: Sequence[int | None]


@dataclass(frozen=True)
class ReportedInstance:
    """One of a box's."""

    engine: str
    version: str
    variant: str
    cards: int
    measured: ReportedRun | None = None
    symptoms: Sequence[ReportedSymptom] = ()


@dataclass(frozen=True)
class ReportedCheck:
    """A check that does not hold."""

    id: str
    severity: str


@dataclass(frozen=True)
class ReportedBox:
    """A host."""

    versions: Mapping[str, str]
    lock: str
    generation: int | None
    cards: Sequence[str]
    instances: Sequence[ReportedInstance]
    counts: Mapping[str, int] = field(default_factory=dict)
    """Verdict of checks -> how many."""
    red: Sequence[ReportedCheck] = ()
    causes: Sequence[ReportedCause] = ()
    """The likeliest first."""
    reached: bool = True


@dataclass(frozen=True)
class ShippedNames:
    """The shipped names, which may be reported."""

    variants: Collection[str]
    engines: Collection[str]
    cards: Collection[str]
    checks: Mapping[str, str]
    """Id -> title."""
    rates: Collection[str]
    signs: Collection[str]


def render_report(boxes: Sequence[ReportedBox], shipped: ShippedNames, rigwright: str, day: str) -> str:
    """The page, in Markdown."""
    lines = ["# Rigwright report", "", f"Rigwright {safe_version(rigwright)}, {safe_prefix(DAY, day)} (UTC)", ""]
    for number, box in enumerate(boxes, 1):
        lines += [f"## Box {number}", "", *_render_box(box, shipped), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _render_box(box: ReportedBox, shipped: ShippedNames) -> Iterable[str]:
    if not box.reached:
        yield "It cannot be reached."
        return
    allowed = {"system": SYSTEM, "kernel": KERNEL}
    versions = {name: safe_prefix(allowed[name], box.versions[name]) for name in allowed if name in box.versions}
    versions |= {name: safe_version(box.versions[name]) for name in ("driver", "python") if name in box.versions}
    lock = box.lock if DIGEST.fullmatch(box.lock) else WITHHELD
    cards = [shipped_name(name, shipped.cards) for name in box.cards]
    counted = [f"{cards.count(name)} x {name}" for name in dict.fromkeys(cards)]
    yield from _render_table(
        ("property", "value"),
        [
            *versions.items(),
            ("cards", ", ".join(counted) or "none"),
            ("lock", lock[:12] if lock != WITHHELD else lock),
            ("generation", str(box.generation) if box.generation is not None else "none"),
        ],
    )
    yield ""
    numbers = [(name, word, int(box.counts.get(name, 0))) for name, word in zip(VERDICTS, WORDS, strict=True)]
    counts = ", ".join(f"{number} {word}" for name, word, number in numbers if number or name in ("ok", "fail", "skip"))
    yield f"Checks: {counts}."
    named = [one for one in box.red if one.id in shipped.checks and one.severity in SEVERITIES]
    if named:
        yield ""
        yield from _render_table(
            ("check", "severity", "does not hold"),
            [(one.id, one.severity, shipped.checks[one.id]) for one in named],
        )
    if others := len(box.red) - len(named):
        yield f"{others} of {OPERATORS_OWN} fail."
    signs = [one for one in box.causes if one.id in shipped.signs]
    if signs:
        yield ""
        yield "Findings of `doctor`, the likeliest first:"
        yield ""
        for sign in signs:
            where = f"instance {int(sign.instance)}" if sign.instance is not None else "the box"
            yield f"- {sign.id}: {where}, {format_count(int(sign.times), 'time')}"
    for number, one in enumerate(box.instances, 1):
        yield ""
        yield f"### Instance {number}"
        yield ""
        yield from _render_instance(one, shipped)


WORDS = ("hold", "fail", "fail and are waived", "found changes", "do not apply")


def _render_instance(one: ReportedInstance, shipped: ShippedNames) -> Iterable[str]:
    engine = f"{shipped_name(one.engine, shipped.engines)} {safe_version(one.version)}"
    cards = format_count(int(one.cards), "card") if one.cards else "no cards"
    yield f"{engine}, variant {shipped_name(one.variant, shipped.variants)}, {cards}."
    if one.measured:
        yield ""
        yield from _render_run(one.measured, shipped)
    for symptom in one.symptoms:
        sign = "harmless: " if symptom.harmless else "" if symptom.means.startswith(UNKNOWN_CAUSE) else "likely cause: "
        more = f" ({symptom.check})" if symptom.check in shipped.checks else ""
        yield f"- log, {format_count(int(symptom.times), 'time')}: {sign}{symptom.means}{more}"


def _render_run(run: ReportedRun, shipped: ShippedNames) -> Iterable[str]:
    power = ", ".join("?" if one is None else f"{float(one):g}" for one in run.power_w)
    lanes = ", ".join("?" if one is None else str(int(one)) for one in run.lanes)
    on = f"driver {safe_version(run.driver)}, power limit {power} W, {lanes} lanes" if run.power_w else "on the CPU"
    yield f"Measured {safe_prefix(DAY, run.date)}: {on}."
    yield ""
    yield from _render_table(
        ("workload", "tokens/s", "accepted", "verdict"),
        [
            (one.name, f"{one.now:.1f}", "" if one.accepted is None else f"{one.accepted:.1f}", one.verdict)
            for one in run.rates
            if one.name in shipped.rates and one.verdict in ("", "same", "slower", "faster", "unjudged")
        ],
    )


def _render_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
