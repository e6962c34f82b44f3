"""The program that asks a gateway's sockets for keepalived."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.gateway.gateway_units import HEALTH_PROGRAM
from roles.gateway.host.health import Health, Question, write_state
from tests.hosts.support import wait_until


class SocketServer:
    """A server on a unix socket, a stand-in for a gateway's program, which answers each request with one text."""

    def __init__(self, path: Path) -> None:
        self.answer = b""
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        """Answer until the socket is closed."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(self.answer)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SocketServer]:
    made = SocketServer(tmp_path / "s")
    yield made
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()


GOOD, BAD = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 Service Unavailable\r\n\r\n"


def test_two_rounds_make_it_fit_and_failures_in_a_row_unfit(server: SocketServer, tmp_path: Path) -> None:
    health = Health([Question(str(tmp_path / "s"), "/health", 3)])
    found = []
    for answer in (GOOD, GOOD, BAD, BAD, GOOD, BAD, BAD, BAD, GOOD, GOOD):
        server.answer = answer
        found.append(health.ask())
    assert found == [False, True, True, True, True, True, True, False, False, True]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 2000 OK", b"HTTP/1.1 404 200 ", b"\0" * 64, b"x" * 100_000])
def test_another_answer_is_none(server: SocketServer, tmp_path: Path, answer: bytes) -> None:
    server.answer = answer
    assert not Question(str(tmp_path / "s"), "/health", 1).is_answered()


def test_each_question_has_its_own_patience(tmp_path: Path) -> None:
    health = Health([Question(str(tmp_path / "none"), "/", 5), Question(str(tmp_path / "none"), "/", 2)])
    health.is_fit = True
    assert [health.ask(), health.ask()] == [True, False]


def test_the_file_has_one_of_two_texts(tmp_path: Path) -> None:
    file = tmp_path / "state"
    for is_fit, text in ((False, "1\n"), (True, "0\n"), (False, "1\n")):
        write_state(str(file), is_fit)
        assert file.read_text() == text


def test_the_program_leaves_the_gateway_unfit(server: SocketServer, tmp_path: Path) -> None:
    server.answer, file = GOOD, tmp_path / "state"
    words = [sys.executable, "-I", "-S", "-B", str(HEALTH_PROGRAM), str(file), str(tmp_path / "s"), "/health", "3"]
    process = subprocess.Popen(words)
    try:
        wait_until(lambda: file.exists() and file.read_text() == "0\n", "the gateway is fit", limit=20)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
    assert file.read_text() == "1\n"
