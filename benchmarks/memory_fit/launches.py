"""Real engines: started with a model, asked with a full batch, measured at the peak, and stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roles.memory_records.host.process_memory import DriverLibrary, PeakUse

HOST = "127.0.0.1"
MEASURED_SECONDS = 1.0  # after the answer
PROMPT = 640  # tokens of the request: more than a batch has


class LaunchFailed(Exception):
    """An engine that did not start or answer; the text is the end of its log."""


@dataclass(frozen=True)
class LaunchResult:
    """A measured start."""

    cards: dict[str, int]
    """UUID -> peak bytes."""
    names: dict[str, str]
    """UUID -> name."""
    ram: int
    """Peak bytes of the processes."""
    seconds: float
    """From the start to the first answer."""
    lines: tuple[str, ...]
    """Of its log, about memory."""


def find_tree(root: int) -> list[int]:
    """A process and all of its descendants."""
    parents: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            number, text = int(process.name), (process / "stat").read_text()
            parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(number)
    found, at = [root], 0
    while at < len(found):
        found += parents.get(found[at], [])
        at += 1
    return found


def _ask(port: int, path: str, body: object | None = None, seconds: float = 300) -> bool:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        f"http://{HOST}:{port}{path}", data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=seconds) as answer:
            return bool(answer.status == 200 and answer.read(1 << 20) is not None)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _wait_for_cards(library: DriverLibrary) -> None:
    """Wait until the memory of an earlier engine is free: until two looks are equal, for ten seconds at most."""
    before, end = [card.free for card in library.read_cards(())], time.monotonic() + 10
    while before and time.monotonic() < end:
        time.sleep(0.5)
        now = [card.free for card in library.read_cards(())]
        if now == before:
            return
        before = now


def _memory_lines(log: Path) -> Iterator[str]:
    marks = ("buffer size", "n_ctx_slot", "Available KV", "KV cache size", "Model loading took", "Graph capturing")
    for line in log.read_text(errors="replace").splitlines():
        if any(mark in line for mark in marks):
            yield line[:200]


def measure_launch(
    command: Sequence[str], port: int, tokens: int, log: Path, *, patience: float, model: str, cards: int
) -> LaunchResult:
    """Start an engine, have it answer a full batch, and stop it.

    Args:
        command: Its command line.
        port: It listens there.
        tokens: Of a request's context.
        log: The file for its output.
        patience: Seconds until it has to answer.
        model: The name that requests have.
        cards: How many it uses.

    Raises:
        LaunchFailed: it ends, or does not answer in time.
    """
    library = DriverLibrary()
    began = time.monotonic()
    _wait_for_cards(library)
    peaks = PeakUse(library)
    peaks.look(())
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def look() -> None:
        peaks.look(find_tree(process.pid))

    try:
        while not _ask(port, "/health", seconds=5):
            look()
            if process.poll() is not None or time.monotonic() - began > patience:
                raise LaunchFailed(log.read_text(errors="replace")[-1500:])
            time.sleep(0.1)
        seconds = time.monotonic() - began
        prompt = "a" * max(8, min(PROMPT, tokens - 64))
        body = {"model": model, "prompt": prompt, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
        answered = _ask(port, "/v1/completions", body)
        end = time.monotonic() + MEASURED_SECONDS
        while time.monotonic() < end:
            look()
            time.sleep(0.2)
        peaks.use_differences(cards)
        if not answered:
            raise LaunchFailed(log.read_text(errors="replace")[-1500:])
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    return LaunchResult(peaks.cards, peaks.names, peaks.ram, seconds, tuple(_memory_lines(log)))
