"""Runs of commands that print secrets: on the operator's machine, without a terminal, bounded in time and output."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import IO

from rigwright.local_files import SecretUnavailable
from rigwright.model.secret_sources import CommandSource
from rigwright.safe_text import HIDDEN, has_secret_form, hide_tokens, printable
from roles.progress import progress

LATE = "does not end within {:g} s; it has no terminal to ask on: unlock its store in your terminal first"
TIMEOUT_S = 60.0  # seconds; the operator may have to touch a hardware key meanwhile
STDERR_BYTES = 64 << 10  # bytes of standard error that are kept for a message
STDERR_CHARACTERS = 300  # characters of it that a message repeats
HIDDEN_LENGTH = 4  # characters; a shorter piece of a secret occurs in any text


def run_secret_command(source: CommandSource, most: int) -> bytes:
    """The output of a command that prints a secret.

    Args:
        source: The command.
        most: Largest output, bytes.

    Raises:
        SecretUnavailable: the command fails, exceeds a limit or prints nothing; the text has what standard error says,
            without the secret.
    """
    program = source.find_program()
    # a passphrase is asked for in a window, or not at all: on this terminal it would stand between lines of progress
    environment = {name: value for name, value in os.environ.items() if name != "GPG_TTY"}
    try:
        process = subprocess.Popen(
            [program, *source.arguments[1:]],
            cwd=source.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise SecretUnavailable(f"does not start: {error.strerror}") from None
    end, fault, status = time.monotonic() + TIMEOUT_S, "", 0
    try:
        with progress.task("secrets", f"running {source.arguments[0]}"):
            output, errors, fault = _collect_output(process, most, end)
        if not fault:
            status = process.wait(timeout=max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        fault = LATE.format(TIMEOUT_S)
    finally:
        # also at an interrupt; a program that ends by itself may leave an agent, which keeps its keys
        if fault or process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    if status:
        fault = f"ends with exit status {status}" if status > 0 else f"ends by signal {-status}"
    if fault:
        raise SecretUnavailable(fault + _describe_errors(errors, output))
    if not output.strip():
        raise SecretUnavailable("prints nothing" + _describe_errors(errors, output))
    return output


def _collect_output(process: subprocess.Popen[bytes], most: int, end: float) -> tuple[bytes, bytes, str]:
    """Standard output and error of a process, and the limit that it exceeds; an empty text for none."""
    found = {"output": bytearray(), "errors": bytearray()}
    named = ((process.stdout, "output"), (process.stderr, "errors"))
    pipes: dict[IO[bytes], str] = {pipe: name for pipe, name in named if pipe is not None}
    while pipes:
        ready, _, _ = select.select([*pipes], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return bytes(found["output"]), bytes(found["errors"]), LATE.format(TIMEOUT_S)
        for pipe in ready:
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                del pipes[pipe]
                continue
            found[pipes[pipe]] += piece
            del found["errors"][:-STDERR_BYTES]
        if len(found["output"]) > most:
            return bytes(found["output"]), bytes(found["errors"]), f"prints more than {most} bytes"
    return bytes(found["output"]), bytes(found["errors"]), ""


def _describe_errors(errors: bytes, output: bytes) -> str:
    """The last lines of standard error for a message, without the secret."""
    text = errors.decode(errors="replace")
    for piece in sorted({*output.decode(errors="replace").split()}, key=len, reverse=True):
        text = text.replace(piece, HIDDEN) if len(piece) >= HIDDEN_LENGTH else text
    words = " ".join(text.split())
    lines = " ".join(HIDDEN if has_secret_form(word) else word for word in words.split())
    shown = printable(hide_tokens(lines))
    if len(shown) > STDERR_CHARACTERS:
        shown = f"...{shown[-STDERR_CHARACTERS:]}"
    return f": {shown}" if shown else ""
