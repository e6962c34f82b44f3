"""Compiled templates, kept as Python keeps compiled modules: in __pycache__, and made anew when stale."""

from __future__ import annotations

import hashlib
import marshal
from contextlib import suppress
from functools import cached_property
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from tempfile import NamedTemporaryFile

import jinja2
from jinja2.bccache import Bucket, BytecodeCache


class TemplateCache(BytecodeCache):
    """Compiled templates in files, each with its source's digest in it; its other inputs are in its name."""

    def __init__(self, folder: Path, *made_of: Path) -> None:
        """Name the folder, and the files that the environment comes from: it computes constants when it compiles."""
        self.folder, self.made_of = folder, made_of

    @cached_property
    def _digest(self) -> str:
        parts = [jinja2.__version__.encode(), MAGIC_NUMBER, *(path.read_bytes() for path in self.made_of)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def _path(self, bucket: Bucket) -> Path:
        return self.folder / f"{bucket.key}.{self._digest}.j2c"

    def _head(self, bucket: Bucket, code: bytes) -> bytes:
        return f"{bucket.checksum} {hashlib.sha256(code).hexdigest()}".encode()

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what is there, if it is whole and of this source."""
        with suppress(OSError):
            head, _, code = self._path(bucket).read_bytes().partition(b"\n")
            if head == self._head(bucket, code):
                bucket.code = marshal.loads(code)  # noqa: S302 (in our own tree, as Python's own)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it; where nothing can be written, each process compiles for itself."""
        code = marshal.dumps(bucket.code)
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            with NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(self._head(bucket, code) + b"\n" + code)
            Path(file.name).replace(self._path(bucket))
