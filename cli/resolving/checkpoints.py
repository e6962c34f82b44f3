"""Weights as they are locked: what says how they are used is written down, and what is no model, or half, is refused.

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

from cli.resolving.web import Content, Unavailable
from rigwright.problems import shown
from rigwright.supply.artefact import CONFIG, TEXT, Artefact
from rigwright.supply.header import Header
from rigwright.weights import gguf
from rigwright.weights.checkpoint import OTHER_FORMAT, WEIGHTS, listed
from rigwright.weights.safetensors import INDEX, LARGEST_INDEX, LONGEST, Broken, header_end, hold, shards
from roles.progress import progress

if TYPE_CHECKING:
    from typing_extensions import Buffer

GGUF = ".gguf"
TOGETHER = 8  # files that are looked at at once
FIRST = 256 << 10  # bytes of a file that are read at once: most headers are shorter, and the connection is there
MORE = 4  # times as much is read where a GGUF's header is longer: it does not say how long it is
# Held for a longer one: 100 MB of JSON were 2.6 GB while they were read, and a hub can have many such files.
LONG = Lock()


@dataclass(frozen=True)
class Whole:
    """What is locked of one input."""

    name: str
    """Whose files they are, for people."""
    contents: Mapping[str, Content]
    """Path -> what the file is."""
    beginning: Callable[[str, int], bytes]
    """The first bytes of a file, by its path and how many; Unavailable where they are not to be had."""

    def told(self, rows: list[Artefact]) -> list[Artefact]:
        """Its rows, that of config.json with the text, and those of GGUF files with what their headers say.

        Raises:
            Unavailable: a file is no model or not whole, or something of it is not to be had.
        """
        headers = self._hold()
        text = self._config()
        unused = self._unused()
        return [
            row.model_copy(update={"text": text} if row.path == CONFIG else {"header": headers.get(row.path)})
            for row in rows
            if row.path not in unused
        ]

    def _unused(self) -> set[str]:
        """Weights at the top of a checkpoint that its index does not name: engines load those that it names alone."""
        indexes = [path for path in self.contents if path.endswith(INDEX) and "/" not in path]
        if CONFIG not in self.contents or not indexes:
            return set()
        # of a folder that has the publisher's own format too, the index of the common one counts
        common = [path for path in indexes if not path.startswith(OTHER_FORMAT)] or indexes
        named = set().union(*(shards(self._read(path)) for path in common))
        return {path for path in self.contents if path.endswith(WEIGHTS) and "/" not in path} - named

    def _config(self) -> str | None:
        """The text of config.json; None where there is none, or one that is larger than a lock takes."""
        content = self.contents.get(CONFIG)
        if content is None or content.size > TEXT:
            return None
        try:
            return self._read(CONFIG).decode()
        except UnicodeDecodeError:
            raise Unavailable(f"{CONFIG} is not UTF-8 text: exclude it") from None

    def _hold(self) -> dict[str, Header]:
        """Refuse files that are no weights, and a checkpoint that is not whole.

        Returns:
            Path -> what the header of a GGUF file says.
        """
        paths = sorted(path for path in self.contents if path.endswith((WEIGHTS, GGUF)))
        indexes = [path for path in self.contents if path.endswith(INDEX) and "/" not in path]
        # without its config.json it is no checkpoint, and may be a part of anything
        wrong = [line for path in indexes if CONFIG in self.contents for line in self._lacks(path)]
        headers: dict[str, Header] = {}
        said = f"looking at headers of {self.name}"
        if paths:
            with progress.task("lock", said) as task, ThreadPoolExecutor(TOGETHER) as pool:
                for number, (path, found) in enumerate(zip(paths, pool.map(self._header, paths), strict=True), 1):
                    if isinstance(found, Header):
                        headers[path] = found
                    elif found:
                        wrong.append(found)
                    task.at(number, len(paths), "steps")
        if wrong:
            raise Unavailable("; ".join(wrong))
        return headers

    def _lacks(self, path: str) -> list[str]:
        """What is wrong with an index."""
        if self.contents[path].size > LARGEST_INDEX:
            return [f"{path} is larger than {LARGEST_INDEX} bytes: exclude it"]
        try:
            named = shards(self._read(path))
        except Broken as error:
            return [f"{path} {error}: exclude it"]
        missing = sorted(named - self.contents.keys())
        if not missing:
            return []
        names = listed([one if one.isprintable() and len(one) < 200 else shown(one) for one in missing])
        return [f"{path} names {names}, which the input lacks: include it, or exclude {path}"]

    def _header(self, path: str) -> Header | str:
        """What a file of weights says of itself where it is a GGUF, or what is wrong with it; else ""."""
        try:
            return header(path, self.contents[path].size, lambda count: self.beginning(path, count)) or ""
        except Broken as error:
            return f"{path} {error}: replace it at its source, or exclude it"

    def _read(self, path: str) -> bytes:
        """A whole file, which is the one that was hashed."""
        content = self.contents[path]
        found = self.beginning(path, content.size)
        if hashlib.sha256(found).hexdigest() != content.sha256:
            raise Unavailable(f"{path} changed after it was hashed: try again")
        return found


class Beginning(io.BytesIO):
    """Keeps of a file that is fetched no more than a header can have."""

    def write(self, part: Buffer) -> int:
        """Take bytes, and drop them once there are enough."""
        whole = bytes(part)
        super().write(whole[: max(0, LONGEST - self.tell())])
        return len(whole)

    def first(self, count: int) -> bytes:
        """The first bytes."""
        return self.getvalue()[:count]


def header(path: str, size: int, beginning: Callable[[int], bytes]) -> Header | None:
    """What a file says of itself where it is a GGUF, once its header was held against its size.

    Args:
        path: Its name; of what is no file of weights by that nothing is read.
        size: All of its bytes.
        beginning: As many of its first bytes as it is asked for.

    Raises:
        Broken: it is not what its name says, or not whole.
    """
    count = min(size, FIRST)
    if path.endswith(GGUF):
        try:
            return gguf.read(beginning(count), size)
        except gguf.Short:
            pass
        with LONG:
            while True:
                count = min(size, count * MORE)
                with suppress(gguf.Short):
                    return gguf.read(beginning(count), size)
                if count == size:
                    raise Broken("was truncated while it was read")
    if path.endswith(WEIGHTS):
        found = beginning(count)
        end = header_end(found, size)
        with LONG if end > count else nullcontext():
            hold(beginning(end) if end > count else found, size)
    return None
