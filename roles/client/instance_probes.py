"""Probes of an instance on its host: capabilities and long prompts.

`rigwright.operate.capability_probes` and `rigwright.operate.long_context_probes` define them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.instance_request import ONE_TOKEN, InstanceRequest
from rigwright.engines.metrics import EngineMetrics, parse_metrics
from rigwright.gateway.gateway_units import PROBE_TIMEOUT
from rigwright.host.systemd import UnitState
from rigwright.model.instance import Instance
from rigwright.operate import long_context_probes, probe_prompts
from rigwright.operate.capability_probes import (
    CHECKS,
    PATCHES,
    SERVER,
    WARM,
    AnswerCheck,
    AnswerContext,
    ProbeFinding,
    Verdict,
    assess_answer,
)
from rigwright.operate.chat_reply import NoChatMessage, Reply, parse_message
from rigwright.operate.gateway_probes import PROBE, ProbeAllowance
from rigwright.operate.long_context_probes import ProbeResult, SoakTurn, StressProbe
from rigwright.serving.serving_state import ObservedServing
from roles.client import BUSY, HostClient

ROOM = 512  # tokens of an instance's context that an answer does not get: its question takes them
SOON = 5.0  # seconds for what an engine has counted


def collect_metrics(client: HostClient, instance: Instance, service: ServiceSpec) -> EngineMetrics | None:
    """The counts of an engine; None where it has none.

    Raises:
        roles.client.ClientJobLost: the job is gone.
    """
    if service.metrics is None:
        return None
    reply = client.send_request(InstanceRequest(service.metrics), SOON)
    return (
        parse_metrics(reply.body, kind_of(instance).metric_names) if reply.status == 200 and not reply.error else None
    )


def check_patches(
    found: ObservedServing, instance: Instance, wanted: UnitState, patches: tuple[str, ...]
) -> ProbeFinding:
    """Whether what runs was started from what has its patches: their bytes are in the name of what it runs from."""
    if not patches:
        return ProbeFinding(*PATCHES, "n/a", "it declares none")
    process = found.processes.get(wanted.unit)
    if process and process.is_running_from(wanted):
        return ProbeFinding(*PATCHES, "ok", f"runs with {', '.join(patches)}")
    return ProbeFinding(*PATCHES, "fail", f"{wanted.unit} was started without {', '.join(patches)}: deploy")


def verify_instance(
    client: HostClient,
    instance: Instance,
    service: ServiceSpec,
    patches: ProbeFinding,
    say: Callable[[str], None],
    counting: HostClient | None = None,
) -> Iterator[ProbeFinding]:
    """Ask an instance for all that it is declared to be able to; yields what came of each check, as it comes.

    Args:
        client: A client of it.
        instance: The instance.
        service: How it is run.
        patches: The patches that `patched` reports on.
        say: Told what is under way.
        counting: A client that its engine tells what it counts, where `client` comes through a gateway.

    Raises:
        roles.client.ClientJobLost: the job or the connection is gone; the yielded values stay true.
    """
    seen = AnswerContext(instance, client.place.model)
    say(SERVER.title)
    first = assess_answer(SERVER, client.send_request(SERVER.request, SERVER.limit, again=BUSY, model=False), seen)
    yield first
    yield patches
    able = kind_of(instance).abilities(instance)
    why = f"not asked: {first.detail}" if first.verdict != "ok" else ""
    failed = first.verdict == "fail"
    if not why:
        say("its first answer (warm-up, not measured)")
        warm = client.send_request(ONE_TOKEN, WARM, again=BUSY)
        why = "" if warm.status == 200 and not warm.error else f"not asked: no answer to one token: {warm.description}"
    for check in CHECKS[1:]:
        if check.needs and check.needs not in able:
            yield ProbeFinding(check.name, check.title, "n/a", "not declared")
        elif why:
            # one failure is reported where nothing answers
            yield ProbeFinding(check.name, check.title, "skip" if failed else "fail", why)
            failed = True
        else:
            say(check.title)
            yield _run_instance_check(client, check, seen, service, counting or client)


def _run_instance_check(
    client: HostClient, check: AnswerCheck, seen: AnswerContext, service: ServiceSpec, counting: HostClient
) -> ProbeFinding:
    instance = seen.instance
    before = collect_metrics(counting, instance, service) if check.counted else None
    request = check.request
    if capacity := instance.variant.capacity:
        request = probe_prompts.limit_tokens(request, max(16, capacity[1] - ROOM))
    reply = client.send_request(request, check.limit, again=BUSY)
    after = collect_metrics(counting, instance, service) if check.counted else None
    return assess_answer(check, reply, replace(seen, before=before, after=after))


Memory = Callable[[], float | None]
"""MiB that an instance's cards have in use, or its processes without any; None if unknown."""
SESSIONS, TURNS = (20, 5), (5, 5)
"""Sessions and turns of a soak: each session anew, or one conversation that grows."""
GROWN = 24_000  # tokens that a growing conversation comes to
CAP = 1800.0  # seconds of a soak
PIXELS, IMAGE_ROOM = 1024, 4096  # of an image's sides, and tokens of a context that has room for it
ANSWERED = 300.0  # seconds for what is no long prompt


@dataclass
class StressTarget:
    """An instance under stress, and what of its load was ours."""

    client: HostClient
    instance: Instance
    service: ServiceSpec
    context: int | None
    """Tokens of one request and its answer; None if unknown."""
    memory: Memory
    say: Callable[[str], None]
    up_to: int | None = None
    """Tokens beyond which no prompt is."""
    prompt_tokens: int = 0
    tokens: int = 0
    """Of our requests, as their answers count them."""
    characters: float = long_context_probes.CHARACTERS
    seed: int = field(default_factory=lambda: secrets.randbelow(1 << 40))
    unsure: bool = False
    """Whether a request of ours has ended without its count of tokens."""
    began: EngineMetrics | None = None
    memory_then: float | None = None
    probes: ProbeAllowance | None = None
    """Tokens that may be of probes of gateways; None where there are none."""

    def check_idle(self) -> str:
        """Look at what there is before; returns why it should not be loaded now, or nothing.

        Raises:
            roles.client.ClientJobLost: the job is gone.
        """
        self.began = collect_metrics(self.client, self.instance, self.service)
        if self.began and self.began.is_busy:
            running, waiting = self.began.running or 0, self.began.waiting or 0
            return f"{running:.0f} requests of other clients run there, and {waiting:.0f} wait"
        return ""

    @property
    def foreign_tokens(self) -> int | None:
        """Tokens of requests that were not Rigwright's; None if unknown.

        Raises:
            roles.client.ClientJobLost: the job is gone.
        """
        now = collect_metrics(self.client, self.instance, self.service)
        if now is None or self.began is None or self.unsure:
            return None
        foreign = now.foreign_tokens(self.began, self.prompt_tokens, self.tokens)
        return max(0, foreign - self.probes.most * self.probes.tokens) if foreign and self.probes else foreign

    def allow_gateway_probes(self, gateways: int) -> None:
        """Measure a probe: from now on, its tokens are not foreign, as often as so many gateways make one.

        Raises:
            roles.client.ClientJobLost: the job is gone.
        """
        before = self.prompt_tokens + self.tokens
        self.send_request(PROBE, PROBE_TIMEOUT)
        if size := self.prompt_tokens + self.tokens - before:
            self.probes = ProbeAllowance(size, gateways=gateways)

    def send_request(self, request: InstanceRequest, limit: float) -> Reply:
        """Make one request, and count what it takes."""
        reply = self.client.send_request(request, limit)
        try:
            found = parse_message(reply)
        except NoChatMessage:
            # the tokens computed for it are unknown; a refused request took none
            self.unsure = self.unsure or not 400 <= reply.status < 500
            return reply
        self.prompt_tokens += found.prompt_tokens or 0
        self.tokens += found.tokens or 0
        return reply

    def calibrate(self) -> None:
        """Learn how many tokens the engine makes of a haystack."""
        request, characters = long_context_probes.calibration_request(self.seed, self.context or 4096)
        try:
            made = parse_message(self.send_request(request, ANSWERED)).prompt_tokens
        except NoChatMessage:
            made = None
        if made:
            self.characters = max(1.0, characters / made)
        self.memory_then = self.memory()

    def run_probes(self) -> Iterator[ProbeResult]:
        """All of them, one after the other.

        Raises:
            roles.client.ClientJobLost: the job is gone; the yielded values stay true.
        """
        self.calibrate()
        able = kind_of(self.instance).abilities(self.instance)
        tools = "tools" in able
        room = min(self.context or 0, self.up_to or 1 << 60)
        rungs = long_context_probes.haystack_sizes(room)
        if not rungs:
            yield ProbeResult(
                "needle", "a word in a long prompt", "n/a", f"a context of {self.context or 'unknown'} tokens"
            )
        for number, size in enumerate(rungs):
            request, word = long_context_probes.needle_request(self.seed + 10 + number, size, self.characters)
            yield self._run_probe(
                StressProbe(f"needle-{size}", f"a word in {size:,} tokens"),
                request,
                long_context_probes.prompt_timeout(size),
                word,
            )
        returned, named = StressProbe("tool-return", "a tool return of 25,000 tokens"), long_context_probes.TOOL_RETURN
        if room < named + long_context_probes.ROOM:
            yield ProbeResult(returned.name, returned.title, "n/a", f"a context of {self.context or 'unknown'} tokens")
        else:
            make = long_context_probes.tool_return_request if tools else long_context_probes.needle_request
            request, word = make(self.seed + 2, named, self.characters)
            yield self._run_probe(returned, request, ANSWERED, word)
        for probe, request, seconds in (
            (
                StressProbe("tools", "an agent's task with ten tools", least=20),
                long_context_probes.agent_request(tools),
                ANSWERED,
            ),
            (
                StressProbe("coding", "code of 4,096 tokens", least=50),
                probe_prompts.chat_request(long_context_probes.CODING, 4096, probe_prompts.STREAM),
                600.0,
            ),
            (
                StressProbe("reasoning", "a thought of 8,192 tokens", least=500),
                probe_prompts.chat_request(long_context_probes.REASONING, 8192, probe_prompts.STREAM, thinks=True),
                600.0,
            ),
        ):
            most = max(16, (self.context or 1 << 20) - long_context_probes.ROOM)
            least = min(probe.least, most // 2)
            yield self._run_probe(
                StressProbe(probe.name, probe.title, least=least),
                probe_prompts.limit_tokens(request, most),
                seconds,
                "",
            )
        yield self._probe_image("images" in able)
        yield self._probe_conversation()

    def _probe_image(self, declared: bool) -> ProbeResult:
        probe = StressProbe("image", f"an image of {PIXELS:,} by {PIXELS:,} pixels")
        if not declared:
            return ProbeResult(probe.name, probe.title, "n/a", "not declared")
        if (self.context or IMAGE_ROOM) < IMAGE_ROOM:
            return ProbeResult(probe.name, probe.title, "n/a", f"a context of {self.context} tokens")
        request = probe_prompts.red_square_request(PIXELS, 200 + self.seed % 56, probe_prompts.STREAM)
        return self._run_probe(probe, request, ANSWERED, "red")

    def _run_probe(self, probe: StressProbe, request: InstanceRequest, limit: float, word: str) -> ProbeResult:
        self.say(probe.title)
        before = collect_metrics(self.client, self.instance, self.service)
        reply = self.send_request(request, limit)
        after = collect_metrics(self.client, self.instance, self.service)
        cached = after.hit_rate(before) if before and after else None
        growth = long_context_probes.growth_mib(self.memory_then, self.memory())
        return long_context_probes.assess_probe(probe, reply, word, cached, growth)

    def _probe_conversation(self) -> ProbeResult:
        """Six turns of a conversation that grows."""
        probe = StressProbe("conversation", "a conversation of six turns")
        context = self.context or 4096
        if context < long_context_probes.CONVERSATION:
            return ProbeResult(probe.name, probe.title, "n/a", f"a context of {context} tokens")
        self.say(probe.title)
        characters = int(min(2000, context // 16) * self.characters)
        found, history = [], []  # type: list[ProbeResult], list[dict[str, object]]
        for number in range(long_context_probes.TURNS):
            request = long_context_probes.turn_request(
                self.seed % 1000, number, history, characters, self._max_answer_tokens(long_context_probes.TURNS)
            )
            reply = self.send_request(request, ANSWERED)
            one = long_context_probes.assess_probe(probe, reply, "", None, None)
            found.append(one)
            if one.verdict != "ok":
                break
            history += _turn_messages(request, reply)
        last = found[-1]
        title, growth = probe.title, long_context_probes.growth_mib(self.memory_then, self.memory())
        if last.verdict != "ok":
            return ProbeResult(probe.name, title, last.verdict, f"turn {len(found)}: {last.detail}", growth_mib=growth)
        took = round(sum(one.took_s for one in found), 3)
        rate, read = last.tokens_a_second, last.prompt_tokens
        return ProbeResult(probe.name, title, "ok", "", took, read, last.first_s, last.tokens, rate, growth)

    def _max_answer_tokens(self, turns: int) -> int:
        """Tokens of each answer of so many turns, so that a short context has room for all of them."""
        return max(16, min(long_context_probes.ANSWER, (self.context or 4096) // (3 * turns)))

    def run_soak(self, grows: bool, restarts: Callable[[], int | None]) -> Iterator[ProbeResult]:
        """Sessions of turns, each judged as it comes, and all of them at the end.

        Args:
            grows: Whether one conversation grows to 24,000 tokens, in place of short ones anew.
            restarts: How often systemd has started the unit again.

        Raises:
            roles.client.ClientJobLost: the job is gone.
        """
        self.calibrate()
        before, until = restarts(), time.monotonic() + CAP
        sessions, turns = TURNS if grows else SESSIONS
        room = min(GROWN, max(0, (self.context or 4096) - long_context_probes.ROOM))
        characters = int(room / turns * self.characters * 0.8) if grows else 0
        made: list[SoakTurn] = []
        for session in range(sessions):
            history: list[dict[str, object]] = []
            self.say(f"conversation {session + 1} of {sessions}, at most {max(0, until - time.monotonic()):.0f} s left")
            for number in range(turns):
                if time.monotonic() > until:
                    break
                request = long_context_probes.turn_request(
                    self.seed % 10_000 + session, number, history, characters, self._max_answer_tokens(turns)
                )
                reply = self.send_request(request, ANSWERED)
                made.append(_parse_turn(reply))
                if made[-1].error:
                    break
                history += _turn_messages(request, reply)
        growth, after = long_context_probes.growth_mib(self.memory_then, self.memory()), restarts()
        again = (after or 0) - (before or 0) if before is not None and after is not None else 0
        wrong = long_context_probes.find_soak_problems(made, growth, max(0, again), grows)
        rates = [one.tokens_a_second for one in made if one.tokens_a_second]
        rate = round(sum(rates) / len(rates), 2) if rates else None
        title = f"{len(made)} turns of {'growing' if grows else 'fresh'} conversations"
        verdict: Verdict = "fail" if wrong else "ok"
        yield ProbeResult("soak", title, verdict, "; ".join(wrong), tokens_a_second=rate, growth_mib=growth)


def _turn_messages(request: InstanceRequest, reply: Reply) -> list[dict[str, object]]:
    """A turn's two messages, as the next turn has them before it."""
    asked = list((request.body or {})["messages"])[-1]  # type: ignore[call-overload]
    return [asked, {"role": "assistant", "content": parse_message(reply).content}]


def _parse_turn(reply: Reply) -> SoakTurn:
    try:
        found = parse_message(reply)
    except NoChatMessage as error:
        return SoakTurn(str(error)[:200] or "nothing came", None)
    return SoakTurn("an empty answer" if found.is_silent else "", long_context_probes.token_rate(found))
