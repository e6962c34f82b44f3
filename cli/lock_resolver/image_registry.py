"""Registries of container images: the present image of a tag, by OCI's distribution protocol."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlencode

import requests

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_files import LockInput
from rigwright.problems import format_value
from rigwright.supply import image_manifest
from rigwright.supply.artefact import MANIFEST
from rigwright.supply.lock import Artefact

ACCEPT = ", ".join((*image_manifest.INDEXES, *image_manifest.MANIFESTS))
MOST = 4 << 20  # bytes of an index or a manifest (OCI distribution specification, "Pushing manifests")
# Seconds for which a token is used: the least that one lasts is 60 (distribution's "Token authentication").
TOKEN_LIFETIME_S = 45.0
_PART = re.compile(r'([a-z]+)="([^"\\]*)"')


@dataclass(frozen=True)
class RegistryRepository:
    """One registry's repository."""

    base: str
    repository: str
    login: str = ""
    """`USER:PASSWORD` in base64; empty where anybody may pull."""


RegistryLookup = Callable[[str], Sequence[RegistryRepository]]
"""Gives a source's, in order."""


class _HeaderAuth(requests.auth.AuthBase):
    """Not a header of the session: requests would put what ~/.netrc says in its place."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.value:
            request.headers["Authorization"] = self.value
        return request


@dataclass
class ImageResolver:
    """Registries, each asked as a rig would."""

    session: requests.Session
    places: RegistryLookup
    _known: dict[RegistryRepository, tuple[float, str]] = field(default_factory=dict)
    """Since when what is shown where."""

    def resolve_rows(self, wanted: LockInput) -> list[Artefact]:
        """The rows of what an image's tag is now, from its first source that has it.

        Raises:
            DownloadUnavailable: none has it, or it is no image for our hosts.
        """
        failed, gone = [], True
        for source in wanted.input.sources:
            places = self.places(source)
            if not places:
                failed.append(f"{source} has no address: the inventory has no such mirror")
                gone = False
            for place in places:
                try:
                    return self._repository_rows(wanted, place)
                except DownloadUnavailable as error:
                    failed.append(f"{place.base} {error}")
                    gone = gone and error.gone
        raise DownloadUnavailable("; ".join(failed), gone=gone)

    def _repository_rows(self, wanted: LockInput, place: RegistryRepository) -> list[Artefact]:
        content, kind = self._fetch_manifest(place, str(wanted.input.version))
        try:
            if (one := image_manifest.select_manifest(content, kind)) is not None:
                content, kind = self._fetch_manifest(place, f"sha256:{one.sha256}")
                if (hashlib.sha256(content).hexdigest(), len(content)) != (one.sha256, one.size):
                    raise DownloadUnavailable("answers with another manifest than its index names")
            return image_manifest.image_rows(wanted.name, wanted.input, content, kind)
        except image_manifest.UnlockableImage as error:
            raise DownloadUnavailable(str(error)) from None

    def blob_address(self, row: Artefact, place: RegistryRepository) -> tuple[requests.Session, str]:
        """The session that fetches a blob, and its address."""
        session = downloads.open_session()
        session.auth = _HeaderAuth(self._authorization(place))
        return session, image_manifest.blob_address(place.base, place.repository, row.sha256)

    def _fetch_manifest(self, place: RegistryRepository, reference: str) -> tuple[bytes, str]:
        url = f"{place.base}/v2/{place.repository}/manifests/{reference}"
        try:
            with self.session.get(
                url,
                stream=True,
                headers=downloads.UNCOMPRESSED | {"Accept": ACCEPT},
                auth=_HeaderAuth(self._authorization(place)),
                timeout=downloads.TIMEOUT,
            ) as answer:
                answer.raise_for_status()
                return downloads.read_body(answer, MOST), answer.headers.get("Content-Type", "")
        except requests.RequestException as error:
            raise downloads.describe_failure(error) from None

    def _authorization(self, place: RegistryRepository) -> str:
        """The authorization for a pull from a repository; empty if the registry wants none."""
        since, known = self._known.get(place, (0.0, ""))
        if place not in self._known or monotonic() - since > TOKEN_LIFETIME_S:
            url = f"{place.base}/v2/"
            try:
                with self.session.get(url, stream=True, auth=_HeaderAuth(""), timeout=downloads.TIMEOUT) as answer:
                    asked = answer.headers.get("WWW-Authenticate", "") if answer.status_code == 401 else ""
                    if answer.status_code in downloads.TRANSIENT_STATUSES:
                        answer.raise_for_status()
            except requests.RequestException as error:
                raise downloads.describe_failure(error) from None
            known = self._answer_challenge(place, asked) if asked else ""
            self._known[place] = (monotonic(), known)
        return known

    def _answer_challenge(self, place: RegistryRepository, asked: str) -> str:
        """The answer to a registry's challenge."""
        scheme, _, rest = asked.partition(" ")
        said = dict(_PART.findall(rest))
        realm, own = said.get("realm", ""), f"Basic {place.login}" if place.login else ""
        if scheme.lower() == "basic" and own:
            return own
        # a login is for https alone, as its registry is
        allowed = ("https://",) if own else ("https://", f"{place.base.partition(':')[0]}://")
        if scheme.lower() != "bearer" or not realm.startswith(allowed):
            raise DownloadUnavailable(
                f"asks for a login of type {format_value(scheme)[:40]}: add a file with it to the rig's registries"
            )
        query = {"scope": f"repository:{place.repository}:pull"} | {
            key: said[key] for key in ("service",) if key in said
        }
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        try:
            with self.session.get(url, stream=True, auth=_HeaderAuth(own), timeout=downloads.TIMEOUT) as answer:
                answer.raise_for_status()
                found = json.loads(downloads.read_body(answer, MOST))
        except requests.RequestException as error:
            raise DownloadUnavailable(f"names a token server that {downloads.describe_failure(error)}") from None
        except (ValueError, RecursionError):
            found = None
        token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9._~+/=-]{1,16384}", token):
            raise DownloadUnavailable("names a token server that answers with no token")
        return f"Bearer {token}"


def describe_image_changes(registries: ImageResolver, wanted: LockInput, rows: Sequence[Artefact]) -> list[str]:
    """The parts of a locked image that have changed, a line each.

    Raises:
        DownloadUnavailable: no registry has it, or none answers.
    """
    locked = {row.sha256 for row in rows if row.name == MANIFEST}
    now = image_manifest.manifest_row(registries.resolve_rows(wanted))
    if now.sha256 in locked:
        return []
    return [f"{wanted.name}: the tag {wanted.input.version} is sha256:{now.sha256} now, and another is locked"]
