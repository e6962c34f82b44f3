"""Whether a file is a GGUF, and whole, by its beginning; its contents are hostile."""

import struct
from pathlib import Path

import pytest

from cli.lock_resolver import checkpoint_inspection
from lab.tiny_model import write_model
from rigwright.supply.artefact import GgufMetadata, KvCacheSize
from rigwright.weights import gguf
from rigwright.weights.gguf import ShortHeader, parse_header
from rigwright.weights.safetensors import BrokenSafetensors
from tests.unit.gguf_files import (
    ARRAY,
    F32,
    Q4_0,
    STRING,
    U32,
    gguf_file,
    gguf_header,
    gguf_string,
    gguf_value,
    pad_to_alignment,
    tensor_info,
)

NAMED = gguf_string("general.architecture") + gguf_value("llama")


def broken(content: bytes, size: int | None = None) -> str:
    with pytest.raises(BrokenSafetensors) as caught:
        parse_header(content, len(content) if size is None else size)
    return str(caught.value)


def test_a_model_that_the_formats_own_library_has_written_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_model(path, "the tiny engine")
    content = path.read_bytes()
    found = parse_header(content, len(content))
    assert found.architecture == "llama"
    assert found.cache == KvCacheSize(keys=found.cache.keys, values=found.cache.keys) if found.cache else False
    assert 0 < found.off_card < len(content)
    assert broken(content[:-1]).startswith("is truncated: its header implies")


def test_a_file_longer_than_its_tensors_is_whole() -> None:
    """llama.cpp reads no further."""
    assert parse_header(gguf_file() + b"more", len(gguf_file()) + 4).architecture == "llama"


@pytest.mark.parametrize("count", [0, 1, 3, 4, 30, 100])
def test_of_few_bytes_more_are_asked_for(count: int) -> None:
    with pytest.raises(ShortHeader):
        parse_header(gguf_file()[:count], len(gguf_file()))


def test_every_cut_of_a_file_is_seen() -> None:
    content = gguf_file(64, {"tokenizer.ggml.tokens": ["a", "b"], "llama.block_count": 1})
    assert {broken(content[:end])[:12] for end in range(4, len(content))} == {"is truncated"}


PAIR = gguf_string("a") + struct.pack("<I", ARRAY)
LIES = {
    "another format": (b"PK\x03\x04" + bytes(60), "has no GGUF header"),
    "the first version": (gguf_header([], [], version=1), "is GGUF version 1, not 2 or 3"),
    "the other byte order": (gguf_header([], [], version=0x03000000), "is GGUF version 50331648"),
    "no tensors": (gguf_header([NAMED], []), "has no tensors"),
    "many tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 40, 0), "header: 1099511627776 tensors"),
    "many keys": (b"GGUF" + struct.pack("<IQQ", 3, 1, 1 << 63), "header: 9223372036854775808 keys"),
    "a long key": (gguf_header([struct.pack("<Q", 1 << 20)], []), "header: 1048576 bytes of one text"),
    "a long text": (gguf_header([gguf_string("a") + struct.pack("<IQ", STRING, 1 << 62)], []), "bytes of one text"),
    "a long list": (gguf_header([PAIR + struct.pack("<IQ", U32, 1 << 62)], []), "items of one list"),
    "a list of a length that the file has not": (
        gguf_header([PAIR + struct.pack("<IQ", U32, 1 << 20)], []),
        "is truncated",
    ),
    "a list of lists": (gguf_header([PAIR + struct.pack("<IQ", ARRAY, 1)], []), "a list of type 9"),
    "a type of value that is invalid": (
        gguf_header([gguf_string("a") + struct.pack("<I", 13)], []),
        "a value of type 13",
    ),
    "a key twice": (gguf_header([NAMED, NAMED], []), "has the key 'general.architecture' twice"),
    "a key without a name": (gguf_header([gguf_string("") + gguf_value(1)], []), "has a key without a name"),
    "a long name": (gguf_header([NAMED], [tensor_info("a" * 64, 0, [32])]), "header: 64 bytes of one text"),
    "many dimensions": (gguf_header([NAMED], [tensor_info("a", 0, [1] * 5)]), "a tensor with 5 dimensions"),
    "a tensor twice": (
        gguf_header([NAMED], [tensor_info("a", 0, [1]), tensor_info("a", 32, [1])]),
        "has a tensor twice",
    ),
    "a half block": (gguf_header([NAMED], [tensor_info("a", 0, [16], Q4_0)]), "'a' has rows of 16, but blocks of 32"),
    "a block without a row": (
        gguf_header([NAMED], [tensor_info("a", 0, [], Q4_0)]),
        "'a' has rows of 1, but blocks of 32",
    ),
    "odd alignment": (
        gguf_header([gguf_string("general.alignment") + gguf_value(3)], [tensor_info("a", 0, [1])]),
        "alignment 3",
    ),
    "a tensor between": (
        pad_to_alignment(gguf_header([NAMED], [tensor_info("a", 1, [1])])) + bytes(64),
        "has 'a' at 1, not a multiple",
    ),
    "one place for two": (
        pad_to_alignment(gguf_header([NAMED], [tensor_info("a", 0, [16], F32), tensor_info("b", 32, [1])]))
        + bytes(640),
        "has 'a' and 'b' overlapping",
    ),
    "a tensor behind its end": (
        pad_to_alignment(gguf_header([NAMED], [tensor_info("a", 1 << 20, [1])])) + bytes(64),
        "is truncated",
    ),
    "one that is too long": (
        pad_to_alignment(gguf_header([NAMED], [tensor_info("a", 0, [1 << 40, 1 << 40])])) + bytes(64),
        "is truncated",
    ),
    "a name that writes on the terminal": (
        pad_to_alignment(
            gguf_header([gguf_string("general.architecture") + gguf_value("\x1b[2J")], [tensor_info("a", 0, [0])])
        ),
        "has impossible model metadata",
    ),
}


@pytest.mark.parametrize("case", LIES)
def test_a_header_that_lies_is_refused(case: str) -> None:
    content, said = LIES[case]
    assert said in broken(content)


def test_a_header_without_end_is_not_read_for_ever() -> None:
    begun = gguf_header([gguf_string("a") + struct.pack("<IIQ", ARRAY, STRING, 1 << 24)], [])
    assert broken(begun + bytes(gguf.LONGEST), 1 << 40) == f"has a header of more than {gguf.LONGEST} bytes"


def test_a_type_of_tensor_that_is_not_known_yet_is_no_mistake() -> None:
    content = pad_to_alignment(gguf_header([NAMED], [tensor_info("a", 0, [7], 99)])) + bytes(32)
    assert parse_header(content, len(content)) == GgufMetadata(architecture="llama")


def test_the_first_part_of_a_split_model_may_have_no_tensors() -> None:
    content = gguf_header([NAMED, gguf_string("split.count") + gguf_value(2)], [])
    assert parse_header(content, len(content)).architecture == "llama"


def test_objects_that_need_no_card() -> None:
    said = {"llama.block_count": 3, "llama.nextn_predict_layers": 1}
    sizes = {"token_embd__weight": 100, "output__weight": 1000, "blk__1__a": 10_000, "blk__2__a": 100_000}
    content = gguf_file(said=said, **sizes)
    assert parse_header(content, len(content)).off_card == 100_100


def test_a_file_that_becomes_shorter_while_it_is_read_is_not_waited_for() -> None:
    with pytest.raises(BrokenSafetensors, match="was truncated while it was read"):
        checkpoint_inspection.parse_header("one.gguf", 100_000_000, lambda count: gguf_file(b"one")[: min(count, 20)])
