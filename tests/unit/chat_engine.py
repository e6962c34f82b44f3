"""A stand-in for an engine: streams chat completions at a fixed pace on so many slots, has its own figures, computes
nothing, and misbehaves on order.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

KEY = "a-key"
Fault = Literal["", "error body", "empty", "cut", "one piece", "revoked", "busy"]


@dataclass
class StandInChatEngine:
    """How it answers."""

    first_s: float = 0.02
    """From when a slot is free to the first token."""
    gap_s: float = 0.01
    model: str = "m"
    slots: int = 1000
    ends_after: int = 1_000_000
    """Tokens of an answer, at most."""
    kv_a_slot: float = 0.0
    """Of its KV cache, what a request takes."""
    fault: Fault = ""
    after: int = 0
    """Requests that are answered well before that."""
    foreign: int = 0
    """Tokens that it has made for others, each time that it is asked for its figures."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of requests."""
    running: int = 0
    waiting: int = 0
    most: int = 0
    """Requests at once."""
    port: int = 0
    made: int = 0
    read: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def render_metrics(self) -> str:
        """Its own figures, named as vLLM's."""
        self.made += self.foreign
        return (
            "# HELP vllm:num_requests_running Number of requests.\n"
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {self.running}.0\n'
            f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {self.waiting}.0\n'
            f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {self.running * self.kv_a_slot}\n'
            f'vllm:num_preemptions_total{{engine="0",model_name="m"}} 0.0\n'
            f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {self.made}.0\n'
            f'vllm:prompt_tokens_total{{engine="0",model_name="m"}} {self.read}.0\n'
        )

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, of one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0)
        body = await reader.readexactly(length)
        if head.startswith("GET /metrics"):
            self._send_response(writer, 200, self.render_metrics)
        elif head.startswith("GET /v1/models"):
            self._send_response(writer, 200, json.dumps({"data": [{"id": self.model}]}) if self.model else "<html>")
        else:
            self.asked.append(json.loads(body))
            await self._answer_chat(writer, head, self.asked[-1])
        writer.close()

    def _send_response(self, writer: asyncio.StreamWriter, status: int, text: str) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())

    async def _answer_chat(self, writer: asyncio.StreamWriter, head: str, asked: dict[str, Any]) -> None:
        fault = self.fault if len(self.asked) > self.after else ""
        if fault == "revoked" or f"Bearer {KEY}" not in head:
            return self._send_response(writer, 401, '{"error": "Unauthorized"}')
        if fault == "busy":
            return self._send_response(writer, 429, '{"error": "full"}')
        if fault == "error body":
            return self._send_response(writer, 200, '{"error": {"message": "no room"}}')
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        self.waiting += 1
        async with self.free:
            self.waiting -= 1
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await self._stream_answer(writer, asked, fault)
            finally:
                self.running -= 1
        return None

    async def _stream_answer(self, writer: asyncio.StreamWriter, asked: dict[str, Any], fault: Fault) -> None:
        loop = asyncio.get_running_loop()
        tokens = min(asked.get("max_completion_tokens", asked.get("max_tokens", 1)), self.ends_after)
        read = len(str(asked["messages"][0]["content"]).split())
        self.read += read
        began = loop.time() + self.first_s
        told = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        told += [{"choices": [{"delta": {"content": " word"}}]}] * (0 if fault == "empty" else tokens)
        events = [f"data: {json.dumps(one)}\n\n".encode() for one in told]
        for number, event in enumerate(events):
            # by the clock: one that is late makes no other one late
            await asyncio.sleep(began + max(number - 1, 0) * self.gap_s - loop.time())
            if fault != "one piece":
                writer.write(event)
            if fault == "cut" and number == 2:
                return
        if fault == "one piece":
            writer.write(b"".join(events))
        made = len(events) - 1
        self.made += made
        last = [{"choices": [{"delta": {}, "finish_reason": "length"}]}]
        last += [{"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": made}}]  # type: ignore[dict-item]
        writer.write(b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in last) + b"data: [DONE]\n\n")

    async def run(self, path: Path | None, ready: threading.Event) -> None:
        """Serve on a socket, or else a free port, until it is over."""
        self.free = asyncio.Semaphore(self.slots)
        if path:
            server = await asyncio.start_unix_server(self.serve_connection, str(path), backlog=1000)
        else:
            server = await asyncio.start_server(self.serve_connection, "127.0.0.1", 0, backlog=1000)
            self.port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await asyncio.get_running_loop().run_in_executor(None, self.over.wait)

    @contextmanager
    def running_at(self, path: Path) -> Iterator[str]:
        """Serve on a socket while the block runs; yields its path."""
        ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self.run(path, ready)))
        thread.start()
        try:
            assert ready.wait(10)
            yield str(path)
        finally:
            self.over.set()
            thread.join()


def main() -> None:
    """As a program: serves on a free port, which it prints, at the pace that its arguments say."""
    first_s, gap_s = map(float, sys.argv[1:])
    engine, ready = StandInChatEngine(first_s, gap_s), threading.Event()

    def tell() -> None:
        ready.wait()
        print(engine.port, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    asyncio.run(engine.run(None, ready))


if __name__ == "__main__":
    main()
