"""The hub's own client: how it is started, watched, and ended when it stands still."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import quote

from .account import ClientAccount, link_in_place, take_over
from .answers import describe_http_error, is_transient
from .http import bounded_command
from .records import LockedFile
from .spec import FetchRefused, FileSource, TransferLimits

GIB = 1 << 30
LOOK = 0.1
"""Seconds between two looks at what the client has written."""
BESIDE = 1 << 20
"""Bytes that the client may write into any file of its own, beside a model's."""
OWN, FILES = "client", "files"
"""The client's folder, and where in it files come to lie."""
PARTS = ".cache/huggingface/download"
"""Where the client keeps unfinished ones among them (huggingface_hub.constants)."""
PROGRAM = Path(__file__).with_name("hub.py")


class ClientGaveUp(FetchRefused):
    """The client did not bring it; plain HTTP may."""


class NotOnHub(FetchRefused):
    """The hub itself does not have, or not give, the locked file: plain HTTP would not get it either."""


def xet_settings(mem_available: int, cpu_count: int, file_size: int) -> dict[str, str]:
    """The client's environment: whether it uses Xet, and with how much memory.

    Xet is 4 times as fast as plain HTTP where the line is (unslothai/unsloth#7742), but its buffers follow constants
    and not the machine: 6.6 GB in high-performance mode with 7 CPUs busy, 2.5 GB when capped
    (unslothai/unsloth-zoo#972, 61 GB in 13 files), up to 15 GB with neither. High-performance mode is meant for 64 GB
    of memory and more (huggingface/hub-docs#2260), and takes no caps. A file of less than one block of Xet's, 64 MiB,
    gains nothing.

    Args:
        mem_available: bytes, of `MemAvailable` in /proc/meminfo.
        cpu_count: CPUs that this process may use.
        file_size: bytes.
    """
    if mem_available < 8 * GIB or file_size < 64 << 20:
        return {"HF_HUB_DISABLE_XET": "1"}
    if mem_available >= 64 * GIB and cpu_count >= 8:
        return {"HF_XET_HIGH_PERFORMANCE": "1"}
    return {
        "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_SIZE": str(GIB),
        "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_PERFILE_SIZE": str(GIB // 2),
        "HF_XET_RECONSTRUCTION_DOWNLOAD_BUFFER_LIMIT": str(2 * GIB),
        "HF_XET_RECONSTRUCTION_MIN_PREFETCH_BUFFER": str(GIB // 2),
    }


def available_memory() -> int:
    """Bytes that may be used without swapping: proc(5), meminfo."""
    with open("/proc/meminfo") as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)


def remove_tree(folder: Path) -> None:
    """Remove a folder that another user could write to, however deep; rm follows no link and ends at no depth."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], check=False, stderr=subprocess.DEVNULL)


class HubClient:
    """The client of one run, for as many files at once as there is memory for."""

    def __init__(
        self, python: str, pace: TransferLimits, token: str, redirects: frozenset[str] = frozenset(), user: str = ""
    ) -> None:
        self.python, self.pace, self.token, self.redirects = python, pace, token, redirects
        self.user = user
        """The user that the client runs as."""
        self.memory = available_memory()
        self.cpus = len(os.sched_getaffinity(0))
        self.xet_slots = threading.Semaphore(max(1, self.memory // (8 * GIB)))

    def resolve_address(self, source: FileSource, file: LockedFile) -> str:
        """Where plain HTTP begins. The hub's own address is known to its client only.

        Raises:
            FetchRefused: the client does not say.
        """
        if source.endpoint:
            return f"{source.endpoint}/{source.repository}/resolve/{quote(source.revision)}/{quote(source.file)}"
        if not self.python:
            raise FetchRefused("no Python with the hub's client is there to ask for its address")
        command = [*ClientAccount(self.user).command_prefix, *bounded_command(BESIDE), self.python, "-I", str(PROGRAM)]
        try:
            with TemporaryFile() as output:
                subprocess.run(
                    [*command, _render_request(source, file, None, self.redirects)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.DEVNULL,
                    env=self._environment({}, Path("/nonexistent"), ""),
                    timeout=60,
                    check=False,
                )
                output.seek(0)
                return str(json.loads(output.read(BESIDE).splitlines()[0])["url"])
        except (OSError, subprocess.TimeoutExpired, IndexError, KeyError, ValueError) as error:
            raise FetchRefused(f"the hub's client does not run: {self.python} fails") from error

    def download(
        self,
        source: FileSource,
        file: LockedFile,
        part: Path,
        folder: Path,
        growing: Callable[[Path], None],
        *,
        last: bool,
    ) -> None:
        """Fetch a file from its beginning.

        Bytes that came by plain HTTP are in the part as soon as they are there, and stay when the client ends.

        Args:
            source: of kind hub.
            file: the locked one.
            part: is not there yet; whole afterwards.
            folder: of root's, on the part's file system, with one in it for the client alone; removed afterwards.
            growing: told where bytes appear before they are in the part.
            last: there is no other source.

        Raises:
            ClientGaveUp: the client did not bring it; the part has the file's beginning.
            NotOnHub: the hub does not have it.
        """
        settings = xet_settings(self.memory, self.cpus, file.size) if source.xet else {"HF_HUB_DISABLE_XET": "1"}
        least = self.pace.least if last else self.pace.slowest
        account = ClientAccount(self.user)
        remove_tree(folder)
        try:
            folder.mkdir()
        except FileExistsError:
            raise ClientGaveUp("the hub's client left a folder that cannot be removed") from None
        # the client may reach files in it by name, and not list them
        folder.chmod(0o711)
        own = folder / OWN
        own.mkdir(mode=0o700)
        os.chown(own, account.uid, account.gid)
        try:
            if "HF_HUB_DISABLE_XET" in settings:
                self._download(account, source, file, part, folder, growing, settings, least)
            else:
                with self.xet_slots:
                    self._download(account, source, file, part, folder, growing, settings, least)
        finally:
            remove_tree(folder)

    def _download(
        self,
        account: ClientAccount,
        source: FileSource,
        file: LockedFile,
        part: Path,
        folder: Path,
        growing: Callable[[Path], None],
        settings: dict[str, str],
        least: int,
    ) -> None:
        log, own = folder / "said", folder / OWN
        token = self.token if source.token else ""
        with log.open("wb") as output, (folder / "errors").open("wb") as errors, _open_token(token) as handle:
            process = subprocess.Popen(
                [
                    *account.command_prefix,
                    *bounded_command(max(file.size + 1, BESIDE)),
                    self.python,
                    "-I",
                    str(PROGRAM),
                    _render_request(source, file, own / FILES, self.redirects),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self._environment(settings, own, f"/proc/self/fd/{handle}" if token else ""),
                pass_fds=(handle,) if token else (),
                start_new_session=True,
            )
            try:
                stalled = self._watch(process, account, source, folder, part, growing, least)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = _read_client_log(log)
        try:
            if "path" in said:
                with account.open_own_file(own, f"{FILES}/{source.file}") as made:
                    link_in_place(made, part)
            if part.exists():
                take_over(part)
        except (FetchRefused, OSError) as error:
            part.unlink(missing_ok=True)
            raise ClientGaveUp(f"the hub's client left no file that can be kept: {error}") from None
        if "path" not in said:
            raise _describe_client_failure(said, stalled, process.returncode, self.pace, least)

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        account: ClientAccount,
        source: FileSource,
        folder: Path,
        part: Path,
        growing: Callable[[Path], None],
        least: int,
    ) -> bool:
        """Wait for the end; True when it was not waited for any longer, for it was slower than so many bytes a second.

        The client removes what it has when it fails. A second name keeps it, where it is the file's beginning for
        certain: Xet writes in any order.
        """
        moved, since = 0, time.monotonic()
        place = "/".join([FILES, PARTS, *source.file.split("/")[:-1], "*.incomplete"])
        while process.poll() is None:
            time.sleep(LOOK)
            there = 0
            # it is not there yet, or has ended in this moment
            with suppress(OSError, FetchRefused), account.open_own_file(folder / OWN, place) as half:
                there = _bytes_under_writeback(half)
                if _read_client_log(folder / "said").get("xet"):
                    link_in_place(half, folder / "growing")
                    growing(folder / "growing")
                elif not part.exists():
                    link_in_place(half, part)
            now = time.monotonic()
            moved = min(moved, there)  # it may have begun anew
            if there >= moved + least * self.pace.stall:
                moved, since = there, now
            elif now - since >= self.pace.stall:
                return True
        return False

    @staticmethod
    def _environment(settings: Mapping[str, str], folder: Path, token_path: str) -> dict[str, str]:
        """Nothing of another person's settings, and nothing written but into its folder."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
        given = {"HF_TOKEN_PATH": token_path} if token_path else {}
        return {
            **kept,
            "HOME": str(folder),
            "HF_HOME": str(folder / "home"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            **given,
            **settings,
        }


def _render_request(source: FileSource, file: LockedFile, folder: Path | None, redirects: frozenset[str]) -> str:
    place = {key: getattr(source, key) for key in ("endpoint", "repository", "revision", "file")}
    wanted = {"sha256": file.sha256, "size": file.size, "folder": str(folder or "")}
    return json.dumps({**place, **wanted, "redirects": sorted(redirects)})


def _bytes_under_writeback(half: int) -> int:
    """Bytes that are on their way to the disk; a file that is made at its full length at once has none of them yet."""
    there = os.fstat(half)
    return min(there.st_size, there.st_blocks * 512)


@contextmanager
def _open_token(token: str) -> Iterator[int]:
    """A file in memory with a token, open to be read: its name is in no folder, and no argument or variable has it."""
    writable = os.memfd_create("hub-token")
    try:
        os.write(writable, f"{token}\n".encode())
        os.fchmod(writable, 0o444)
        handle = os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(writable)
    try:
        yield handle
    finally:
        os.close(handle)


def _read_client_log(log: Path) -> dict[str, Any]:
    """Everything that the client's program has said so far."""
    said: dict[str, Any] = {}
    with log.open("rb") as file:
        content = file.read(BESIDE)
    for line in content.decode(errors="replace").splitlines():
        with suppress(ValueError, RecursionError, TypeError):  # half a line
            said.update(json.loads(line))
    return said


def _describe_client_failure(
    said: Mapping[str, Any], stalled: bool, exit_status: int, pace: TransferLimits, least: int
) -> FetchRefused:
    if stalled:
        return ClientGaveUp(
            f"the hub's client stood still, or all but did (below {least / 1024:.0f} KiB/s), for {pace.stall:.0f} s"
        )
    if "full" in said:
        # its word alone: a disk that is full ends the next way of fetching, too
        return ClientGaveUp(f"the hub's client says that there is no room: {said['full']}")
    if "other" in said:
        return NotOnHub(f"the hub has {said['other']} there, which is not what is locked: lock the model anew")
    status = said.get("status")
    if type(status) is int and 100 <= status <= 599:
        text = describe_http_error(status, str(said.get("code", "")), str(said.get("message", "")), hub=True)
        # an address that ran out on the way is signed anew by the next request
        return (
            ClientGaveUp(text) if is_transient(status) or (status == 403 and not said.get("code")) else NotOnHub(text)
        )
    return ClientGaveUp(f"the hub's client failed: {said.get('error') or f'exit status {exit_status}'}")
