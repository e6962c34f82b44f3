"""Weights as they are locked: the facts about their use are recorded, and an invalid or incomplete model is refused.

Little is read for that: a config.json, an index of weights, and of each file of weights its header.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from rigwright.problems import format_value
from rigwright.supply.artefact import CONFIG, TEXT, Artefact, GgufMetadata
from rigwright.weights import gguf
from rigwright.weights.checkpoint import OTHER_FORMAT, WEIGHTS, format_some
from rigwright.weights.safetensors import (
    INDEX,
    LARGEST_INDEX,
    LONGEST,
    BrokenSafetensors,
    check_header,
    header_end,
    parse_shards,
)
from roles.progress import progress

if TYPE_CHECKING:
    from typing_extensions import Buffer

GGUF = ".gguf"
MAX_WORKERS = 8  # files that are looked at at once
HEADER_BYTES = 256 << 10  # bytes of a file that are read at once: most headers are shorter, and the connection is there
MORE = 4  # times as much is read where a GGUF's header is longer: it does not say how long it is
# Held for a longer one: 100 MB of JSON were 2.6 GB while they were read, and a hub can have many such files.
LONG_HEADER_LOCK = Lock()


@dataclass(frozen=True)
class LockedCheckpoint:
    """The locked files of one input."""

    name: str
    """The owner of the files, for people."""
    contents: Mapping[str, FileContent]
    """Path -> what the file is."""
    beginning: Callable[[str, int], bytes]
    """The first bytes of a file, by its path and how many; Unavailable where they are not to be had."""

    def annotate_rows(self, rows: list[Artefact]) -> list[Artefact]:
        """Its rows, that of config.json with the text, and those of GGUF files with what their headers say.

        Raises:
            DownloadUnavailable: a file is no model or not whole, or something of it is not to be had.
        """
        headers = self._validate_files()
        text = self._read_config()
        unused = self._unused_weights()
        return [
            row.model_copy(update={"text": text} if row.path == CONFIG else {"header": headers.get(row.path)})
            for row in rows
            if row.path not in unused
        ]

    def _unused_weights(self) -> set[str]:
        """Weights at the top of a checkpoint that its index does not name: engines load those that it names alone."""
        indexes = [path for path in self.contents if path.endswith(INDEX) and "/" not in path]
        if CONFIG not in self.contents or not indexes:
            return set()
        # of a folder that has the publisher's own format too, the index of the common one counts
        common = [path for path in indexes if not path.startswith(OTHER_FORMAT)] or indexes
        named = set().union(*(parse_shards(self._read_file(path)) for path in common))
        return {path for path in self.contents if path.endswith(WEIGHTS) and "/" not in path} - named

    def _read_config(self) -> str | None:
        """The text of config.json; None where there is none, or one that is larger than a lock takes."""
        content = self.contents.get(CONFIG)
        if content is None or content.size > TEXT:
            return None
        try:
            return self._read_file(CONFIG).decode()
        except UnicodeDecodeError:
            raise DownloadUnavailable(f"{CONFIG} is not UTF-8 text: exclude it") from None

    def _validate_files(self) -> dict[str, GgufMetadata]:
        """Refuse files that are no weights, and a checkpoint that is not whole.

        Returns:
            Path -> what the header of a GGUF file says.
        """
        paths = sorted(path for path in self.contents if path.endswith((WEIGHTS, GGUF)))
        indexes = [path for path in self.contents if path.endswith(INDEX) and "/" not in path]
        # without its config.json it is no checkpoint, and may be a part of anything
        wrong = [line for path in indexes if CONFIG in self.contents for line in self._index_problems(path)]
        headers: dict[str, GgufMetadata] = {}
        said = f"reading headers of {self.name}"
        if paths:
            with progress.task("lock", said) as task, ThreadPoolExecutor(MAX_WORKERS) as pool:
                for number, (path, found) in enumerate(zip(paths, pool.map(self._read_header, paths), strict=True), 1):
                    if isinstance(found, GgufMetadata):
                        headers[path] = found
                    elif found:
                        wrong.append(found)
                    task.report_done(number, len(paths), "steps")
        if wrong:
            raise DownloadUnavailable("; ".join(wrong))
        return headers

    def _index_problems(self, path: str) -> list[str]:
        """The problems of an index."""
        if self.contents[path].size > LARGEST_INDEX:
            return [f"{path} is larger than {LARGEST_INDEX} bytes: exclude it"]
        try:
            named = parse_shards(self._read_file(path))
        except BrokenSafetensors as error:
            return [f"{path} {error}: exclude it"]
        missing = sorted(named - self.contents.keys())
        if not missing:
            return []
        names = format_some([one if one.isprintable() and len(one) < 200 else format_value(one) for one in missing])
        return [f"{path} names {names}, which the input lacks: include it, or exclude {path}"]

    def _read_header(self, path: str) -> GgufMetadata | str:
        """The header of a file of weights where it is a GGUF, or its problem; else ""."""
        try:
            return parse_header(path, self.contents[path].size, lambda count: self.beginning(path, count)) or ""
        except BrokenSafetensors as error:
            return f"{path} {error}: replace it at its source, or exclude it"

    def _read_file(self, path: str) -> bytes:
        """A whole file, which is the one that was hashed."""
        content = self.contents[path]
        found = self.beginning(path, content.size)
        if hashlib.sha256(found).hexdigest() != content.sha256:
            raise DownloadUnavailable(f"{path} changed after it was hashed: try again")
        return found


class HeaderBuffer(io.BytesIO):
    """Keeps of a file that is fetched no more than a header can have."""

    def write(self, part: Buffer) -> int:
        """Take bytes, and drop them once there are enough."""
        whole = bytes(part)
        super().write(whole[: max(0, LONGEST - self.tell())])
        return len(whole)

    def first_bytes(self, count: int) -> bytes:
        """The first bytes."""
        return self.getvalue()[:count]


def parse_header(path: str, size: int, beginning: Callable[[int], bytes]) -> GgufMetadata | None:
    """The header of a file where it is a GGUF, compared with its size.

    Args:
        path: Its name; of what is no file of weights by that nothing is read.
        size: All of its bytes.
        beginning: As many of its first bytes as it is asked for.

    Raises:
        BrokenSafetensors: it is not what its name says, or not whole.
    """
    count = min(size, HEADER_BYTES)
    if path.endswith(GGUF):
        try:
            return gguf.parse_header(beginning(count), size)
        except gguf.ShortHeader:
            pass
        with LONG_HEADER_LOCK:
            while True:
                count = min(size, count * MORE)
                with suppress(gguf.ShortHeader):
                    return gguf.parse_header(beginning(count), size)
                if count == size:
                    raise BrokenSafetensors("was truncated while it was read")
    if path.endswith(WEIGHTS):
        found = beginning(count)
        end = header_end(found, size)
        with LONG_HEADER_LOCK if end > count else nullcontext():
            check_header(beginning(end) if end > count else found, size)
    return None
