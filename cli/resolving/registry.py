"""Registries of container images: what a tag is now, by OCI's distribution protocol."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlencode

import requests

from cli.resolving import web
from cli.resolving.folders import Wanted
from cli.resolving.web import Unavailable
from rigwright.problems import shown
from rigwright.supply import images
from rigwright.supply.artefact import MANIFEST
from rigwright.supply.lock import Artefact

ACCEPT = ", ".join((*images.INDEXES, *images.MANIFESTS))
MOST = 4 << 20  # bytes of an index or a manifest (OCI distribution specification, "Pushing manifests")
# Seconds for which a token is used: the least that one lasts is 60 (distribution's "Token authentication").
FRESH = 45.0
_PART = re.compile(r'([a-z]+)="([^"\\]*)"')


@dataclass(frozen=True)
class Place:
    """One registry's repository."""

    base: str
    repository: str
    login: str = ""
    """`USER:PASSWORD` in base64; empty where anybody may pull."""


Places = Callable[[str], Sequence[Place]]
"""Gives a source's, in order."""


class _Login(requests.auth.AuthBase):
    """Not a header of the session: requests would put what ~/.netrc says in its place."""

    def __init__(self, value: str) -> None:
        self.value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self.value:
            request.headers["Authorization"] = self.value
        return request


@dataclass
class Registries:
    """Registries, each asked as a rig would."""

    session: requests.Session
    places: Places
    _known: dict[Place, tuple[float, str]] = field(default_factory=dict)
    """Since when what is shown where."""

    def rows(self, wanted: Wanted) -> list[Artefact]:
        """The rows of what an image's tag is now, from its first source that has it.

        Raises:
            Unavailable: none has it, or it is no image for our hosts.
        """
        failed, gone = [], True
        for source in wanted.input.sources:
            places = self.places(source)
            if not places:
                failed.append(f"{source} has no address: the inventory has no such mirror")
                gone = False
            for place in places:
                try:
                    return self._rows(wanted, place)
                except Unavailable as error:
                    failed.append(f"{place.base} {error}")
                    gone = gone and error.gone
        raise Unavailable("; ".join(failed), gone=gone)

    def _rows(self, wanted: Wanted, place: Place) -> list[Artefact]:
        content, kind = self._manifest(place, str(wanted.input.version))
        try:
            if (one := images.chosen(content, kind)) is not None:
                content, kind = self._manifest(place, f"sha256:{one.sha256}")
                if (hashlib.sha256(content).hexdigest(), len(content)) != (one.sha256, one.size):
                    raise Unavailable("answers with another manifest than its index names")
            return images.rows(wanted.name, wanted.input, content, kind)
        except images.Unfit as error:
            raise Unavailable(str(error)) from None

    def blob(self, row: Artefact, place: Place) -> tuple[requests.Session, str]:
        """Who fetches a blob, and where it is."""
        session = web.session()
        session.auth = _Login(self._shown(place))
        return session, images.address(place.base, place.repository, row.sha256)

    def _manifest(self, place: Place, reference: str) -> tuple[bytes, str]:
        url = f"{place.base}/v2/{place.repository}/manifests/{reference}"
        try:
            with self.session.get(
                url,
                stream=True,
                headers=web.PLAIN | {"Accept": ACCEPT},
                auth=_Login(self._shown(place)),
                timeout=web.TIMEOUT,
            ) as answer:
                answer.raise_for_status()
                return web.body(answer, MOST), answer.headers.get("Content-Type", "")
        except requests.RequestException as error:
            raise web.unavailable(error) from None

    def _shown(self, place: Place) -> str:
        """What a registry wants to be shown of who pulls from a repository; empty where nothing."""
        since, known = self._known.get(place, (0.0, ""))
        if place not in self._known or monotonic() - since > FRESH:
            url = f"{place.base}/v2/"
            try:
                with self.session.get(url, stream=True, auth=_Login(""), timeout=web.TIMEOUT) as answer:
                    asked = answer.headers.get("WWW-Authenticate", "") if answer.status_code == 401 else ""
                    if answer.status_code in web.PASSING:
                        answer.raise_for_status()
            except requests.RequestException as error:
                raise web.unavailable(error) from None
            known = self._answered(place, asked) if asked else ""
            self._known[place] = (monotonic(), known)
        return known

    def _answered(self, place: Place, asked: str) -> str:
        """What is shown to a registry that has asked for it."""
        scheme, _, rest = asked.partition(" ")
        said = dict(_PART.findall(rest))
        realm, own = said.get("realm", ""), f"Basic {place.login}" if place.login else ""
        if scheme.lower() == "basic" and own:
            return own
        # a login is for https alone, as its registry is
        allowed = ("https://",) if own else ("https://", f"{place.base.partition(':')[0]}://")
        if scheme.lower() != "bearer" or not realm.startswith(allowed):
            raise Unavailable(
                f"asks for a login of type {shown(scheme)[:40]}: add a file with it to the rig's registries"
            )
        query = {"scope": f"repository:{place.repository}:pull"} | {
            key: said[key] for key in ("service",) if key in said
        }
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        try:
            with self.session.get(url, stream=True, auth=_Login(own), timeout=web.TIMEOUT) as answer:
                answer.raise_for_status()
                found = json.loads(web.body(answer, MOST))
        except requests.RequestException as error:
            raise Unavailable(f"names a token server that {web.unavailable(error)}") from None
        except (ValueError, RecursionError):
            found = None
        token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9._~+/=-]{1,16384}", token):
            raise Unavailable("names a token server that answers with no token")
        return f"Bearer {token}"


def moved(registries: Registries, wanted: Wanted, rows: Sequence[Artefact]) -> list[str]:
    """What of a locked image is another one now, a line each.

    Raises:
        Unavailable: no registry has it, or none answers.
    """
    locked = {row.sha256 for row in rows if row.name == MANIFEST}
    now = images.manifest(registries.rows(wanted))
    if now.sha256 in locked:
        return []
    return [f"{wanted.name}: the tag {wanted.input.version} is sha256:{now.sha256} now, and another is locked"]
