"""Bytes over HTTP with curl, going on where an earlier try ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from .answers import describe_http_error, is_transient, retry_delay
from .reach import UnsafeRedirect, origin_of, redirect_options
from .spec import DiskFull, FetchRefused, TransferLimits

# exit statuses of curl(1)
NO_HOST, NO_CONNECTION, NOT_WRITTEN, TOO_SLOW, NO_RESUME, REDIRECTED, UNTRUSTED = 6, 7, 23, 28, 33, 47, 60
CUT_OFF = (NOT_WRITTEN, -signal.SIGXFSZ)
"""No room, or more bytes than it may write."""
REDIRECTS = 10
"""That are followed, one after the other."""
MOST_WITHOUT_BYTES = 1 << 20
"""Bytes of an answer that is not a model's file."""


@dataclass
class CurlResult:
    """How one request ended."""

    exit: int
    """curl's exit status; negative: the signal that ended it."""
    status: int = 0
    redirects: int = 0
    leads: str = ""
    """Where a redirect would go, if the answer is one."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the last answer, names in lower case."""
    body: bytes = b""
    content_type: str = ""
    url: str = ""
    """Of the last answer."""
    said: str = ""


@dataclass(frozen=True)
class FileAddress:
    """Where a file is."""

    url: str
    led_from: str = ""
    """Its source; empty where it is the operator or the lock. It is judged as a redirect from there."""
    locked: bool = False
    """Whether the lock has named it: it is judged as a redirect is, and its origin counts for nothing."""
    login: str = ""
    """`USER:PASSWORD` for the origin of what has named it, and no other."""


def bounded_command(size: int) -> list[str]:
    """A command's beginning: it ends with this program, and writes no file of more bytes than this.

    A server that sends without end would fill the disk. Without the first part an orphan would go on writing into a
    file that the next run reads.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", "prlimit", f"--fsize={size}:{size}", "--"]


def file_size(path: Path) -> int:
    """Bytes of a file; 0 without one."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def get_document(
    url: str,
    pace: TransferLimits,
    *,
    most: int = MOST_WITHOUT_BYTES,
    options: Sequence[str] = (),
    redirects: frozenset[str] = frozenset(),
    login: str = "",
) -> CurlResult:
    """Get a document.

    Args:
        url: address.
        pace: how patient to be.
        most: bytes.
        options: of curl's, over those that are for small ones.
        redirects: origins that it may lead to although they are not public.
        login: `USER:PASSWORD` for the address's own origin, and no other.

    Raises:
        FetchRefused: the address leads to where it must not.
    """
    usual = [f"max-time = {max(5, pace.connect)}", f"connect-timeout = {pace.connect}"]
    return follow_redirects(FileAddress(url, login=login), [*usual, *options], most, body=True, redirects=redirects)


def download_part(
    url: str | FileAddress,
    part: Path,
    size: int,
    pace: TransferLimits,
    *,
    last: bool,
    token: str = "",
    anybodys: bool = False,
    hub: bool = False,
    redirects: frozenset[str] = frozenset(),
) -> int:
    """Fetch into a part until it has as many bytes as the locked file, or the server says that it is whole.

    Each try begins at the address given, so an address that was signed for a while is signed anew.

    Args:
        url: address, whose source messages may name.
        part: may hold the beginning already.
        size: bytes of the locked file.
        pace: how patient to be.
        last: there is no other source.
        token: for the address's own origin, and no other.
        anybodys: whether the registry gives the token to every client.
        hub: whether the server is a hub.
        redirects: origins that it may lead to although they are not public.

    Returns:
        how many answers the bytes came from.

    Raises:
        FetchRefused: the source does not bring it.
        DiskFull: there is no room.
    """
    address = url if isinstance(url, FileAddress) else FileAddress(url)
    if token and not anybodys and not address.url.startswith("https://"):
        raise FetchRefused("the token is not sent over plain http")
    rate, seconds = (pace.least, pace.longest) if last else (pace.slowest, pace.seconds)
    options = [
        "continue-at = -",
        f"output = {_quote_config(str(part))}",
        f"connect-timeout = {pace.connect}",
        f"speed-limit = {rate}",
        f"speed-time = {seconds}",
    ]
    tries = answers = anew = 0
    grown = False
    reason = ""
    while tries < pace.tries:
        before, began = file_size(part), time.monotonic()
        if before >= size:
            return answers
        # a download at the allowed rates is done long before; data that curl takes and does not write counts as speed,
        # too
        most = f"max-time = {2 * (size - before) // rate + seconds + pace.connect}"
        answer = follow_redirects(address, [*options, most], size + 1, token=token, redirects=redirects)
        grown = file_size(part) > before
        answers += grown
        if answer.exit == 0:
            return answers
        wait = pace.pause
        if answer.exit == NO_RESUME or answer.status == 416:
            # the whole is fetched again: the server cannot go on, or has fewer bytes than are here
            part.unlink(missing_ok=True)
            anew += 1
            reason = "it cannot go on where an earlier download ended"
        elif file_size(part) > size:
            return answers
        elif answer.exit in CUT_OFF:
            raise DiskFull(answer.said)
        elif answer.status >= 400:
            reason = describe_http_error(answer.status, *_explain_failure(answer), hub=hub)
            # after a redirect it was a signed address that is refused, and the next try gets another
            if not is_transient(answer.status) and not (answer.redirects and answer.status in (400, 401, 403)):
                raise FetchRefused(reason)
            wait = retry_delay(answer.headers.get("retry-after", ""), pace.pause, pace.retry_after)
        elif answer.exit == UNTRUSTED:
            raise FetchRefused(f"{answer.said}: if that is a network's own authority, name it as ca_file")
        elif answer.exit == TOO_SLOW and not last:
            raise FetchRefused(f"slower than {rate / 1024:.0f} KiB/s for {seconds} s")
        else:
            reason = answer.said
        # bytes that were had before are no progress: a server that always breaks off there would be asked for ever. So
        # would one that sends a byte and then nothing: a try, with the pause after it, has to keep to the rate
        keeps_pace = grown and file_size(part) - before >= rate * (time.monotonic() - began + wait)
        tries = anew if keeps_pace else tries + 1
        if tries < pace.tries:
            time.sleep(wait)
    brought = f"slower than {rate / 1024:.0f} KiB/s" if grown else "without a new byte"
    raise FetchRefused(f"{reason or 'no more bytes'}; given up after {pace.tries} tries {brought}")


def _explain_failure(answer: CurlResult) -> tuple[str, str]:
    return answer.headers.get("x-error-code", ""), answer.headers.get("x-error-message", "")


def follow_redirects(
    address: FileAddress,
    options: list[str],
    most: int,
    token: str = "",
    body: bool = False,
    redirects: frozenset[str] = frozenset(),
) -> CurlResult:
    """Ask an address, and wherever it leads; curl itself would go anywhere, and look every name up anew.

    Raises:
        FetchRefused: it leads to where it must not.
    """
    url, before = address.url, address.led_from
    own = origin_of(before or url)
    private = [f"header = {_quote_config(f'Authorization: Bearer {token}')}"] if token else []
    private += [f"user = {_quote_config(address.login)}"] if address.login else []
    declared = redirects if address.locked else redirects | {own}
    for count in range(REDIRECTS + 1):
        try:
            pinned = redirect_options(url, before, declared) if before or address.locked else []
        except UnsafeRedirect as error:
            raise FetchRefused(f"not followed: {error}") from None
        answer = _run_curl(url, [*options, *pinned, *(private if origin_of(url) == own else ())], most, body)
        answer.redirects, answer.url = count, url
        if not answer.leads:
            return answer
        url, before = answer.leads, url
    return replace(answer, said=f"more than {REDIRECTS} redirects")


def _run_curl(url: str, options: list[str], most: int, body: bool) -> CurlResult:
    """Run curl once. All goes in by its standard input: arguments are there for everyone to read."""
    lines = [
        f"url = {_quote_config(url)}",
        "fail",
        "globoff",
        "silent",
        "show-error",
        # without the first, the body of a redirect would be written as if it was the file's
        "location",
        "max-redirs = 0",
        'proto = "=http,https"',
        *options,
    ]
    if body:
        lines.append('write-out = "\\n%{content_type}\\n%{http_code} %{redirect_url}"')
    else:
        lines += ["dump-header = -", 'write-out = "%{http_code} %{redirect_url}"']
    # a body goes to a file, for the bound does not hold for a pipe; curl itself bounds headers
    with TemporaryFile() if body else nullcontext(subprocess.PIPE) as output:
        ran = subprocess.run(
            # its own configuration files are another person's
            [*bounded_command(most), "curl", "--disable", "--config", "-"],
            input="\n".join(lines).encode(),
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
        printed = ran.stdout if isinstance(output, int) else _read_output(output)
    said, _, end = printed.rpartition(b"\n")
    status, _, leads = end.decode("utf-8", "replace").partition(" ")
    content, _, kind = said.rpartition(b"\n") if body else (b"", b"", b"")
    return CurlResult(
        exit=ran.returncode,
        # a body that was cut off ends in its own words
        status=int(status) if re.fullmatch("[0-9]{3}", status) and not (body and ran.returncode in CUT_OFF) else 0,
        leads=leads if ran.returncode == REDIRECTED else "",
        headers={} if body else _parse_headers(said.decode("latin-1")),
        body=content,
        content_type=kind.decode("latin-1"),
        said=_parse_curl_error(ran.stderr.decode("utf-8", "replace")),
    )


def _read_output(output: IO[bytes]) -> bytes:
    output.seek(0)
    return output.read()


def _parse_curl_error(text: str) -> str:
    """Why curl failed: its own line, of several that may follow with advice."""
    found = re.search(r"^curl: \(\d+\) (.+)", text, re.MULTILINE)
    return found[1].strip() if found else text.strip().rpartition("\n")[2]


def _parse_headers(text: str) -> dict[str, str]:
    """The last answer's headers of the text that curl wrote of all answers."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("HTTP/"):
            found = {}
        elif ":" in line:
            name, _, value = line.partition(":")
            found[name.strip().lower()] = value.strip()
    return found


def _quote_config(text: str) -> str:
    """A value in curl's configuration: curl(1), `--config`."""
    if any(ord(character) < 32 for character in text):
        raise FetchRefused("an address, a path or the token holds a line break or another control character")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def available_bytes(path: Path) -> int:
    """Bytes that may still be written."""
    there = os.statvfs(path)
    return there.f_bavail * there.f_frsize
