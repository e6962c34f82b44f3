"""What an instance has to bear, asked of it on its host and judged here (rigwright.operate.stress)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rigwright.engines import kind_of
from rigwright.engines.kind import Service
from rigwright.engines.metrics import Metrics
from rigwright.engines.request import Request
from rigwright.model.rig import Instance
from rigwright.operate import prompts, stress
from rigwright.operate.reply import NoMessage, Reply, message
from rigwright.operate.stress import Probe, Probed, Turn
from rigwright.operate.verify import Verdict
from roles.client import Client
from roles.client.verify import metrics

Memory = Callable[[], float | None]
"""MiB that an instance's cards have in use, or its processes without any; None where nobody knows."""
SESSIONS, TURNS = (20, 5), (5, 5)
"""Sessions and turns of a soak: each session anew, or one conversation that grows."""
GROWN = 24_000  # tokens that a growing conversation comes to
CAP = 1800.0  # seconds of a soak
PIXELS, IMAGE_ROOM = 1024, 4096  # of an image's sides, and tokens of a context that has room for it
ANSWERED = 300.0  # seconds for what is no long prompt


@dataclass
class Stressed:
    """An instance under stress, and what of its load was ours."""

    client: Client
    instance: Instance
    service: Service
    context: int | None
    """Tokens of one request and its answer; None where nobody says it."""
    memory: Memory
    say: Callable[[str], None]
    up_to: int | None = None
    """Tokens beyond which no prompt is."""
    prompt_tokens: int = 0
    tokens: int = 0
    """Of our requests, as their answers count them."""
    characters: float = stress.CHARACTERS
    seed: int = field(default_factory=lambda: secrets.randbelow(1 << 40))
    unsure: bool = False
    """Whether a request of ours has ended without its count of tokens."""
    began: Metrics | None = None
    memory_then: float | None = None

    def begin(self) -> str:
        """Look at what there is before; returns why it should not be loaded now, or nothing.

        Raises:
            roles.client.Lost: the job is gone.
        """
        self.began = metrics(self.client, self.instance, self.service)
        if self.began and self.began.busy:
            running, waiting = self.began.running or 0, self.began.waiting or 0
            return f"{running:.0f} requests of somebody else run there, and {waiting:.0f} wait"
        return ""

    @property
    def foreign_tokens(self) -> int | None:
        """Tokens of requests that were not ours; None where nobody knows.

        Raises:
            roles.client.Lost: the job is gone.
        """
        now = metrics(self.client, self.instance, self.service)
        if now is None or self.began is None or self.unsure:
            return None
        return now.foreign_tokens(self.began, self.prompt_tokens, self.tokens)

    def ask(self, request: Request, limit: float) -> Reply:
        """Make one request, and count what it takes."""
        reply = self.client.ask(request, limit)
        try:
            found = message(reply)
        except NoMessage:
            # what was computed for it nobody says; nothing was where it was refused
            self.unsure = self.unsure or not 400 <= reply.status < 500
            return reply
        self.prompt_tokens += found.prompt_tokens or 0
        self.tokens += found.tokens or 0
        return reply

    def calibrate(self) -> None:
        """Learn how many tokens the engine makes of a haystack."""
        request, characters = stress.calibrating(self.seed, self.context or 4096)
        try:
            made = message(self.ask(request, ANSWERED)).prompt_tokens
        except NoMessage:
            made = None
        if made:
            self.characters = max(1.0, characters / made)
        self.memory_then = self.memory()

    def probes(self) -> Iterator[Probed]:
        """All of them, one after the other.

        Raises:
            roles.client.Lost: the job is gone; what was yielded stays true.
        """
        self.calibrate()
        able = kind_of(self.instance).abilities(self.instance)
        tools = "tools" in able
        room = min(self.context or 0, self.up_to or 1 << 60)
        rungs = stress.ladder(room)
        if not rungs:
            yield Probed("needle", "a word in a long prompt", "n/a", f"a context of {self.context or 'unknown'} tokens")
        for number, size in enumerate(rungs):
            request, word = stress.needle(self.seed + 10 + number, size, self.characters)
            yield self._one(Probe(f"needle-{size}", f"a word in {size:,} tokens"), request, stress.limit(size), word)
        returned, named = Probe("tool-return", "a tool return of 25,000 tokens"), stress.TOOL_RETURN
        if room < named + stress.ROOM:
            yield Probed(returned.name, returned.title, "n/a", f"a context of {self.context or 'unknown'} tokens")
        else:
            make = stress.tool_return if tools else stress.needle
            request, word = make(self.seed + 2, named, self.characters)
            yield self._one(returned, request, ANSWERED, word)
        for probe, request, seconds in (
            (Probe("tools", "an agent's task with ten tools", least=20), stress.agent(tools), ANSWERED),
            (
                Probe("coding", "code of 4,096 tokens", least=50),
                prompts.chat(stress.CODING, 4096, prompts.STREAM),
                600.0,
            ),
            (
                Probe("reasoning", "a thought of 8,192 tokens", least=500),
                prompts.chat(stress.REASONING, 8192, prompts.STREAM, thinks=True),
                600.0,
            ),
        ):
            most = max(16, (self.context or 1 << 20) - stress.ROOM)
            least = min(probe.least, most // 2)
            yield self._one(Probe(probe.name, probe.title, least=least), prompts.shorter(request, most), seconds, "")
        yield self._image("images" in able)
        yield self._conversation()

    def _image(self, declared: bool) -> Probed:
        probe = Probe("image", f"an image of {PIXELS:,} by {PIXELS:,} pixels")
        if not declared:
            return Probed(probe.name, probe.title, "n/a", "not declared")
        if (self.context or IMAGE_ROOM) < IMAGE_ROOM:
            return Probed(probe.name, probe.title, "n/a", f"a context of {self.context} tokens")
        request = prompts.red(PIXELS, 200 + self.seed % 56, prompts.STREAM)
        return self._one(probe, request, ANSWERED, "red")

    def _one(self, probe: Probe, request: Request, limit: float, word: str) -> Probed:
        self.say(probe.title)
        before = metrics(self.client, self.instance, self.service)
        reply = self.ask(request, limit)
        after = metrics(self.client, self.instance, self.service)
        cached = after.hit_rate(before) if before and after else None
        growth = stress.growth_mib(self.memory_then, self.memory())
        return stress.judged(probe, reply, word, cached, growth)

    def _conversation(self) -> Probed:
        """Six turns of a conversation that grows."""
        probe = Probe("conversation", "a conversation of six turns")
        context = self.context or 4096
        if context < stress.CONVERSATION:
            return Probed(probe.name, probe.title, "n/a", f"a context of {context} tokens")
        self.say(probe.title)
        characters = int(min(2000, context // 16) * self.characters)
        found, history = [], []  # type: list[Probed], list[dict[str, object]]
        for number in range(stress.TURNS):
            request = stress.turn(self.seed % 1000, number, history, characters, self._most(stress.TURNS))
            reply = self.ask(request, ANSWERED)
            one = stress.judged(probe, reply, "", None, None)
            found.append(one)
            if one.verdict != "ok":
                break
            history += _said(request, reply)
        last = found[-1]
        title, growth = probe.title, stress.growth_mib(self.memory_then, self.memory())
        if last.verdict != "ok":
            return Probed(probe.name, title, last.verdict, f"turn {len(found)}: {last.detail}", growth_mib=growth)
        took = round(sum(one.took_s for one in found), 3)
        rate, read = last.tokens_a_second, last.prompt_tokens
        return Probed(probe.name, title, "ok", "", took, read, last.first_s, last.tokens, rate, growth)

    def _most(self, turns: int) -> int:
        """Tokens of each answer of so many turns, so that a short context has room for all of them."""
        return max(16, min(stress.ANSWER, (self.context or 4096) // (3 * turns)))

    def soak(self, grows: bool, restarts: Callable[[], int | None]) -> Iterator[Probed]:
        """Sessions of turns, each judged as it comes, and all of them at the end.

        Args:
            grows: Whether one conversation grows to 24,000 tokens, in place of short ones anew.
            restarts: How often systemd has started the unit again.

        Raises:
            roles.client.Lost: the job is gone.
        """
        self.calibrate()
        before, until = restarts(), time.monotonic() + CAP
        sessions, turns = TURNS if grows else SESSIONS
        room = min(GROWN, max(0, (self.context or 4096) - stress.ROOM))
        characters = int(room / turns * self.characters * 0.8) if grows else 0
        made: list[Turn] = []
        for session in range(sessions):
            history: list[dict[str, object]] = []
            self.say(f"conversation {session + 1} of {sessions}, at most {max(0, until - time.monotonic()):.0f} s left")
            for number in range(turns):
                if time.monotonic() > until:
                    break
                request = stress.turn(self.seed % 10_000 + session, number, history, characters, self._most(turns))
                reply = self.ask(request, ANSWERED)
                made.append(_turn(reply))
                if made[-1].error:
                    break
                history += _said(request, reply)
        growth, after = stress.growth_mib(self.memory_then, self.memory()), restarts()
        again = (after or 0) - (before or 0) if before is not None and after is not None else 0
        wrong = stress.soaked(made, growth, max(0, again), grows)
        rates = [one.tokens_a_second for one in made if one.tokens_a_second]
        rate = round(sum(rates) / len(rates), 2) if rates else None
        title = f"{len(made)} turns of {'growing' if grows else 'fresh'} conversations"
        verdict: Verdict = "fail" if wrong else "ok"
        yield Probed("soak", title, verdict, "; ".join(wrong), tokens_a_second=rate, growth_mib=growth)


def _said(request: Request, reply: Reply) -> list[dict[str, object]]:
    """A turn's two messages, as the next turn has them before it."""
    asked = list((request.body or {})["messages"])[-1]  # type: ignore[call-overload]
    return [asked, {"role": "assistant", "content": message(reply).content}]


def _turn(reply: Reply) -> Turn:
    try:
        found = message(reply)
    except NoMessage as error:
        return Turn(str(error)[:200] or "nothing came", None)
    return Turn("an empty answer" if found.silent else "", stress.speed(found))
