"""Shared libraries with machine code for cards, as nvcc leaves it: ELF files of this architecture."""

import re
import struct

KINDS = {"compute": 1, "sm": 2}
SUFFIXES = {"": 0, "a": 0x100000, "f": 0x200000}


def fatbin_part(target: str, payload: bytes = b"code" * 4) -> bytes:
    """One cubin or PTX of a container."""
    found = re.fullmatch(r"(sm|compute)_([0-9]+)([af]?)", target)
    assert found
    header = (KINDS[found[1]], 0x101, 64, len(payload), 0, 0, 8, 1, int(found[2]), 0, 0, 0x8011 | SUFFIXES[found[3]])
    return struct.pack("<HHIQIIHHIIIQQQ", *header, 0, 0) + payload


def fatbin_container(*parts: bytes) -> bytes:
    """One translation unit's container."""
    body = b"".join(parts)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def elf_file(sections: dict[str, bytes]) -> bytes:
    """An ELF file of sections by name, all of them loaded."""
    names, places, body = b"\0", [], b""
    for name, content in sections.items():
        places.append((len(names), 1, 64 + len(body), len(content)))
        names += name.encode() + b"\0"
        body += content
    places.append((0, 3, 64 + len(body), len(names)))
    body += names
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 2, 0, at, size, 0, 0, 0, 0) for name, kind, at, size in places
    )
    fixed = (b"\x7fELF", 2, 1, 1, 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(places), len(places) - 1)
    return struct.pack("<4sBBB9xHHIQQQIHHHHHH", *fixed) + body + table


def cuda_library(*targets: str) -> bytes:
    """A library with machine code for targets, a container each."""
    return elf_file(
        {".text": b"\x90" * 8, ".nv_fatbin": b"".join(fatbin_container(fatbin_part(one)) for one in targets)}
    )
