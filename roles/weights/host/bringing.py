"""One file: its sources in order, and the hash that gives it its name."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Semaphore

from . import direct, records
from .account import take_over
from .client import ClientGaveUp, HubClient
from .hashing import GrowingFileHasher, digest_file
from .hold import WRITTEN_TO, FileLease, LeaseUnsupported, copy_file, has_writers
from .http import FileAddress, download_part, file_size
from .packages import PackageSources
from .peers import PeerBox
from .place import ModelsRoot
from .progress import FETCHING, FOR_PEER, VERIFYING, WAITING, ProgressBoard, print_log_line
from .records import LockedFile, record_name
from .registry import RegistryClient
from .spec import DiskFull, FetchRefused, FetchSpec, FileRequest, FileSource

FULL = (errno.ENOSPC, errno.EDQUOT)


class HashMismatch(FetchRefused):
    """A download is whole, and not the locked file; it was removed."""


def assume_no_writer() -> None:
    """Files that Rigwright fetches itself, into folders of root's, have no other writer."""


class RunResources:
    """The common resources of all files of a run."""

    def __init__(self, spec: FetchSpec, place: ModelsRoot, board: ProgressBoard) -> None:
        self.spec, self.place, self.board = spec, place, board
        credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
        token = Path(credentials, "hub-token")
        self.token = token.read_text().strip() if credentials and token.is_file() else ""
        self.packages = PackageSources(spec)
        self.registries = RegistryClient(spec, credentials)
        self.client = HubClient(spec.hub_python, spec.pace, self.token, spec.redirects, spec.hub_user)
        bases = {source.base for wanted in spec.files for source in wanted.sources if source.kind == "peer"}
        self.peers = {base: PeerBox(base, board.identity, spec.pace) for base in bases}
        self.slots = Semaphore(spec.parallel)
        self.full = False
        """Whether the disk is full: no further download begins."""


def adopt_existing(means: RunResources, file: LockedFile) -> bool:
    """Whether a file that was placed, or touched, is the locked one; a wrong one makes room.

    Raises:
        FetchRefused: its place cannot be used.
        OSError: it cannot be read.
    """
    path = means.place.file_path(file)
    if not path.exists():
        means.board.report_file(file, WAITING, done=file_size(means.place.part_path(path)))
        return False
    before = path.stat()
    try:
        with FileLease(path) as hold:
            right = before.st_size == file.size and file.sha256 == _hash_existing(means, file, path)
            if right:
                means.place.adopt_file(file, path, partial(hold.check_unchanged, path))
            # half of a copy is no wrong file yet
            hold.check_unchanged(path)
    except LeaseUnsupported:
        if has_writers(path):
            raise FetchRefused(WRITTEN_TO) from None
        right = before.st_size == file.size and _adopt_by_copy(means, file, path)
    if right:
        print_log_line(f"{file.path}: was there, and is right")
        return True
    if not means.place.is_in_ledger(path):
        means.place.put_aside(path)
    means.board.report_file(file, WAITING, done=file_size(means.place.part_path(path)))
    return False


def _adopt_by_copy(means: RunResources, file: LockedFile, path: Path) -> bool:
    """Put a copy in the place of a file that may still be written to, if the copy is the locked file."""
    part = means.place.part_path(path)
    means.place.claim_paths(path)
    copy_file(path, part, means.spec.reserve)
    if file.sha256 == _hash_existing(means, file, part):
        means.place.name_verified_part(file, path, brought=means.place.is_in_ledger(path))
        return True
    part.unlink()
    return False


def _hash_existing(means: RunResources, file: LockedFile, path: Path) -> str:
    """SHA-256 of a file that lies there; empty where its disk has lost bytes of it."""
    # a file found wrong on the disk may have a good copy in memory, above all where it is being served
    hashed = direct.digest_from_disk if records.is_wrong(means.place.folder, records.record_name(file)) else digest_file
    try:
        return hashed(path, lambda done: means.board.report_file(file, VERIFYING, done=done))
    except OSError as error:
        if error.errno not in direct.LOST:
            raise
        print_log_line(f"{file.path}: was there, and cannot be read: {error.strerror}")
        return ""


class Download:
    """One file that is missing."""

    def __init__(self, means: RunResources, wanted: FileRequest) -> None:
        self.means, self.file = means, wanted.file
        sent = (FileSource("sent"),) if means.spec.sent else ()
        self.sources = (*sent, *wanted.sources)
        self.path = means.place.file_path(wanted.file)
        self.part = means.place.part_path(self.path)
        self.label, self.state = "", WAITING
        self.holding = ExitStack()
        self.still: Callable[[], None] = assume_no_writer
        """Raises where another process writes to what was sent."""
        self._restart_follower()

    def fetch_file(self) -> None:
        """Have it from one source after the other.

        Raises:
            FetchRefused: none has it; the message has each one's reason.
            DiskFull: there is no room.
        """
        self.means.place.claim_paths(self.path)
        # a run that was killed leaves a part that is the client's user's, and a client of this run could write to it
        with suppress(FileNotFoundError, FetchRefused):
            if self.part.lstat().st_uid:
                take_over(self.part)
        if not self.file.size:
            self.part.touch()
        reasons = []
        if file_size(self.part) >= self.file.size:
            try:
                self._verify_and_name()
                return
            except HashMismatch as error:
                print_log_line(f"{self.file.path}: what an earlier run has left is {error}")
        for source in self.sources:
            if self.means.full:
                raise DiskFull
            self.label = source.label
            try:
                with self.holding:
                    self._fetch_from(source, last=source is self.sources[-1])
            except DiskFull:
                raise
            except FetchRefused as error:
                print_log_line(f"{self.file.path}: {source.label}: {error}")
                reasons.append(f"{source.label}: {error}")
            else:
                print_log_line(f"{self.file.path}: {source.label} had it")
                return
        raise FetchRefused(
            "; ".join(reasons) or "no source is named for it: name a mirror, a peer or a bundle that has it"
        )

    def _fetch_from(self, source: FileSource, *, last: bool) -> None:
        self.still = assume_no_writer
        # the earlier part may be another source's, and that one may have lied
        mixed = file_size(self.part) > 0
        if source.kind == "sent":
            self._take_sent()
        elif source.kind == "hub" and self.means.spec.hub_python and not mixed:
            try:
                self._fetch_by_client(source, last=last)
                self._verify_and_name(loose=True)
                return
            except (ClientGaveUp, HashMismatch) as error:
                print_log_line(f"{self.file.path}: {error}; going on with plain HTTP")
            mixed = file_size(self.part) > 0
            mixed |= self._fetch_over_http(source, last=last) > 1
        else:
            mixed |= self._fetch_over_http(source, last=last) > 1
        try:
            self._verify_and_name()
        except HashMismatch as error:
            if not mixed or source.kind == "sent":
                raise
            print_log_line(f"{self.file.path}: {error}; {source.label} is asked for the whole")
            self._fetch_over_http(source, last=last)
            self._verify_and_name()

    def _take_sent(self) -> None:
        sent = Path(str(self.means.spec.sent), self.path.name)
        if not sent.is_file():
            # the operator's machine sends nothing where a file of the right size lies; a foreign one is aside by now
            self.path.unlink(missing_ok=True)
            raise FetchRefused("it was not sent: deploy again, and it is")
        if sent.stat().st_size != self.file.size:
            raise FetchRefused(f"{sent.stat().st_size} bytes were sent, the lock has {self.file.size}: deploy again")
        self.part.unlink(missing_ok=True)
        self._report_state(FETCHING)
        try:
            # a connection that was lost may have left its server with the file open
            hold = self.holding.enter_context(FileLease(sent))
            sent.replace(self.part)
            self.still = partial(hold.check_unchanged, self.part)
        except LeaseUnsupported:
            copy_file(sent, self.part, self.means.spec.reserve)
            sent.unlink()
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copyfile(sent, self.part)
            sent.unlink()

    def _fetch_by_client(self, source: FileSource, *, last: bool) -> None:
        folder = self.means.spec.root / f".hub-{record_name(self.file)}"
        with self.means.slots:
            self._report_state(FETCHING)
            try:
                self.means.client.download(source, self.file, self.part, folder, self._follow_path, last=last)
            finally:
                self.follower.path = self.part

    def _follow_path(self, path: Path) -> None:
        self.follower.path = path

    def _fetch_over_http(self, source: FileSource, *, last: bool) -> int:
        pace, size = self.means.spec.pace, self.file.size
        if source.kind == "peer":
            return self._fetch_from_peer(self.means.peers[source.base], last=last)
        token = self.means.token if source.token else ""
        hub, redirects = source.kind == "hub", self.means.spec.redirects
        with self.means.slots:
            self._report_state(FETCHING)
            if source.kind == "registry":
                return self.means.registries.fetch_blob(source, self.file, self.part, last=last)
            url = self._source_address(source)
            return download_part(url, self.part, size, pace, last=last, token=token, hub=hub, redirects=redirects)

    def _source_address(self, source: FileSource) -> str | FileAddress:
        if source.kind == "hub":
            return self.means.client.resolve_address(source, self.file)
        if source.kind in ("index", "channel"):
            return self.means.packages.resolve_package_address(source, self.file)
        return FileAddress(source.url, locked=source.locked)

    def _fetch_from_peer(self, peer: PeerBox, *, last: bool) -> int:
        peer.require_reachable()
        while True:
            try:
                with self.means.slots:
                    self._report_state(FETCHING)
                    return download_part(peer.file_url(self.file.path), self.part, self.file.size, peer.pace, last=last)
            except FetchRefused as error:
                if isinstance(error, DiskFull) or not peer.wait_for_file(
                    self.file.path, self._report_waiting, last=last
                ):
                    raise

    def _verify_and_name(self, *, loose: bool = False) -> None:
        """Give the part its name if it is right.

        Args:
            loose: its bytes may have been written in any order, or twice, so what was hashed meanwhile is
                no proof against it.

        Raises:
            HashMismatch: it is not, and was removed.
        """
        file, size = self.file, file_size(self.part)
        self._report_state(VERIFYING)
        self.follower.finish()
        found = self.follower.digest
        if loose and size == file.size and found != file.sha256:
            found = digest_file(self.part)
        if size == file.size and found == file.sha256:
            self.means.place.name_verified_part(file, self.path, self.still)
            return
        self.part.unlink(missing_ok=True)
        self._restart_follower()
        raise HashMismatch(
            f"not the locked file: {size} bytes with SHA-256 {found}; the lock has {file.size} bytes with {file.sha256}"
        )

    def _restart_follower(self) -> None:
        self.follower = GrowingFileHasher(self.part, self._report_bytes)

    def _report_bytes(self, done: int) -> None:
        self.means.board.report_file(self.file, self.state, self.label, done)

    def _report_waiting(self, behind: tuple[str, ...]) -> None:
        self.state = FOR_PEER
        self.means.board.report_file(self.file, FOR_PEER, self.label, behind=behind)

    def _report_state(self, state: str) -> None:
        self.state = state
        self.means.board.report_file(self.file, state, self.label)
        if state == FETCHING and self.follower.ident is None:
            self.follower.start()
