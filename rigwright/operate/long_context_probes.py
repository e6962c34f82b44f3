"""Stress tests of an instance: long prompts with something to find in them, long tool returns, tools, long answers.

Probes, sizes and rules are club-3090's (scripts/verify-stress.sh and soak-test.sh at 4a29ab57), and the 178,000 tokens
of a write-up of one RTX 5090. Every haystack has a salt, for one that an engine has in its prefix cache costs nothing.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from rigwright.engines.instance_request import InstanceRequest
from rigwright.operate import probe_prompts
from rigwright.operate.capability_probes import ProbeFinding, Verdict
from rigwright.operate.chat_reply import ChatMessage, NoChatMessage, Reply, parse_message

NEEDLES = (10_000, 30_000, 60_000, 90_000)
"""Tokens of haystacks that are looked into, where the context has room; those of the ladder beside them."""
STEP, FIRST_RUNG, WRITE_UP, FULL = 30_000, 95_000, 178_000, 0.92
"""Of the ladder: tokens from a rung to the next, of the first, of S4's, and of the last the part of the context."""
TOOL_RETURN = 25_000  # tokens
CHARACTERS = 3.2  # of a token of a haystack, until an engine has said how many it makes of one
LIMITS = ((30_000, 300.0), (100_000, 600.0), (1 << 60, 900.0))
"""Seconds for a prompt of at most so many tokens."""
FROM_CACHE = 0.05  # of a prompt; more of it, and its time is not that of computing it
GROWTH = 200  # MiB that a soak may add
SLOWER = 0.98  # last turns by first ones, in tokens a second
TURNS_COMPARED = 5
TOO_SHORT = 0.05  # seconds of an answer: fewer say nothing of its rate
ROOM = 700  # tokens of a context beside a haystack: question, template and answer
TURNS, CONVERSATION = 6, 2048  # of a conversation, and tokens of a context that has room for one
ANSWER = 200  # tokens of a turn's answer


@dataclass(frozen=True)
class ProbeResult(ProbeFinding):
    """The result of one probe."""

    prompt_tokens: int | None = None
    first_s: float | None = None
    """To the first token: reading the prompt."""
    tokens: int | None = None
    tokens_a_second: float | None = None
    """From the first token to the last."""
    growth_mib: float | None = None
    """By which the memory of its cards, or of its processes without any, has grown since the beginning."""


@dataclass(frozen=True)
class StressProbe:
    """One of them."""

    name: str
    title: str
    needs: int = 0
    """Tokens of context."""
    answer: int = 50
    """Tokens of the answer."""
    least: int = 1
    """That it has to have."""


def haystack_sizes(context: int) -> tuple[int, ...]:
    """Haystacks for a context, shortest first: the needles that fit, then rungs up to 92 % of it."""
    top = int(context * FULL) - ROOM
    rungs = [*NEEDLES, *range(FIRST_RUNG, top, STEP), *([WRITE_UP] if top >= WRITE_UP else [])]
    found = sorted({size for size in rungs if size <= top})
    return (*found, top) if found and top - found[-1] > STEP // 10 else tuple(found) or ((top,) if top > ROOM else ())


def prompt_timeout(tokens: int) -> float:
    """Seconds for a prompt."""
    return next(seconds for most, seconds in LIMITS if tokens <= most)


def make_salt(seed: int) -> str:
    """A text that no other haystack has in it."""
    return f"{_seeded_random(seed).getrandbits(48):012x}"


def _seeded_random(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 (nothing is kept secret by it)


def make_haystack(seed: int, characters: int) -> tuple[str, str, str]:
    """A generated, unique text of about so many characters, a word that is hidden in it, and its subject."""
    pick, mark = _seeded_random(seed), make_salt(seed)
    word = "".join(pick.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(9))
    lines = [f"Log {mark}. Each line is one reading."]
    size, at = len(lines[0]), pick.uniform(0.1, 0.9) * characters
    hidden = False
    while size < characters:
        if not hidden and size >= at:
            line, hidden = f"Note: the secret word of {mark} is {word}.", True
        else:
            hall, fan, turns = pick.randrange(90), pick.randrange(400), pick.randrange(9999)
            line = f"{pick.randrange(10**6)}: hall {hall}, fan {fan}, {turns} rpm"
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines), word, mark


def needle_request(seed: int, tokens: int, characters: float) -> tuple[InstanceRequest, str]:
    """A question about a haystack, and the word that answers it.

    Args:
        seed: Another one, another haystack.
        tokens: Its size.
        characters: Of a token.
    """
    text, word, mark = make_haystack(seed, int(tokens * characters))
    question = f"{text}\n\nWhat is the secret word of {mark}? Answer with the word alone."
    return probe_prompts.chat_request(question, 50, probe_prompts.STREAM, temperature=0.0), word


def calibration_request(seed: int, room: int) -> tuple[InstanceRequest, int]:
    """A request by which an engine says how many tokens it makes of a haystack, and its characters.

    Args:
        seed: Another one, another haystack.
        room: Tokens that a request may have: some models make one of each character.
    """
    text, _, _ = make_haystack(seed, min(2000, room // 2))
    return probe_prompts.chat_request(text, 1), len(text)


def tool_return_request(seed: int, tokens: int, characters: float) -> tuple[InstanceRequest, str]:
    """A conversation whose last message is what a tool has returned: so many tokens, with a word to find."""
    text, word, mark = make_haystack(seed, int(tokens * characters))
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.log"}'}}
    messages: list[Mapping[str, object]] = [
        {
            "role": "user",
            "content": f"Read a.log with the tool. Then tell me the secret word of {mark}, and nothing else.",
        },
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": text},
    ]
    tools = {"tools": [probe_prompts.tool_declaration("read_file", "The text of a file.", path="Its path")]}
    return probe_prompts.chat_request(messages, 200, {**tools, **probe_prompts.STREAM}, temperature=0.0), word


TOOLS = (
    ("read_file", "The text of a file."),
    ("write_file", "Write a file."),
    ("list_files", "The files of a folder."),
    ("search", "Where a pattern occurs."),
    ("run_tests", "Run the tests of a folder."),
    ("git_diff", "What has changed."),
    ("git_commit", "Commit what has changed."),
    ("open_url", "The text of a page."),
    ("ask_user", "Ask the user something."),
    ("done", "Say that the work is done."),
)


def agent_request(tools: bool) -> InstanceRequest:
    """An agent's first request: a task, and with tools ten of them."""
    declared = (
        {"tools": [probe_prompts.tool_declaration(name, what, path="A path or a text") for name, what in TOOLS]}
        if tools
        else {}
    )
    task = (
        "You are in a repository of a web shop in Python. Tests of the module `cart` fail since yesterday: totals are "
        "off by one cent where a discount is applied. Say step by step how you find the cause, then begin."
    )
    return probe_prompts.chat_request(task, 2000, {**declared, **probe_prompts.STREAM})


CODING = (
    "Write a Python module that keeps intervals of integers as a balanced tree, with insert, remove, overlap queries "
    "and merging of neighbours, type hints, docstrings and a test for each operation. Give the whole code."
)
REASONING = (
    "Five houses in a row have five colours; their owners have five pets, drinks, sweets and instruments. Make such a "
    "puzzle with fifteen clues and exactly one solution, then solve it step by step and check every clue."
)


def turn_request(
    session: int, number: int, history: Sequence[dict[str, object]], grows: int, most: int
) -> InstanceRequest:
    """A turn of a session; each but the first has all before it.

    Args:
        session: Another one, another conversation.
        number: Of the turn, from 0.
        history: The messages before it.
        grows: Characters of new text in it.
        most: Tokens of the answer.
    """
    text, _, mark = (
        make_haystack(1_000_003 * session + number, grows) if grows else ("", "", make_salt(session * 101 + number))
    )
    asked = f"{text}\n\n({mark}) In three sentences: what should be looked at next, and why? This is turn {number + 1}."
    return probe_prompts.chat_request(
        [*history, {"role": "user", "content": asked.strip()}], most, probe_prompts.STREAM
    )


def token_rate(found: ChatMessage) -> float | None:
    """Tokens a second from the first piece to the last; None where that is too short to tell."""
    if not found.tokens or len(found.times) < 3 or found.times[-1] - found.times[0] < TOO_SHORT:
        return None
    return round((found.tokens - 1) / (found.times[-1] - found.times[0]), 2)


def assess_probe(
    probe: StressProbe, reply: Reply, word: str, cached: float | None, growth: float | None
) -> ProbeResult:
    """The result of an answer to a probe.

    Args:
        probe: The probe.
        reply: Its answer.
        word: The word to find; empty where there is none.
        cached: Of the prompt, what came from a prefix cache, 0 to 1; None where that is not known.
        growth: MiB since the beginning.
    """
    verdict: Verdict = "ok"
    found = None
    if reply.status == 400:
        verdict, detail = "skip", f"refused as too long: {reply.description[:160]}"
    else:
        try:
            found = parse_message(reply)
            detail = _describe_fault(probe, found)
            verdict = "fail" if detail else "ok"
            detail = detail or _describe_notes(found, word, cached)
        except NoChatMessage as error:
            verdict, detail = "fail", str(error)
    return ProbeResult(
        probe.name,
        probe.title,
        verdict,
        " ".join(detail.split())[:300],
        round(reply.waited_s, 3),
        prompt_tokens=found.prompt_tokens if found else None,
        first_s=round(found.times[0], 3) if found and found.times else None,
        tokens=found.tokens if found else None,
        tokens_a_second=token_rate(found) if found else None,
        growth_mib=growth,
    )


def _describe_fault(probe: StressProbe, found: ChatMessage) -> str:
    if found.is_silent:
        return f"an empty answer ({found.finish})"
    if "<tool_call>" in found.content:
        return f"a tool call as text: {found.content[:60]!r}"
    made = found.tokens or len(re.findall(r"\S+", found.content + found.reasoning))
    # a model that calls a tool has begun to work
    return f"an answer of {made} tokens, not {probe.least}" if made < probe.least and not found.calls else ""


def _describe_notes(found: ChatMessage, word: str, cached: float | None) -> str:
    notes = []
    if word.lower() not in (found.content + found.reasoning).lower():
        # that it is served is what is asked here: how well it remembers is the model's
        notes.append(f"did not find the word: {found.content.strip()[:40]!r}")
    if cached is not None and cached > FROM_CACHE:
        notes.append(f"{cached:.0%} came from the prefix cache: its time is not that of reading it")
    return "; ".join(notes)


@dataclass(frozen=True)
class SoakTurn:
    """One turn of a soak."""

    error: str
    """Why there is no answer; `empty` for an empty one."""
    tokens_a_second: float | None


def find_soak_problems(turns: Sequence[SoakTurn], growth: float | None, restarts: int, grows: bool) -> list[str]:
    """The problems of a soak, a line each.

    Args:
        turns: In their order.
        growth: MiB from its first turn to its last; None where that is not known.
        restarts: Of the unit meanwhile.
        grows: Whether its conversations became longer and longer, which alone makes it slower.
    """
    errors = [one.error for one in turns if one.error]
    found = [f"{len(errors)} of {len(turns)} turns without an answer, the first: {errors[0]}"] if errors else []
    if restarts:
        found.append(f"it was started again {restarts} times")
    if growth is not None and growth > GROWTH:
        found.append(f"{growth:.0f} MiB more memory, not {GROWTH}")
    rates = [one.tokens_a_second for one in turns if one.tokens_a_second]
    if not grows and len(rates) >= 2 * TURNS_COMPARED:
        first, last = rates[:TURNS_COMPARED], rates[-TURNS_COMPARED:]
        # of turns that differ by themselves, by more than that
        spread = max(pstdev(first), pstdev(last))
        if fmean(last) < SLOWER * fmean(first) and fmean(first) - fmean(last) > 2 * spread:
            found.append(f"{fmean(last):.1f} tokens a second at the end, {fmean(first):.1f} at the beginning")
    return found


def growth_mib(then: float | None, now: float | None) -> float | None:
    """By how much memory has grown."""
    return None if then is None or now is None else round(now - then, 1)


def sum_known(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
