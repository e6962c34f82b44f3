"""Clients of a gateway that ask without a pause, and what became of what they asked."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests

from tests.hosts.gateway_box import QUESTION
from tests.hosts.support import wait_until


@dataclass
class SteadyLoad:
    """The result."""

    answered: list[float] = field(default_factory=list)
    """When, each."""
    told: list[int] = field(default_factory=list)
    """Seconds after which to come again."""
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def longest_gap(self) -> float:
        """The longest time between two answers, seconds."""
        return max(after - before for before, after in zip(self.answered, self.answered[1:], strict=False))

    def ask(self, url: str, model: str, number: int) -> None:
        """Ask until told to end: by streams and without, in turns."""
        while not self.ended.is_set():
            number += 1
            body = {
                "model": model,
                "messages": QUESTION,
                "max_tokens": 16,
                "stream": bool(number % 2),
                "ignore_eos": True,
            }
            try:
                with requests.post(url, json=body, headers=self.headers, timeout=60) as said:
                    self._record_answer(
                        said.status_code, said.headers.get("Retry-After", ""), said.text, stream=number % 2 == 1
                    )
            except requests.RequestException as error:
                self.wrong.append(repr(error))

    def _record_answer(self, status: int, later: str, text: str, *, stream: bool) -> None:
        if status == 503 and later:
            self.told.append(int(later))
            time.sleep(0.2)
        elif status == 200 and (text.rstrip().endswith("data: [DONE]") if stream else json.loads(text)["choices"]):
            self.answered.append(time.monotonic())
        else:
            self.wrong.append(f"{status} {text[-300:]}")


@contextmanager
def run_load(url: str, models: Sequence[str] = ("chat",), clients: int = 4, api_key: str = "") -> Iterator[SteadyLoad]:
    """Clients that ask while the block runs, of each model by turns.

    Args:
        url: Of the gateway's chat completions.
        models: The models that they ask for.
        clients: How many there are.
        api_key: The key that they have.
    """
    made = SteadyLoad(headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    threads = [
        threading.Thread(target=made.ask, args=(url, models[number % len(models)], number // len(models)))
        for number in range(clients)
    ]
    for one in threads:
        one.start()
    try:
        wait_until(lambda: len(made.answered) >= clients, "answers before it begins")
        yield made
        seen = len(made.answered)
        wait_until(lambda: len(made.answered) > seen + clients, "answers after it")
    finally:
        made.ended.set()
        for one in threads:
            one.join()
