"""Executable memory that libffi's closures lie in: a plausibility check by its content, word by word.

A callback (ctypes, cffi) is a closure of libffi's: a few instructions that jump into libffi. Built without static
trampolines, as Debian and conda-forge build it (`--disable-exec-static-tramp`), libffi maps them from a file that it
makes with memfd_create(2) where memory must not be writable and executable at once (MemoryDenyWriteExecute=). libffi
3.4.2 is the first with that file; 3.3 and older have none.

Any program can give that name to a file of its own, and a process that runs an attacker's code can write records that
pass here, or change them after the look. A match is plausible, not proven.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

NAME = "/memfd:libffi (deleted)"
# x86-64, libffi 3.4.2 to 3.8 (src/x86/ffi64.c): endbr64; lea -0xb(%rip),%r10; jmp *0x7(%rip); nopl 0(%rax)
TRAMPOLINE = struct.unpack("<3Q", bytes.fromhex("f30f1efa4c8d15f5ffffffff25070000000f1f8000000000"))
PAGE = 4096  # bytes: segments of its allocator begin and end with pages
RECORD = 8  # words of an allocated closure: its size, the trampoline (3) and its target, cif, fun, user_data
AREAS = 256  # mappings of one process: libffi maps a page each time, which 62 closures fit in
BYTES = 1 << 20  # of one process
NEAR = (
    1 << 26
)  # bytes: memory that freed closures led to may be unmapped since; glibc's and Python's arenas are smaller
FENCE = 0xB  # the words with which dlmalloc ends a full segment, three times (FENCEPOST_HEAD)
TREES = 32  # dlmalloc's bins of large chunks (NTREEBINS)
Areas = Sequence[tuple[int, int]]


class AreaIndex:
    """Areas of addresses, merged and sorted once: a look-up is a bisection."""

    def __init__(self, areas: Iterable[tuple[int, int]], margin: int = 0) -> None:
        merged: list[list[int]] = []
        for first, end in sorted(areas):
            low = first - margin if first > margin else first
            if merged and low <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end + margin)
            else:
                merged.append([low, end + margin])
        self.firsts = [first for first, _ in merged]
        self.ends = [end for _, end in merged]

    def __contains__(self, address: int) -> bool:
        number = bisect_right(self.firsts, address) - 1
        return number >= 0 and address < self.ends[number]


@dataclass
class AddressSpace:
    """Where processes that share one file of libffi's have mapped memory."""

    mapped: Areas
    """The readable part."""
    code: Areas
    """Executable memory of files that have a name."""
    links: Areas
    """The links of libffi's allocator: the area through which it writes closures, and variables of files, its own
    lists."""
    executable: Areas
    """The area that it runs them from."""
    total: int = field(init=False)
    """Bytes of closures: no chunk there is larger."""

    def __post_init__(self) -> None:
        self.total = sum(end - first for first, end in self.executable)
        self._mapped, self._code = AreaIndex(self.mapped), AreaIndex(self.code)
        self._near = AreaIndex(self.mapped, NEAR)
        self._links, self._closures = AreaIndex(self.links), AreaIndex(self.executable)

    def are_closures(self, data: bytes) -> bool:
        """Whether each page is a row of closures, allocated or freed, as libffi's allocator lays them out."""
        pages = [struct.unpack_from(f"<{PAGE // 8}Q", data, start) for start in range(0, len(data), PAGE)]
        return all(map(self._is_page, pages))

    def _is_page(self, words: tuple[int, ...]) -> bool:
        if not any(words):
            return True
        end = len(words)
        # a process that has the page since a fork, and room there, has its own size and zero instead of two of these
        if words[-3:-1] == (FENCE, FENCE) and words[-1] in (FENCE, 0):
            # 8 bytes are what chunks are aligned to, 16 in 3.8
            end = next((at for at in (end - 9, end - 10) if self._is_segment(words[at:-3])), 0)
            if not end:
                return False
        # page by page the first word is the last one of the closure before
        return self._is_last(words[0]) and all(
            self._is_record(words[at : min(at + RECORD, end)]) for at in range(1, end, RECORD)
        )

    def _is_segment(self, words: tuple[int, ...]) -> bool:
        """Whether dlmalloc's record of a segment is there: before it a size, after it perhaps an unused word."""
        before, head, base, size, after, offset, *rest = words
        return (
            self._is_size(before)
            and self._is_size(head & ~3)
            and self._is_link(base)
            and size % PAGE == 0
            and self._is_size(size)
            and (after == 0 or self._is_link(after))
            and (base + offset) % (1 << 64) in self._closures
            and not any(rest)
        )

    def _is_record(self, words: tuple[int, ...]) -> bool:
        head, *rest = words
        # two bits are flags, the third one is always clear
        if not self._is_size(head & ~3):
            return False
        if tuple(rest[:3]) == TRAMPOLINE:
            return len(rest) == RECORD - 1 and self._is_closure(rest[3:])
        kinds: tuple[Callable[[int], bool], ...] = (
            self._is_link,
            self._is_link,
            lambda word: word == TRAMPOLINE[2] or self._is_link(word),
            lambda word: word in self._code or self._is_link(word),
            lambda word: word % 8 == 0 and (word in self._near or self._is_size(word)),
            lambda word: word in self._code or word < TREES or self._is_size(word),
            self._is_last,
        )
        return all(word == 0 or is_kind(word) for word, is_kind in zip(rest, kinds, strict=False))

    def _is_closure(self, words: Sequence[int]) -> bool:
        target, cif, fun, user_data = words
        return (
            target in self._code
            and cif % 8 == 0
            and cif in self._mapped
            and fun in self._code
            # a size: the closure was freed into the unused rest
            and (user_data in self._mapped or self._is_size(user_data))
        )

    def _is_last(self, word: int) -> bool:
        return word in self._near or self._is_size(word)

    def _is_link(self, word: int) -> bool:
        return word % 8 == 0 and word in self._links

    def _is_size(self, word: int) -> bool:
        return word % 8 == 0 and word <= self.total


def read(pid: int, areas: Areas) -> bytes | None:
    """The contents of a process's areas; None where it has ended, or unmapped one since."""
    pieces = []
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for first, end in areas:
                memory.seek(first)
                pieces.append(memory.read(end - first))
                if len(pieces[-1]) != end - first:
                    return None
    except (OSError, ValueError):
        return None
    return b"".join(pieces)
