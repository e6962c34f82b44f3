"""A server that answers /completion as llama-server streams it, and /v1/completions as vLLM does."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.file_server import FileServerHandler, LoopbackFileServer, error_status, run_file_server

KEY = "a-key"


@dataclass
class SseSpeaker:
    """How it speaks."""

    gap_s: float = 0.0
    words: int | None = None
    """That it sends; None for as many as were asked for."""
    error: bool = False
    cut: bool = False
    """Whether the connection ends before the answer does."""

    def answer_completion(self, handler: FileServerHandler, start: int) -> None:
        """One completion; 401 without the key."""
        if handler.headers.get("Authorization") != f"Bearer {KEY}":
            error_status(401)(handler, start)
            return
        asked = json.loads(handler.files.asked[-1].body)
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"d\r\n: a comment\n\n\r\n")
        openai = handler.path == "/v1/completions"
        wanted = asked["max_tokens" if openai else "n_predict"]
        count = wanted if self.words is None else self.words
        for number in range(count):
            time.sleep(self.gap_s)
            said = {"choices": [{"text": f" w{number}"}], "usage": None}
            self._send_event(handler, said if openai else {"content": f" w{number}", "stop": False})
        if self.error:
            self._send_event(handler, {"error": {"code": 500, "message": "no room"}})
        elif not self.cut:
            last = {"choices": [], "usage": {"completion_tokens": count}}
            self._send_event(handler, last if openai else {"content": "", "stop": True, "tokens_predicted": count})
            if openai:
                handler.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n")
        handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    def _send_event(self, handler: FileServerHandler, event: dict[str, Any]) -> None:
        text = f"data: {json.dumps(event)}\n\n".encode()
        # lines need not come whole
        for piece in (text[:9], text[9:]):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


@contextmanager
def run_sse_server(speaker: SseSpeaker, socket: Path | None = None) -> Iterator[tuple[LoopbackFileServer, str]]:
    """A server while the block runs, on a unix socket or else a free port; yields what it was asked, and its place."""
    with run_file_server(socket) as files:
        for path in ("completion", "v1/completions"):
            files.serve(path, speaker.answer_completion)
        yield files, str(socket) if socket else files.url.removeprefix("http://")
