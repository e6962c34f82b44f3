"""The launcher's door in a real server: a refusal leaves the connection as it is."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rigwright.engines.vllm import launcher

KEY = "a-key-of-the-tests"


async def _raises(request: Request) -> Response:
    kind = {"long": ValueError, "own": RuntimeError}.get(request.path_params["what"])
    if kind:
        raise kind("said")
    return JSONResponse({"is": "alive"})


async def _as_vllm(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=400 if isinstance(error, ValueError) else 500)


@pytest.fixture
def server_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server as vLLM is one: one handler for all errors, and the door as a middleware."""
    routes = [Route("/v1/{what}", _raises, methods=["POST"])]
    (tmp_path / "key").write_text(f"{KEY}\n")
    monkeypatch.setenv(launcher.KEY_FILE, str(tmp_path / "key"))
    app = Starlette(routes=routes, exception_handlers={Exception: _as_vllm}, middleware=[Middleware(launcher.Door)])
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
        server.should_exit = True
        thread.join(10)


def _ask_server(connection: HTTPConnection, what: str) -> tuple[int, bytes]:
    connection.request("POST", f"/v1/{what}", b"{}", {"Authorization": f"Bearer {KEY}"})
    told = connection.getresponse()
    return told.status, told.read()


def test_a_request_that_is_refused_leaves_the_connection_to_the_next_one(server_port: int) -> None:
    with closing(HTTPConnection("127.0.0.1", server_port, timeout=20)) as connection:
        assert _ask_server(connection, "long") == (400, b'{"error":"said"}')
        own = connection.sock
        time.sleep(0.2)  # a connection that is closed is closed by then
        assert _ask_server(connection, "chat") == (200, b'{"is":"alive"}')
        assert connection.sock is own


def test_a_fault_of_the_servers_is_raised_to_be_logged(server_port: int) -> None:
    with closing(HTTPConnection("127.0.0.1", server_port, timeout=20)) as connection:
        assert _ask_server(connection, "own") == (500, b'{"error":"said"}')
