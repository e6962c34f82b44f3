"""A server of which each answer takes an exact time."""

from typing import Any

from bench.load_generator import LoadRequest
from bench.load_ladder_results import LadderStep
from bench.load_statistics import RequestTimes
from bench.speed_protocol import (
    SENTENCE,
)


def fixed_speed_server(tokens_a_second: float = 50.0, first_s: float = 0.5, fails: str = "") -> Any:
    """The server, and the requests that it has seen."""
    seen: list[LoadRequest] = []

    def ask(one: LoadRequest) -> LadderStep:
        seen.append(one)
        if fails and fails in one.prompts[0][0]:
            return LadderStep(one.streams, 0.1, (), {"HTTP status 400": one.streams}, 0.0)
        tokens = one.prompts[0][1]
        # a template's 15, and 25 a sentence
        prompt = 15 + 25 * one.prompts[0][0].count(SENTENCE)
        made = RequestTimes(first_s, (), first_s + tokens / tokens_a_second, tokens, prompt)
        return LadderStep(one.streams, made.total_s, (made,) * one.streams, {}, 0.0)

    return ask, seen
