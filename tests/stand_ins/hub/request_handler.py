"""How a local hub answers: its API, where files are, and their bytes."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.stand_ins.hub.faults import BrokenXet, ExpiredSignature
from tests.stand_ins.hub.file_handler import FileRequestHandler
from tests.stand_ins.hub.repositories import StandInRepository, StoredFile
from tests.stand_ins.hub.stand_in_server import StandInServer

_NAME = r"(?P<name>[^/]+/[^/]+)"
_API = re.compile(rf"/api/models/{_NAME}(?:/(?P<what>revision|tree)/(?P<revision>[^/]+))?")
_XET = re.compile(rf"/api/models/{_NAME}/xet-read-token/(?P<revision>[^/]+)")
_RESOLVE = re.compile(rf"/{_NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", re.DOTALL)
_CDN = re.compile(rf"/cdn/(?P<sha256>[0-9a-f]{{64}})/{_NAME}/(?P<commit>[0-9a-f]{{40}})/(?P<path>.+)", re.DOTALL)


class HubRequestHandler(FileRequestHandler):
    """One connection."""

    hub: StandInHub
    cdn = False

    def answer_request(self) -> None:
        """By what the address is of."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        routes = (
            ((_CDN, self._answer_signed),)
            if self.cdn
            else ((_XET, self._answer_xet), (_API, self._answer_api), (_RESOLVE, self._answer_resolve))
        )
        for pattern, answer in routes:
            if found := pattern.fullmatch(parts.path):
                answer({key: unquote(value) if value else "" for key, value in found.groupdict().items()}, query)
                return
        if parts.path.startswith("/cas/"):
            self.hub.closing.wait()
        self.send_hub_error(404, "", "Not here")

    def _answer_api(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        if self.send_error_fault(self.matching_faults("api", place["name"])):
            return
        repository = self._readable_repository(place["name"], described=True)
        commit = repository and self._resolve_commit(repository, place["revision"] or "main")
        if repository and commit:
            tree = place["what"] == "tree"
            said = (
                repository.render_tree(commit) if tree else repository.render_commit(commit, bool(query.get("blobs")))
            )
            self.send_text(json.dumps(said).encode(), "application/json")

    def _answer_xet(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        if self._readable_repository(place["name"]):
            # nothing listens on port 1 (tcpmux, RFC 7805 made it historic)
            cas = "http://127.0.0.1:1" if "dead" in query.get("cas", []) else f"{self.hub.url}/cas/"
            expires = str(int(time.time() + self.hub.lasts))
            said = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": expires}
            self.send_head(200, 0, said)

    def _answer_resolve(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        name, path = place["name"], place["path"]
        faults = self.matching_faults("resolve", name, path)
        if self.send_error_fault(faults):
            return
        repository = self._readable_repository(name)
        commit = repository and self._resolve_commit(repository, place["revision"])
        if not repository or not commit:
            return
        said = {"X-Repo-Commit": commit}
        stored = repository.commits[commit].get(path)
        if stored is None:
            self.send_hub_error(404, "EntryNotFound", "Entry not found", said)
            return
        if not stored.lfs:
            self.send_stored_file(name, path, stored, said)
            return
        for fault in faults:
            if isinstance(fault, BrokenXet):
                route = f"{self.hub.url}/api/models/{name}/xet-read-token/{commit}?cas={fault.cas}"
                said |= {"X-Xet-Hash": stored.sha256, "X-Xet-Refresh-Route": route}
                said["Link"] = f'<{route}>; rel="xet-auth"'
        lasts = -1.0 if any(isinstance(fault, ExpiredSignature) for fault in faults) else self.hub.lasts
        where, expires = f"/cdn/{stored.sha256}/{name}/{commit}/{quote(path)}", int(time.time() + lasts)
        signed = f"{where}?expires={expires}&signature={self.hub.sign_path(where, expires)}"
        said |= {"X-Linked-Size": str(stored.size), "X-Linked-ETag": stored.etag, "Accept-Ranges": "bytes"}
        self.send_head(302, 0, {**said, "Location": f"{self.hub.cdn_url}{signed}"})

    def _answer_signed(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        expires, signature = int(query.get("expires", ["0"])[0]), query.get("signature", [""])[0]
        if signature != self.hub.sign_path(urlsplit(self.path).path, expires) or expires <= time.time():
            self.send_hub_error(403, "", "AccessDenied")
            return
        repository = self.hub.repositories.get(place["name"])
        stored = repository and repository.commits.get(place["commit"], {}).get(place["path"])
        if not stored:
            self.send_hub_error(404, "", "NoSuchKey")
            return
        self.send_stored_file(place["name"], place["path"], stored, {})

    def _readable_repository(self, name: str, described: bool = False) -> StandInRepository | None:
        """A repository that the client may see, and have files of; otherwise it is refused as the hub does.

        The hub describes gated repositories to everybody. One that is not there and one that is private look alike.

        Args:
            name: Which.
            described: Whether only its description is asked for.
        """
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.hub.repositories.get(name)
        if token in self.hub.revoked:
            self.send_hub_error(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token != repository.token):
            if token:
                self.send_hub_error(404, "RepoNotFound", "Repository not found")
            else:
                self.send_hub_error(401, "RepoNotFound", "Invalid username or password.")
        elif repository.gated and not described and (not token or token != repository.token):
            said = "Your request to access it is awaiting a review" if token else "You must have access to it"
            self.send_hub_error(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted. {said}.")
        else:
            return repository
        return None

    def _resolve_commit(self, repository: StandInRepository, revision: str) -> str | None:
        commit = repository.resolve_revision(revision)
        if commit is None:
            self.send_hub_error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit


class StandInHub(StandInServer):
    """Both servers while the block runs, or until `close`.

    Args:
        address: Of this machine, to listen on.
        port: The hub's; 0 for a free one.
        lfs_above: Bytes above which every file is a large one.
        bytes_a_second: How fast both servers are together; None for as fast as they can.
        lasts: Seconds until a signed address runs out.
        certificate: In PEM, with its key: then both servers speak TLS.
    """

    def __init__(
        self,
        address: str = "127.0.0.1",
        port: int = 0,
        *,
        lfs_above: int = 10_000,
        bytes_a_second: int | None = None,
        lasts: float = 3600,
        certificate: Path | None = None,
    ) -> None:
        self.lfs_above = lfs_above
        self.lasts = lasts
        self.repositories: dict[str, StandInRepository] = {}
        self.revoked: set[str] = set()
        """Tokens without an owner; all others have one, which may not have been let in."""
        self._secret = b"a lab's"
        bound = type("Bound", (HubRequestHandler,), {"hub": self})
        super().__init__(
            address,
            {bound: port, type("Cdn", (bound,), {"cdn": True}): 0},
            bytes_a_second=bytes_a_second,
            certificate=certificate,
        )
        self.url, self.cdn_url = self.urls

    def add_commit(
        self,
        name: str,
        files: Mapping[str, bytes | Path],
        *,
        branch: str = "main",
        gated: str | bool = False,
        private: bool = False,
        licence: str | None = None,
        token: str | None = None,
    ) -> str:
        """Make a repository, or a new commit of one; returns the commit.

        Args:
            name: `org/name`.
            files: All of the commit's, by path; paths are listed as they are.
            branch: Or tag, that stands for this commit from now on.
            gated: `auto` or `manual` (True) where only an admitted client may have the files.
            private: Whether only an admitted client sees that it is there.
            licence: As the model card says it.
            token: The token of the admitted client.
        """
        known = self.repositories.setdefault(name, StandInRepository(name))
        known.gated = "manual" if gated is True else gated
        known.private, known.licence, known.token = private, licence, token
        return known.add_commit(
            {path: StoredFile.from_content(path, one, self.lfs_above) for path, one in files.items()}, branch
        )

    def remove_repository(self, name: str) -> None:
        """Take a repository away."""
        del self.repositories[name]

    def sign_path(self, path: str, expires: int) -> str:
        """The signature of an address of the second server that runs out then (seconds since 1970)."""
        return hmac.new(self._secret, f"{path} {expires}".encode(), hashlib.sha256).hexdigest()
