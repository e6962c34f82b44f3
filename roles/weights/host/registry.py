"""Blobs of container images: registries that ask for a token give one to any client that may pull (distribution's
specification, "Token authentication"), each for one repository and for minutes.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import urlencode

from .answers import describe_http_error, is_transient
from .http import (
    CUT_OFF,
    MOST_WITHOUT_BYTES,
    UNTRUSTED,
    CurlResult,
    FileAddress,
    download_part,
    file_size,
    follow_redirects,
    get_document,
)
from .reach import UnsafeRedirect, origin_of, redirect_options
from .records import LockedFile
from .spec import DiskFull, FetchRefused, FetchSpec, FileSource

FRESH = 45.0
"""Seconds for which a token is used: the least that one lasts is 60."""
LONGEST = 60
"""Seconds for an answer."""
_PART = re.compile(r'([a-z]+)="([^"\\]*)"')


@dataclass(frozen=True)
class RegistryAccess:
    """How one repository is entered."""

    token: str = ""
    login: str = ""
    """`USER:PASSWORD`, where it asks for these with each request."""
    until: float = 0.0


class RegistryClient:
    """Those of one run."""

    def __init__(self, spec: FetchSpec, credentials: str) -> None:
        self.pace, self.redirects, self.credentials = spec.pace, spec.redirects, credentials
        self.lock = threading.Lock()
        self.known: dict[tuple[str, str], RegistryAccess] = {}

    def fetch_blob(self, source: FileSource, file: LockedFile, part: Path, *, last: bool) -> int:
        """Fetch a blob into a part; a token is good for minutes, and a large one takes longer.

        Args:
            source: of kind registry.
            file: the locked one.
            part: may hold the beginning already.
            last: there is no other source.

        Returns:
            how many answers the bytes came from.

        Raises:
            FetchRefused: the registry does not bring it, or refuses the client.
            DiskFull: there is no room.
        """
        url = f"{source.base}/v2/{source.repository}/blobs/sha256:{file.sha256}"
        answers, anybodys = 0, not source.login
        while True:
            way, before = self._cached_access(source), file_size(part)
            address = FileAddress(url, login=way.login)
            try:
                return answers + download_part(
                    address,
                    part,
                    file.size,
                    self.pace,
                    last=last,
                    token=way.token,
                    anybodys=anybodys,
                    redirects=self.redirects,
                )
            except DiskFull:
                raise
            except FetchRefused:
                if not way.token or file_size(part) <= before:
                    raise
                answers += 1
                with self.lock:
                    self.known.pop((source.base, source.repository), None)

    def _cached_access(self, source: FileSource) -> RegistryAccess:
        key = (source.base, source.repository)
        with self.lock:
            way = self.known.get(key)
            if way is None or way.until < time.monotonic():
                way = self.known[key] = self._request_access(source)
        return way

    def _request_access(self, source: FileSource) -> RegistryAccess:
        answer = self._probe_registry(f"{source.base}/v2/")
        if answer.exit in CUT_OFF:
            raise FetchRefused(f"it answers with more than {MOST_WITHOUT_BYTES >> 20} MiB, which is no registry's way")
        if answer.status == 401:
            scheme, _, rest = answer.headers.get("www-authenticate", "").partition(" ")
            said = dict(_PART.findall(rest))
            if scheme.lower() == "basic":
                if not source.login:
                    raise FetchRefused("it asks for user and password: name a file with them among the registries")
                return RegistryAccess(login=self._read_login(source), until=time.monotonic() + FRESH)
            if scheme.lower() == "bearer" and "realm" in said:
                return RegistryAccess(self._request_token(source, said), until=time.monotonic() + FRESH)
            raise FetchRefused("it asks for credentials of an unknown kind")
        if not answer.status:
            more = ": if that is a network's own authority, name it as ca_file" if answer.exit == UNTRUSTED else ""
            raise FetchRefused(f"{answer.said}{more}")
        if is_transient(answer.status) or answer.status == 403:
            raise FetchRefused(describe_http_error(answer.status))
        # some servers have the blobs and no more of a registry
        return RegistryAccess(until=time.monotonic() + FRESH)

    def _read_login(self, source: FileSource) -> str:
        """`USER:PASSWORD` for a registry; empty without one."""
        if not source.login:
            return ""
        if not source.base.startswith("https://"):
            raise FetchRefused("the login is not sent over plain http")
        try:
            return base64.b64decode(Path(self.credentials, source.login).read_text()).decode()
        except (OSError, ValueError) as error:
            raise FetchRefused("its login was not sent: deploy again") from error

    def _probe_registry(self, url: str) -> CurlResult:
        limits = (f"max-time = {LONGEST}", f"connect-timeout = {self.pace.connect}")
        for count in range(self.pace.tries):
            # the data is unused, but without a reader it has no bound
            with NamedTemporaryFile() as body:
                options = [*limits, f'output = "{body.name}"']
                answer = follow_redirects(FileAddress(url), options, MOST_WITHOUT_BYTES, redirects=self.redirects)
            if answer.exit in CUT_OFF or (answer.status and not is_transient(answer.status)):
                break
            if count + 1 < self.pace.tries:
                time.sleep(self.pace.pause)
        return answer

    def _request_token(self, source: FileSource, said: dict[str, str]) -> str:
        """Ask the token server that the registry names for a token to pull with."""
        realm = said["realm"]
        asked = {"scope": f"repository:{source.repository}:pull"}
        asked |= {"service": said["service"]} if "service" in said else {}
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}"
        try:
            pinned = redirect_options(url, f"{source.base}/v2/", self.redirects | {origin_of(source.base)})
        except UnsafeRedirect as error:
            raise FetchRefused(f"its token server: {error}") from None
        login = self._read_login(source)
        if login and not realm.startswith("https://"):
            raise FetchRefused("it names a token server without https, to which no login is sent")
        options = (f"max-time = {LONGEST}", *pinned)
        answer = get_document(url, self.pace, options=options, redirects=self.redirects, login=login)
        if answer.exit != 0:
            raise FetchRefused(
                f"its token server: {describe_http_error(answer.status) if answer.status >= 400 else answer.said}"
            )
        try:
            found = json.loads(answer.body)
            token = found.get("token") or found.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9._~+/=-]{1,16384}", token):
            raise FetchRefused(f"its token server {origin_of(realm)} answers with no token")
        return token
