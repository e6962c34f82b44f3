"""Asks a gateway's programs how they are, and tells keepalived by a file. Runs on the host.

Its arguments are the file, then `SOCKET PATH FALL` of each question: a unix socket, a path, and the number of failures
in a row that make the gateway unfit. The file has 0 while the gateway is fit, and 1 otherwise: at first, and after this
program has ended. Two rounds of answers make it fit again.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

EVERY, PATIENCE = 1.0, 2.0  # seconds from one round to the next, and for an answer
RISE = 2  # rounds with an answer to each question
OK = b" 200 "


@dataclass(frozen=True)
class Question:
    """A question, and its failures until the gateway is unfit."""

    socket: str
    path: str
    fall: int

    def is_answered(self) -> bool:
        """Whether the answer has the status 200."""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(self.socket)
            connection.sendall(f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return OK in connection.recv(64)[:16]
        return False


class Health:
    """The state of a gateway over rounds of questions."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.questions = questions
        self.failures = [0] * len(questions)
        self.successes = 0
        self.is_fit = False

    def ask(self) -> bool:
        """Ask a round of questions; returns whether the gateway is fit."""
        answers = [one.is_answered() for one in self.questions]
        self.failures = [0 if good else count + 1 for good, count in zip(answers, self.failures, strict=True)]
        self.successes = self.successes + 1 if all(answers) else 0
        if any(count >= one.fall for count, one in zip(self.failures, self.questions, strict=True)):
            self.is_fit = False
        elif self.successes >= RISE:
            self.is_fit = True
        return self.is_fit


def parse_questions(words: Sequence[str]) -> list[Question]:
    """The questions of a command line."""
    return [Question(words[at], words[at + 1], int(words[at + 2])) for at in range(0, len(words), 3)]


def write_state(file: str, is_fit: bool) -> None:
    """Write the state in one step: keepalived reads the file at each change."""
    opened = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(opened, b"0\n" if is_fit else b"1\n", 0)
    finally:
        os.close(opened)


def main(file: str, *words: str) -> None:
    """Ask until told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    health = Health(parse_questions(words))
    written = False
    write_state(file, written)
    try:
        while True:
            began = time.monotonic()
            if health.ask() != written:
                written = health.is_fit
                write_state(file, written)
            time.sleep(max(0.0, EVERY - (time.monotonic() - began)))
    finally:
        write_state(file, is_fit=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
