"""The hub: what a repository of models has at a revision, asked with the hub's own client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import httpx2
import requests
from huggingface_hub import HfApi, ModelInfo, constants, get_hf_file_metadata, get_session, get_token, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from pydantic import Field

from cli.resolving import web
from cli.resolving.throughput import Throughput, TooSlow
from cli.resolving.web import Unavailable
from rigwright.model.origins import HUB_ORIGIN, origin
from rigwright.problems import Frozen
from rigwright.types import Count

LICENCE = 200  # characters of one that a lock takes
MOST = 16 << 20  # bytes of an answer; a list has some 400 of each file
FILES = 20_000  # of a repository
TOO_MUCH = f"at most {FILES} files in {MOST >> 20} MiB"


class Listed(Frozen):
    """One file, as the hub lists it."""

    path: str
    size: Count | None
    sha256: str | None = Field(description="Only of a large one.")
    blob: str | None = Field(default=None, description="Its git object's name, only of a small one.")

    def is_another(self, other: Listed) -> bool:
        """Whether both are known to have different bytes."""
        pairs = ((self.sha256, other.sha256), (self.size, other.size), (self.blob, other.blob))
        return any(one != two for one, two in pairs if one is not None and two is not None)


@dataclass(frozen=True)
class Listing:
    """A repository at one commit."""

    commit: str
    licence: str | None
    gated: bool
    files: tuple[Listed, ...]


class _Bearer(requests.auth.AuthBase):
    """Not a header of the session: requests would put what ~/.netrc says in its place."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.value}"
        return request


class _TooMuch(httpx2.HTTPError):
    """An answer is longer than any that is waited for, or may become so."""


class _Bounded(httpx2.SyncByteStream):
    """An answer's bytes, up to so many, and no slower than the least rate."""

    def __init__(self, whole: httpx2.SyncByteStream) -> None:
        self.whole = whole

    def __iter__(self) -> Iterator[bytes]:
        left, throughput = MOST, Throughput()
        throughput.start_waiting()
        for part in self.whole:
            try:
                throughput.add(len(part))
            except TooSlow as error:
                raise httpx2.ReadTimeout(str(error)) from None
            left -= len(part)
            if left < 0:
                raise _TooMuch(TOO_MUCH)
            yield part
            throughput.start_waiting()

    def close(self) -> None:
        self.whole.close()


def _bound(answer: httpx2.Response) -> None:
    """Before the client reads an answer: what is packed though it was asked for plain is of any length."""
    if answer.request.method == "HEAD":
        return
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _TooMuch(TOO_MUCH)
    if isinstance(answer.stream, httpx2.SyncByteStream):
        answer.stream = _Bounded(answer.stream)


def _bounded() -> None:
    """Have the hub's client, which is one for all that ask it here, take no answer that is too long."""
    client = get_session()
    hooks = client.event_hooks
    if _bound not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [*hooks["response"], _bound]}
        client.headers.update(web.PLAIN)


@dataclass(frozen=True)
class Place:
    """One endpoint of the hub, and who asks."""

    endpoint: str = ""
    """A mirror's base address; empty for the client's own default."""
    token: str | None = field(default=None, repr=False)
    """Without one the client's own login is used, but never at a mirror: that has not been told to be trusted."""

    def __str__(self) -> str:
        return f"the hub at {self.endpoint}" if self.endpoint else "the hub"

    @property
    def _given(self) -> str | Literal[False]:
        # HF_ENDPOINT may have put another hub in the place of the one that the rig's token is for
        token = None if not self.endpoint and origin(constants.ENDPOINT) != HUB_ORIGIN else self.token
        return token or (None if self.endpoint else get_token()) or False

    @property
    def _means(self) -> str:
        """How a token is given."""
        return "the rig's hub_token_file" + ("" if self.endpoint else ", or `hf auth login`")

    def listing(self, repository: str, revision: str) -> Listing:
        """What a repository has.

        Raises:
            Unavailable: it is not there, not for this token, or the hub does not answer.
        """
        api = HfApi(endpoint=self.endpoint or None, token=self._given)
        timeout = web.TIMEOUT[1]
        for pause in (*web.PAUSES, None):
            _bounded()
            try:
                info = api.model_info(repository, revision=revision, files_metadata=True, timeout=timeout)
                return _listing(info)
            except HfHubHTTPError as error:
                if pause is not None and error.response.status_code in web.PASSING:
                    time.sleep(pause)
                    continue
                raise self._words(error, repository, revision) from None
            except _TooMuch:
                raise Unavailable(f"{self} answers with too much for {repository}: {TOO_MUCH}") from None
            except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
                raise self._words(error, repository, revision) from None
            except (ValueError, KeyError, TypeError, AttributeError):  # whatever it is, it does not speak the protocol
                raise Unavailable(f"{self} does not answer with a file list for {repository}") from None
        raise AssertionError("the last pause is none")

    def enter(self, repository: str, commit: str, path: str) -> None:
        """See whether a file of a gated repository would be given.

        Raises:
            Unavailable: not with this token, or the hub does not answer.
        """
        url = self.url(repository, commit, path)
        try:
            get_hf_file_metadata(url, token=self._given, endpoint=self.endpoint or None, retry_on_errors=True)
        except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
            raise self._words(error, repository, commit) from None

    def url(self, repository: str, commit: str, path: str) -> str:
        """A file's address."""
        return hf_hub_url(repository, path, revision=commit, endpoint=self.endpoint or None)

    def session(self) -> requests.Session:
        """What fetches small files; the token goes nowhere but to the endpoint."""
        made = web.session()
        if self._given:
            made.auth = _Bearer(self._given)
        return made

    def _words(self, error: Exception, repository: str, revision: str) -> Unavailable:
        """A failed request in one sentence. Never the client's own: they are many, and name addresses."""
        if isinstance(error, OfflineModeIsEnabled):
            return Unavailable("HF_HUB_OFFLINE forbids to ask the hub: lock without it, where there is a network")
        if not isinstance(error, HfHubHTTPError):
            why = "timed out" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):  # OpenSSL's word; the client has no error of its own for it
                return Unavailable(f"{self} has an untrusted certificate: install its CA certificate on this machine")
            other = "another one" if self.endpoint else "a mirror of it"
            return Unavailable(f'{self} {why}: check the network, or set {other}: mirrors = {{"hub": [...]}}')
        code = error.response.status_code
        if isinstance(error, GatedRepoError):
            if code == 401:
                return Unavailable(
                    f"{repository} is gated: request access on its page, and provide your token with {self._means}"
                )
            return Unavailable(f"{repository} is gated and the token has no access: request it on its page")
        if isinstance(error, RepositoryNotFoundError):
            hidden = f"or hides it: correct its name, or provide a token with {self._means}"
            return Unavailable(f"{self} has no repository {repository}, {hidden}", gone=True)
        if isinstance(error, RevisionNotFoundError):
            return Unavailable(f"{repository} has no revision {revision} at {self}: correct version", gone=True)
        if code == 401:
            return Unavailable(f"{self} no longer accepts the token: provide another one with {self._means}")
        if code == 403:
            return Unavailable(f"{self} refuses {repository} (403): its token must be one that may read repositories")
        if code == 429:
            wait = error.response.headers.get("Retry-After", "")
            when = f"in {wait} seconds" if wait.isdecimal() else "in some minutes"
            return Unavailable(f"{self} is rate-limiting (429): lock again {when}; a token raises the limit")
        later = "lock again later" if code >= 500 else "check its address"
        return Unavailable(f"{self} answers {code} for {repository}: {later}")


def _listing(info: ModelInfo) -> Listing:
    if len(info.siblings or ()) > FILES:
        raise _TooMuch(TOO_MUCH)
    files = tuple(
        Listed(
            path=one.rfilename,
            size=one.lfs.size if one.lfs else one.size,
            sha256=one.lfs.sha256 if one.lfs else None,
            blob=None if one.lfs else one.blob_id,
        )
        for one in info.siblings or ()
    )
    return Listing(str(info.sha), _licence(info), bool(info.gated), files)


def _licence(info: ModelInfo) -> str | None:
    card = info.card_data
    value = card.get("license") if card else None
    if value == "other" and card:
        value = card.get("license_name") or value
    if value is None:
        value = next((tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")), None)
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return "".join(letter for letter in text if letter.isprintable())[:LICENCE] or None
