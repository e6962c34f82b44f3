"""Asks a server for completions, some at a time, and times every token. Runs on the host: from standard input, or in
roles/client's job (bench/load_with_metrics.py).

Needs Python 3.10 or newer and its own library alone: `python3 -I - ASKED < load_generator.py`, `Asked` as JSON.

Prints one line of JSON: `seconds`, from the first request to the last answer; `requests`, in the order of streams; and
`processor_s`, that all of it has taken of this process. A request has `first_s`, to its first token; `gaps_s`, between
what the server sent from then on; `total_s`; and `tokens` and `prompt_tokens`, as the server counted them; or `error`,
where it is asked for a time. All seconds are a client's: waiting for a free slot is in `first_s`.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

Answer = http.client.HTTPResponse
# Token ids that any vocabulary has as bytes or text: a prompt of ids is as long for every model.
IDS = range(120, 250)
# The end of a stream of OpenAI's protocol.
DONE = b"data: [DONE]"
SILENCE = 1800.0  # seconds without a byte: a CPU with a long queue takes its time, forever is too long
CHAT = "/v1/chat/completions"
TOKEN_KEYS = ("content", "reasoning_content", "reasoning")  # of a chat's events, in engines' several spellings
GIVE_UP = 5  # requests that fail one after the other, after which a stream makes no more
PAUSE = 0.2  # seconds before a stream asks again whose request has failed
REFUSED = "HTTP status 429"  # a gateway's, whose queue is full: no failure
MOST = 64 << 20  # bytes of an answer


@dataclass(frozen=True)
class LoadRequest:
    """The request."""

    at: str
    """Where the server is: the path of a unix socket, or `address:port`."""
    key_file: str
    """Holds the API key. In no argument, for those can be read by others."""
    slots: int
    """That the server has. Slots with numbers in a row are computed together, others one after the other (llama.cpp's
    src/llama-batch.cpp, split_equal), so a stream keeps to its own: which the server would pick is chance."""
    streams: int
    """Requests under way at once."""
    requests: int
    """That each stream makes, one after the other."""
    prompt_tokens: int
    output_tokens: int
    seed: int
    """Same seed, same prompts; no two requests of one run have the same."""
    path: str = "/completion"
    """Of the API: llama-server's own, or /v1/completions, which is OpenAI's with vLLM's `ignore_eos`, or CHAT."""
    seconds: float = 0.0
    """For how long each stream begins another request, in place of `requests`; one that fails is then one of those."""
    model: str = ""
    """Of a chat."""
    prompts: list[tuple[str, int]] = field(default_factory=list)
    """Of chats: each request has one of them, answered with at most so many tokens."""
    salted: bool = True
    """Whether each prompt begins with what no other one does, so that nothing of it is answered from a cache."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further members of a chat's body."""
    longest: float = 7200.0
    """Seconds for one answer."""


def render_body(asked: LoadRequest, number: int) -> bytes:
    """One request's body: nothing is answered from a cache, and no answer is shorter than the others."""
    # another prompt from its first token on: no cache has a prefix of it
    pick = random.Random(f"{asked.seed} {number}")
    if asked.path == CHAT:
        said, tokens = pick.choice(asked.prompts)
        text = f"{pick.getrandbits(64):016x} {said}" if asked.salted else said
        asks = {"model": asked.model, "messages": [{"role": "user", "content": text}], "max_tokens": tokens}
        return json.dumps({**asks, "stream": True, "stream_options": {"include_usage": True}, **asked.more}).encode()
    prompt = [pick.choice(IDS) for _ in range(asked.prompt_tokens)]
    wanted: dict[str, object] = {"prompt": prompt, "ignore_eos": True, "temperature": 0, "stream": True}
    if asked.path == "/completion":
        slot = number // asked.requests % asked.slots
        wanted |= {"id_slot": slot, "n_predict": asked.output_tokens, "cache_prompt": False}
    else:
        wanted |= {"max_tokens": asked.output_tokens, "stream_options": {"include_usage": True}}
    return json.dumps(wanted).encode()


class LoadConnection(http.client.HTTPConnection):
    """Reaches a server at any place that `LoadRequest` may name."""

    def __init__(self, at: str, limit: float = SILENCE) -> None:
        super().__init__("localhost", timeout=limit)
        self.at = at

    def connect(self) -> None:
        """Connect, as a client that waits for tokens does.

        No name is looked up: the first look-up of a process loads Python's tables of names, and a socket has none.
        """
        is_path = self.at.startswith("/")
        self.sock = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
        self.sock.settimeout(self.timeout)
        if is_path:
            self.sock.connect(self.at)
            return
        address, _, port = self.at.rpartition(":")
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect((address, int(port)))


@dataclass(frozen=True)
class LoadTarget:
    """The server that is asked."""

    reach: Callable[[float], http.client.HTTPConnection]
    """A connection, with the seconds without a byte after which it gives up."""
    key: str

    @contextmanager
    def open_request(self, method: str, path: str, content: bytes = b"", limit: float = SILENCE) -> Iterator[Answer]:
        """Make a request over a connection of its own."""
        told = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", "Connection": "close"}
        with closing(self.reach(limit)) as connection:
            connection.request(method, path, content, told)
            yield connection.getresponse()


@dataclass(frozen=True)
class SentRequest:
    """A request that was made, not taken apart yet."""

    started: float
    ended: float
    pieces: list[tuple[float, bytes]]
    """The received pieces, with their times."""
    error: str = ""

    def as_times(self, tolerant: bool) -> dict[str, object]:
        """Its times; or why it has none, where that is no matter.

        Raises:
            ValueError: the server refused, or ended before its answer did.
        """
        try:
            return self._times()
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            if tolerant:
                return {"error": str(error)[:200]}
            raise ValueError(str(error)) from None

    def _times(self) -> dict[str, object]:
        if self.error:
            raise ValueError(self.error)
        said = [
            (at, _parse_event(line))
            for at, line in _timed_lines(self.pieces)
            if line not in (b"", DONE) and line[:1] != b":"
        ]
        if len(said) < 2 or not said[-1][1].get("stop"):
            raise ValueError(f"the answer ends in the middle, after {len(said)} events")
        times = [at for at, event in said if not event.get("stop") and event.get("token", True)]
        if not times:
            raise ValueError("an answer without a token")
        return {
            "first_s": times[0] - self.started,
            "gaps_s": [later - earlier for earlier, later in pairwise(times)],
            "total_s": self.ended - self.started,
            "tokens": said[-1][1].get("tokens_predicted"),
            "prompt_tokens": said[-1][1].get("tokens_evaluated"),
        }


def make_request(asked: LoadRequest, server: LoadTarget, number: int) -> SentRequest:
    """Make one request; returns what came of it, an error in its place."""
    content = render_body(asked, number)
    pieces: list[tuple[float, bytes]] = []
    left, error = MOST, ""
    started = time.perf_counter()
    try:
        with server.open_request("POST", asked.path, content) as answer:
            if answer.status != 200:
                raise ValueError(f"HTTP status {answer.status}: {answer.read(500).decode(errors='replace')}")
            # read now and as it comes, taken apart later: that would hold up the other streams' clocks
            while piece := answer.read1(65536):
                pieces.append((time.perf_counter(), piece))
                if (left := left - len(piece)) < 0 or time.perf_counter() - started > asked.longest:
                    raise ValueError("an answer without end")
    except ValueError as failed:
        error = str(failed)
    except (OSError, http.client.HTTPException) as failed:
        error = f"{type(failed).__name__}: {failed}"
    return SentRequest(started, time.perf_counter(), pieces, error)


def _timed_lines(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Whole lines without their ends, each with the time at which its end came; all of it where it has none."""
    begun: list[bytes] = []
    lines = 0
    for at, piece in pieces:
        first, *more = piece.split(b"\n")
        begun.append(first)
        lines += len(more)
        for part in more:
            # joined once: a line may be all there is, in a piece a byte
            yield at, b"".join(begun).rstrip(b"\r")
            begun = [part]
    if (rest := b"".join(begun)) and not lines:
        yield pieces[-1][0], rest


def _parse_event(line: bytes) -> dict[str, object]:
    kind, _, content = line.partition(b":")
    event = json.loads(content) if kind == b"data" else None
    if not isinstance(event, dict) or "error" in event:
        raise ValueError(f"the server sent {line[:500]!r}")
    if "choices" not in event:
        return event
    # after the last of them comes one without any, with their number
    usage = event.get("usage") or {}
    if not event["choices"]:
        counted = {"tokens_predicted": usage.get("completion_tokens"), "tokens_evaluated": usage.get("prompt_tokens")}
        return {"stop": True, **counted}
    delta = event["choices"][0].get("delta")
    # the first of a chat has the role of the speaker, and the last the reason of its end
    return {"token": delta is None or any(delta.get(key) for key in (*TOKEN_KEYS, "tool_calls"))}


def run_stream(asked: LoadRequest, server: LoadTarget, number: int, until: float) -> list[SentRequest]:
    """The requests of one stream."""
    if not asked.seconds:
        return [make_request(asked, server, number * asked.requests + turn) for turn in range(asked.requests)]
    made: list[SentRequest] = []
    failed = 0
    while failed < GIVE_UP and (not made or time.perf_counter() < until):
        made.append(one := make_request(asked, server, number + asked.streams * len(made)))
        # taken apart later: at a glance, an answer that has its end is one
        good = not one.error and DONE in b"".join(piece for _, piece in one.pieces[-2:])
        failed = 0 if good or REFUSED in one.error else failed + 1
        if not good:
            time.sleep(PAUSE)
    return made


def run_load(asked: LoadRequest, server: LoadTarget) -> dict[str, object]:
    """Make all requests, a thread a stream.

    Raises:
        ValueError: a request failed that is not asked for a time.
    """
    together = threading.Barrier(asked.streams + 1)

    def begin(number: int) -> list[SentRequest]:
        together.wait()
        return run_stream(asked, server, number, time.perf_counter() + asked.seconds)

    before = time.process_time()
    with ThreadPoolExecutor(asked.streams) as pool:
        streams = [pool.submit(begin, number) for number in range(asked.streams)]
        together.wait()
        started = time.perf_counter()
        made = [one for each in streams for one in each.result()]
    spent = time.process_time() - before
    return {
        "seconds": max(one.ended for one in made) - started,
        "processor_s": spent,
        "requests": [one.as_times(tolerant=asked.seconds > 0) for one in made],
    }


def main() -> None:
    """Run what the only argument asks for; exit status 1 and a line on standard error where that fails."""
    asked = LoadRequest(**json.loads(sys.argv[1]))
    try:
        key = Path(asked.key_file).read_text().partition("\n")[0].strip()
        print(json.dumps(run_load(asked, LoadTarget(partial(LoadConnection, asked.at), key))))
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
