"""Whether a file is a GGUF, and whole, by its beginning; what it says is hostile."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cli.resolving import checkpoints
from lab.tiny_model import write
from rigwright.supply.header import Cache, Header
from rigwright.weights import gguf as under_test
from rigwright.weights.gguf import Short, read
from rigwright.weights.safetensors import Broken
from tests.unit.ggufs import ARRAY, F32, Q4_0, STRING, U32, aligned, gguf, header, tensor, text, value

NAMED = text("general.architecture") + value("llama")


def broken(content: bytes, size: int | None = None) -> str:
    with pytest.raises(Broken) as caught:
        read(content, len(content) if size is None else size)
    return str(caught.value)


def test_a_model_that_the_formats_own_library_has_written_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write(path, "the tiny engine")
    content = path.read_bytes()
    found = read(content, len(content))
    assert found.architecture == "llama"
    assert found.cache == Cache(keys=found.cache.keys, values=found.cache.keys) if found.cache else False
    assert 0 < found.off_card < len(content)
    assert broken(content[:-1]).startswith("is truncated: its header implies")


def test_what_is_longer_than_its_tensors_is_whole() -> None:
    """llama.cpp reads no further."""
    assert read(gguf() + b"more", len(gguf()) + 4).architecture == "llama"


@pytest.mark.parametrize("count", [0, 1, 3, 4, 30, 100])
def test_of_few_bytes_more_are_asked_for(count: int) -> None:
    with pytest.raises(Short):
        read(gguf()[:count], len(gguf()))


def test_every_cut_of_a_file_is_seen() -> None:
    content = gguf(64, {"tokenizer.ggml.tokens": ["a", "b"], "llama.block_count": 1})
    assert {broken(content[:end])[:12] for end in range(4, len(content))} == {"is truncated"}


PAIR = text("a") + struct.pack("<I", ARRAY)
LIES = {
    "another format": (b"PK\x03\x04" + bytes(60), "has no GGUF header"),
    "the first version": (header([], [], version=1), "is GGUF version 1, not 2 or 3"),
    "the other byte order": (header([], [], version=0x03000000), "is GGUF version 50331648"),
    "no tensors": (header([NAMED], []), "has no tensors"),
    "many tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), "header: 1099511627776 tensors"),
    "many keys": (b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 63), "header: 9223372036854775808 keys"),
    "a long key": (header([struct.pack("<Q", 1 << 20)], []), "header: 1048576 bytes of one text"),
    "a long text": (header([text("a") + struct.pack("<IQ", STRING, 1 << 62)], []), "bytes of one text"),
    "a long list": (header([PAIR + struct.pack("<IQ", U32, 1 << 62)], []), "items of one list"),
    "a list of a length that the file has not": (header([PAIR + struct.pack("<IQ", U32, 1 << 20)], []), "is truncated"),
    "a list of lists": (header([PAIR + struct.pack("<IQ", ARRAY, 1)], []), "a list of type 9"),
    "a type of value that is none": (header([text("a") + struct.pack("<I", 13)], []), "a value of type 13"),
    "a key twice": (header([NAMED, NAMED], []), "has the key 'general.architecture' twice"),
    "a key without a name": (header([text("") + value(1)], []), "has a key without a name"),
    "a long name": (header([NAMED], [tensor("a" * 64, 0, [32])]), "header: 64 bytes of one text"),
    "many dimensions": (header([NAMED], [tensor("a", 0, [1] * 5)]), "a tensor with 5 dimensions"),
    "a tensor twice": (header([NAMED], [tensor("a", 0, [1]), tensor("a", 32, [1])]), "has a tensor twice"),
    "a half block": (header([NAMED], [tensor("a", 0, [16], Q4_0)]), "'a' has rows of 16, but blocks of 32"),
    "a block without a row": (header([NAMED], [tensor("a", 0, [], Q4_0)]), "'a' has rows of 1, but blocks of 32"),
    "odd alignment": (
        header([text("general.alignment") + value(3)], [tensor("a", 0, [1])]),
        "alignment 3",
    ),
    "a tensor between": (aligned(header([NAMED], [tensor("a", 1, [1])])) + bytes(64), "has 'a' at 1, not a multiple"),
    "one place for two": (
        aligned(header([NAMED], [tensor("a", 0, [16], F32), tensor("b", 32, [1])])) + bytes(640),
        "has 'a' and 'b' overlapping",
    ),
    "a tensor behind its end": (aligned(header([NAMED], [tensor("a", 1 << 20, [1])])) + bytes(64), "is truncated"),
    "one that is too long": (
        aligned(header([NAMED], [tensor("a", 0, [1 << 40, 1 << 40])])) + bytes(64),
        "is truncated",
    ),
    "a name that writes on the terminal": (
        aligned(header([text("general.architecture") + value("\x1b[2J")], [tensor("a", 0, [0])])),
        "has impossible model metadata",
    ),
}


@pytest.mark.parametrize("case", LIES)
def test_a_header_that_lies_is_refused(case: str) -> None:
    content, said = LIES[case]
    assert said in broken(content)


def test_a_header_without_end_is_not_read_for_ever() -> None:
    begun = header([text("a") + struct.pack("<IIQ", ARRAY, STRING, 1 << 24)], [])
    endless = begun + bytes(under_test.LONGEST)
    assert broken(endless, 1 << 40) == f"has a header of more than {under_test.LONGEST} bytes"


def test_a_type_of_tensor_that_is_not_known_yet_is_no_mistake() -> None:
    content = aligned(header([NAMED], [tensor("a", 0, [7], 99)])) + bytes(32)
    assert read(content, len(content)) == Header(architecture="llama")


def test_the_first_part_of_a_split_model_may_have_no_tensors() -> None:
    content = header([NAMED, text("split.count") + value(2)], [])
    assert read(content, len(content)).architecture == "llama"


def test_what_need_not_be_on_a_card() -> None:
    said = {"llama.block_count": 3, "llama.nextn_predict_layers": 1}
    sizes = {"token_embd__weight": 100, "output__weight": 1000, "blk__1__a": 10_000, "blk__2__a": 100_000}
    content = gguf(said=said, **sizes)
    assert read(content, len(content)).off_card == 100_100


def test_a_file_that_becomes_shorter_while_it_is_read_is_not_waited_for() -> None:
    with pytest.raises(Broken, match="was truncated while it was read"):
        checkpoints.header("one.gguf", 100_000_000, lambda count: gguf(b"one")[: min(count, 20)])
