"""Clients that ask for models at random, streams and plain answers in turns.

Nothing but Python's own library: `python3 -I on_demand_load.py < LOAD`, where LOAD is `RandomLoad` as JSON. The seed
gives each client the same sequence of requests for every server. SIGTERM has each client finish its request and begin
no other one. Prints one line of JSON: a list of `RandomRequest`.
"""

from __future__ import annotations

import http.client
import json
import random
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

ERROR_BYTES = 300
ANSWER_S = 600.0
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True)
class RandomLoad:
    """The load."""

    at: str
    """`address:port` of a server of OpenAI's interface."""
    models: tuple[str, ...]
    clients: int
    seconds: float
    """For how long each client begins another request."""
    tokens: int
    """Of each answer."""
    seed: int = 1
    requests: int = 0
    """Requests of each client at most; 0: as many as there is time for."""
    plain: float = 0.5
    """The share of requests that are no streams."""
    zero: float = 0.0
    """The time of the monotonic clock from which `began` counts; 0: when the load begins."""


@dataclass
class RandomRequest:
    """One request, and its end."""

    client: int
    model: str
    stream: bool
    began: float
    """Seconds since the load's zero."""
    status: int = 0
    first_s: float = 0.0
    """To the first token of a stream; to the answer otherwise."""
    total_s: float = 0.0
    comments: int = 0
    """Of a stream, before its first token."""
    tokens: int = 0
    retry_s: int = 0
    """Of a refusal: the seconds after which the client may ask again."""
    problem: str = ""
    """Empty for a complete answer."""

    @property
    def is_refusal(self) -> bool:
        """Whether the server has told the client to ask again."""
        return self.status == 503 and self.retry_s > 0

    @property
    def is_lost(self) -> bool:
        """Whether it ended neither with a complete answer nor with a refusal."""
        return bool(self.problem) and not self.is_refusal


def send_request(load: RandomLoad, one: RandomRequest, zero: float) -> None:
    """Send it, and fill in its end."""
    link = http.client.HTTPConnection(load.at, timeout=ANSWER_S)
    body: dict[str, Any] = {"model": one.model, "max_tokens": load.tokens, "stream": one.stream, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": f"client {one.client}"}]
    if one.stream:
        body["stream_options"] = {"include_usage": True}
    one.began = time.monotonic() - zero
    try:
        link.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = link.getresponse()
        one.status = answer.status
        if answer.status != 200:
            later = answer.getheader("Retry-After") or ""
            one.retry_s = int(later) if later.isdigit() else 0
            one.problem = f"{answer.status} {answer.read(ERROR_BYTES).decode(errors='replace')}"
        elif one.stream:
            read_stream(answer, one, zero)
        else:
            one.tokens = int(json.loads(answer.read())["usage"]["completion_tokens"])
            one.first_s = time.monotonic() - zero - one.began
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        one.problem = repr(error)[:ERROR_BYTES]
    finally:
        link.close()
    one.total_s = time.monotonic() - zero - one.began


def read_stream(answer: http.client.HTTPResponse, one: RandomRequest, zero: float) -> None:
    """Read a stream to its end."""
    is_complete = False
    for line in answer:
        if line.startswith(b":"):
            one.comments += not one.first_s
        elif line.startswith(b"data: [DONE]"):
            is_complete = True
        elif line.startswith(b"data: "):
            event = json.loads(line[6:])
            if "error" in event:
                one.problem = f"error event: {event['error']}"[:ERROR_BYTES]
            one.first_s = one.first_s or time.monotonic() - zero - one.began
            one.tokens = int((event.get("usage") or {}).get("completion_tokens", one.tokens))
    if not is_complete and not one.problem:
        one.problem = "the stream ended early"


def run_load(load: RandomLoad, stop: threading.Event | None = None) -> list[RandomRequest]:
    """Run all clients to their end; requests in the order in which they began."""
    ended = stop or threading.Event()
    until = time.monotonic() + load.seconds
    zero = load.zero or time.monotonic()
    found: list[RandomRequest] = []

    def run_client(number: int) -> None:
        chance = random.Random(f"{load.seed} {number}")
        count = 0
        while time.monotonic() < until and not ended.is_set() and not (load.requests and count >= load.requests):
            count += 1
            one = RandomRequest(number, chance.choice(load.models), chance.random() >= load.plain, 0.0)
            send_request(load, one, zero)
            found.append(one)
            if one.problem:
                ended.wait(min(one.retry_s or 0.5, LONGEST_PAUSE_S))

    threads = [threading.Thread(target=run_client, args=(number,)) for number in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found, key=lambda one: one.began)


def main() -> None:
    """Run the load of standard input."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    value = json.load(sys.stdin)
    rows = run_load(RandomLoad(**value | {"models": tuple(value["models"])}), stop)
    print(json.dumps([asdict(one) for one in rows]))


if __name__ == "__main__":
    main()
