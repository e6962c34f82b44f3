"""Checkpoints as they are locked: their config.json is written down, and halves of one are refused.

Little is read for that: an index of weights, and of each file of weights its header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock

from cli.resolving.web import Content, Unavailable
from rigwright.problems import shown
from rigwright.supply.artefact import CONFIG, TEXT, Artefact
from rigwright.weights.checkpoint import WEIGHTS, listed
from rigwright.weights.safetensors import INDEX, LARGEST_INDEX, Broken, header_end, hold, shards
from roles.progress import progress

TOGETHER = 8  # files that are looked at at once
FIRST = 256 << 10  # bytes of a file that are read at once: most headers are shorter, and the connection is there
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
        """Its rows, that of config.json with the text.

        Raises:
            Unavailable: it is a checkpoint that is not whole, or something of it is not to be had.
        """
        self._hold()
        text = self._config()
        return [row.model_copy(update={"text": text}) if row.path == CONFIG else row for row in rows]

    def _config(self) -> str | None:
        """The text of config.json; None where there is none, or one that is larger than a lock takes."""
        content = self.contents.get(CONFIG)
        if content is None or content.size > TEXT:
            return None
        try:
            return self._read(CONFIG).decode()
        except UnicodeDecodeError:
            raise Unavailable(f"{CONFIG} is no text in UTF-8: exclude it") from None

    def _hold(self) -> None:
        """Refuse a checkpoint that is not whole. What is none, without a config.json, is left alone."""
        paths = sorted(path for path in self.contents if path.endswith(WEIGHTS))
        if CONFIG not in self.contents or not paths:
            return
        indexes = [path for path in self.contents if path.endswith(INDEX) and "/" not in path]
        wrong = [line for path in indexes for line in self._lacks(path)]
        said = f"looking at headers of {self.name}"
        with progress.task("lock", said) as task, ThreadPoolExecutor(TOGETHER) as pool:
            for number, line in enumerate(pool.map(self._fault, paths), 1):
                wrong += [line] if line else []
                task.at(number, len(paths), "steps")
        if wrong:
            raise Unavailable("; ".join(wrong))

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

    def _fault(self, path: str) -> str:
        """What is wrong with a file of weights; "" where nothing is."""
        size = self.contents[path].size
        try:
            beginning = self.beginning(path, min(size, FIRST))
            end = header_end(beginning, size)
            with LONG if end > len(beginning) else nullcontext():
                hold(self.beginning(path, end) if end > len(beginning) else beginning, size)
        except Broken as error:
            return f"{path} {error}: replace it at its source, or exclude it"
        return ""

    def _read(self, path: str) -> bytes:
        """A whole file, which is the one that was hashed."""
        content = self.contents[path]
        found = self.beginning(path, content.size)
        if hashlib.sha256(found).hexdigest() != content.sha256:
            raise Unavailable(f"{path} has other bytes than those that were hashed: try again")
        return found
