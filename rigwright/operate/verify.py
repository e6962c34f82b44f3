"""What an instance has to be able to do, asked as a client would, and how its answers are judged.

Requests and rules are club-3090's functional checks (scripts/verify-full.sh at 4a29ab57, "verify-full.sh checks"), and
two more: output by a JSON schema, and an image. What a variant does not declare is not asked (`n/a`). What it declares
and cannot be judged is a `skip`, which does not count as passed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rigwright.engines.abilities import Ability
from rigwright.engines.metrics import Metrics
from rigwright.engines.request import MODELS, Request
from rigwright.model.rig import Instance
from rigwright.operate import prompts
from rigwright.operate.reply import Message, NoMessage, Reply, message

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
class Finding:
    """What came of one check."""

    check: str
    title: str
    verdict: Verdict
    detail: str
    took_s: float = 0.0


class Wrong(Exception):
    """An answer that is not what a working instance gives."""


class Unjudged(Exception):
    """Nothing can be said: not even that it is wrong."""


@dataclass(frozen=True)
class Seen:
    """What a check's answer is judged beside."""

    instance: Instance
    model: str
    before: Metrics | None = None
    """What the engine had counted before; None where it does not tell."""
    after: Metrics | None = None


@dataclass(frozen=True)
class Check:
    """One of them."""

    name: str
    title: str
    request: Request
    limit: float
    """Seconds for an answer."""
    judge: Callable[[Reply, Seen], str]
    """Says what was found; raises Wrong or Unjudged."""
    needs: Ability | None = None
    """What has to be declared."""
    counted: bool = False
    """Whether it is judged by what the engine counts, too."""
    asks_much: bool = False
    """Whether a model without knowledge cannot pass it."""


def judged(check: Check, reply: Reply, seen: Seen) -> Finding:
    """What an answer comes to."""

    def finding(verdict: Verdict, detail: str) -> Finding:
        return Finding(check.name, check.title, verdict, " ".join(detail.split())[:300], round(reply.waited_s, 3))

    try:
        return finding("ok", check.judge(reply, seen))
    except Unjudged as error:
        return finding("skip", str(error))
    except NoMessage as error:
        return finding("fail", str(error))
    except Wrong as error:
        size = sum(one.size for one in seen.instance.weights)
        # an answer of nothing, or of a tool call's text, is no matter of knowledge
        if check.asks_much and size < SMALL and not isinstance(error, Broken):
            return finding("skip", f"its weights of {size / 1e6:.1f} MB are too small to be judged by it: {error}")
        return finding("fail", str(error))


class Broken(Wrong):
    """Wrong whatever the model knows."""


def _said(reply: Reply) -> Message:
    found = message(reply)
    if found.silent:
        raise Broken(f"an empty answer ({found.tokens if found.tokens is not None else 'no'} tokens, {found.finish})")
    if LEAKED in found.content:
        raise Broken(f"a tool call as text: {found.content[:80]}")
    return found


def _models(reply: Reply, seen: Seen) -> str:
    if reply.status != 200:
        raise Wrong(reply.said or "nothing came")
    try:
        names = [str(one["id"]) for one in json.loads(reply.body)["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Wrong(f"no list of models: {reply.said}") from None
    if seen.model not in names:
        raise Wrong(f"it serves {', '.join(names[:5])[:100] or 'nothing'}, not {seen.model}")
    return f"serves {seen.model}"


def _paris(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    if "paris" not in found.content.lower():
        raise Wrong(f"no Paris: {found.content[:80]!r}")
    return found.content.strip()[:60]


def _called(found: Message) -> str:
    if not found.calls:
        raise Wrong(f"no tool call: {(found.content or found.reasoning)[:80]!r}")
    name, arguments = found.calls[0]
    if name != prompts.WEATHER:
        raise Wrong(f"it calls {name[:60]!r}, not {prompts.WEATHER}")
    try:
        if not isinstance(json.loads(arguments), dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise Wrong(f"arguments that are no JSON object: {arguments[:80]!r}") from None
    return f"{name}({arguments[:60]})"


def _tool(reply: Reply, seen: Seen) -> str:
    return _called(_said(reply))


def _streamed_tool(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    told = _called(found)
    if found.finish != "tool_calls":
        raise Wrong(f"it ends for {found.finish!r}, not tool_calls")
    return told


def _streamed(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    if not reply.events:
        raise Broken(f"no events, but {reply.type or 'something'} in one piece")
    spread = found.times[-1] - found.times[0]
    if len(found.times) > 1 and reply.total_s > AT_ONCE and spread < min(BURST, reply.total_s / 100):
        raise Wrong(
            f"all {len(found.times)} pieces came at once, after {found.times[0]:.1f} s: something holds it back"
        )
    if len(found.times) < CHUNKS or len(found.content) < CHARACTERS:
        raise Wrong(f"{len(found.times)} pieces and {len(found.content)} characters, not {CHUNKS} and {CHARACTERS}")
    return f"{len(found.times)} pieces, the first after {found.times[0]:.2f} s of {reply.total_s:.2f}"


def _thought(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    if len(found.reasoning) < REASONED:
        raise Wrong(f"a thought of {len(found.reasoning)} characters, not {REASONED}")
    if not (found.content.strip() or found.finish == "length"):
        raise Wrong("a thought, and no answer after it")
    return f"{len(found.reasoning)} characters of thought, then {found.content.strip()[:40]!r}"


def _varied(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    words = re.findall(r"\w+", found.content.lower())
    lines = Counter(line.strip() for line in found.content.splitlines() if len(line.strip()) > 3)
    line, times = lines.most_common(1)[0] if lines else ("", 0)
    if times >= REPEATED:
        raise Broken(f"the same line {times} times: {line[:60]!r}")
    if len(words) < LEAST_WORDS:
        raise Wrong(f"an essay of {len(words)} words")
    variety = len(set(words[:OF_WORDS])) / len(words[:OF_WORDS])
    if variety < VARIETY:
        raise Wrong(f"{variety:.0%} of its words are different ones, not {VARIETY:.0%}")
    return f"{len(words)} words, {variety:.0%} of the first {len(words[:OF_WORDS])} different"


def accept_length(found: Message, seen: Seen) -> tuple[float, float]:
    """Tokens a step where some were guessed ahead, and how many were guessed each time.

    Raises:
        Unjudged: the engine does not say it.
    """
    if seen.before and seen.after and (length := seen.after.accept_length(seen.before)) is not None:
        drafts = (seen.after.drafts or 0) - (seen.before.drafts or 0)
        guessed = (seen.after.draft_tokens or 0) - (seen.before.draft_tokens or 0)
        return length, guessed / drafts if drafts > 0 else 0.0
    if found.drafted is not None and found.accepted is not None and found.tokens:
        steps = max(1, found.tokens - found.accepted)
        return found.tokens / steps, found.drafted / steps
    raise Unjudged("the engine does not say what it guessed: with llama.cpp, flags.metrics = true has it count")


def _accepted(reply: Reply, seen: Seen) -> str:
    length, guessed = accept_length(_said(reply), seen)
    # where one token is guessed, no step has more than two
    least = min(ACCEPTED, 1 + guessed / 2)
    if length < least:
        raise Broken(f"{length:.2f} tokens a step, not {least:.2f}: what guesses ahead is not loaded, or guesses wrong")
    return f"{length:.2f} tokens a step"


def _schema(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    try:
        made = json.loads(found.content)
        fits = set(made) == {"city", "population"} and isinstance(made["city"], str)
        if not fits or isinstance(made["population"], bool) or not isinstance(made["population"], int):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Wrong(f"not what its schema says ({found.finish}): {found.content[:80]!r}") from None
    return found.content.strip()[:60]


def _red(reply: Reply, seen: Seen) -> str:
    found = _said(reply)
    if "red" not in re.findall(r"[a-z]+", found.content.lower()):
        raise Wrong(f"no red: {found.content[:80]!r}")
    return found.content.strip()[:60]


SERVER = Check("server", "it names its model", MODELS, 5, _models)
WARM = 60.0  # seconds for the first answer, which counts for nothing
CHECKS = (
    SERVER,
    Check("completion", "it answers a question", prompts.CAPITAL, 30, _paris, asks_much=True),
    Check("tool-call", "it calls a tool", prompts.TOOL, 60, _tool, "tools", asks_much=True),
    Check("streaming", "it answers piece by piece", prompts.HAIKU, 60, _streamed, asks_much=True),
    Check(
        *("streamed-tool", "it thinks and calls a tool, streamed", prompts.TOOL_STREAMED, 60, _streamed_tool, "tools"),
        asks_much=True,
    ),
    Check("thinking", "it thinks before it answers", prompts.SUM, 180, _thought, "thinking", asks_much=True),
    Check("quality", "a long answer does not go in circles", prompts.ESSAY, 180, _varied, asks_much=True),
    Check(
        "drafts", "what it guesses ahead is right often enough", prompts.COUNT, 120, _accepted, "drafts", counted=True
    ),
    Check("json-schema", "its answer follows a JSON schema", prompts.SCHEMA, 60, _schema, "schema", asks_much=True),
    Check("image", "it sees an image", prompts.IMAGE, 60, _red, "images", asks_much=True),
)
PATCHES = "patches", "it runs with its patches"


def passed(findings: Iterable[Finding]) -> bool:
    """Whether nothing of it failed, and nothing that is declared was left unjudged."""
    return all(one.verdict in ("ok", "n/a") for one in findings)
