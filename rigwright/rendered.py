"""What templates compile to, kept as Python keeps what modules compile to: in __pycache__, and made anew when stale."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cached_property
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from tempfile import NamedTemporaryFile

import jinja2
from jinja2.bccache import Bucket, BytecodeCache


class Kept(BytecodeCache):
    """Compiled templates in files. jinja2 compares the source's digest that is in each; what else they are made of is in
    their names.
    """

    def __init__(self, folder: Path, *made_of: Path) -> None:
        """Name the folder, and the files that the environment comes from: it computes constants when it compiles."""
        self.folder, self.made_of = folder, made_of

    @cached_property
    def _digest(self) -> str:
        parts = [jinja2.__version__.encode(), MAGIC_NUMBER, *(path.read_bytes() for path in self.made_of)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def _path(self, bucket: Bucket) -> Path:
        return self.folder / f"{bucket.key}.{self._digest}.j2c"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Take what is there, if it is of this source."""
        # one that is damaged is compiled anew
        with suppress(OSError, ValueError, EOFError), open(self._path(bucket), "rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep it; where nothing can be written, each process compiles for itself."""
        with suppress(OSError):
            self.folder.mkdir(exist_ok=True)
            with NamedTemporaryFile(dir=self.folder, delete=False) as file:
                bucket.write_bytecode(file)
            os.replace(file.name, self._path(bucket))
