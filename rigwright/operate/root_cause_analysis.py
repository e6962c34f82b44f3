"""Why a box misbehaves: causes from logs, looks and checks, the likeliest first, with evidence and fix."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from rigwright.engines import kinds
from rigwright.engines.log_causes import LONGEST, Cause, find_cause, find_cause_lines
from rigwright.engines.log_causes import UNKNOWN_CAUSE as UNKNOWN_CAUSE
from rigwright.nvidia.cards.xids import RECOVERED, XID
from rigwright.operate import kernel_messages
from rigwright.operate.diagnosis_findings import (
    Diagnosis,
    FailedCheck,
    HostEvidence,
    correlate_evidence,
    excerpt_line,
    failing_frame,
    failing_part,
    find_last_error,
    is_exception,
    marked_severity,
    messages_at,
    shorten_line,
    weigh_by_state,
)
from rigwright.operate.instance_health import InstanceHealth
from rigwright.operate.instance_state import InstanceState
from rigwright.problems import FrozenModel, printable
from rigwright.safe_text import mask_secrets
from rigwright.toml import load_toml

SOURCE = Path(__file__).with_name("xids.toml")
LEAST = 18
"""Weight below which a cause is a mild line of an instance that serves now, such as a refused request."""
SPECIFIC = 70
"""Weight of a cause that an engine's log names."""
MILD = 55
"""Weight of a cause that a warning or a refused request shows: the engine goes on."""
BROAD = 45
"""Weight of a form of message, or of a cause that a line of information shows."""
GENERAL = 30
"""Weight of a cause that only reports that something else failed."""
EXCEPTION = 68
"""Weight of an exception of no known cause: all that only warnings show is less likely."""
UNKNOWN = 25
"""Weight of another error of no known cause."""
LATE = 200  # lines before the end of a log in which a cause is likely to be why it ends: vLLM repeats a traceback
RESET = 154  # the Xid of a recovery action that another error makes necessary
AGAIN = 3  # Xids of one code and card since boot from which a program's mistake is no longer the likeliest
# The kernel's messages when there is no memory left, of a whole machine or of a unit (mm/oom_kill.c).
KILLED = re.compile(r"(?:Memory cgroup out of memory|Out of memory): Killed process [0-9]+ \(([^)]{1,32})\)")
KERNEL = "|".join(("NVRM: Xid", "ut of memory: Killed process", *(cause.pattern for cause in kernel_messages.CAUSES)))
"""Regular expression of the kernel's lines that count."""
STATE_WEIGHTS: Mapping[InstanceState, int] = {
    **{"wedged": 90, "failing": 85, "out of rotation": 80, "failed": 65, "silent": 40},
    **dict.fromkeys(("not deployed", "other generation", "stopped", "stopped by hand"), 50),
}
"""State -> how likely it is a cause, 0 to 100."""
RULES = (
    *(f"state-{state.replace(' ', '-')}" for state in STATE_WEIGHTS),
    *("out-of-memory", "preemptions", "accept-length", "cards-silent", "reboot-pending", "card-memory-taken"),
    *("on-the-processor", "kv-cache-full", "cause-unknown"),
)
"""Names of what is no line of an engine's."""
REASONS: Mapping[str, set[str]] = {
    "card-does-not-start": {"bar-space", "gsp-firmware", "card-needs-open", "card-too-old-for-open"},
    "driver-memory": {"gpu-address-space"},
}
"""Name of a cause in the kernel's log -> those that explain its lines where the log has them, too."""
PREVIOUS = re.compile(r"caused by previous Xid ([0-9]{1,4})")
"""The suffix by which the driver marks an Xid that only follows another one."""
Command = Callable[..., str]
"""Makes the command line of a verb and its options for the host; empty where the host is unknown."""
WEIGHTS: Mapping[str, int] = {"critical": 60, "high": 45, "medium": 30, "low": 15}


class XidMeaning(FrozenModel):
    """The meaning of one."""

    name: str
    suspect: Literal["card", "program", "either"]
    remediation: str
    drivers: dict[str, str] = Field(default_factory=dict)
    """The effects with a driver of this version."""


class _XidTable(FrozenModel):
    """The file beside this module."""

    xids: dict[int, XidMeaning]


@cache
def load_xids() -> dict[int, XidMeaning]:
    """By code, as the file beside this module has them."""
    return load_toml(SOURCE, _XidTable).xids


def symptom_names() -> frozenset[str]:
    """All names of symptoms; checks beside them have their own."""
    logs = {cause.id for kind in kinds().values() for cause in kind.causes}
    kernel = {f"xid-{code}" for code in load_xids()} | {cause.id for cause in kernel_messages.CAUSES}
    return frozenset({*logs, *kernel, *RULES})


def diagnose_log(lines: Sequence[str], causes: Sequence[Cause], where: str, again: Command) -> Iterator[Diagnosis]:
    """Causes that lines of an engine's log show, each once, with the last line that shows it.

    Args:
        lines: Of its journal or of a file, the last one last.
        causes: Those of its kind of engine, specific ones first.
        where: The instance.
        again: Makes the command line of a verb.
    """
    filled = [line for line in lines if line.strip()]
    # at the same weight the first one to appear is the likelier cause, and later ones its consequences
    found = sorted(find_cause_lines(causes, filled).items(), key=lambda one: one[1][0])
    for cause, numbers in found:
        if cause.harmless or (cause.last and numbers[-1] != len(filled) - 1):
            continue
        line = filled[numbers[-1]]
        weight = _weight(cause, line) + (10 if numbers[-1] >= len(filled) - LATE and not cause.general else 0)
        yield _add_failing_part(_diagnosis(cause, line, where, weight, again, len(numbers)), filled, numbers[-1])


def _weight(cause: Cause, line: str) -> int:
    if cause.general or cause.broad:
        return GENERAL if cause.general else BROAD
    match = cause.regex.search(line)
    level = marked_severity(line[: match.start()] if match else line)
    return BROAD if level == "information" else MILD if cause.request or level == "warning" else SPECIFIC


def _meaning(cause: Cause, line: str) -> str:
    name = printable(" ".join(cause.name_in(mask_secrets(line)).split()))
    return f"{cause.means} (here: {name})" if name else cause.means


def _add_failing_part(one: Diagnosis, lines: Sequence[str], number: int) -> Diagnosis:
    """With frame and part of the engine that failed, where the cause is unknown or a fault of the engine's code."""
    if one.id != "shapes" and not one.means.startswith(UNKNOWN_CAUSE):
        return one
    means = one.means
    if is_exception(lines[number]) and (frame := failing_frame(lines, number)):
        means += f"; it failed in {printable(frame)}"
    if part := failing_part(lines, number):
        means += f"; the failing code is that of {part}: a trial without it shows whether it is the cause"
    return replace(one, means=means)


def _diagnosis(cause: Cause, line: str, where: str, weight: int, again: Command, times: int = 1) -> Diagnosis:
    command = again("check", "--only", cause.check) if cause.check else again("logs", "--instance", where)
    # first: an excerpt may begin after the word that shows a secret
    line = mask_secrets(line)
    match = cause.regex.search(line[:LONGEST])
    return Diagnosis(
        cause.id,
        where,
        _meaning(cause, line),
        excerpt_line(line, match.start() if match else 0),
        command,
        weight,
        times,
    )


def diagnose_unknown(lines: Sequence[str], causes: Sequence[Cause], where: str, again: Command) -> Iterator[Diagnosis]:
    """The last error of a log that shows no known cause: by its message over several lines, else as unknown."""
    number = find_last_error(lines, causes)
    if number is None:
        return
    spaced, joined = messages_at(lines, number)
    # without the blank between two lines, no word shows that a secret follows it
    for message in (spaced, joined) if mask_secrets(spaced) == spaced else (spaced,):
        cause = find_cause([one for one in causes if not (one.harmless or one.general)], message)
        if cause:
            yield _diagnosis(cause, message, where, _weight(cause, message), again)
            return
    means = f"{UNKNOWN_CAUSE}this is the last error of the log"
    weight = EXCEPTION if is_exception(lines[number]) else UNKNOWN
    one = Diagnosis(
        "cause-unknown",
        where,
        means,
        shorten_line(mask_secrets(lines[number])),
        again("logs", "--instance", where),
        weight,
    )
    yield _add_failing_part(one, lines, number)


def diagnose_kernel(lines: Sequence[str], driver: str, again: Command) -> Iterator[Diagnosis]:
    """Causes that the kernel's log shows: cards, modules, memory and disks."""
    counted: dict[tuple[str, int], list[str]] = {}
    killed: dict[str, list[str]] = {}
    others: list[str] = []
    for line in lines:
        at = line.find("NVRM: Xid")
        found = XID.match(line[at:]) if at >= 0 else None
        if found:
            if not (int(found[2]) == RESET and RECOVERED.search(found[3])):
                counted.setdefault((found[1].lower(), int(found[2])), []).append(line)
        elif out := KILLED.search(line):
            killed.setdefault(out[1], []).append(line)
        else:
            others.append(line)
    shown = find_cause_lines(kernel_messages.CAUSES, others)
    present = {cause.id for cause in shown}
    for cause, numbers in shown.items():
        if present & REASONS.get(cause.id, set()):
            continue
        command = again("check", "--only", cause.check) if cause.check else ""
        line = mask_secrets(others[numbers[-1]])
        yield Diagnosis(cause.id, "", _meaning(cause, line), shorten_line(line), command, 88, len(numbers))
    for (card, code), lines_of_card in counted.items():
        yield _diagnose_xid(card, code, lines_of_card, driver)
    for name, lines_of_process in killed.items():
        means = f"the kernel ended {name}, for there was no memory left"
        cure = "raise memory_max of its instance, serve a smaller context, or take memory from others"
        yield Diagnosis("out-of-memory", "", means, shorten_line(lines_of_process[-1]), cure, 95, len(lines_of_process))


def _diagnose_xid(card: str, code: int, said: Sequence[str], driver: str) -> Diagnosis:
    known = load_xids().get(code)
    if known is None:
        means = f"Xid {code} of card {card}, which is not in our table"
        cure = "look it up: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
        return Diagnosis(f"xid-{code}", f"GPU {card}", means, shorten_line(said[-1]), cure, 40, len(said))
    suspect, again = known.suspect, len(said) >= AGAIN
    means = f"Xid {code} of card {card}: {known.name}"
    if driver in known.drivers:
        means += f"; with driver {driver}: {known.drivers[driver]}"
    if one := _consequence(means, code, card, said):
        return one
    if suspect == "program":
        means += "; a program's mistake" + (
            f", but {len(said)} times since boot: suspect the card if other programs do not have this fault" * again
        )
    # the driver asks for a reset as a consequence of another error of the card
    weight = 80 if code == RESET else {"card": 100, "either": 60, "program": 55}[suspect] + 10 * again
    return Diagnosis(f"xid-{code}", f"GPU {card}", means, shorten_line(said[-1]), known.remediation, weight, len(said))


def _consequence(means: str, code: int, card: str, said: Sequence[str]) -> Diagnosis | None:
    """An Xid that only follows another: with the remedy of that one, and less likely than its own line; else None."""
    roots = [PREVIOUS.search(line) for line in said]
    if not roots[0] or not all(roots):
        return None
    root = int(roots[0][1])
    first = load_xids().get(root)
    means += f"; a consequence of Xid {root}" + (f" ({first.name})" if first else "")
    cure = f"look for the first Xid {root}" + (f"; {first.remediation}" if first else "")
    return Diagnosis(f"xid-{code}", f"GPU {card}", means, shorten_line(said[-1]), cure, 50, len(said))


def diagnose_health(one: InstanceHealth, again: Command) -> Iterator[Diagnosis]:
    """The diagnosis of an instance from a look.

    Args:
        one: The look.
        again: Makes the command line of a verb about its host.
    """
    if one.state in STATE_WEIGHTS:
        cure = again(*one.assessed.remediation)
        yield Diagnosis(
            f"state-{one.state.replace(' ', '-')}",
            one.instance,
            one.assessed.lead,
            one.note or one.state,
            cure,
            STATE_WEIGHTS[one.state],
        )
    now = one.metrics
    if now.preemptions:
        means = "requests are put off for others: the KV cache is too small for as many at once"
        evidence = f"{now.preemptions:.0f} preemptions" + (f", KV cache {now.kv_used:.0%}" if now.kv_used else "")
        cure = "lower max_num_seqs or max_num_batched_tokens, or give it more KV cache"
        yield Diagnosis("preemptions", one.instance, means, evidence, cure, 35)
    length = now.accept_length()
    if length is not None and (now.drafts or 0) > 20 and length < 1.05:
        means = "no drafted token is accepted: the draft head is not loaded, or a patch is missing"
        cure = again("check", "--only", "V04")
        yield Diagnosis("accept-length", one.instance, means, f"accept length {length:.2f}", cure, 65)


def diagnose_checks(red: Iterable[FailedCheck]) -> Iterator[Diagnosis]:
    """The findings that do not conform."""
    for one in red:
        evidence = f"expected {one.expected}, found {one.found}"
        yield Diagnosis(
            one.id,
            one.part,
            f"{one.id} fails: {one.title}",
            shorten_line(evidence),
            one.cure,
            WEIGHTS[one.severity],
            follows=bool(one.cause),
        )


def diagnose_host(found: HostEvidence, causes: Mapping[str, Sequence[Cause]]) -> list[Diagnosis]:
    """All causes, the likeliest first, each symptom of a place once.

    Args:
        found: The findings.
        causes: Instance -> what its kind of engine knows.
    """

    def again(verb: str, *words: str) -> str:
        if not found.inventory:
            return ""
        return shlex.join(["rigwright", verb, found.inventory, *words, "--limit", found.host])

    from_kernel = [*diagnose_kernel(found.kernel, found.driver, again)]
    made = [*from_kernel, *diagnose_checks(found.red), *correlate_evidence(found, again)]
    for one in found.healths:
        made += diagnose_health(one, again)
    resting = {one.instance for one in found.healths if one.state != "ready"}
    for name, lines in found.logs.items():
        known = causes.get(name, ())
        from_log = [*diagnose_log(lines, known, name, again)]
        made += weigh_by_state(from_log, found, causes)
        # an instance that serves may log errors of single requests; a file has the kernel's lines and the engine's
        expected = name in resting if found.inventory else not from_kernel
        if expected and all(one.weight < SPECIFIC for one in from_log):
            unknown = list(diagnose_unknown(lines, known, name, again))
            # a form of message explains its own line
            made += [one for one in unknown if one.evidence not in {other.evidence for other in from_log}]
    made.sort(key=lambda one: (-one.weight, one.where))
    first: dict[tuple[str, str], Diagnosis] = {}
    for each in made:
        first.setdefault((each.where, each.id), each)
    # of a file, nothing says whether its instance serves
    return [one for one in first.values() if one.weight >= LEAST or not found.inventory]
