"""Why a box misbehaves: causes from logs, looks and checks, the likeliest first, with evidence and fix."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from rigwright.engines import kinds
from rigwright.engines.log import Cause, symptom
from rigwright.nvidia.cards.health import RECOVERED, XID
from rigwright.operate.evidence import Diagnosis, Evidence, RedCheck, short
from rigwright.operate.health import Health
from rigwright.operate.together import beside, of_all
from rigwright.problems import Frozen
from rigwright.toml import parse

SOURCE = Path(__file__).with_name("xids.toml")
AGAIN = 3  # Xids of one code and card since boot from which a program's mistake is no longer the likeliest
# What the kernel says when there is no memory left, of a whole machine or of a unit (mm/oom_kill.c).
KILLED = re.compile(r"(?:Memory cgroup out of memory|Out of memory): Killed process [0-9]+ \(([^)]{1,32})\)")
# Lines of the kernel's of which each means one thing, with the symptom's name, what it means, and what helps.
SIGNS = (
    (
        "RmInitAdapter failed",
        "card-does-not-start",
        "the driver cannot start a card",
        "reboot; if it comes back, check its power cables and seat, then its driver (`rigwright check --only N02,N09`)",
    ),
    (
        "NVRM: API mismatch",
        "driver-mismatch",
        "the driver that is loaded is another than the one that is installed",
        "stop what runs and reboot: the installed one is loaded then",
    ),
    (
        "IO_PAGE_FAULT",
        "io-page-fault",
        "the IOMMU refuses what a device reaches for",
        "add iommu=pt to the kernel's command line where the device is a card",
    ),
)
KERNEL = "|".join(("NVRM: Xid", "ut of memory: Killed process", *(said for said, *_ in SIGNS)))
"""What lines of the kernel's are asked for."""
RULES = (
    *("state-wedged", "state-failing", "state-failed", "state-not-there", "state-stopped", "state-silent"),
    *("out-of-memory", "preemptions", "accept-length", "cards-silent", "reboot-pending", "card-memory-taken"),
    *("on-the-processor", "kv-cache-full"),
)
"""Names of what is no line of an engine's."""
WEIGHTS: Mapping[str, int] = {"critical": 60, "high": 45, "medium": 30, "low": 15}


class Xid(Frozen):
    """What one means."""

    name: str
    blame: Literal["card", "program", "either"]
    cure: str
    drivers: dict[str, str] = Field(default_factory=dict)
    """What was seen with a driver of this version."""


class _Table(Frozen):
    """The file beside this module."""

    xids: dict[int, Xid]


@cache
def xids() -> dict[int, Xid]:
    """By code, as the file beside this module has them."""
    return parse(SOURCE, _Table).xids


def names() -> frozenset[str]:
    """All names of symptoms; checks beside them have their own."""
    logs = {symptom(cause) for kind in kinds().values() for cause in kind.causes}
    kernel = {f"xid-{code}" for code in xids()} | {name for _, name, *_ in SIGNS}
    return frozenset({*logs, *kernel, *RULES})


def of_log(lines: Sequence[str], causes: Iterable[Cause], where: str, cure: str) -> Iterator[Diagnosis]:
    """What lines of an engine betray, each cause once, with the last line that does.

    Args:
        lines: Those of its journal, the last one last.
        causes: What its kind knows.
        where: The instance.
        cure: The command that says more, where no check does.
    """
    said = [line for line in lines if line.strip()]
    for cause in causes:
        if cause.harmless:
            continue
        fitting = [line for line in (said[-1:] if cause.last else said) if cause.said in line]
        if fitting:
            # the nearer to the end, the likelier that it ended by it
            late = 10 if fitting[-1] in said[-20:] else 0
            command = f"rigwright check --only {cause.check}" if cause.check else cure
            yield Diagnosis(symptom(cause), where, cause.means, short(fitting[-1]), command, 70 + late, len(fitting))


def of_kernel(lines: Sequence[str], driver: str) -> Iterator[Diagnosis]:
    """What the kernel's log says of cards and of memory."""
    counted: dict[tuple[str, int], list[str]] = {}
    killed: dict[str, list[str]] = {}
    for line in lines:
        at = line.find("NVRM: Xid")
        found = XID.match(line[at:]) if at >= 0 else None
        if found and not (int(found[2]) == 154 and RECOVERED.search(found[3])):
            counted.setdefault((found[1].lower(), int(found[2])), []).append(line)
        elif out := KILLED.search(line):
            killed.setdefault(out[1], []).append(line)
    for sign, name, means, cure in SIGNS:
        if said := [line for line in lines if sign in line]:
            yield Diagnosis(name, "", means, short(said[-1]), cure, 88, len(said))
    for (card, code), said in counted.items():
        yield _xid(card, code, said, driver)
    for name, said in killed.items():
        means = f"the kernel ended {name}, for there was no memory left"
        cure = "raise memory_max of its instance, serve a smaller context, or take memory from others"
        yield Diagnosis("out-of-memory", "", means, short(said[-1]), cure, 95, len(said))


def _xid(card: str, code: int, said: Sequence[str], driver: str) -> Diagnosis:
    known = xids().get(code)
    if known is None:
        means = f"Xid {code} of card {card}, which is not in our table"
        cure = "look it up: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
        return Diagnosis(f"xid-{code}", f"GPU {card}", means, short(said[-1]), cure, 40, len(said))
    blame, again = known.blame, len(said) >= AGAIN
    means = f"Xid {code} of card {card}: {known.name}"
    if driver in known.drivers:
        means += f"; with driver {driver}: {known.drivers[driver]}"
    if blame == "program":
        means += "; a program's mistake" + (
            f", but {len(said)} times since boot: the card is suspect where another program does not have it" * again
        )
    weight = {"card": 100, "either": 60, "program": 55}[blame] + 10 * again
    return Diagnosis(f"xid-{code}", f"GPU {card}", means, short(said[-1]), known.cure, weight, len(said))


def of_health(one: Health, again: Callable[[str], str]) -> Iterator[Diagnosis]:
    """What a look says of an instance.

    Args:
        one: The look.
        again: Makes the command line of a verb about its host.
    """
    cures = {
        "wedged": (
            90,
            again("logs") + f" --instance {one.instance}; then systemctl restart its unit on the box",
        ),
        "failing": (85, again("logs") + f" --instance {one.instance}"),
        "failed": (65, again("logs") + f" --instance {one.instance}"),
        "not there": (50, again("deploy")),
        "stopped": (50, again("start") + f" {one.instance}"),
        "silent": (40, again("health")),
    }
    if one.state in cures:
        weight, cure = cures[one.state]
        means = f"{one.instance} is {one.state}"
        yield Diagnosis(
            f"state-{one.state.replace(' ', '-')}", one.instance, means, one.note or one.state, cure, weight
        )
    now = one.metrics
    if now.preemptions:
        means = "requests are put off for others: the KV cache is too small for as many at once"
        evidence = f"{now.preemptions:.0f} preemptions" + (f", KV cache {now.kv_used:.0%}" if now.kv_used else "")
        cure = "lower max_num_seqs or max_num_batched_tokens, or give it more KV cache"
        yield Diagnosis("preemptions", one.instance, means, evidence, cure, 35)
    length = now.accept_length()
    if length is not None and (now.drafts or 0) > 20 and length < 1.05:
        means = "what is guessed ahead is never right: its head is not loaded, or a patch is not in it"
        cure = "rigwright check --only V04"
        yield Diagnosis("accept-length", one.instance, means, f"accept length {length:.2f}", cure, 65)


def of_checks(red: Iterable[RedCheck]) -> Iterator[Diagnosis]:
    """What does not conform."""
    for one in red:
        evidence = f"expected {one.expected}, found {one.found}"
        yield Diagnosis(one.id, one.part, f"not so: {one.title}", short(evidence), one.cure, WEIGHTS[one.severity])


def diagnosed(found: Evidence, causes: Mapping[str, Sequence[Cause]]) -> list[Diagnosis]:
    """All causes, the likeliest first, each symptom of a place once.

    Args:
        found: What was found out.
        causes: Instance -> what its kind of engine knows.
    """

    def again(verb: str) -> str:
        return shlex.join(["rigwright", verb, found.inventory, "--limit", found.host])

    made = [*of_kernel(found.kernel, found.driver), *of_checks(found.red), *of_all(found)]
    for one in found.healths:
        made += of_health(one, again)
    for name, lines in found.logs.items():
        said = of_log(lines, causes.get(name, ()), name, again("logs") + f" --instance {name}")
        made += beside(said, found, causes)
    made.sort(key=lambda one: (-one.weight, one.where, one.id))
    first: dict[tuple[str, str], Diagnosis] = {}
    for each in made:
        first.setdefault((each.where, each.id), each)
    return list(first.values())
