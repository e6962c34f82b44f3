"""Files of weights: a header that does not fit its file, and an invalid index."""

import json

import pytest

from rigwright.weights.safetensors import LONGEST, BrokenSafetensors, check_header, header_end, parse_shards
from tests.unit.checkpoints import safetensors_bytes

ONE = {"dtype": "F16", "shape": [4], "data_offsets": [0, 8]}


def headed(header: object, data: int = 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


@pytest.mark.parametrize(
    "content",
    [
        headed({"a": ONE}),
        headed({"__metadata__": {"format": "pt"}, "a": ONE}),
        headed({"b": {**ONE, "data_offsets": [8, 16]}, "a": ONE}, 16),
        headed(b'{"a": ' + json.dumps(ONE).encode() + b"}   "),
        headed({}, 0),
        safetensors_bytes(100),
    ],
)
def test_a_whole_file_is_taken_by_its_header(content: bytes) -> None:
    end = header_end(content[:8], len(content))
    check_header(content[:end], len(content))
    assert end == 8 + int.from_bytes(content[:8], "little")


HEADLESS = "has no safetensors header"
NOWHERE = "has a header without valid tensor offsets"
BROKEN: dict[str, tuple[bytes, str]] = {
    "cut in its tensors": (headed({"a": ONE})[:-1], "is truncated: its header implies 77 bytes, but it has 76"),
    "cut in its header": (headed({"a": ONE})[:20], "is truncated: its header has 69 bytes, but the file has 20"),
    "cut in its length": (b"\x01\0", "has no safetensors header: it ends after 2 bytes"),
    "longer": (headed({"a": ONE}, 9), "is longer than it should be: its header implies 77 bytes, but it has 78"),
    "something else": (b"<!doctype html><html>", HEADLESS),
    "longer than any": ((LONGEST + 1).to_bytes(8, "little") + b"{}", HEADLESS),
    "no JSON": (headed(b"{'a': 1}"), HEADLESS),
    "no UTF-8": (headed(b'{"\xff": 1}'), HEADLESS),
    "a list": (headed([ONE]), HEADLESS),
    "too deep": (headed(b"[" * 100_000), HEADLESS),
    "an infinite number": (headed(b'{"a": ' + b"1" * 5000 + b"}"), HEADLESS),
    "a tensor that is invalid": (headed({"a": 8}), NOWHERE),
    "a tensor that is nowhere": (headed({"a": {"shape": [4]}}), NOWHERE),
    "one offset": (headed({"a": {"data_offsets": [8]}}), NOWHERE),
    "offsets of text": (headed({"a": {"data_offsets": ["0", "8"]}}), NOWHERE),
    "offsets that are true": (headed({"a": {"data_offsets": [False, True]}}, 1), NOWHERE),
    "offsets backwards": (headed({"a": {"data_offsets": [8, 0]}}, 0), NOWHERE),
    "offsets before the file": (headed({"a": {"data_offsets": [-8, 8]}}), NOWHERE),
    "offsets beyond all": (headed({"a": {"data_offsets": [0, 1 << 70]}}), NOWHERE),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_is_not_what_its_header_says_is_refused(case: str) -> None:
    content, said = BROKEN[case]
    with pytest.raises(BrokenSafetensors) as error:
        check_header(content[: header_end(content[:8], len(content))], len(content))
    assert str(error.value) == said


def test_the_files_that_an_index_names() -> None:
    index = {
        "metadata": {"total_size": 8},
        "weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "1.safetensors"},
    }
    assert parse_shards(json.dumps(index).encode()) == {"1.safetensors", "2.safetensors"}


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"{}", b'{"weight_map": []}', b'{"weight_map": {"a": 1}}', b"[" * 100_000]
)
def test_an_invalid_index_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenSafetensors, match="is not a weights index"):
        parse_shards(content)
