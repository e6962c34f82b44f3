"""GGUF files as they are published: whether one is whole, by its beginning, and what it says of memory.

Of the format (https://github.com/ggml-org/ggml: its page about GGUF, and what its gguf.cpp refuses): a header with keys
and values, then where each tensor is, then the bytes of all tensors. Its statements are only compared with the size;
nothing is allocated by its word.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import NamedTuple

from pydantic import ValidationError

from rigwright.problems import format_value
from rigwright.supply.artefact import MOST, GgufMetadata, WorkSize
from rigwright.weights.kv_cache_size import MetadataValue, gguf_kv_cache
from rigwright.weights.safetensors import BrokenSafetensors

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# Bytes; the vocabulary is the most of one, and the longest known have 16 MB.
LONGEST = 64 << 20
MOST_PAIRS = MOST_TENSORS = 1 << 16
LONGEST_KEY = (1 << 16) - 1  # the same page
LONGEST_NAME = 63  # GGML_MAX_NAME, with the byte that ends it
MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
MOST_LAYERS = 1024  # of values that are one a layer
ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT
# Types of values: bytes, and how `struct` calls them; strings and arrays are 8 and 9.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Types of tensors: numbers in a block, and its bytes (ggml.h, enum ggml_type; gguf-py, GGML_QUANT_SIZES).
BLOCKS: Mapping[int, tuple[int, int]] = {
    **{0: (1, 4), 1: (1, 2), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2)},
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 20: (32, 18), 39: (32, 17)},
    **{10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292)},
    **{16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 21: (256, 110), 22: (256, 82), 23: (256, 136)},
    **{29: (256, 56), 34: (256, 54), 35: (256, 66), 40: (64, 36), 41: (128, 18)},
}
# The weights that stay in RAM with any layers on cards (llama-model.cpp, load_tensors: the input layer;
# llama-arch.cpp).
INPUT = re.compile(r"(?:token_embd|per_layer_token_embd|position_embd|token_types)\.weight")
# Types whose matrices llama.cpp copies into another order on x86 (ggml-cpu/repack.cpp): Q4_0, Q4_K, IQ4_NL.
REPACKED = frozenset({2, 12, 20})
MOST_WIDTH = 1 << 24  # numbers of a token in any step
LAYER = re.compile(r"blk\.([0-9]{1,5})\..+")


class _Tensor(NamedTuple):
    name: str
    offset: int
    """Among the tensors."""
    size: int | None
    """Bytes; None for a type that is not known here."""
    type: int
    dimensions: int = 1


class ShortHeader(Exception):
    """More of the file is needed to say anything."""


class _HeaderReader:
    """The bytes of a header, one thing after the other."""

    def __init__(self, beginning: bytes, size: int) -> None:
        self.beginning, self.size, self.at = beginning, size, 0

    def skip(self, count: int) -> int:
        """Go on behind so many bytes; returns where they begin."""
        start = self.at
        if start + count > self.size:
            raise BrokenSafetensors(f"is truncated: its header exceeds its {self.size} bytes")
        if start + count > LONGEST:
            raise BrokenSafetensors(f"has a header of more than {LONGEST} bytes")
        if start + count > len(self.beginning):
            raise ShortHeader
        self.at = start + count
        return start

    def number(self, code: str) -> int | float | bool:
        """One number, as `struct` calls its type."""
        form = struct.Struct(f"<{code}")
        return form.unpack_from(self.beginning, self.skip(form.size))[0]  # type: ignore[no-any-return]

    def count(self, most: int, what: str) -> int:
        """A count of 8 bytes."""
        found = int(self.number("Q"))
        if found > most:
            raise BrokenSafetensors(f"has an invalid GGUF header: {found} {what}")
        return found

    def text(self, most: int = LONGEST) -> str:
        """A text; of one that is no UTF-8 what can be read."""
        length = self.count(most, "bytes of one text")
        start = self.skip(length)
        return self.beginning[start : start + length].decode(errors="replace")

    def value(self, wanted: bool) -> MetadataValue | None:
        """A value; None where it is unneeded or has another type."""
        kind = int(self.number("I"))
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            raise BrokenSafetensors(f"has an invalid GGUF header: a value of type {kind}")
        inner = int(self.number("I"))
        count = self.count(LONGEST, "items of one list")
        if inner == STRING:
            self._skip_texts(count)
            return None
        if inner not in SCALARS:  # lists of lists are in no version
            raise BrokenSafetensors(f"has an invalid GGUF header: a list of type {inner}")
        form = struct.Struct(f"<{SCALARS[inner]}")
        start = self.skip(count * form.size)
        if not wanted or count > MOST_LAYERS:
            return None
        return [one for (one,) in form.iter_unpack(self.beginning[start : start + count * form.size])]

    def _skip_texts(self, count: int) -> None:
        """Go on behind so many texts: a vocabulary has some 100,000."""
        at, form = self.at, struct.Struct("<Q")
        for _ in range(count):
            if at + form.size > len(self.beginning):
                at += form.size
                break
            at += form.size + form.unpack_from(self.beginning, at)[0]
        self.skip(at - self.at)


def parse_header(beginning: bytes, size: int) -> GgufMetadata:
    """The contents of a file's header, compared with the file's size.

    Args:
        beginning: Its first bytes.
        size: All of its bytes.

    Raises:
        BrokenSafetensors: it is no GGUF, or not whole.
        ShortHeader: that is not known by so few of its bytes; `LONGEST` are enough.
    """
    if not (beginning.startswith(MAGIC) or MAGIC.startswith(beginning)):
        raise BrokenSafetensors("has no GGUF header")
    reader = _HeaderReader(beginning, size)
    reader.skip(len(MAGIC))
    version = int(reader.number("I"))
    if version not in VERSIONS:
        raise BrokenSafetensors(f"is GGUF version {version}, not {' or '.join(map(str, VERSIONS))}")
    tensors = reader.count(MOST_TENSORS, "tensors")
    said = _read_pairs(reader)
    found = [_read_tensor(reader) for _ in range(tensors)]
    if len({one.name for one in found}) < len(found):
        raise BrokenSafetensors("has a tensor twice")
    if not found and not _int_or_zero(said.get("split.count")) > 1:
        raise BrokenSafetensors("has no tensors")
    alignment = _int_or_zero(said.get("general.alignment", ALIGNMENT))
    if alignment < 1 or alignment > LONGEST or alignment & (alignment - 1):
        raise BrokenSafetensors(f"has an invalid GGUF header: alignment {alignment}")
    _check_tensors(found, -(-reader.at // alignment) * alignment, alignment, size)
    architecture = said.get("general.architecture")
    own = architecture if isinstance(architecture, str) else None
    kept = gguf_kv_cache(own, said) if own else None
    try:
        return GgufMetadata(
            architecture=own,
            off_card=_off_card_bytes(found, own, said),
            cache=kept,
            work=_work_size(found, own, said) if own and kept else None,
        )
    except ValidationError:
        raise BrokenSafetensors("has impossible model metadata") from None


def _read_pairs(reader: _HeaderReader) -> dict[str, MetadataValue]:
    """The header's keys with a number, a text, or a list of numbers that could be one a layer."""
    seen: set[str] = set()
    said: dict[str, MetadataValue] = {}
    for _ in range(reader.count(MOST_PAIRS, "keys")):
        key = reader.text(LONGEST_KEY)
        if not key or key in seen:
            raise BrokenSafetensors(f"has the key {format_value(key)} twice" if key else "has a key without a name")
        seen.add(key)
        value = reader.value(wanted=not key.startswith("tokenizer."))
        if value is not None:
            said[key] = value
    return said


def _read_tensor(reader: _HeaderReader) -> _Tensor:
    """One tensor's row."""
    name = reader.text(LONGEST_NAME)
    dimensions = int(reader.number("I"))
    if dimensions > MOST_DIMENSIONS:
        raise BrokenSafetensors(f"has an invalid GGUF header: a tensor with {dimensions} dimensions")
    shape = [reader.count(MOST, "numbers in one row") for _ in range(dimensions)]
    kind, offset = int(reader.number("I")), reader.count(MOST, "bytes before a tensor")
    if kind not in BLOCKS:
        return _Tensor(name, offset, None, kind)
    numbers, size = BLOCKS[kind]
    row = shape[0] if shape else 1
    if row % numbers:
        raise BrokenSafetensors(
            f"has an invalid GGUF header: {format_value(name)} has rows of {row}, but blocks of {numbers}"
        )
    return _Tensor(name, offset, prod(shape) // numbers * size, kind, len(shape))


def _check_tensors(tensors: list[_Tensor], start: int, alignment: int, size: int) -> None:
    """Hold where tensors are against each other and the file's size."""
    placed = sorted((one.offset, one.size or 0, one.name) for one in tensors)
    for offset, _, name in placed:
        if offset % alignment:
            raise BrokenSafetensors(
                f"has {format_value(name)} at {offset}, not a multiple of the alignment {alignment}"
            )
    for (offset, length, name), (following, _, other) in pairwise(placed):
        if offset + length > following:
            raise BrokenSafetensors(f"has {format_value(name)} and {format_value(other)} overlapping")
    end = start + max((offset + length for offset, length, _ in placed), default=0)
    if placed and end > size:
        raise BrokenSafetensors(f"is truncated: its header implies {end} bytes, but it has {size}")


def _off_card_bytes(tensors: list[_Tensor], architecture: str | None, said: Mapping[str, MetadataValue]) -> int:
    """Bytes of tensors that need not be on cards."""
    layers = _int_or_zero(said.get(f"{architecture}.block_count"))
    ahead = _int_or_zero(said.get(f"{architecture}.nextn_predict_layers"))
    found = 0
    for one in tensors:
        layer = LAYER.fullmatch(one.name)
        if INPUT.fullmatch(one.name) or (layer and layers - ahead <= int(layer[1]) < layers):
            found += one.size or 0
    return found


def _work_size(tensors: list[_Tensor], architecture: str, said: Mapping[str, MetadataValue]) -> WorkSize | None:
    """Sizes of the computation; None where the header does not have them as one number for all layers."""

    def number(key: str) -> int:
        return _int_or_zero(said.get(f"{architecture}.{key}"))

    width, heads = number("embedding_length"), number("attention.head_count")
    experts = number("expert_used_count") * number("expert_feed_forward_length")
    feed_forward = max(number("feed_forward_length"), experts)
    if min(width, heads, feed_forward) <= 0 or max(width, heads, feed_forward) > MOST_WIDTH:
        return None
    copied = (
        one.size or 0
        for one in tensors
        if one.type in REPACKED and one.dimensions > 1 and not INPUT.fullmatch(one.name)
    )
    return WorkSize(width=width, feed_forward=feed_forward, heads=heads, repacked=sum(copied))


def _int_or_zero(value: MetadataValue | None) -> int:
    return value if type(value) is int else 0
