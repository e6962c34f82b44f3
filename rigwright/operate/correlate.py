"""What is only seen where facts, looks, checks and logs are put beside each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rigwright.engines.log_causes import Cause
from rigwright.operate.diagnosis_types import Diagnosis, HostEvidence, shorten_line

TAKEN = 1024  # MiB of a card that nobody who does not run has (club-3090's preflight warns as of 1 GiB)
FULL = 0.95  # of a KV cache
STANDING = ("failed", "stopped", "not there")  # states of an instance that has no process, or none for long
LATEST = 500  # lines of a log: about those of its last start
# llama.cpp's words at 0c1e570; of an instance without cards they are how it is.
PROCESSOR = "no usable GPU found"


def correlate_evidence(found: HostEvidence, again: Callable[..., str]) -> Iterator[Diagnosis]:
    """What is only seen where facts, looks and logs are put beside each other."""
    drivers = [one.id for one in found.red if re.fullmatch("N[0-9]{2}", one.id)]
    if found.cards_say:
        means = "the cards do not answer as they should"
        yield Diagnosis(
            "cards-silent", "", means, shorten_line(found.cards_say), again("check", "--only", "N01,N02"), 92
        )
    if found.reboot and (found.cards_say or drivers):
        evidence = "a reboot is pending, and " + (
            f"{', '.join(drivers)} do not hold" if drivers else "cards are silent"
        )
        means = "a driver or kernel that is installed is not loaded yet"
        yield Diagnosis("reboot-pending", "", means, evidence, again("deploy", "--reboot"), 93)
    for name, lines in found.logs.items():
        # of a file, the cards of its instance are unknown
        if not found.inventory and any(PROCESSOR in line for line in lines[-LATEST:]):
            means = (
                "llama.cpp sees no card and computes on the processor: if that is not meant, its build has no CUDA or "
                "cannot load CUDA's libraries, no driver answers, or the container has no cards"
            )
            yield Diagnosis("on-the-processor", name, means, PROCESSOR, "", 55)
    serving = {one.instance for one in found.healths if one.state not in STANDING}
    lent = {card for name in serving for card in found.cards.get(name, ())}
    for one in found.healths:
        mine = found.cards.get(one.instance, ())
        taken = [card for card in found.uses if card.index in mine and (card.used_mib or 0) > TAKEN]
        if one.state in STANDING and taken and not lent.intersection(mine):
            used = ", ".join(f"GPU {card.index}: {card.used_mib or 0:.0f} MiB" for card in taken)
            means = f"something else holds memory of the cards of {one.instance}, which does not run"
            cure = again("check", "--only", "N04")
            yield Diagnosis("card-memory-taken", one.instance, means, f"{used} in use", cure, 82)
        if mine and any(PROCESSOR in line for line in found.logs.get(one.instance, ())[-LATEST:]):
            means = "it computes on the processor, though it has cards: its build has no CUDA, or no driver answers"
            cure = again("check", "--only", "N01,N02")
            yield Diagnosis("on-the-processor", one.instance, means, PROCESSOR, cure, 84)
        now = one.metrics
        if (now.waiting or 0) >= 1 and (now.kv_used or 0) >= FULL:
            means = "requests wait, for its KV cache is full"
            evidence = f"KV cache {now.kv_used:.0%}, {now.waiting:.0f} waiting"
            cure = "lower max_num_seqs or the context, or give it more KV cache"
            yield Diagnosis("kv-cache-full", one.instance, means, evidence, cure, 36)


def weigh_by_state(
    made: Iterable[Diagnosis], found: HostEvidence, causes: Mapping[str, Sequence[Cause]]
) -> Iterator[Diagnosis]:
    """Causes from logs, judged by what is so now: what a check says, too, is likelier; what serves again, less."""
    red = {one.id for one in found.red}
    ready = {one.instance for one in found.healths if one.state == "ready"}
    checks = {(name, cause.id): cause.check for name, every in causes.items() for cause in every}
    for one in made:
        check = checks.get((one.where, one.id), "")
        if red.intersection(check.split(",")):
            yield replace(one, weight=one.weight + 8, means=f"{one.means} ({check} does not hold, either)")
        elif (one.where, one.id) in checks and one.where in ready:
            yield replace(one, weight=one.weight - 50, means=f"{one.means} (it serves now)")
        else:
            yield one
