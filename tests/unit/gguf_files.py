"""GGUF files by hand: right ones, and wrong ones that the format's own library would not write."""

import struct
from collections.abc import Mapping, Sequence

U32, STRING, ARRAY, BOOL, U64, I32 = 4, 8, 9, 7, 10, 5
I8, F32, Q4_0 = 24, 0, 2


def gguf_string(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(given: object) -> bytes:
    """A value with its type."""
    if isinstance(given, bool):
        return struct.pack("<I?", BOOL, given)
    if isinstance(given, int):
        return struct.pack("<II", U32, given)
    if isinstance(given, str):
        return struct.pack("<I", STRING) + gguf_string(given)
    assert isinstance(given, list)
    if given and isinstance(given[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(given)) + b"".join(map(gguf_string, given))
    if given and isinstance(given[0], bool):
        return struct.pack("<IIQ", ARRAY, BOOL, len(given)) + bytes(given)
    return struct.pack("<IIQ", ARRAY, I32, len(given)) + struct.pack(f"<{len(given)}i", *given)


def tensor_info(name: str, offset: int, shape: Sequence[int], kind: int = I8) -> bytes:
    """Where a tensor is."""
    return gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf_header(pairs: Sequence[bytes], tensors: Sequence[bytes], version: int = 3, magic: bytes = b"GGUF") -> bytes:
    counts = struct.pack("<IQQ", version, len(tensors), len(pairs))
    return magic + counts + b"".join(pairs) + b"".join(tensors)


def pad_to_alignment(content: bytes, alignment: int = 32) -> bytes:
    return content + bytes(-len(content) % alignment)


def gguf_file(payload: bytes | int = 64, said: Mapping[str, object] | None = None, **tensors: int) -> bytes:
    """A whole file.

    Args:
        payload: The bytes of its only tensor, or how many; with `tensors` there are others.
        said: Keys and values.
        tensors: Name with _ for . -> bytes, each of zeros.
    """
    pairs = [
        gguf_string(key) + gguf_value(one) for key, one in {"general.architecture": "llama", **(said or {})}.items()
    ]
    if tensors:
        places, at = [], 0
        for name, size in tensors.items():
            places.append(tensor_info(name.replace("__", "."), at, [size]))
            at += -(-size // 32) * 32
        return pad_to_alignment(gguf_header(pairs, places)) + bytes(at)
    data = bytes(payload) if isinstance(payload, int) else payload
    return pad_to_alignment(gguf_header(pairs, [tensor_info("blk.0.weight", 0, [len(data)])])) + data
