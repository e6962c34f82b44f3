"""Ladders of load on instances of a host: more and more streams, a time each, on one instance or on several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.load_generator import CHAT, LoadRequest
from bench.load_ladder_results import (
    LadderStep,
    LoadResult,
    MetricsSample,
    SaturationPoint,
    describe_queues,
    find_saturation,
)
from rigwright.engines import kind_of
from rigwright.engines.metrics import EngineMetrics, MetricNames, parse_metrics
from rigwright.model.instance import Instance

if TYPE_CHECKING:
    from rigwright.operate.gateway_probes import ProbeAllowance
from roles.client import HostClient

PROGRAMS = tuple(Path(__file__).with_name(name) for name in ("load_generator.py", "load_with_metrics.py"))
"""For the client's job, each after those that it needs."""
WARM_UP = 30  # requests before the first step
LATE = 600.0  # seconds that an answer may take beyond a step's own
CHAT_TOKENS, SHORT_TOKENS = 150, 50
QUESTIONS = (
    "Explain how a heat pump can give off more heat than the electricity that it takes.",
    "Give me three ideas for a birthday party at home for a ten-year-old who likes space.",
    "What should I look at first when a bicycle's gears slip under load?",
    "Rewrite this politely: you are late again and everybody had to wait for you.",
    "How do tides work, and why are there two high tides a day?",
    "Suggest a week of simple dinners for two, with little meat.",
    "What is the difference between a library and a framework? Give an example of each.",
    "My tomato plants have yellow leaves at the bottom. What are likely reasons?",
)
LINE = 100_000  # characters of a prompt of the operator's


@dataclass(frozen=True)
class LoadWorkload:
    """The requests."""

    name: str
    prompts: tuple[tuple[str, int], ...]
    """Each request has one of them, any as often as another: the prompt, and the most tokens of the answer."""
    salted: bool = True

    @property
    def max_tokens(self) -> int:
        """The most of an answer."""
        return max(tokens for _, tokens in self.prompts)


def _question_prompts(tokens: int) -> tuple[tuple[str, int], ...]:
    return tuple((question, tokens) for question in QUESTIONS)


WORKLOADS = {
    one.name: one
    for one in (
        LoadWorkload("chat", _question_prompts(CHAT_TOKENS)),
        LoadWorkload("short", _question_prompts(SHORT_TOKENS)),
        # four of five are chats
        LoadWorkload("mix", 4 * _question_prompts(CHAT_TOKENS) + _question_prompts(SHORT_TOKENS)),
    )
}


def load_prompts(file: Path, tokens: int) -> LoadWorkload:
    """Prompts of the operator's, one a line, said as they are: a cache may have what they begin with.

    Raises:
        ValueError: there is none, or one is too long.
    """
    try:
        lines = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {getattr(error, 'strerror', None) or 'is not text'}") from None
    if not lines:
        raise ValueError(f"{file}: has no prompt: one a line")
    if long := next((number for number, line in enumerate(lines, 1) if len(line) > LINE), 0):
        raise ValueError(f"{file}: prompt {long} has more than {LINE} characters")
    return LoadWorkload("own", tuple((line, tokens) for line in lines), salted=False)


@dataclass(frozen=True)
class LadderPlan:
    """A ladder."""

    workload: LoadWorkload
    streams: tuple[int, ...]
    """Of each step, from few to many."""
    seconds: float
    """Of each step, in which every stream begins another request as soon as one is answered."""
    thinking: bool = False

    def step_request(self, streams: int, number: int) -> LoadRequest:
        """One step, as the load program reads it."""
        # templates leave unknown keys alone
        more = {} if self.thinking else {"chat_template_kwargs": {"enable_thinking": False}}
        asked = LoadRequest(
            "", "", 0, streams, 0, 0, 0, seed=number, path=CHAT, seconds=self.seconds, salted=True, more=more
        )
        return replace(
            asked,
            prompts=list(self.workload.prompts),
            salted=self.workload.salted,
            longest=self.seconds + LATE,
        )

    @property
    def warm_up(self) -> LoadRequest:
        """The request before the first step."""
        return replace(self.step_request(WARM_UP, 0), seconds=0.0, requests=1)


@dataclass
class LadderSubject:
    """An instance that is loaded."""

    client: HostClient
    instance: Instance
    metrics: str
    """The path of its metrics; empty where it has none."""
    probes: ProbeAllowance | None = None
    """Tokens that may be of the gateway's probes."""
    rungs: list[LadderStep] = field(default_factory=list)

    @property
    def capacity(self) -> int | None:
        """Requests that it serves at once; None where its variant does not say."""
        return self.instance.variant.capacity[0] if self.instance.variant.capacity else None

    @property
    def saturation(self) -> SaturationPoint:
        """Where more streams bring no more."""
        return find_saturation(self.rungs, self.capacity)

    @property
    def queues(self) -> list[str]:
        """A note for each step with more streams than the instance serves at once."""
        return describe_queues(self.rungs, self.capacity)

    def run_step(self, asked: LoadRequest) -> LadderStep:
        """Load it once.

        Raises:
            roles.client.ClientJobLost: the job or the connection is gone.
            roles.client.ClientJobFailed: the load could not be made.
        """
        return load_endpoint(self.client, asked, self.metrics, kind_of(self.instance).metric_names, self.probes)


def load_endpoint(
    client: HostClient,
    asked: LoadRequest,
    metrics: str,
    counts: MetricNames,
    probes: ProbeAllowance | None = None,
) -> LadderStep:
    """Load a place once.

    Raises:
        roles.client.ClientJobLost: the job or the connection is gone.
        roles.client.ClientJobFailed: the load could not be made.
    """
    names = [name for one in asdict(counts).values() for name in ([one] if isinstance(one, str) else one) if name]
    told = {name: value for name, value in asdict(asked).items() if name not in ("at", "key_file")}
    order = {"load": told | {"model": client.place.model}, "metrics": metrics, "names": names}
    samples: list[EngineMetrics] = []
    made: LoadResult | None = None
    for said in client.run_module(
        "load_with_metrics", order, MetricsSample | LoadResult, asked.seconds + asked.longest
    ):
        if isinstance(said, LoadResult):
            made = said
        else:
            samples.append(parse_metrics(said.told, counts))
    assert made is not None, "a job that ends well has said what it did"
    return LadderStep.from_load(asked.streams, made, samples, probes)


def run_ladder(subjects: Sequence[LadderSubject], plan: LadderPlan, say: Callable[[str], None]) -> Iterator[None]:
    """Load instances, all at once, step by step; yields after each step, with what came of it in the subjects.

    It ends where none of an instance's requests is answered any more.

    Raises:
        roles.client.ClientJobLost: the job or the connection is gone.
        roles.client.ClientJobFailed: a load could not be made.
    """
    with ThreadPoolExecutor(len(subjects)) as pool:
        say(f"warming up: {WARM_UP} requests")
        for one in [pool.submit(subject.run_step, plan.warm_up) for subject in subjects]:
            one.result()
        for number, streams in enumerate(plan.streams, 1):
            left = plan.seconds * (len(plan.streams) - number + 1)
            say(f"step {number} of {len(plan.streams)}, {left:.0f} s left: {streams} streams")
            running = [pool.submit(subject.run_step, plan.step_request(streams, number)) for subject in subjects]
            for subject, one in zip(subjects, running, strict=True):
                subject.rungs.append(one.result())
            yield
            if any(not subject.rungs[-1].requests for subject in subjects):
                return
