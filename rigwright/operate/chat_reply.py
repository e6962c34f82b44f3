"""The answer to a request, as a job on the host has seen it; the instance that answered may have been taken over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigwright.problems import printable

DONE = "[DONE]"
"""The end of a stream of OpenAI's protocol."""


@dataclass(frozen=True)
class Reply:
    """One answer; all times are the client's, in seconds from when it began to ask."""

    status: int
    """HTTP's; 0 for no answer."""
    error: str
    """Why there is none, or none that is whole; empty for one that is."""
    type: str
    """Its Content-Type."""
    body: str
    """Empty where it came as events."""
    events: tuple[tuple[float, str], ...]
    """The contents of each event, and when it was there; several that came together have the same moment."""
    first_s: float | None
    """To the first byte of its body."""
    total_s: float
    refused: int
    """How often the server had answered before that it was busy."""
    waited_s: float
    """All of it, with that."""

    @property
    def description(self) -> str:
        """The description for people, where it is not the expected one."""
        text = " ".join((self.body or " ".join(text for _, text in self.events[-2:])).split())[:200]
        return printable(": ".join(filter(None, (str(self.status) if self.status else "", self.error, text))))


@dataclass(frozen=True)
class ChatMessage:
    """A model's text in one answer of the chat API, put together."""

    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]
    """Tools that it calls, each with its arguments, JSON as text."""
    finish: str
    """Why it ended; empty if the server gave no reason."""
    prompt_tokens: int | None
    tokens: int | None
    """That it has made, as its engine counts them; None where it does not say."""
    times: tuple[float, ...]
    """When each piece of it came that held something; one for an answer that was no stream."""
    drafted: int | None = None
    """Tokens that were guessed ahead, where the engine says it with the answer."""
    accepted: int | None = None

    @property
    def is_silent(self) -> bool:
        """Whether the answer is empty."""
        return not (self.content.strip() or self.reasoning.strip() or self.calls)


class NoChatMessage(ValueError):
    """An answer outside of the chat API; its text has the answer in place of it."""


def parse_message(reply: Reply) -> ChatMessage:
    """Parse an answer of the chat API.

    Raises:
        NoChatMessage: it is another status than 200, an error, not whole, or of another shape.
    """
    if reply.status != 200 or reply.error:
        raise NoChatMessage(reply.description or "nothing came")
    try:
        return _parse_events(reply) if reply.events else _parse_body(reply)
    # a number without end is no index: OverflowError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
        if isinstance(error, NoChatMessage):
            raise
        raise NoChatMessage(f"an answer of another shape: {reply.description}") from None


def _parse_object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise NoChatMessage(f"an answer of another shape: {printable(text[:200])}")
    if found.get("error"):
        raise NoChatMessage(f"an error with status 200: {printable(text[:200])}")
    return found


def _parse_body(reply: Reply) -> ChatMessage:
    found = _parse_object(reply.body)
    choice = found["choices"][0]
    made = _MessageParts()
    made.add(choice["message"], reply.total_s)
    return made.build(choice.get("finish_reason"), found)


def _parse_events(reply: Reply) -> ChatMessage:
    if reply.events[-1][1] != DONE:
        raise NoChatMessage(f"a stream that does not end with {DONE}: {reply.description}")
    made, finish = _MessageParts(), None
    last: dict[str, Any] = {}
    for at, text in reply.events[:-1]:
        found = _parse_object(text)
        # usage comes in an event of its own, without choices, or with the last one
        last |= {key: found[key] for key in ("usage", "timings") if found.get(key)}
        for choice in found.get("choices") or ():
            made.add(choice.get("delta") or {}, at)
            finish = choice.get("finish_reason") or finish
    return made.build(finish, last)


class _MessageParts:
    """The parts of a message, as they come."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, tuple[list[str], list[str]]] = {}
        self.times: list[float] = []

    def add(self, part: Mapping[str, Any], at: float) -> None:
        content = part.get("content") or ""
        # vLLM's name is the second one since 0.12
        reasoning = part.get("reasoning_content") or part.get("reasoning") or ""
        calls = part.get("tool_calls") or ()
        if not (isinstance(content, str) and isinstance(reasoning, str)):
            raise TypeError
        self.content.append(content)
        self.reasoning.append(reasoning)
        for number, call in enumerate(calls):
            name, arguments = self.calls.setdefault(int(call.get("index", number)), ([], []))
            name.append(str(call["function"].get("name") or ""))
            arguments.append(str(call["function"].get("arguments") or ""))
        if content or reasoning or calls:
            self.times.append(at)

    def build(self, finish: object, last: Mapping[str, Any]) -> ChatMessage:
        usage, timings = last.get("usage") or {}, last.get("timings") or {}
        return ChatMessage(
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            calls=tuple(("".join(name), "".join(arguments)) for _, (name, arguments) in sorted(self.calls.items())),
            finish=str(finish or ""),
            prompt_tokens=_find_count(usage, "prompt_tokens"),
            tokens=_find_count(usage, "completion_tokens", timings, "predicted_n"),
            times=tuple(self.times),
            drafted=_find_count(timings, "draft_n"),
            accepted=_find_count(timings, "draft_n_accepted"),
        )


def _find_count(*places: Any) -> int | None:
    """The first whole number that is there: tables, each followed by a name in it."""
    for table, name in zip(places[::2], places[1::2], strict=True):
        found = table.get(name)
        if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 40:
            return found
    return None
