"""Where wheels and conda packages are: pages of package indexes, each asked once a run, and conda's channels."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from .answers import describe_http_error, is_transient
from .http import CUT_OFF, TOO_SLOW, CurlResult, FileAddress, get_document
from .records import LockedFile
from .simple import ACCEPT, IndexFile, parse_index_page
from .spec import FetchRefused, FetchSpec, FileSource

MOST = 16 << 20
"""Bytes of a page; those of the projects with most files have half of it."""
LONGEST = 300
"""Seconds for a page."""
PROGRAM = Path(__file__).with_name("defaults.py")
CachedAnswer = TypeVar("CachedAnswer")


class PackageSources:
    """The indexes and channels of one run."""

    def __init__(self, spec: FetchSpec) -> None:
        self.python, self.pace, self.redirects = spec.package_python, spec.pace, spec.redirects
        sources = [source for wanted in spec.files for source in wanted.sources]
        self.names = frozenset(source.file for source in sources if source.kind == "index")
        self.lock = threading.Lock()
        self.turns: dict[tuple[str, ...], threading.Lock] = {}
        self.known: dict[tuple[str, ...], Any] = {}

    def resolve_package_address(self, source: FileSource, file: LockedFile) -> FileAddress:
        """Where a file is.

        Args:
            source: of kind index or channel.
            file: the locked one.

        Raises:
            FetchRefused: no source names an address, or the index has another file of this name.
        """
        if source.kind == "channel":
            bases = [source.base] if source.base else self._host_defaults("channel", source.channel)
            if not bases:
                raise FetchRefused("py-rattler does not say where it is")
            bare, login = _split_credentials(bases[0])
            return FileAddress(f"{bare}/{quote(source.file)}", login=login)
        reasons = []
        for base in [source.base] if source.base else self._host_defaults("index"):
            try:
                return self._address_in_index(base, source, file)
            except FetchRefused as error:
                reasons.append(str(error))
        raise FetchRefused("; ".join(reasons) or "pip of this host is configured to ask no index")

    def _address_in_index(self, base: str, source: FileSource, file: LockedFile) -> FileAddress:
        bare, login = _split_credentials(base)
        url = f"{bare}/{quote(source.project)}/"
        found = self._compute_once(("page", base, source.project), lambda: self._read_project_page(url, login)).get(
            source.file, []
        )
        if not found:
            raise FetchRefused(f"{source.project} has no file {source.file} there")
        for one in found:
            if one.sha256 in ("", file.sha256):
                return FileAddress(one.url, led_from=url, login=login)
        raise FetchRefused(
            f"it has SHA-256 {found[0].sha256} there, and the lock has {file.sha256}: nothing was fetched"
        )

    def _read_project_page(self, url: str, login: str) -> dict[str, list[IndexFile]]:
        """The files of a project that this run wants.

        Raises:
            FetchRefused: the index does not answer, or with something else.
        """
        pace = self.pace
        rest = (f"max-time = {LONGEST}", f"speed-limit = {pace.least}", f"speed-time = {pace.longest}")
        options = (f'header = "Accept: {ACCEPT}"', "compressed", *rest)
        for count in range(pace.tries):
            answer = get_document(url, pace, most=MOST, options=options, redirects=self.redirects, login=login)
            if answer.exit == 0:
                return parse_index_page(answer.content_type, answer.body, answer.url, self.names)
            if answer.exit in CUT_OFF:
                raise FetchRefused(f"its page has more than {MOST >> 20} MiB")
            if answer.exit == TOO_SLOW or (answer.status >= 400 and not is_transient(answer.status)):
                break
            if count + 1 < pace.tries:
                time.sleep(pace.pause)
        raise FetchRefused(_describe_index_error(answer))

    def _host_defaults(self, *asked: str) -> list[str]:
        """The host's own defaults."""
        return self._compute_once(asked, lambda: self._run_defaults_program(asked))

    def _run_defaults_program(self, asked: tuple[str, ...]) -> list[str]:
        if not self.python:
            raise FetchRefused(
                f"no mirror is named for it, and no Python is there that knows this host's own {asked[0]}"
            )
        try:
            command = [self.python, "-I", str(PROGRAM), *asked]
            ran = subprocess.run(command, capture_output=True, timeout=60, check=True)
            bases = json.loads(ran.stdout)
            if not (isinstance(bases, list) and all(isinstance(base, str) for base in bases)):
                raise ValueError
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise FetchRefused(f"{self.python} does not say which {asked[0]} this host asks by itself") from error
        usable = [base for base in bases if urlsplit(base).scheme in ("http", "https")]
        if bases and not usable:
            raise FetchRefused(
                f"this host's own {asked[0]} has no http(s) address, but one of {urlsplit(bases[0]).scheme}"
            )
        return usable

    def _compute_once(self, key: tuple[str, ...], ask: Callable[[], CachedAnswer]) -> CachedAnswer:
        """Compute a value once a run; other callers wait for that.

        Raises:
            FetchRefused: the first refusal, each time.
        """
        with self.lock:
            turn = self.turns.setdefault(key, threading.Lock())
        with turn:
            if key not in self.known:
                try:
                    self.known[key] = ask()
                except FetchRefused as error:
                    self.known[key] = error
        found = self.known[key]
        if isinstance(found, FetchRefused):
            raise FetchRefused(str(found))
        return found  # type: ignore[no-any-return]


def _split_credentials(base: str) -> tuple[str, str]:
    """An address without the user and password that pip's configuration may have in it, and these."""
    parts = urlsplit(base)
    login, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl().rstrip("/"), unquote(login)


def _describe_index_error(answer: CurlResult) -> str:
    return describe_http_error(answer.status) if answer.status >= 400 else answer.said
