"""A hub of models on this machine: it speaks the hub's protocol to the hub's own client, and fails as it is told.

    with Hub() as hub:
        commit = hub.repository("org/name", {"model.gguf": b"...", "config.json": b"{}"}, licence="mit")
        hub.fault(Cut(100), "org/name", "model.gguf", times=1)
        HfApi(endpoint=hub.url).model_info("org/name", files_metadata=True)

Small files come from the hub itself. Large ones come, as on the hub, from a second server at another port: the hub
leads there by a signed address that runs out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from lab.hub.answers import Handler
from lab.hub.serving import Serving
from lab.hub.stored import Repository, Stored


class Hub(Serving):
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
        self.repositories: dict[str, Repository] = {}
        self.revoked: set[str] = set()
        """Tokens that are nobody's; all others are somebody's, who may not have been let in."""
        self._secret = b"a lab's"
        bound = type("Bound", (Handler,), {"hub": self})
        super().__init__(
            address,
            {bound: port, type("Cdn", (bound,), {"cdn": True}): 0},
            bytes_a_second=bytes_a_second,
            certificate=certificate,
        )
        self.url, self.cdn_url = self.urls

    def repository(
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
            gated: `auto` or `manual` (True) where only who was let in may have the files.
            private: Whether only who was let in sees that it is there.
            licence: As the model card says it.
            token: Who was let in.
        """
        known = self.repositories.setdefault(name, Repository(name))
        known.gated = "manual" if gated is True else gated
        known.private, known.licence, known.token = private, licence, token
        return known.commit({path: Stored.of(path, one, self.lfs_above) for path, one in files.items()}, branch)

    def gone(self, name: str) -> None:
        """Take a repository away."""
        del self.repositories[name]

    def sign(self, path: str, expires: int) -> str:
        """The signature of an address of the second server that runs out then (seconds since 1970)."""
        return hmac.new(self._secret, f"{path} {expires}".encode(), hashlib.sha256).hexdigest()
