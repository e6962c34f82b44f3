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
FAULT = 500
"""The first status that is a server's fault."""
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
        if scope.get("method") == "HEAD":
            # vLLM's paths take GET alone (FastAPI); uvicorn, which keeps its own scope, leaves the body out
            scope = {**scope, "method": "GET"}
        # a browser asks beforehand without its key, and is told no more than which origins may ask
        if kind == "lifespan" or (kind == "http" and (scope["path"] in OPEN or scope["method"] == "OPTIONS")):
            await self.app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and compare_digest(given[0], self.wanted):
            await (self._answer if kind == "http" else self.app)(scope, receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(REFUSED).encode()})

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand a request on; what vLLM refuses by an error is answered here, as vLLM would.

        It has one handler for errors of all kinds, a prompt that is too long among them. Starlette calls that outside
        of everything else and raises the error again, upon which uvicorn closes the connection without having said so:
        a client's next request on it is lost.
        """
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception as error:
            handlers = getattr(scope.get("app"), "exception_handlers", {})
            if begun or Exception not in handlers:
                raise
            from starlette.requests import Request  # of the environment

            response = await handlers[Exception](Request(scope, receive), error)
            # what is the server's own fault is for its log, with all that led to it
            if response.status_code >= FAULT:
                raise
            await response(scope, receive, send)


def main() -> None:
    """Become `vllm serve`."""
    os.environ[KEY_FILE], *arguments = sys.argv[1:]
    sys.argv = ["vllm", "serve", *arguments, "--middleware", "__main__.Door"]
    from vllm.entrypoints.cli.main import main as vllm  # type: ignore[import-not-found] # of the environment

    vllm()


# vLLM's own processes import this file, too
if __name__ == "__main__":
    main()
