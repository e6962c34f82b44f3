"""How a local hub answers: its API, where files are, and their bytes."""

from __future__ import annotations

import json
import re
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import parse_qs, quote, unquote, urlsplit

from lab.hub.faults import Changed, Cut, Damaged, Expired, Fault, IgnoreRange, Length, Part, Stall, Status, Xet
from lab.hub.stored import PART, Repository, Stored, opened, read

if TYPE_CHECKING:
    from lab.hub import Hub

# of a rate, so that a slow server sends evenly
STEPS = 20
_NAME = r"(?P<name>[^/]+/[^/]+)"
_API = re.compile(rf"/api/models/{_NAME}(?:/(?P<what>revision|tree)/(?P<revision>[^/]+))?")
_XET = re.compile(rf"/api/models/{_NAME}/xet-read-token/(?P<revision>[^/]+)")
_RESOLVE = re.compile(rf"/{_NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", re.DOTALL)
_CDN = re.compile(rf"/cdn/(?P<sha256>[0-9a-f]{{64}})/{_NAME}/(?P<commit>[0-9a-f]{{40}})/(?P<path>.+)", re.DOTALL)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    hub: Hub
    cdn = False
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: D102 - http.server's name
        from lab.hub import Asked

        bearer = self.headers.get("Authorization", "")
        self.hub.note(Asked(self.command, self.path, self.headers.get("Range"), bool(bearer)))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        routes = (
            ((_CDN, self._signed),) if self.cdn else ((_XET, self._xet), (_API, self._api), (_RESOLVE, self._resolve))
        )
        for pattern, answer in routes:
            if found := pattern.fullmatch(parts.path):
                answer({key: unquote(value) if value else "" for key, value in found.groupdict().items()}, query)
                return
        if parts.path.startswith("/cas/"):
            self.hub.closing.wait()
        self._refuse(404, "", "Not here")

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _api(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        if self._failed(self._suffers("api", place["name"])):
            return
        repository = self._readable(place["name"], described=True)
        commit = repository and self._commit(repository, place["revision"] or "main")
        if repository and commit:
            tree = place["what"] == "tree"
            said = repository.tree(commit) if tree else repository.described(commit, bool(query.get("blobs")))
            body = json.dumps(said).encode()
            self._begin(200, len(body), {"Content-Type": "application/json"})
            if self.command == "GET":
                self.wfile.write(body)

    def _xet(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        if self._readable(place["name"]):
            # nothing listens on port 1 (tcpmux, RFC 7805 made it historic)
            cas = "http://127.0.0.1:1" if "dead" in query.get("cas", []) else f"{self.hub.url}/cas/"
            expires = str(int(time.time() + self.hub.lasts))
            said = {"X-Xet-Cas-Url": cas, "X-Xet-Access-Token": "xet", "X-Xet-Token-Expiration": expires}
            self._begin(200, 0, said)

    def _resolve(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        name, path = place["name"], place["path"]
        faults = self._suffers("resolve", name, path)
        if self._failed(faults):
            return
        repository = self._readable(name)
        commit = repository and self._commit(repository, place["revision"])
        if not repository or not commit:
            return
        said = {"X-Repo-Commit": commit}
        stored = repository.commits[commit].get(path)
        if stored is None:
            self._refuse(404, "EntryNotFound", "Entry not found", said)
            return
        if not stored.lfs:
            self._send(name, path, stored, said)
            return
        for fault in faults:
            if isinstance(fault, Xet):
                route = f"{self.hub.url}/api/models/{name}/xet-read-token/{commit}?cas={fault.cas}"
                said |= {"X-Xet-Hash": stored.sha256, "X-Xet-Refresh-Route": route}
                said["Link"] = f'<{route}>; rel="xet-auth"'
        lasts = -1.0 if any(isinstance(fault, Expired) for fault in faults) else self.hub.lasts
        where, expires = f"/cdn/{stored.sha256}/{name}/{commit}/{quote(path)}", int(time.time() + lasts)
        signed = f"{where}?expires={expires}&signature={self.hub.sign(where, expires)}"
        said |= {"X-Linked-Size": str(stored.size), "X-Linked-ETag": stored.tag, "Accept-Ranges": "bytes"}
        self._begin(302, 0, {**said, "Location": f"{self.hub.cdn_url}{signed}"})

    def _signed(self, place: dict[str, str], query: dict[str, list[str]]) -> None:
        expires, signature = int(query.get("expires", ["0"])[0]), query.get("signature", [""])[0]
        if signature != self.hub.sign(urlsplit(self.path).path, expires) or expires <= time.time():
            self._refuse(403, "", "AccessDenied")
            return
        repository = self.hub.repositories.get(place["name"])
        stored = repository and repository.commits.get(place["commit"], {}).get(place["path"])
        if not stored:
            self._refuse(404, "", "NoSuchKey")
            return
        self._send(place["name"], place["path"], stored, {})

    def _suffers(self, part: Part, name: str, path: str | None = None) -> list[Fault]:
        faults = self.hub.rules.of(part, name, path)
        for fault in faults:
            if not isinstance(fault, (Cut, Stall)):
                fault.met.set()
        return faults

    def _failed(self, faults: list[Fault]) -> bool:
        """Whether an error was the answer."""
        for fault in faults:
            if isinstance(fault, Status):
                self._refuse(fault.code, "", "as it was told", fault.headers)
                return True
        return False

    def _readable(self, name: str, described: bool = False) -> Repository | None:
        """A repository that who asks may see, and have files of; otherwise it is refused as the hub does.

        The hub describes gated repositories to everybody. One that is not there and one that is private look alike.

        Args:
            name: Which.
            described: Whether only its description is asked for.
        """
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        repository = self.hub.repositories.get(name)
        if token in self.hub.revoked:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token != repository.token):
            if token:
                self._refuse(404, "RepoNotFound", "Repository not found")
            else:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
        elif repository.gated and not described and (not token or token != repository.token):
            said = "Your request to access it is awaiting a review" if token else "You must have access to it"
            self._refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted. {said}.")
        else:
            return repository
        return None

    def _commit(self, repository: Repository, revision: str) -> str | None:
        commit = repository.at(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def _send(self, name: str, path: str, stored: Stored, said: dict[str, str]) -> None:
        """A file, or the part that is asked for, with what goes wrong with it."""
        # looking at a file is no answer that could break off: only what sends bytes uses a fault up
        faults = self._suffers("file", name, path) if self.command == "GET" else []
        if self._failed(faults):
            return
        content, tag, size, by = stored.content, stored.tag, stored.size, 0
        for fault in faults:
            if isinstance(fault, Changed):
                other = Stored.of(path, fault.content, self.hub.lfs_above)
                content, tag, size = other.content, other.tag, other.size
            elif isinstance(fault, Damaged):
                content = fault.damage(read(content, 0, size))
                size = len(content)
            elif isinstance(fault, Length):
                by = fault.by
        said = {**said, "ETag": tag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        start, end = 0, size
        code = 200
        if not any(isinstance(fault, IgnoreRange) for fault in faults) and (asked := self._range(size, tag)):
            start, end = asked
            if start >= end:
                self._begin(416, 0, {**said, "Content-Range": f"bytes */{size}"})
                return
            code, said["Content-Range"] = 206, f"bytes {start}-{end - 1}/{size}"
        self._begin(code, end - start + by, said)
        if self.command == "GET":
            self._stream(content, start, end, faults)
        if by:
            self.close_connection = True

    def _range(self, size: int, tag: str) -> tuple[int, int] | None:
        """The first byte that is asked for and the one after the last; None for everything."""
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked or asked[0] == "bytes=-" or self.headers.get("If-Range", tag) != tag:
            return None
        if not asked[1]:
            return max(size - int(asked[2]), 0), size
        return int(asked[1]), min(int(asked[2]) + 1, size) if asked[2] else size

    def _stream(self, content: bytes | Path, start: int, end: int, faults: list[Fault]) -> None:
        breaks = sorted(
            (fault for fault in faults if isinstance(fault, (Cut, Stall))), key=lambda fault: (fault.after, str(fault))
        )
        with opened(content) as file:
            self._in_parts(file, start, end, breaks)

    def _in_parts(self, file: BinaryIO, start: int, end: int, breaks: list[Cut | Stall]) -> None:
        at, rate = start, self.hub.bytes_a_second
        for fault in [*breaks, None]:
            stop = min(start + fault.after, end) if fault else end
            while at < stop and not self.hub.closing.is_set():
                count = min(PART, stop - at, max(rate // STEPS, 1) if rate else PART)
                self.hub.pace(count)
                # by the kernel, past Python: a real hub's servers do not share one interpreter
                at += self.connection.sendfile(file, at, count)
            if fault and stop < end:
                fault.met.set()
                if isinstance(fault, Cut):
                    self.close_connection = True
                    return
                fault.released.wait()
                if fault.dropped:
                    self.close_connection = True
                    return

    def _refuse(self, code: int, error: str, text: str, more: dict[str, str] | None = None) -> None:
        said = {**(more or {}), "X-Error-Message": text, **({"X-Error-Code": error} if error else {})}
        body = json.dumps({"error": text}).encode()
        self._begin(code, len(body), {**said, "Content-Type": "application/json"})
        if self.command == "GET":
            self.wfile.write(body)

    def _begin(self, code: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()
