"""API keys, where systemd reads them and nobody else."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from roles.operations.files import PathEntriesFact, PathEntry

# A power cut can leave a file without its content, and llama-server takes an empty key file for "no key needed".
EMPTY = {hashlib.sha256(text).hexdigest() for text in (b"", b"\n")}


@operation()
def install_credentials(keys: Mapping[str, str | None]) -> Generator[StringCommand, None, None]:
    """Put API keys where systemd reads them, or have the host make some that never leave it.

    A key travels through standard input: arguments are seen by every process, and by logs.

    + keys: the key's file, to have mode 600 -> the key; None keeps the one that is there, or makes 256 random bits
    """
    found = host.get_fact(PathEntriesFact, paths=list(keys)) if keys else {}
    wrong = {path: key for path, key in keys.items() if not _is_as_declared(found.get(path, PathEntry()), key)}
    if not wrong:
        host.noop(f"{len(keys)} keys are in place")
    for path, key in wrong.items():
        place, new = QuoteString(path), QuoteString(f"{path}.rigwright-new")
        settle = ("&& chmod 600", new, "&& chown root:root", new, "&& sync -d", new, "&& mv -fT", new, place)
        if key is not None:
            yield StringCommand("umask 077 && cat >", new, *settle, _stdin=[f"{key}\n"])
        elif _is_present(found.get(path, PathEntry())):
            yield StringCommand("chmod 600", place, "&& chown root:root", place)
        else:
            made = "umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >"
            yield StringCommand(made, new, "&& echo >>", new, *settle)


def _is_present(entry: PathEntry) -> bool:
    return entry.kind == "file" and entry.sha256 not in EMPTY


def _is_as_declared(entry: PathEntry, key: str | None) -> bool:
    kept = key is None or entry.sha256 == hashlib.sha256(f"{key}\n".encode()).hexdigest()
    return _is_present(entry) and (entry.mode, entry.user) == ("600", "root") and kept
