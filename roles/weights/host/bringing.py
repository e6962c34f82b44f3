"""One file: its sources in order, and the hash that gives it its name."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Semaphore

from . import direct, records
from .client import Client, Passed
from .hashing import Follower, digest
from .hold import WRITTEN_TO, Hold, Unknown, copy, written_to
from .http import Address, download, size_of
from .packages import Packages
from .peers import Peer
from .place import Place
from .progress import FETCHING, FOR_PEER, VERIFYING, WAITING, Board, say
from .records import File, name
from .registry import Registries
from .spec import DiskFull, Refused, Source, Spec, Wanted

FULL = (errno.ENOSPC, errno.EDQUOT)


class Wrong(Refused):
    """A download is whole, and not the locked file; it was removed."""


def nobody() -> None:
    """What we fetch ourselves, into folders of root's, nobody else writes to."""


class Means:
    """What all files of a run share."""

    def __init__(self, spec: Spec, place: Place, board: Board) -> None:
        self.spec, self.place, self.board = spec, place, board
        credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
        token = Path(credentials, "hub-token")
        self.token_file = token if credentials and token.is_file() else None
        self.token = token.read_text().strip() if self.token_file else ""
        self.packages = Packages(spec)
        self.registries = Registries(spec, credentials)
        self.client = Client(spec.hub_python, spec.pace, self.token_file, spec.redirects)
        bases = {source.base for wanted in spec.files for source in wanted.sources if source.kind == "peer"}
        self.peers = {base: Peer(base, board.identity, spec.pace) for base in bases}
        self.slots = Semaphore(spec.parallel)
        self.full = False
        """The disk is: nobody begins anything more."""


def look(means: Means, file: File) -> bool:
    """Whether a file that was placed, or touched, is the locked one; a wrong one makes room.

    Raises:
        Refused: its place cannot be used.
        OSError: it cannot be read.
    """
    path = means.place.path(file)
    if not path.exists():
        means.board.at(file, WAITING, done=size_of(means.place.part(path)))
        return False
    before = path.stat()
    try:
        with Hold(path) as hold:
            right = before.st_size == file.size and file.sha256 == _digest(means, file, path)
            if right:
                means.place.adopt(file, path, partial(hold.check, path))
            # half of a copy is no wrong file yet
            hold.check(path)
    except Unknown:
        if written_to(path):
            raise Refused(WRITTEN_TO) from None
        right = before.st_size == file.size and _taken_by_copy(means, file, path)
    if right:
        say(f"{file.path}: was there, and is right")
        return True
    if not means.place.ours(path):
        means.place.put_aside(path)
    means.board.at(file, WAITING, done=size_of(means.place.part(path)))
    return False


def _taken_by_copy(means: Means, file: File, path: Path) -> bool:
    """Put a copy in the place of a file that may still be written to, if the copy is the locked file."""
    part = means.place.part(path)
    means.place.claim(path)
    copy(path, part, means.spec.reserve)
    if file.sha256 == _digest(means, file, part):
        means.place.name(file, path, brought=means.place.ours(path))
        return True
    part.unlink()
    return False


def _digest(means: Means, file: File, path: Path) -> str:
    """SHA-256 of a file that lies there; empty where its disk has lost bytes of it."""
    # what was found wrong on the disk may have a good copy in memory, above all where it is being served
    hashed = direct.digest if records.is_wrong(means.place.folder, records.name(file)) else digest
    try:
        return hashed(path, lambda done: means.board.at(file, VERIFYING, done=done))
    except OSError as error:
        if error.errno not in direct.LOST:
            raise
        say(f"{file.path}: was there, and cannot be read: {error.strerror}")
        return ""


class Bringing:
    """One file that is missing."""

    def __init__(self, means: Means, wanted: Wanted) -> None:
        self.means, self.file = means, wanted.file
        sent = (Source("sent"),) if means.spec.sent else ()
        self.sources = (*sent, *wanted.sources)
        self.path = means.place.path(wanted.file)
        self.part = means.place.part(self.path)
        self.label, self.state = "", WAITING
        self.holding = ExitStack()
        self.still: Callable[[], None] = nobody
        """Raises where somebody writes to what was sent."""
        self._follow()

    def bring(self) -> None:
        """Have it from one source after the other.

        Raises:
            Refused: none has it; the message has each one's reason.
            DiskFull: there is no room.
        """
        self.means.place.claim(self.path)
        if not self.file.size:
            self.part.touch()
        reasons = []
        if size_of(self.part) >= self.file.size:
            try:
                self._settle()
                return
            except Wrong as error:
                say(f"{self.file.path}: what an earlier run has left is {error}")
        for source in self.sources:
            if self.means.full:
                raise DiskFull
            self.label = source.label
            try:
                with self.holding:
                    self._from(source, last=source is self.sources[-1])
            except DiskFull:
                raise
            except Refused as error:
                say(f"{self.file.path}: {source.label}: {error}")
                reasons.append(f"{source.label}: {error}")
            else:
                say(f"{self.file.path}: {source.label} had it")
                return
        raise Refused("; ".join(reasons) or "no source is named for it: name a mirror, a peer or a bundle that has it")

    def _from(self, source: Source, *, last: bool) -> None:
        self.still = nobody
        # what was there before may be another source's, and that one may have lied
        mixed = size_of(self.part) > 0
        if source.kind == "sent":
            self._take_sent()
        elif source.kind == "hub" and self.means.spec.hub_python and not mixed:
            try:
                self._by_client(source, last=last)
                self._settle(loose=True)
                return
            except (Passed, Wrong) as error:
                say(f"{self.file.path}: {error}; going on with plain HTTP")
            mixed = size_of(self.part) > 0
            mixed |= self._plain(source, last=last) > 1
        else:
            mixed |= self._plain(source, last=last) > 1
        try:
            self._settle()
        except Wrong as error:
            if not mixed or source.kind == "sent":
                raise
            say(f"{self.file.path}: {error}; {source.label} is asked for the whole")
            self._plain(source, last=last)
            self._settle()

    def _take_sent(self) -> None:
        sent = Path(str(self.means.spec.sent), self.path.name)
        if not sent.is_file():
            # the operator's machine sends nothing where a file of the right size lies; somebody else's is aside by now
            self.path.unlink(missing_ok=True)
            raise Refused("it was not sent: deploy again, and it is")
        if sent.stat().st_size != self.file.size:
            raise Refused(f"{sent.stat().st_size} bytes were sent, the lock has {self.file.size}: deploy again")
        self.part.unlink(missing_ok=True)
        self._say_state(FETCHING)
        try:
            # a connection that was lost may have left its server with the file open
            hold = self.holding.enter_context(Hold(sent))
            sent.replace(self.part)
            self.still = partial(hold.check, self.part)
        except Unknown:
            copy(sent, self.part, self.means.spec.reserve)
            sent.unlink()
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copyfile(sent, self.part)
            sent.unlink()

    def _by_client(self, source: Source, *, last: bool) -> None:
        folder = self.means.spec.root / f".hub-{name(self.file)}"
        with self.means.slots:
            self._say_state(FETCHING)
            try:
                self.means.client.download(source, self.file, self.part, folder, self._growing, last=last)
            finally:
                self.follower.path = self.part

    def _growing(self, path: Path) -> None:
        self.follower.path = path

    def _plain(self, source: Source, *, last: bool) -> int:
        pace, size = self.means.spec.pace, self.file.size
        if source.kind == "peer":
            return self._from_peer(self.means.peers[source.base], last=last)
        token = self.means.token if source.token else ""
        hub, redirects = source.kind == "hub", self.means.spec.redirects
        with self.means.slots:
            self._say_state(FETCHING)
            if source.kind == "registry":
                return self.means.registries.fetch(source, self.file, self.part, last=last)
            url = self._address(source)
            return download(url, self.part, size, pace, last=last, token=token, hub=hub, redirects=redirects)

    def _address(self, source: Source) -> str | Address:
        if source.kind == "hub":
            return self.means.client.address(source, self.file)
        if source.kind in ("index", "channel"):
            return self.means.packages.address(source, self.file)
        return Address(source.url, locked=source.locked)

    def _from_peer(self, peer: Peer, *, last: bool) -> int:
        peer.reach()
        while True:
            try:
                with self.means.slots:
                    self._say_state(FETCHING)
                    return download(peer.url(self.file.path), self.part, self.file.size, peer.pace, last=last)
            except Refused as error:
                if isinstance(error, DiskFull) or not peer.wait(self.file.path, self._say_behind, last=last):
                    raise

    def _settle(self, *, loose: bool = False) -> None:
        """Give the part its name if it is right.

        Args:
            loose: its bytes may have been written in any order, or twice, so what was hashed meanwhile is
                no proof against it.

        Raises:
            Wrong: it is not, and was removed.
        """
        file, size = self.file, size_of(self.part)
        self._say_state(VERIFYING)
        self.follower.finish()
        found = self.follower.digest
        if loose and size == file.size and found != file.sha256:
            found = digest(self.part)
        if size == file.size and found == file.sha256:
            self.means.place.name(file, self.path, self.still)
            return
        self.part.unlink(missing_ok=True)
        self._follow()
        raise Wrong(
            f"not the locked file: {size} bytes with SHA-256 {found}; the lock has {file.size} bytes with {file.sha256}"
        )

    def _follow(self) -> None:
        self.follower = Follower(self.part, self._seen)

    def _seen(self, done: int) -> None:
        self.means.board.at(self.file, self.state, self.label, done)

    def _say_behind(self, behind: tuple[str, ...]) -> None:
        self.state = FOR_PEER
        self.means.board.at(self.file, FOR_PEER, self.label, behind=behind)

    def _say_state(self, state: str) -> None:
        self.state = state
        self.means.board.at(self.file, state, self.label)
        if state == FETCHING and self.follower.ident is None:
            self.follower.start()
