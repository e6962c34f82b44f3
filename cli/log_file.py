"""Log files as people have them: compressed or not, in UTF-8 or UTF-16, with the last bytes of what is too large."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.exit_codes import InvalidRequest
from rigwright.safe_text import mask_secrets

MAX_LOG_BYTES = 8 << 20
"""Bytes that are read of the end of a log."""
MOST_UNPACKED = 1 << 30
"""Bytes that a compressed log may unpack to; nvidia-bug-report.log.gz unpacks to 2 to 60 MB."""
PIECE = 1 << 20
SAMPLE = 64 << 10
"""Bytes by which text is told from binary data."""
CONTROLS = bytes(set(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27})

_OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_UNREADABLE = {b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"LPKSHHRH": "journald's own format"}
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


def read_log(path: Path) -> tuple[list[str], int]:
    """The last lines of a log, without secrets, and the number of bytes before them that were left out.

    Raises:
        InvalidRequest: the file cannot be read, is not text, or unpacks to more than 1 GiB.
    """
    try:
        with path.open("rb") as opened:
            start = opened.read(8)
        data, skipped = _read_end(path, start)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InvalidRequest(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if packed := next((name for magic, name in _UNREADABLE.items() if start.startswith(magic)), ""):
        raise InvalidRequest(f"{path}: is {packed}, not text: unpack it first")
    text = _decode_log(path, data, cut=skipped > 0)
    return [mask_secrets(line) for line in text.splitlines()], skipped


def _read_end(path: Path, start: bytes) -> tuple[bytes, int]:
    opener = next((one for magic, one in _OPENERS.items() if start.startswith(magic)), None)
    if opener is None:
        with path.open("rb") as opened:
            size = opened.seek(0, 2)
            # an even number of bytes, so that UTF-16 stays whole
            skipped = max(0, size - MAX_LOG_BYTES) & ~1
            opened.seek(skipped)
            return opened.read(MAX_LOG_BYTES + 1), skipped
    pieces: deque[bytes] = deque()
    kept = total = 0
    with opener(path) as unpacked:
        while piece := unpacked.read(PIECE):
            total += len(piece)
            if total > MOST_UNPACKED:
                raise InvalidRequest(f"{path}: unpacks to more than {MOST_UNPACKED >> 30} GiB")
            pieces.append(piece)
            kept += len(piece)
            while kept - len(pieces[0]) >= MAX_LOG_BYTES:
                kept -= len(pieces.popleft())
    return b"".join(pieces), total - kept


def _decode_log(path: Path, data: bytes, *, cut: bool) -> str:
    """Text of a log, by its byte order mark or by where its zero bytes are.

    Raises:
        InvalidRequest: it is not text.
    """
    sample = data[:SAMPLE]
    encoding = next((name for mark, name in _ENCODINGS.items() if data.startswith(mark)), "")
    zeros = sample.count(0)
    if not encoding and zeros:
        for order, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
            if sample[offset::2].count(0) * 10 >= len(sample[offset::2]) * 6 and sample[1 - offset :: 2].count(0) == 0:
                encoding = order
    if not encoding and len(sample) - len(sample.translate(None, CONTROLS)) > len(sample) // 100:
        raise InvalidRequest(f"{path}: is binary data, not a log")
    text = data.decode(encoding or "utf-8", errors="replace")
    # the first line lost its beginning
    return text.partition("\n")[2] if cut else text
