"""The protocol of `bench speed`: parts, repeats, and conditions that make figures comparable.

Comparable with public figures (docs/guides/benchmarks.md): three requests to warm up, five measured, of an
essay of at most 1000 tokens and of code of at most 800; temperature 0.6, top-p 0.95, top-k 20, min-p 0, thinking off;
prompts of 10,000 and 90,000 tokens, three each; for 1, 2 and 4 streams answers of 500 tokens to prompts of 100.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import combinations
from statistics import fmean

from bench.load_generator import CHAT, LoadRequest
from bench.load_ladder_results import LadderStep
from bench.load_statistics import RequestTimes
from checks.connections import ConnectedHost
from rigwright.host.systemd import STARTED_FROM_FOLDER
from rigwright.model.instance import Instance
from rigwright.nvidia.cards import smi, topology
from rigwright.nvidia.cards.smi import Gpu
from rigwright.problems import format_count
from rigwright.speed_baselines import Fingerprint
from roles import root_shell

SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
NARRATIVE = (
    "Write an essay of about 800 words that explains how attention works in a transformer: what queries, keys and "
    "values are, why there are several heads, what a mask does, and what it costs with longer texts."
)
CODE = (
    "Write quicksort in Python, with type hints and a comment on every step, then a version that works in place, and "
    "tests for both: empty lists, one element, many equal elements, sorted and reversed ones."
)
SENTENCE = "The night train to the coast left the old station at seven, past grey warehouses and quiet gardens. "
# Sentences of which the tokens are counted, so that prompts get their lengths: the tokens that a template adds are in
# both.
SAMPLES = (1, 4)
PREFILLS = {"prefill 10k": 10_000, "prefill 90k": 90_000}
ANSWER = 8  # tokens after a long prompt: only the first of them counts
STREAMS = (1, 2, 4)
IN, OUT = 100, 500
RATES = (
    *("narrative wall", "narrative decode", "code wall", "code decode", *PREFILLS),
    *(f"{format_count(count, 'stream')} {IN}/{OUT}" for count in STREAMS),
)
"""The reported rates, by name."""
# Of the whole, the time that has to be left for tokens after the first one, or there is no rate of those; and of the
# tokens that were asked for, those that have to come.
WINDOW, EARLY = 0.05, 0.25
# Messages of engines, and of programs before them, about a prompt that there is no room for.
TOO_LONG = ("HTTP status 400", "HTTP status 413")
SHORTEST_S = 0.25
"""Seconds below which an answer says more of the clock and of other work on the processors than of the engine."""
SUPERLINEAR = 1.25
"""Rate of n streams in terms of n times the rate of one, from which on other work has slowed that one."""
FASTEST = 1e9  # tokens a second, from which on a host tells tales
STEADY = 0.05
"""Of the mean, the standard deviation from which on measurements are not steady (CV)."""


@dataclass(frozen=True)
class SpeedEffort:
    """How often each is asked."""

    warm: int = 3
    measured: int = 5
    prefills: int = 3
    quick: bool = False
    """Whether it is less than the protocol has."""


QUICK = SpeedEffort(1, 1, 1, quick=True)


@dataclass
class MeasuredPart:
    """One part of the protocol."""

    name: str
    wanted: int
    """Tokens that are asked for at most."""
    rates: dict[str, list[float]] = field(default_factory=dict)
    """Name -> tokens a second, of each request that counts."""
    first_s: list[float] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Why requests do not count."""
    absent: str = ""
    """Why there is nothing; empty where there is."""

    def add_rung(self, rung: LadderStep) -> None:
        """Take one request's figures, or those of some that were made at once."""
        if self.name.startswith("prefill"):
            self._add_rate(
                "", [one.prompt_tokens / one.first_s for one in rung.requests if one.first_s and one.prompt_tokens]
            )
        elif self.name.startswith(("narrative", "code")):
            for one in rung.requests:
                self._add_answer(one)
        elif rung.seconds < SHORTEST_S:
            self.left_out.append(f"too short to tell a rate: {rung.output_tokens} tokens in {rung.seconds:.2f} s")
        else:
            self._add_rate("", [rung.output_tokens / rung.seconds])
        self.first_s += [one.first_s for one in rung.requests]

    def _add_answer(self, one: RequestTimes) -> None:
        if one.tokens < EARLY * self.wanted or not one.total_s:
            self.left_out.append(f"an answer ended after {one.tokens} tokens")
            return
        if one.total_s < SHORTEST_S:
            self.left_out.append(f"too short to tell a rate: {one.tokens} tokens in {one.total_s:.2f} s")
            return
        self._add_rate(" wall", [one.tokens / one.total_s])
        if one.total_s - one.first_s < WINDOW * one.total_s:
            self.left_out.append("an answer came nearly all at once")
            return
        self._add_rate(" decode", [one.tokens / (one.total_s - one.first_s)])

    def _add_rate(self, kind: str, values: list[float]) -> None:
        self.rates.setdefault(self.name + kind, []).extend(value for value in values if 0 < value < FASTEST)


@dataclass(frozen=True)
class ProtocolPart:
    """The requests of one part, several times."""

    name: str
    asked: LoadRequest
    warm: int
    measured: int
    tokens: int
    """Prompt and answer, for which a request has to have room."""


def protocol_parts(effort: SpeedEffort, sentence: float) -> list[ProtocolPart]:
    """The protocol.

    Args:
        effort: How often each is asked.
        sentence: Tokens that SENTENCE has for the model.
    """

    def text(tokens: int) -> str:
        return SENTENCE * max(1, round(tokens / sentence)) + "Say in a few words what this is about."

    found = [
        ProtocolPart(name, part_request(prompt, tokens), effort.warm, effort.measured, tokens + IN)
        for name, prompt, tokens in (("narrative", NARRATIVE, 1000), ("code", CODE, 800))
    ]
    found += [
        ProtocolPart(name, part_request(text(tokens), ANSWER), 0, effort.prefills, tokens + ANSWER + IN)
        for name, tokens in PREFILLS.items()
    ]
    more = {"ignore_eos": True}
    found += [
        ProtocolPart(
            _streams_title(count),
            part_request(text(IN), OUT, count, more),
            min(effort.warm, 1),
            effort.prefills,
            IN + OUT + IN,
        )
        for count in STREAMS
    ]
    return found


def _streams_title(count: int) -> str:
    return f"{format_count(count, 'stream')} {IN}/{OUT}"


def part_request(prompt: str, tokens: int, streams: int = 1, more: dict[str, bool] | None = None) -> LoadRequest:
    """One request, or one of each of some streams; failures are reported, and nothing comes from a cache."""
    asked = LoadRequest("", "", 0, streams, 0, 0, 0, seed=0, path=CHAT, prompts=[(prompt, tokens)])
    # for no time at all: each stream makes one request
    return replace(asked, seconds=1e-6, more={**SAMPLING, **OFF, **(more or {})})


class ProtocolUnanswered(Exception):
    """The protocol's first request is not answered."""


def measure_protocol(
    ask: Callable[[LoadRequest], LadderStep], effort: SpeedEffort, room: int | None, say: Callable[[str], None]
) -> Iterator[tuple[MeasuredPart, LadderStep]]:
    """Ask all of the protocol; yields each part after each of its requests, with what that came to.

    Args:
        ask: Makes requests.
        effort: How often each is asked.
        room: Tokens that a request has room for; None where that is not known.
        say: Told what is under way.

    Raises:
        ProtocolUnanswered: a request is not answered; a long prompt may be refused as too long.
    """
    say("counting tokens")
    counted = [ask(part_request(SENTENCE * sentences, ANSWER)) for sentences in SAMPLES]
    few, many = ([request.prompt_tokens or 0 for request in rung.requests] or [0] for rung in counted)
    if many[0] <= few[0]:
        raise ProtocolUnanswered(_failure_reason(counted[-1]) or "the engine does not say how many tokens a prompt has")
    number = 0
    for part in protocol_parts(effort, (many[0] - few[0]) / (SAMPLES[1] - SAMPLES[0])):
        made = MeasuredPart(part.name, part.asked.prompts[0][1])
        if room is not None and part.tokens > room:
            made.absent = f"a request has room for {room} tokens"
            yield made, replace(counted[-1], requests=(), foreign=None, running=None)
            continue
        for turn in range(part.warm + part.measured):
            number += 1
            warming = turn < part.warm
            turns = f"warm-up {turn + 1} of {part.warm}" if warming else f"{turn - part.warm + 1} of {part.measured}"
            say(f"{part.name}: {turns}")
            rung = ask(replace(part.asked, seed=number))
            if rung.failure_count:
                made.absent = _failure_reason(rung)
                yield made, rung
                if part.name in PREFILLS and all(why.startswith(TOO_LONG) for why in rung.errors):
                    break
                raise ProtocolUnanswered(f"{part.name}: {made.absent}")
            if not warming:
                made.add_rung(rung)
            yield made, rung


def drop_impossible_rates(parts: Mapping[str, MeasuredPart]) -> None:
    """Leave out rates of streams that contradict each other: n streams make at most n times the tokens of one.

    Other work on the box has slowed the fewer ones, and may have slowed the others: all of them go.
    """
    streams = [(count, parts[name]) for count in STREAMS if (name := _streams_title(count)) in parts]
    means = [(count, fmean(values)) for count, part in streams if (values := part.rates.get(part.name))]
    for (few, slow), (many, fast) in combinations(means, 2):
        if fast / many > SUPERLINEAR * slow / few:
            why = f"{many} streams cannot make {fast:.1f} tokens/s where {few} made {slow:.1f}"
            for _, part in streams:
                part.rates.clear()
                part.left_out.append(f"{why}: other work slowed the box; measure again")
            return


def _failure_reason(rung: LadderStep) -> str:
    return next(iter(rung.errors), "")


TEMPERATURE = ("--query-gpu=pci.bus_id,temperature.gpu", smi.FORMAT)
INVOCATION = re.compile("[0-9a-f]{32}")


class InvalidConditions(Exception):
    """The instance does not run as it is declared, or its cards do not say what they are."""


@dataclass(frozen=True)
class MeasurementConditions:
    """Those of one look."""

    fingerprint: Fingerprint
    boot: str
    """Of the start of the engine's process."""
    temperatures: tuple[float | None, ...]
    """Of the instance's cards, in degrees Celsius."""


def read_conditions(box: ConnectedHost, instance: Instance) -> MeasurementConditions:
    """Look at a host.

    Raises:
        InvalidConditions: the instance does not run as it is declared, or its cards do not answer.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    wanted = next(one for one in box.resolve_desired().generation.unit_states if one.unit == instance.unit)
    boot = _start_identity(box, wanted.unit, wanted.started_from)
    mine = _instance_cards(box, instance)
    try:
        fingerprint = Fingerprint.of_instance(box.rig.digest, instance, wanted.started_from, mine)
    except ValueError as error:
        raise InvalidConditions(f"its cards say what none is: {error}") from None
    return MeasurementConditions(fingerprint, boot, read_temperatures(box, [gpu.address for gpu in mine]))


def _start_identity(box: ConnectedHost, name: str, started_from: str) -> str:
    """The identity of this start of an instance."""
    unit, note = shlex.quote(name), shlex.quote(f"{STARTED_FROM_FOLDER}/{name}")
    script = f"systemctl show --value --property=InvocationID {unit}; head -n 1 {note}"
    lines = [line.strip() for line in root_shell.run_command(box.target, script).lines]
    if len(lines) != 2 or not INVOCATION.fullmatch(lines[0]):
        raise InvalidConditions(f"{name} does not run: start or deploy it first")
    if lines[1] != started_from:
        raise InvalidConditions(f"{name} was not started from what the inventory declares: deploy it first")
    return sha256(lines[0].encode()).hexdigest()[:12]


def _instance_cards(box: ConnectedHost, instance: Instance) -> Sequence[Gpu]:
    """Those that the instance has, in the order of its rig."""
    if not instance.cards:
        return ()
    said = _query_smi(box, smi.GPUS)
    try:
        seen = dict(
            topology.answering_cards(box.rig.cards, box.read_facts(), smi.gpus(said.status, *_answer_text(said)))
        )
    except ValueError as error:
        raise InvalidConditions(str(error)) from None
    if missing := [number for number in instance.cards if number not in seen]:
        raise InvalidConditions(f"card {missing[0]} does not answer: `rigwright check --only N01` says more")
    return [seen[number] for number in instance.cards]


def read_temperatures(box: ConnectedHost, addresses: Sequence[str]) -> tuple[float | None, ...]:
    """Of cards, by their addresses on the bus; None of those that do not say it.

    Raises:
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    if not addresses:
        return ()
    said = _query_smi(box, TEMPERATURE)
    try:
        rows = [smi.fields(line, 2) for line in smi.answer(said.status, *_answer_text(said))]
    except ValueError:
        rows = []
    found = {smi.bus_address(bus): smi.number(degrees) for bus, degrees in rows}
    return tuple(found.get(address) for address in addresses)


def _query_smi(box: ConnectedHost, words: Sequence[str]) -> root_shell.RootCommandResult:
    return root_shell.run_command(box.target, shlex.join(("timeout", str(smi.TIMEOUT), "nvidia-smi", *words)))


def _answer_text(said: root_shell.RootCommandResult) -> tuple[str, str]:
    return said.out.decode(errors="replace"), said.err.decode(errors="replace")
