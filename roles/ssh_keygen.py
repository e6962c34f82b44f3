"""Runs of ssh-keygen, which signs and verifies."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rigwright.safe_text import printable
from rigwright.signing.refusals import SignatureRefused

TIMEOUT_S = 30  # of a verification; signing waits for a passphrase or a touch


def run_ssh_keygen(
    arguments: Sequence[str], data: bytes, files: Mapping[str, str] | None = None, *, is_signing: bool = False
) -> tuple[bytes, str]:
    """Run ssh-keygen in a temporary folder.

    Args:
        arguments: Its arguments; files are relative to the temporary folder.
        data: Its standard input.
        files: Name -> content of the files in that folder.
        is_signing: Whether it may wait for a passphrase or a touch without a time limit.

    Returns:
        Its standard output, and the last line of its standard error: "" if it succeeds.

    Raises:
        SignatureRefused: it is not installed, or does not end.
    """
    environment = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    with tempfile.TemporaryDirectory(prefix="rigwright-sign-") as folder:
        for name, content in (files or {}).items():
            Path(folder, name).write_text(content)
        try:
            done = subprocess.run(
                ["ssh-keygen", *arguments],
                input=data,
                capture_output=True,
                check=False,
                cwd=folder,
                env=environment,
                timeout=None if is_signing else TIMEOUT_S,
            )
        except FileNotFoundError:
            raise SignatureRefused("no_program", "ssh-keygen is not installed: apt install openssh-client") from None
        except subprocess.TimeoutExpired:
            raise SignatureRefused("no_program", f"ssh-keygen does not end within {TIMEOUT_S} s") from None
    return done.stdout, _last_line(done.stderr) if done.returncode else ""


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return printable(lines[-1].strip())[:200] if lines else "it failed without a message"
