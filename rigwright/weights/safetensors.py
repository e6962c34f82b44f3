"""Files of weights as they are published: whether one is whole, by its beginning, and which files an index names.

Of the format (https://github.com/huggingface/safetensors, "Format"): 8 bytes with the length of a header, the header in
JSON, then the bytes of all tensors. The header's statements are only compared with the size.
"""

from __future__ import annotations

import json
from typing import Any

LENGTH = 8  # bytes
# The longest header that the format's own library reads, bytes (MAX_HEADER_SIZE of its crate `safetensors`).
LONGEST = 100_000_000
INDEX = ".safetensors.index.json"
LARGEST_INDEX = 64 << 20  # bytes; those of models with 100,000 tensors have 10 MB
# The text in a file's place where only git was there, and git LFS was not (its specification, "The Pointer"); it is
# never longer than that.
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
LONGEST_POINTER = 1024  # bytes


class BrokenSafetensors(Exception):
    """A file is not what its name says; the text says how, as the end of a sentence about it."""


def header_end(beginning: bytes, size: int) -> int:
    """Where the tensors of a file begin, bytes.

    Args:
        beginning: Its first 8 bytes, or more.
        size: All of its bytes.

    Raises:
        BrokenSafetensors: no header of that length can be there.
    """
    if len(beginning) < LENGTH:
        raise BrokenSafetensors(f"has no safetensors header: it ends after {len(beginning)} bytes")
    length = int.from_bytes(beginning[:LENGTH], "little")
    if length > LONGEST:
        raise BrokenSafetensors("has no safetensors header")
    if LENGTH + length > size:
        raise BrokenSafetensors(f"is truncated: its header has {LENGTH + length} bytes, but the file has {size}")
    return LENGTH + length


def check_header(beginning: bytes, size: int) -> None:
    """Hold a file's header against its size.

    Args:
        beginning: Its first bytes, up to where its tensors begin, or more.
        size: All of its bytes.

    Raises:
        BrokenSafetensors: it is another size, or what stands there is no header.
    """
    end = header_end(beginning, size)
    try:
        header = json.loads(beginning[LENGTH:end].decode())
    except (ValueError, RecursionError):
        raise BrokenSafetensors("has no safetensors header") from None
    if not isinstance(header, dict):
        raise BrokenSafetensors("has no safetensors header")
    last = max((_tensor_end(one) for name, one in header.items() if name != "__metadata__"), default=0)
    if end + last != size:
        how = "is truncated" if end + last > size else "is longer than it should be"
        raise BrokenSafetensors(f"{how}: its header implies {end + last} bytes, but it has {size}")


def _tensor_end(tensor: Any) -> int:
    """Where a tensor ends, from where they begin."""
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(one) is int for one in offsets)):
        raise BrokenSafetensors("has a header without valid tensor offsets")
    begin, end = offsets
    if not 0 <= begin <= end < 1 << 63:
        raise BrokenSafetensors("has a header without valid tensor offsets")
    return int(end)


def parse_shards(index: bytes) -> set[str]:
    """The files that an index of weights names.

    Raises:
        BrokenSafetensors: it is invalid.
    """
    try:
        found = json.loads(index.decode())
    except (ValueError, RecursionError):
        found = None
    named = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(named, dict) or not all(isinstance(one, str) for one in named.values()):
        raise BrokenSafetensors("is not a weights index")
    return set(named.values())


def is_pointer(beginning: bytes) -> bool:
    """Whether a file stands only for another one, which git LFS was to put in its place."""
    return beginning.startswith(POINTER)
