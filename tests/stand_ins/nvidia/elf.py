"""The smallest ELF files that depmod, modinfo, dkms and ldconfig take for kernel modules and libraries.

Written byte by byte because neither this machine nor a host need have a compiler. Numbers: elf(5), gABI.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

IDENT = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64 bits, little endian, version 1, System V
EHDR, SHDR, PHDR, SYM = 64, 64, 56, 24
REL, DYN, X86_64 = 1, 3, 62
PROGBITS, SYMTAB, STRTAB, HASH, DYNAMIC, DYNSYM = 1, 2, 3, 5, 6, 11
ALLOC = 2
VERMAGIC = 128
"""Bytes of the last entry of a module's .modinfo, the kernel that it is for: fixed, so that a shell can write it."""
FEATURES = "SMP preempt mod_unload modversions"
"""The suffix after the release in the vermagic of a distribution's kernel."""


def kernel_module(name: str, version: str, licence: str, aliases: Sequence[str] = ()) -> bytes:
    """A kernel module without its last VERMAGIC bytes; `vermagic` makes those."""
    entries = [f"name={name}", f"version={version}", f"license={licence}", *(f"alias={alias}" for alias in aliases)]
    entries += ["depends=" if name == "nvidia" else "depends=nvidia", "retpoline=Y"]
    info = b"".join(entry.encode() + b"\0" for entry in entries)
    names = b"\0.modinfo\0.symtab\0.strtab\0.shstrtab\0"
    symbols = bytes(SYM)
    place = EHDR
    tables = place + 5 * SHDR
    body = names + symbols + b"\0"
    at_symbols, at_strings = tables + len(names), tables + len(names) + len(symbols)
    at_info = tables + len(body)
    sections = [
        bytes(SHDR),
        _section_header(names, ".modinfo", PROGBITS, at_info, len(info) + VERMAGIC, flags=ALLOC),
        _section_header(names, ".symtab", SYMTAB, at_symbols, len(symbols), link=3, info=1, entry=SYM),
        _section_header(names, ".strtab", STRTAB, at_strings, 1),
        _section_header(names, ".shstrtab", STRTAB, tables, len(names)),
    ]
    head = _elf_header(REL, sections=place, section_count=5, names_at=4)
    return head + b"".join(sections) + body + info


def vermagic_bytes(release: str) -> bytes:
    """The end of a module for one kernel."""
    text = f"vermagic={release} {FEATURES} "
    return text.ljust(VERMAGIC - 1).encode() + b"\0"


def shared_library(soname: str) -> bytes:
    """A shared library of that name, without a symbol."""
    names = b"\0.dynamic\0.dynstr\0.dynsym\0.hash\0.shstrtab\0"
    strings = b"\0" + soname.encode() + b"\0"
    at = EHDR + 2 * PHDR
    at_symbols = at
    at_hash = at_symbols + SYM
    hash_ = struct.pack("<4I", 1, 1, 0, 0)  # one bucket, one symbol
    at_dynamic = at_hash + len(hash_)
    size = 16 * 6
    at_strings = at_dynamic + size
    at_names = at_strings + len(strings)
    # DT_SONAME, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_NULL
    dynamic = struct.pack("<12Q", 14, 1, 4, at_hash, 5, at_strings, 6, at_symbols, 10, len(strings), 0, 0)
    end = at_names + len(names)
    programs = struct.pack("<2I6Q", 1, 6, 0, 0, 0, end, end, 0x1000) + struct.pack(
        "<2I6Q", 2, 6, at_dynamic, at_dynamic, at_dynamic, size, size, 8
    )
    sections = [
        bytes(SHDR),
        _section_header(
            names, ".dynsym", DYNSYM, at_symbols, SYM, flags=ALLOC, address=at_symbols, link=4, info=1, entry=SYM
        ),
        _section_header(names, ".hash", HASH, at_hash, len(hash_), flags=ALLOC, address=at_hash, link=1, entry=4),
        _section_header(names, ".dynamic", DYNAMIC, at_dynamic, size, flags=3, address=at_dynamic, link=4, entry=16),
        _section_header(names, ".dynstr", STRTAB, at_strings, len(strings), flags=ALLOC, address=at_strings),
        _section_header(names, ".shstrtab", STRTAB, at_names, len(names)),
    ]
    head = _elf_header(DYN, sections=end, section_count=6, names_at=5, programs=2)
    return head + programs + bytes(SYM) + hash_ + dynamic + strings + names + b"".join(sections)


def _elf_header(kind: int, *, sections: int, section_count: int, names_at: int, programs: int = 0) -> bytes:
    rest = (0, EHDR if programs else 0, sections, 0, EHDR, PHDR if programs else 0, programs, SHDR)
    return IDENT + struct.pack("<2HI3QI6H", kind, X86_64, 1, *rest, section_count, names_at)


def _section_header(
    names: bytes,
    name: str,
    kind: int,
    offset: int,
    size: int,
    *,
    flags: int = 0,
    address: int = 0,
    link: int = 0,
    info: int = 0,
    entry: int = 0,
) -> bytes:
    where = names.index(b"\0" + name.encode() + b"\0") + 1
    return struct.pack("<2I4Q2I2Q", where, kind, flags, address, offset, size, link, info, 1, entry)
