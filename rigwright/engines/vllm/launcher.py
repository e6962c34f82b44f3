"""Starts vLLM's server, with its API key out of a file and a door before all of its paths.

An instance's unit runs it by its environment's Python: launcher.py KEY_FILE, then the arguments of `vllm serve`. vLLM
itself takes keys from arguments and its environment, which others can read, and asks for them below /v1 alone, while
/invocations is a way to the same model.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from hmac import compare_digest
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# Where processes that this one starts find it: a path, which is no secret.
KEY_FILE = "RW_KEY_FILE"
# What says how it is, and nothing else.
OPEN = frozenset({"/health", "/ping", "/version", "/metrics", "/metrics/"})
REFUSED = {
    "error": {
        "message": "Incorrect API key provided.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
}


class Door:
    """Lets nobody in without the key (ASGI middleware)."""

    def __init__(self, app: App) -> None:
        self.app = app
        key = Path(os.environ[KEY_FILE]).read_text().strip()
        if not key:
            raise SystemExit(f"{os.environ[KEY_FILE]} contains no key")
        self.wanted = f"Bearer {key}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand a request on, or refuse it."""
        kind = scope["type"]
        # a browser asks beforehand without its key, and is told no more than which origins may ask
        if kind == "lifespan" or (kind == "http" and (scope["path"] in OPEN or scope["method"] == "OPTIONS")):
            await self.app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and compare_digest(given[0], self.wanted):
            await self.app(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(REFUSED).encode()})


def main() -> None:
    """Become `vllm serve`."""
    os.environ[KEY_FILE], *arguments = sys.argv[1:]
    sys.argv = ["vllm", "serve", *arguments, "--middleware", "__main__.Door"]
    from vllm.entrypoints.cli.main import main as vllm  # type: ignore[import-not-found] # of the environment

    vllm()


# vLLM's own processes import this file, too
if __name__ == "__main__":
    main()
