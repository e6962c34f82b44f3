"""Asks a server for completions, some at a time, and times every token. Runs on the host, from standard input.

Nothing but Python's own library, 3.10 or newer: `python3 -I - ASKED < load.py`, where ASKED is `Asked` as JSON.

Prints one line of JSON: `seconds`, from the first request to the last answer, and `requests`, in the order of streams.
A request has `first_s`, to its first token; `gaps_s`, between what the server sent from then on; `total_s`; and
`tokens`, as the server counted them. All seconds are a client's: waiting for a free slot is in `first_s`.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# Token ids that any vocabulary has as bytes or text: a prompt of ids is as long for every model.
IDS = range(120, 250)
# What OpenAI's protocol ends a stream with.
DONE = b"data: [DONE]"
SILENCE = 1800.0  # seconds without a byte: a CPU with a long queue takes its time, forever is too long


@dataclass(frozen=True)
class Asked:
    """What is to be asked."""

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
    """Of the API: llama-server's own, or /v1/completions, which is OpenAI's with vLLM's `ignore_eos`."""


def body(asked: Asked, number: int) -> bytes:
    """One request's body: nothing is answered from a cache, and no answer is shorter than the others."""
    # another prompt from its first token on: no cache has a prefix of it
    pick = random.Random(f"{asked.seed} {number}")
    prompt = [pick.choice(IDS) for _ in range(asked.prompt_tokens)]
    wanted: dict[str, object] = {"prompt": prompt, "ignore_eos": True, "temperature": 0, "stream": True}
    if asked.path == "/completion":
        slot = number // asked.requests % asked.slots
        wanted |= {"id_slot": slot, "n_predict": asked.output_tokens, "cache_prompt": False}
    else:
        wanted |= {"max_tokens": asked.output_tokens, "stream_options": {"include_usage": True}}
    return json.dumps(wanted).encode()


class Connection(http.client.HTTPConnection):
    """Reaches a server at any place that `Asked` may name."""

    def __init__(self, at: str) -> None:
        super().__init__("localhost", timeout=SILENCE)
        self.at = at

    def connect(self) -> None:
        """Connect, as a client that waits for tokens does.

        No name is looked up: the first look-up of a process loads Python's tables of names, and a socket has none.
        """
        is_path = self.at.startswith("/")
        self.sock = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
        self.sock.settimeout(SILENCE)
        if is_path:
            self.sock.connect(self.at)
            return
        address, _, port = self.at.rpartition(":")
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect((address, int(port)))


def ask(asked: Asked, key: str, number: int) -> dict[str, object]:
    """Make one request; returns its times.

    Raises:
        OSError: no connection, or none any more.
        ValueError: the server refuses, or ends before its answer does.
    """
    content = body(asked, number)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Connection": "close"}
    started = time.perf_counter()
    connection = Connection(asked.at)
    try:
        connection.request("POST", asked.path, content, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"HTTP status {answer.status}: {answer.read(500).decode(errors='replace')}")
        # read now and as it comes, taken apart later: that would hold up the other streams' clocks
        pieces = []
        while piece := answer.read1(65536):
            pieces.append((time.perf_counter(), piece))
    finally:
        connection.close()
    total = time.perf_counter() - started
    said = [(at, _event(line)) for at, line in _lines(pieces) if line not in (b"", DONE) and line[:1] != b":"]
    if len(said) < 2 or not said[-1][1].get("stop"):
        raise ValueError(f"the answer ends in the middle, after {len(said)} events")
    times = [at for at, event in said if not event.get("stop")]
    return {
        "first_s": times[0] - started,
        "gaps_s": [later - earlier for earlier, later in pairwise(times)],
        "total_s": total,
        "tokens": said[-1][1].get("tokens_predicted"),
    }


def _lines(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Whole lines without their ends, each with the time at which its end came."""
    begun = b""
    for at, piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        for line in whole:
            yield at, line.rstrip(b"\r")


def _event(line: bytes) -> dict[str, object]:
    kind, _, content = line.partition(b":")
    event = json.loads(content) if kind == b"data" else None
    if not isinstance(event, dict) or "error" in event:
        raise ValueError(f"the server sent {line[:500]!r}")
    if "choices" in event:
        # after the last of them comes one without any, with their number
        usage = event.get("usage") or {}
        return {"stop": not event["choices"], "tokens_predicted": usage.get("completion_tokens")}
    return event


def run(asked: Asked) -> dict[str, object]:
    """Make all requests, a thread a stream.

    Raises:
        OSError: as `ask`, or the key cannot be read.
        ValueError: as `ask`.
    """
    key = Path(asked.key_file).read_text().partition("\n")[0].strip()
    together = threading.Barrier(asked.streams + 1)

    def stream(number: int) -> list[dict[str, object]]:
        together.wait()
        return [ask(asked, key, number * asked.requests + turn) for turn in range(asked.requests)]

    with ThreadPoolExecutor(asked.streams) as pool:
        streams = [pool.submit(stream, number) for number in range(asked.streams)]
        together.wait()
        started = time.perf_counter()
        made = [request for one in streams for request in one.result()]
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "requests": made}


def main() -> None:
    """Run what the only argument asks for; exit status 1 and a line on standard error where that fails."""
    try:
        print(json.dumps(run(Asked(**json.loads(sys.argv[1])))))
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
