"""Capabilities of an instance, asked as a client would, and how its answers are judged.

Requests and rules are club-3090's functional checks (scripts/verify-full.sh at 4a29ab57, "verify-full.sh checks"), and
two more: output by a JSON schema, and an image. Capabilities that a variant does not declare are not asked (`n/a`).
A declared one that cannot be judged is a `skip`, which does not count as passed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rigwright.engines.capabilities import Ability
from rigwright.engines.instance_request import MODELS, InstanceRequest
from rigwright.engines.metrics import EngineMetrics
from rigwright.model.instance import Instance
from rigwright.operate import probe_prompts
from rigwright.operate.chat_reply import ChatMessage, NoChatMessage, Reply, parse_message

Verdict = Literal["ok", "fail", "skip", "n/a"]
SMALL = 100 << 20
"""Bytes of weights: a language model with fewer knows no capital and calls no tool, however well it is served."""
ACCEPTED = 2.0
"""Tokens a step, where some are guessed ahead, that are no less than they should be (club-3090's MTP_ACCEPT_MIN)."""
CHUNKS, CHARACTERS = 5, 20  # of a streamed answer, at least
AT_ONCE, BURST = 0.5, 0.005  # seconds: of an answer that takes longer, all pieces do not come within so short a time
REASONED = 50  # characters of a thought
REPEATED = 5  # times the same line
VARIETY, OF_WORDS = 0.30, 200  # different words of the first ones
LEAST_WORDS = 40  # that an essay needs to be judged
LEAKED = "<tool_call>"


@dataclass(frozen=True)
class ProbeFinding:
    """The finding of one check."""

    check: str
    title: str
    verdict: Verdict
    detail: str
    took_s: float = 0.0


class WrongAnswer(Exception):
    """An answer that is not what a working instance gives."""


class UnjudgedAnswer(Exception):
    """Nothing can be said: not even that it is wrong."""


@dataclass(frozen=True)
class AnswerContext:
    """The facts with which a check's answer is judged."""

    instance: Instance
    model: str
    before: EngineMetrics | None = None
    """The counts of the engine before it; None where it has none."""
    after: EngineMetrics | None = None


@dataclass(frozen=True)
class AnswerCheck:
    """One of them."""

    name: str
    title: str
    request: InstanceRequest
    limit: float
    """Seconds for an answer."""
    judge: Callable[[Reply, AnswerContext], str]
    """Says what was found; raises Wrong or Unjudged."""
    needs: Ability | None = None
    """The ability that has to be declared."""
    counted: bool = False
    """Whether it is judged by what the engine counts, too."""
    asks_much: bool = False
    """Whether a model without knowledge cannot pass it."""


def assess_answer(check: AnswerCheck, reply: Reply, seen: AnswerContext) -> ProbeFinding:
    """The finding of an answer."""

    def finding(verdict: Verdict, detail: str) -> ProbeFinding:
        return ProbeFinding(check.name, check.title, verdict, " ".join(detail.split())[:300], round(reply.waited_s, 3))

    try:
        return finding("ok", check.judge(reply, seen))
    except UnjudgedAnswer as error:
        return finding("skip", str(error))
    except NoChatMessage as error:
        return finding("fail", str(error))
    except WrongAnswer as error:
        size = sum(one.size for one in seen.instance.weights)
        # an answer of nothing, or of a tool call's text, is no matter of knowledge
        if check.asks_much and size < SMALL and not isinstance(error, BrokenAnswer):
            return finding("skip", f"its weights of {size / 1e6:.1f} MB are too small to be judged by it: {error}")
        return finding("fail", str(error))


class BrokenAnswer(WrongAnswer):
    """Wrong whatever the model knows."""


def _parse_reply(reply: Reply) -> ChatMessage:
    found = parse_message(reply)
    if found.is_silent:
        raise BrokenAnswer(
            f"an empty answer ({found.tokens if found.tokens is not None else 'no'} tokens, {found.finish})"
        )
    if LEAKED in found.content:
        raise BrokenAnswer(f"a tool call as text: {found.content[:80]}")
    return found


def _check_models(reply: Reply, seen: AnswerContext) -> str:
    if reply.status != 200:
        raise WrongAnswer(reply.description or "nothing came")
    try:
        names = [str(one["id"]) for one in json.loads(reply.body)["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WrongAnswer(f"no list of models: {reply.description}") from None
    if seen.model not in names:
        raise WrongAnswer(f"it serves {', '.join(names[:5])[:100] or 'nothing'}, not {seen.model}")
    return f"serves {seen.model}"


def _check_paris(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    if "paris" not in found.content.lower():
        raise WrongAnswer(f"no Paris: {found.content[:80]!r}")
    return found.content.strip()[:60]


def _find_tool_call(found: ChatMessage) -> str:
    if not found.calls:
        raise WrongAnswer(f"no tool call: {(found.content or found.reasoning)[:80]!r}")
    name, arguments = found.calls[0]
    if name != probe_prompts.WEATHER:
        raise WrongAnswer(f"it calls {name[:60]!r}, not {probe_prompts.WEATHER}")
    try:
        if not isinstance(json.loads(arguments), dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise WrongAnswer(f"arguments that are no JSON object: {arguments[:80]!r}") from None
    return f"{name}({arguments[:60]})"


def _check_tool(reply: Reply, seen: AnswerContext) -> str:
    return _find_tool_call(_parse_reply(reply))


def _check_streamed_tool(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    told = _find_tool_call(found)
    if found.finish != "tool_calls":
        raise WrongAnswer(f"it ends for {found.finish!r}, not tool_calls")
    return told


def _check_streaming(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    if not reply.events:
        raise BrokenAnswer(f"no events, but {reply.type or 'something'} in one piece")
    spread = found.times[-1] - found.times[0]
    if len(found.times) > 1 and reply.total_s > AT_ONCE and spread < min(BURST, reply.total_s / 100):
        raise WrongAnswer(
            f"all {len(found.times)} pieces came at once, after {found.times[0]:.1f} s: a proxy or the engine "
            f"buffers the stream"
        )
    if len(found.times) < CHUNKS or len(found.content) < CHARACTERS:
        raise WrongAnswer(
            f"{len(found.times)} pieces and {len(found.content)} characters, not {CHUNKS} and {CHARACTERS}"
        )
    return f"{len(found.times)} pieces, the first after {found.times[0]:.2f} s of {reply.total_s:.2f}"


def _check_reasoning(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    if len(found.reasoning) < REASONED:
        raise WrongAnswer(f"a thought of {len(found.reasoning)} characters, not {REASONED}")
    if not (found.content.strip() or found.finish == "length"):
        raise WrongAnswer("a thought, and no answer after it")
    return f"{len(found.reasoning)} characters of thought, then {found.content.strip()[:40]!r}"


def _check_variety(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    words = re.findall(r"\w+", found.content.lower())
    lines = Counter(line.strip() for line in found.content.splitlines() if len(line.strip()) > 3)
    line, times = lines.most_common(1)[0] if lines else ("", 0)
    if times >= REPEATED:
        raise BrokenAnswer(f"the same line {times} times: {line[:60]!r}")
    if len(words) < LEAST_WORDS:
        raise WrongAnswer(f"an essay of {len(words)} words")
    variety = len(set(words[:OF_WORDS])) / len(words[:OF_WORDS])
    if variety < VARIETY:
        raise WrongAnswer(f"{variety:.0%} of its words are different ones, not {VARIETY:.0%}")
    return f"{len(words)} words, {variety:.0%} of the first {len(words[:OF_WORDS])} different"


def measure_accept_length(found: ChatMessage, seen: AnswerContext) -> tuple[float, float]:
    """Tokens a step where some were guessed ahead, and how many were guessed each time.

    Raises:
        UnjudgedAnswer: the engine does not say it.
    """
    if seen.before and seen.after and (length := seen.after.accept_length(seen.before)) is not None:
        drafts = (seen.after.drafts or 0) - (seen.before.drafts or 0)
        guessed = (seen.after.draft_tokens or 0) - (seen.before.draft_tokens or 0)
        return length, guessed / drafts if drafts > 0 else 0.0
    if found.drafted is not None and found.accepted is not None and found.tokens:
        steps = max(1, found.tokens - found.accepted)
        return found.tokens / steps, found.drafted / steps
    raise UnjudgedAnswer("the engine does not report its drafted tokens: with llama.cpp, set flags.metrics = true")


def _check_drafting(reply: Reply, seen: AnswerContext) -> str:
    length, guessed = measure_accept_length(_parse_reply(reply), seen)
    # where one token is guessed, no step has more than two
    least = min(ACCEPTED, 1 + guessed / 2)
    if length < least:
        raise BrokenAnswer(
            f"{length:.2f} tokens a step, not {least:.2f}: what guesses ahead is not loaded, or guesses wrong"
        )
    return f"{length:.2f} tokens a step"


def _check_schema(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    try:
        made = json.loads(found.content)
        fits = set(made) == {"city", "population"} and isinstance(made["city"], str)
        if not fits or isinstance(made["population"], bool) or not isinstance(made["population"], int):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise WrongAnswer(f"does not match its schema ({found.finish}): {found.content[:80]!r}") from None
    return found.content.strip()[:60]


def _check_image(reply: Reply, seen: AnswerContext) -> str:
    found = _parse_reply(reply)
    if "red" not in re.findall(r"[a-z]+", found.content.lower()):
        raise WrongAnswer(f"no red: {found.content[:80]!r}")
    return found.content.strip()[:60]


SERVER = AnswerCheck("server", "it names its model", MODELS, 5, _check_models)
WARM = 60.0  # seconds for the first answer, which counts for nothing
CHECKS = (
    SERVER,
    AnswerCheck("completion", "it answers a question", probe_prompts.CAPITAL, 30, _check_paris, asks_much=True),
    AnswerCheck("tool-call", "it calls a tool", probe_prompts.TOOL, 60, _check_tool, "tools", asks_much=True),
    AnswerCheck("streaming", "it answers piece by piece", probe_prompts.HAIKU, 60, _check_streaming, asks_much=True),
    AnswerCheck(
        *(
            "streamed-tool",
            "it thinks and calls a tool, streamed",
            probe_prompts.TOOL_STREAMED,
            60,
            _check_streamed_tool,
            "tools",
        ),
        asks_much=True,
    ),
    AnswerCheck(
        "thinking", "it thinks before it answers", probe_prompts.SUM, 180, _check_reasoning, "thinking", asks_much=True
    ),
    AnswerCheck(
        "quality", "a long answer does not go in circles", probe_prompts.ESSAY, 180, _check_variety, asks_much=True
    ),
    AnswerCheck(
        "drafts",
        "enough drafted tokens are accepted",
        probe_prompts.COUNT,
        120,
        _check_drafting,
        "drafts",
        counted=True,
    ),
    AnswerCheck(
        "json-schema",
        "its answer follows a JSON schema",
        probe_prompts.SCHEMA,
        60,
        _check_schema,
        "schema",
        asks_much=True,
    ),
    AnswerCheck("image", "it sees an image", probe_prompts.IMAGE, 60, _check_image, "images", asks_much=True),
)
PATCHES = "patches", "it runs with its patches"


def is_passed(findings: Iterable[ProbeFinding]) -> bool:
    """Whether something was proven, and nothing failed; an undecidable answer of a model is a skip, and no failure."""
    verdicts = [one.verdict for one in findings]
    return "ok" in verdicts and "fail" not in verdicts
