"""Downloads over HTTP: allowed origins, answers of servers, hashes and progress."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin, urlsplit

import requests
from huggingface_hub import constants
from urllib3 import Retry

from cli.lock_resolver.minimum_throughput import MIN_BYTES_PER_SECOND, MeasuringAdapter
from rigwright.model.network import DownloadNetwork
from rigwright.supply.artefact import Artefact
from roles.progress import progress
from roles.weights.host import reach

# the certificates that the system trusts, a network's own authority too; requests brings a list of its own
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
TIMEOUT = (10.0, 60.0)  # seconds: to connect, between two parts of an answer
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds after a failed attempt that brought nothing
RETRY_AFTER = 60  # seconds, the most that a server's Retry-After is followed
TRANSIENT_STATUSES = (408, 429, 500, 502, 503, 504)
GONE_STATUSES = (404, 410)
REFUSED_STATUSES = (401, 403)
CHUNK_BYTES = 1 << 20  # bytes
# compressed on the way, a file would have another length than the one it is stored with
UNCOMPRESSED = {"Accept-Encoding": "identity"}

ProgressReport = Callable[[int, int], None]
"""Gets bytes done and bytes in all, 0 if unknown."""


class DownloadUnavailable(Exception):
    """Something is not to be had; the text says why.

    `gone` tells whether its server answered that it is not there, `refused` that this client may not have it.
    """

    def __init__(self, text: str, gone: bool = False, refused: bool = False) -> None:
        super().__init__(text)
        self.gone = gone
        self.refused = refused


@dataclass(frozen=True)
class FileContent:
    """The content of a file."""

    sha256: str
    size: int


@dataclass(frozen=True)
class RemoteFileFacts:
    """A server's facts about a file, without its bytes."""

    size: int | None
    sha256: str | None


class _Session(requests.Session):
    """One whose refusals are all requests' own."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """The target of a redirect; a text that is no address cannot be asked, and is no error of a parser's."""
        try:
            target = super().get_redirect_target(resp)
            place = urlsplit(urljoin(resp.url, target or ""))
            _ = place.port
        except ValueError:
            raise requests.exceptions.InvalidURL from None
        if resp.url.lower().startswith("https:") and place.scheme != "https":
            raise requests.exceptions.InvalidSchema
        return target


def open_session() -> requests.Session:
    """A session that asks again where a server is busy; environment variables of requests are heeded."""
    made = _Session()
    retry = Retry(
        total=3,
        backoff_factor=0.3,
        status_forcelist=TRANSIENT_STATUSES,
        raise_on_status=False,
        retry_after_max=RETRY_AFTER,
    )
    for scheme in ("http://", "https://"):
        made.mount(scheme, MeasuringAdapter(max_retries=retry))
    if AUTHORITIES.exists():
        made.verify = str(AUTHORITIES)
    return made


def describe_failure(error: requests.RequestException) -> DownloadUnavailable:
    """A failed request in words. Never the library's own: they can hold an address with a password."""
    if error.response is not None:
        code = error.response.status_code
        return DownloadUnavailable(
            f"answers {code} {error.response.reason}".rstrip(), code in GONE_STATUSES, code in REFUSED_STATUSES
        )
    if (found := re.search(reach.NOT_PUBLIC, str(error))) and error.request:
        return DownloadUnavailable(
            f"leads to {found[1]}, at an address that is not public: to allow that, add it to the box's entry of the "
            f'inventory: "redirects": ["{reach.origin_of(error.request.url or "")}"]'
        )
    # urllib3's words for each read that timed out, whatever requests makes of the error
    if "Read timed out" in str(error):
        return DownloadUnavailable("timed out")
    kinds = (
        (requests.Timeout, "timed out"),
        (requests.exceptions.SSLError, "has an untrusted certificate"),
        (requests.ConnectionError, "cannot be reached"),
        (requests.exceptions.ChunkedEncodingError, "breaks off"),
        (requests.exceptions.InvalidSchema, "leads from https to another protocol, or to one that is not HTTP"),
        (requests.exceptions.InvalidURL, "leads to an invalid address"),
        (requests.TooManyRedirects, "redirects too often"),
    )
    return DownloadUnavailable(next((text for kind, text in kinds if isinstance(error, kind)), type(error).__name__))


def read_file_facts(session: requests.Session, url: str) -> RemoteFileFacts:
    """Ask a server for a file's size and hash, without its bytes.

    Raises:
        DownloadUnavailable: it does not have the file, or does not answer.
    """
    try:
        with session.head(url, allow_redirects=True, headers=UNCOMPRESSED, timeout=TIMEOUT) as answer:
            refused = answer.status_code in (403, 405, 501)  # as servers do that only give files
            if not refused:
                return _parse_file_facts(answer)
        with session.get(url, stream=True, headers=UNCOMPRESSED, timeout=TIMEOUT) as answer:
            return _parse_file_facts(answer)
    except requests.RequestException as error:
        raise describe_failure(error) from None


def _parse_file_facts(answer: requests.Response) -> RemoteFileFacts:
    answer.raise_for_status()
    # a hub names the hash of a large file where it points to its storage
    tags = [step.headers.get(name, "") for step in [*answer.history, answer] for name in ("X-Linked-ETag", "ETag")]
    hashes = [tag.strip('"') for tag in tags if re.fullmatch(r'"?[0-9a-f]{64}"?', tag)]
    return RemoteFileFacts(_content_length(answer), hashes[0] if hashes else None)


def _content_length(answer: requests.Response) -> int | None:
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        return None
    length = answer.headers.get("Content-Length", "")
    # a number of more digits counts no bytes, and Python parses none of thousands
    return int(length) if re.fullmatch("[0-9]{1,18}", length) else None


def hash_file(path: Path, report: ProgressReport) -> FileContent:
    """Hash a file of this machine.

    Raises:
        DownloadUnavailable: it cannot be read, or is empty.
    """
    digest, done = hashlib.sha256(), 0
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            while part := file.read(CHUNK_BYTES):
                digest.update(part)
                done += len(part)
                report(done, total)
    except OSError as error:
        raise DownloadUnavailable(f"{path}: {error.strerror}") from None
    if not done:
        raise DownloadUnavailable(f"{path} is empty")
    return FileContent(digest.hexdigest(), done)


def fetch_file(
    session: requests.Session, url: str, report: ProgressReport, into: BinaryIO | None = None, most: int | None = None
) -> FileContent:
    """Fetch a file to hash it. A download that was cut goes on where it was, if it is still the same file.

    Args:
        session: As `open_session` makes it.
        url: Where it is.
        report: Gets the progress.
        into: Where its bytes go; without it they are not kept.
        most: Bytes that it may have.

    Raises:
        DownloadUnavailable: the server does not have it or has more, or does not answer several times in a row.
    """
    transfer = _Transfer(session, url, report, into, most)
    failed = 0
    while True:
        before, began = transfer.done, time.monotonic()
        try:
            return transfer.fetch_once()
        except requests.RequestException as error:
            lasting = error.response is not None and error.response.status_code not in TRANSIENT_STATUSES
            # a try that brings a part and stands still then has to keep to the least rate as well
            kept_pace = transfer.done > before and transfer.done - before >= MIN_BYTES_PER_SECOND * (
                time.monotonic() - began
            )
            failed = 1 if kept_pace else failed + 1
            # a server that never answered was asked several times already: the session does that
            if lasting or not transfer.answered or failed > len(PAUSES):
                raise describe_failure(error) from None
            time.sleep(PAUSES[failed - 1])


def find_local_file(folder: Path | None, row: Artefact) -> Path | None:
    """A row's file in a folder of this machine; None where it is not there or has other bytes.

    Raises:
        DownloadUnavailable: it cannot be read, or is empty.
    """
    path = folder / row.file if folder else None
    return path if path and path.is_file() and hash_file(path, lambda *_: None).sha256 == row.sha256 else None


def fetch_locked_file(
    session: requests.Session,
    row: Artefact,
    urls: Mapping[str, str],
    path: Path,
    purpose: str,
    missing: Iterable[str] = (),
) -> Path:
    """Fetch a row's file from the first address that has its bytes.

    Args:
        session: As `open_session` makes it.
        row: The file's.
        urls: Addresses, each by what messages call it, in order.
        path: Where the file goes.
        purpose: The purpose of the file, for the row of progress.
        missing: Why further addresses are not known.

    Raises:
        DownloadUnavailable: no address has it.
    """
    failed = list(missing)
    for name, url in urls.items():
        try:
            with progress.task("lock", f"fetching {row.file}, which is {purpose}") as task, path.open("wb") as into:
                got = fetch_file(session, url, lambda at, of: task.report_done(at, of, "bytes"), into, row.size)
        except DownloadUnavailable as error:
            failed.append(f"{name} {error}")
            continue
        if got.sha256 == row.sha256:
            return path
        failed.append(f"{name} has a different file of that name")
    raise DownloadUnavailable("; ".join(failed) or "has no address here")


def read_body(answer: requests.Response, most: int) -> bytes:
    """An answer's bytes, of one that was asked for as a stream.

    Raises:
        DownloadUnavailable: they are more.
        requests.RequestException: they break off.
    """
    found = bytearray()
    for part in answer.iter_content(min(most, CHUNK_BYTES)):
        found += part
        if len(found) > most:
            raise DownloadUnavailable(
                f"answers with more than {most >> 20} MiB, and not with the few that were asked for"
            )
    return bytes(found)


def fetch_beginning(session: requests.Session, url: str, count: int) -> bytes:
    """The first bytes of a file; no more of it is taken, even where its server sends all.

    Args:
        session: As `open_session` makes it.
        url: Where it is.
        count: How many, above 0.

    Raises:
        DownloadUnavailable: the server does not have it or has fewer, or does not answer several times in a row.
    """
    asked = UNCOMPRESSED | {"Range": f"bytes=0-{count - 1}"}
    for pause in (*PAUSES, None):
        try:
            with session.get(url, stream=True, headers=asked, timeout=TIMEOUT) as answer:
                answer.raise_for_status()
                if answer.status_code == 206 and not answer.headers.get("Content-Range", "").startswith("bytes 0-"):
                    raise DownloadUnavailable("returns a different part of the file than requested")
                found = bytearray()
                for part in answer.iter_content(min(count, CHUNK_BYTES)):
                    found += part
                    if len(found) >= count:
                        return bytes(found[:count])
            raise DownloadUnavailable(f"has only {len(found)} bytes of it")
        except requests.RequestException as error:
            lasting = error.response is not None and error.response.status_code not in TRANSIENT_STATUSES
            if lasting or pause is None:
                raise describe_failure(error) from None
            time.sleep(pause)
    raise AssertionError("the last pause is none")


class _Transfer:
    """One file on its way: how much of it was hashed, and which file that was."""

    def __init__(
        self, session: requests.Session, url: str, report: ProgressReport, into: BinaryIO | None, most: int | None
    ) -> None:
        self.session, self.url, self.report, self.into, self.most = session, url, report, into, most
        self.answered = False
        self._restart_hash()

    def _restart_hash(self) -> None:
        self.digest = hashlib.sha256()
        self.done = 0
        self.total: int | None = None
        self.same = ""
        if self.into:
            self.into.seek(0)
            self.into.truncate()

    def fetch_once(self) -> FileContent:
        if not self.same:  # without a sign that it is still the same file, nothing can be added to it
            self._restart_hash()
        asked = {"Range": f"bytes={self.done}-", "If-Range": self.same} if self.done else {}
        with self.session.get(self.url, stream=True, headers=UNCOMPRESSED | asked, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:
                self._restart_hash()
                raise requests.exceptions.ChunkedEncodingError
            answer.raise_for_status()
            self.answered = True
            if not self._continues_file(answer):
                self._start_hash(answer)
            for part in answer.iter_content(CHUNK_BYTES):
                if self.most is not None and self.done + len(part) > self.most:
                    raise DownloadUnavailable(f"has more than the {self.most} bytes that are locked")
                self.digest.update(part)
                if self.into:
                    self.into.write(part)
                self.done += len(part)
                self.report(self.done, self.total or 0)
        if not self.done:
            raise DownloadUnavailable("returns an empty file")
        return FileContent(self.digest.hexdigest(), self.done)

    def _continues_file(self, answer: requests.Response) -> bool:
        if answer.status_code != 206:
            return False
        if answer.headers.get("Content-Range", "").startswith(f"bytes {self.done}-"):
            return True
        self._restart_hash()
        raise requests.exceptions.ChunkedEncodingError

    def _start_hash(self, answer: requests.Response) -> None:
        self._restart_hash()
        if answer.headers.get("Content-Type", "").startswith("text/html"):
            raise DownloadUnavailable("returns a web page instead of a file")
        tag = answer.headers.get("ETag", "")
        self.same = tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")
        self.total = _content_length(answer)


def declared_origins(networks: Iterable[DownloadNetwork], index: str) -> frozenset[str]:
    """The origins that inventories and this machine's configuration of the hub's client name, and the index's.

    Args:
        networks: Of the rigs of the inventory.
        index: The address of the package index that this machine's pip is configured to use.
    """
    bases = [index, constants.ENDPOINT]
    for network in networks:
        bases += [*network.redirects, *(base for named in network.mirrors.values() for base in named)]
    return frozenset(map(reach.origin_of, bases))
