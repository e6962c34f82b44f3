"""Executable memory that libffi's closures lie in, told from any other by its content.

A callback (ctypes, cffi) is a closure of libffi's: a few instructions that jump into libffi. Built without static
trampolines, as Debian and conda-forge build it (`--disable-exec-static-tramp`), libffi maps them from a file that it
makes with memfd_create(2) where memory must not be writable and executable at once (MemoryDenyWriteExecute=). Any
program can give that name to a file of its own; libffi's has nothing else in it than what is read here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

NAME = "/memfd:libffi (deleted)"
# x86-64, libffi 3.4 and later (src/x86/ffi64.c): endbr64; lea -0xb(%rip),%r10; jmp *0x7(%rip); nopl 0(%rax)
TRAMPOLINE = struct.unpack("<3Q", bytes.fromhex("f30f1efa4c8d15f5ffffffff25070000000f1f8000000000"))
MOST = 1 << 20  # bytes; 64 are one closure
SMALL = 1 << 20  # sizes of what is allocated there are smaller
NEAR, FAR = 1 << 26, 1 << 32  # bytes: a process that shares the file since a fork has mapped more around its own
Areas = Sequence[tuple[int, int]]


def has_only_closures(pid: int, area: tuple[int, int], code: Areas, mapped: Areas) -> bool:
    """Whether an executable mapping of a process holds closures and nothing else that could be run.

    Args:
        pid: The process.
        area: Where its mapping begins and ends.
        code: Where it has mapped code from files.
        mapped: All that it has mapped.
    """
    first, end = area
    if end - first > MOST:
        return False
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(first)
            data = memory.read(end - first)
    except (OSError, ValueError):
        return False
    return len(data) == end - first and are_closures(data, code, mapped)


def are_closures(data: bytes, code: Areas, mapped: Areas) -> bool:
    """Whether bytes are closures that lead to code from files, and between them only sizes and addresses."""
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    addresses = _widened(mapped)
    number = 0
    while number < len(words):
        word = words[number]
        if words[number : number + 3] == TRAMPOLINE:
            if not all(_is_within(target, code) for target in words[number + 3 : number + 4]):
                return False
            number += 4
        # the end of one that was freed stays there
        elif word < SMALL or word == TRAMPOLINE[2] or _is_within(word, addresses):
            number += 1
        else:
            return False
    return True


def _is_within(word: int, areas: Areas) -> bool:
    return any(first <= word < end for first, end in areas)


def _widened(mapped: Areas) -> Areas:
    """Areas with what is near them, as few as possible."""
    merged: list[tuple[int, int]] = []
    for first, end in sorted(mapped):
        low, high = (first - NEAR, end + NEAR) if first < FAR else (max(first - FAR, FAR), end + FAR)
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged
