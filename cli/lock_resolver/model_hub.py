"""The hub: the files of a repository of models at a revision, asked with the hub's own client."""

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

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.minimum_throughput import AnswerThroughput, TooSlow
from rigwright.model.download_origins import HUB_ORIGIN, origin_of
from rigwright.problems import FrozenModel
from rigwright.validated_types import Count

LICENCE = 200  # characters of one that a lock takes
MOST = 16 << 20  # bytes of an answer; a list has some 400 of each file
FILES = 20_000  # of a repository
TOO_MUCH = f"at most {FILES} files in {MOST >> 20} MiB"


class HubFile(FrozenModel):
    """One file, as the hub lists it."""

    path: str
    size: Count | None
    sha256: str | None = Field(description="Only of a large one.")
    blob: str | None = Field(default=None, description="Its git object's name, only of a small one.")

    def differs_from(self, other: HubFile) -> bool:
        """Whether both are known to have different bytes."""
        pairs = ((self.sha256, other.sha256), (self.size, other.size), (self.blob, other.blob))
        return any(one != two for one, two in pairs if one is not None and two is not None)


@dataclass(frozen=True)
class HubListing:
    """A repository at one commit."""

    commit: str
    licence: str | None
    gated: bool
    files: tuple[HubFile, ...]


class _BearerAuth(requests.auth.AuthBase):
    """Not a header of the session: requests would put what ~/.netrc says in its place."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self.value}"
        return request


class _AnswerTooLong(httpx2.HTTPError):
    """An answer is longer than any that is waited for, or may become so."""


class _BoundedStream(httpx2.SyncByteStream):
    """An answer's bytes, up to so many, and no slower than the least rate."""

    def __init__(self, whole: httpx2.SyncByteStream) -> None:
        self.whole = whole

    def __iter__(self) -> Iterator[bytes]:
        left, throughput = MOST, AnswerThroughput()
        throughput.start_waiting()
        for part in self.whole:
            try:
                throughput.add_bytes(len(part))
            except TooSlow as error:
                raise httpx2.ReadTimeout(str(error)) from None
            left -= len(part)
            if left < 0:
                raise _AnswerTooLong(TOO_MUCH)
            yield part
            throughput.start_waiting()

    def close(self) -> None:
        self.whole.close()


def _limit_answer(answer: httpx2.Response) -> None:
    """Before the client reads an answer: a packed one, although a plain one was requested, is of any length."""
    if answer.request.method == "HEAD":
        return
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise _AnswerTooLong(TOO_MUCH)
    if isinstance(answer.stream, httpx2.SyncByteStream):
        answer.stream = _BoundedStream(answer.stream)


def _limit_hub_client() -> None:
    """Have the hub's client, which is one for all that ask it here, take no answer that is too long."""
    client = get_session()
    hooks = client.event_hooks
    if _limit_answer not in hooks["response"]:
        client.event_hooks = {**hooks, "response": [*hooks["response"], _limit_answer]}
        client.headers.update(downloads.UNCOMPRESSED)


@dataclass(frozen=True)
class HubEndpoint:
    """One endpoint of the hub, and its session."""

    endpoint: str = ""
    """A mirror's base address; empty for the client's own default."""
    token: str | None = field(default=None, repr=False)
    """Without one the client's own login is used, but never at a mirror: that has not been told to be trusted."""

    def __str__(self) -> str:
        return f"the hub at {self.endpoint}" if self.endpoint else "the hub"

    @property
    def _client_token(self) -> str | Literal[False]:
        # HF_ENDPOINT may have put another hub in the place of the one that the rig's token is for
        token = None if not self.endpoint and origin_of(constants.ENDPOINT) != HUB_ORIGIN else self.token
        return token or (None if self.endpoint else get_token()) or False

    @property
    def _describe_token_source(self) -> str:
        """How a token is given."""
        return "the rig's hub_token_file" + ("" if self.endpoint else ", or `hf auth login`")

    def read_listing(self, repository: str, revision: str) -> HubListing:
        """The files of a repository.

        Raises:
            DownloadUnavailable: it is not there, not for this token, or the hub does not answer.
        """
        api = HfApi(endpoint=self.endpoint or None, token=self._client_token)
        timeout = downloads.TIMEOUT[1]
        for pause in (*downloads.PAUSES, None):
            _limit_hub_client()
            try:
                info = api.model_info(repository, revision=revision, files_metadata=True, timeout=timeout)
                return _parse_listing(info)
            except HfHubHTTPError as error:
                if pause is not None and error.response.status_code in downloads.TRANSIENT_STATUSES:
                    time.sleep(pause)
                    continue
                raise self._describe_failure(error, repository, revision) from None
            except _AnswerTooLong:
                raise DownloadUnavailable(f"{self} answers with too much for {repository}: {TOO_MUCH}") from None
            except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
                raise self._describe_failure(error, repository, revision) from None
            except (ValueError, KeyError, TypeError, AttributeError):  # whatever it is, it does not speak the protocol
                raise DownloadUnavailable(f"{self} does not answer with a file list for {repository}") from None
        raise AssertionError("the last pause is none")

    def check_access(self, repository: str, commit: str, path: str) -> None:
        """See whether a file of a gated repository would be given.

        Raises:
            DownloadUnavailable: not with this token, or the hub does not answer.
        """
        url = self.file_url(repository, commit, path)
        try:
            get_hf_file_metadata(url, token=self._client_token, endpoint=self.endpoint or None, retry_on_errors=True)
        except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
            raise self._describe_failure(error, repository, commit) from None

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """A file's address."""
        return hf_hub_url(repository, path, revision=commit, endpoint=self.endpoint or None)

    def open_session(self) -> requests.Session:
        """A session for small files; the token goes nowhere but to the endpoint."""
        made = downloads.open_session()
        if self._client_token:
            made.auth = _BearerAuth(self._client_token)
        return made

    def _describe_failure(self, error: Exception, repository: str, revision: str) -> DownloadUnavailable:
        """A failed request in one sentence. Never the client's own: they are many, and name addresses."""
        if isinstance(error, OfflineModeIsEnabled):
            return DownloadUnavailable(
                "HF_HUB_OFFLINE forbids requests to the hub: unset it, and lock on a machine with a network"
            )
        if not isinstance(error, HfHubHTTPError):
            why = "timed out" if isinstance(error, httpx2.TimeoutException) else "cannot be reached"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):  # OpenSSL's word; the client has no error of its own for it
                return DownloadUnavailable(
                    f"{self} has an untrusted certificate: install its CA certificate on this machine"
                )
            other = "another one" if self.endpoint else "a mirror of it"
            return DownloadUnavailable(
                f"{self} {why}: check the network, or add {other} to the box's entry of the inventory: "
                f'"mirrors": {{"hub": ["http://..."]}}'
            )
        code = error.response.status_code
        if isinstance(error, GatedRepoError):
            if code == 401:
                return DownloadUnavailable(
                    f"{repository} is gated: request access on its page, and provide your token with "
                    f"{self._describe_token_source}"
                )
            return DownloadUnavailable(f"{repository} is gated and the token has no access: request it on its page")
        if isinstance(error, RepositoryNotFoundError):
            hidden = f"or hides it: correct its name, or provide a token with {self._describe_token_source}"
            return DownloadUnavailable(f"{self} has no repository {repository}, {hidden}", gone=True)
        if isinstance(error, RevisionNotFoundError):
            return DownloadUnavailable(f"{repository} has no revision {revision} at {self}: correct version", gone=True)
        if code == 401:
            return DownloadUnavailable(
                f"{self} no longer accepts the token: provide another one with {self._describe_token_source}"
            )
        if code == 403:
            return DownloadUnavailable(
                f"{self} refuses {repository} (403): the token needs read access to repositories"
            )
        if code == 429:
            wait = error.response.headers.get("Retry-After", "")
            when = f"in {wait} seconds" if wait.isdecimal() else "in some minutes"
            return DownloadUnavailable(f"{self} is rate-limiting (429): lock again {when}; a token raises the limit")
        later = "lock again later" if code >= 500 else "check its address"
        return DownloadUnavailable(f"{self} answers {code} for {repository}: {later}")


def _parse_listing(info: ModelInfo) -> HubListing:
    if len(info.siblings or ()) > FILES:
        raise _AnswerTooLong(TOO_MUCH)
    files = tuple(
        HubFile(
            path=one.rfilename,
            size=one.lfs.size if one.lfs else one.size,
            sha256=one.lfs.sha256 if one.lfs else None,
            blob=None if one.lfs else one.blob_id,
        )
        for one in info.siblings or ()
    )
    return HubListing(str(info.sha), _read_licence(info), bool(info.gated), files)


def _read_licence(info: ModelInfo) -> str | None:
    card = info.card_data
    value = card.get("license") if card else None
    if value == "other" and card:
        value = card.get("license_name") or value
    if value is None:
        value = next((tag.removeprefix("license:") for tag in info.tags or () if tag.startswith("license:")), None)
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return "".join(letter for letter in text if letter.isprintable())[:LICENCE] or None
