"""How checks ask an instance that may have been taken over."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from checks.test_serving import ANSWER, asking
from rigwright.engines.request import ONE_TOKEN
from tests.unit.file_server import FileServer, Handler, file_server, whole

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the command gives root away before it connects")

COMPLETIONS = ONE_TOKEN.path.lstrip("/")
GROUP = "daemon"  # stands in for the instance's own


@pytest.fixture
def at() -> Iterator[Path]:
    """An instance's socket, where others than root come to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder, "api.sock")


@pytest.fixture
def server(at: Path) -> Iterator[FileServer]:
    """Who listens there."""
    with file_server(at) as found:
        at.chmod(0o777)
        yield found


def asked(at: Path, folder: Path) -> bytes:
    """What the command prints."""
    (folder / "key").write_text('a"key\\\n')
    command = asking(ONE_TOKEN.config(str(at)), str(folder / "key"), GROUP)
    return subprocess.run(["sh", "-c", command], capture_output=True, timeout=20, check=False).stdout


def test_the_key_goes_with_the_request_and_the_answer_comes_back(server: FileServer, at: Path, tmp_path: Path) -> None:
    server.serve(COMPLETIONS, whole(b"{}"))
    assert asked(at, tmp_path) == b"{}"
    assert server.asked[0].authorization == 'Bearer a"key\\'


def test_an_answer_without_end_is_read_so_far(server: FileServer, at: Path, tmp_path: Path) -> None:
    def endless(handler: Handler, start: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            while True:
                handler.wfile.write(bytes(1 << 20))

    server.serve(COMPLETIONS, endless)
    assert len(asked(at, tmp_path)) == ANSWER


def test_it_is_asked_by_nobody_wherever_its_sockets_name_may_lead(server: FileServer, at: Path, tmp_path: Path) -> None:
    found = []

    def seen(handler: Handler, start: int) -> None:
        found.append(struct.unpack("3i", handler.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:])
        handler.begin(200, 0)

    server.serve(COMPLETIONS, seen)
    asked(at, tmp_path)
    assert found == [(pwd.getpwnam("nobody").pw_uid, grp.getgrnam(GROUP).gr_gid)]
