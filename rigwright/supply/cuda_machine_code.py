"""Which cards the machine code inside of a shared library is for, and which files of an environment a card cannot run.

nvcc puts what it compiled for cards into the section `.nv_fatbin`: containers, one a translation unit, each with a
cubin (machine code for one architecture) or PTX (text that the driver compiles) a target. NVIDIA describes the section
in "CUDA Binary Utilities" and not its bytes; those were read off next to the output of its cuobjdump.
Section `__nv_relfatbin` has the parts that were linked into it, which no driver loads. A library may also keep
containers among its own data and hand them to the driver itself: cuFFT 12 has nearly all of its code so, and cuobjdump
does not list it.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import IO, Any

from rigwright.supply.artefact import Artefact

SECTION = b".nv_fatbin"
LINKED = b"__nv_relfatbin"
# Of today's largest: cuBLASLt 13.1 has 5,700 parts, cuFFT 12.0 has 24,000.
READS = 2_000_000
_ELF = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_HEADER = struct.Struct("<IIQQQQIIQQ")
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_MAGIC = 0xBA55ED50
# The beginning of a container among other data: the magic, its version, and the length of its header.
_BEGINS = struct.pack("<IHH", _MAGIC, 1, _CONTAINER.size)
_WINDOW = 64 << 20  # bytes that are searched at once
# Of a section: it is in the file; it is loaded, and is no program (elf(5)).
_DATA, _LOADED, _PROGRAM = 1, 2, 4
_KINDS = {1: "compute", 2: "sm"}
# The target in an entry's flags: for exactly this architecture, or for this one's family.
_SUFFIXES = {0: "", 0x100000: "a", 0x200000: "f"}
_SUFFIX = 0x300000
_TARGET = re.compile(r"(sm|compute)_([1-9][0-9]{0,2})([0-9])([af]?)")
# Cards that share memory with their CPU: they and others do not run each other's cubins ("CUDA C++ Programming Guide",
# Binary Compatibility).
_INTEGRATED = {(5, 3), (6, 2), (7, 2), (8, 7), (11, 0)}


class UnreadableLibrary(Exception):
    """It says of itself what cannot be; the text says what."""


class _EndlessLibrary(UnreadableLibrary):
    """It has more parts than any library."""


class _LibraryReader:
    """A library that is read at most so many times: parts can be made to lie in each other."""

    def __init__(self, library: IO[bytes]) -> None:
        self.library = library
        self.left = READS

    def read_at(self, at: int, length: int) -> bytes:
        """The bytes at a place, as many as there are."""
        self.left -= 1
        if self.left < 0:
            raise _EndlessLibrary(f"it needs more than {READS} reads")
        if at >= 1 << 63:
            raise UnreadableLibrary("it points outside the file")
        self.library.seek(at)
        return self.library.read(length)

    def unpack(self, shape: struct.Struct, at: int) -> tuple[Any, ...]:
        """The fields that are there."""
        got = self.read_at(at, shape.size)
        if len(got) < shape.size:
            raise UnreadableLibrary("it is truncated")
        return shape.unpack(got)


def find_targets(library: IO[bytes]) -> tuple[str, ...]:
    """The targets of a shared library's machine code, such as sm_75 and compute_80.

    Args:
        library: Its bytes, from the beginning; of any length, and of any content.

    Returns:
        In order and once each; none where it has no machine code for cards, or is no 64-bit library of this byte order.

    Raises:
        UnreadableLibrary: it was cut, or contradicts itself.
    """
    reader, found = _LibraryReader(library), set[str]()
    size = library.seek(0, io.SEEK_END)
    for begin, end, whole in _sections(reader, size):
        found |= set((_find_in_containers if whole else _find_scattered)(reader, begin, end))
    return tuple(sorted(found, key=_target_order))


def _target_order(target: str) -> tuple[bool, int, str]:
    kind, _, version = target.partition("_")
    return kind == "compute", int(version.rstrip("af")), version


def _sections(library: _LibraryReader, size: int) -> Iterator[tuple[int, int, bool]]:
    """Where sections with data begin and end, bytes, and whether it is the one for machine code."""
    if size < _ELF.size:
        return
    identity, width, order, _, _, _, _, _, _, table, _, _, _, _, each, count, names = library.unpack(_ELF, 0)
    if identity != b"\x7fELF" or (width, order) != (2, 1) or not table:
        return
    if each != _HEADER.size or not names < count:
        raise UnreadableLibrary(
            f"its section table is invalid: {count} sections of {each} bytes, names in section {names}"
        )
    headers = [library.unpack(_HEADER, table + number * each) for number in range(count)]
    texts, left = headers[names], size
    for name, kind, flags, _, offset, length, *_ in headers:
        called = library.read_at(texts[4] + name, len(LINKED) + 1).partition(b"\0")[0]
        if kind == _DATA and flags & (_LOADED | _PROGRAM) == _LOADED and called != LINKED:
            if offset + length > size:
                raise UnreadableLibrary("a section is outside the file")
            # each is searched whole, and there may be 65,000
            left -= length
            if left < 0:
                raise UnreadableLibrary("its sections overlap")
            yield offset, offset + length, called == SECTION


def _find_scattered(library: _LibraryReader, at: int, end: int) -> Iterator[str]:
    """The targets of containers between other data; similar bytes do not count."""
    while at < end:
        window = library.read_at(at, min(_WINDOW, end - at))
        here = 0
        while (here := window.find(_BEGINS, here)) >= 0:
            try:
                _, _, header, length = library.unpack(_CONTAINER, at + here)
                yield from list(_find_in_container(library, at + here + header, at + here + header + length, end))
            except _EndlessLibrary:
                raise
            except UnreadableLibrary:
                pass
            here += len(_BEGINS)
        # one may begin at the window's end
        at += max(len(window) - len(_BEGINS) + 1, len(_BEGINS))


def _find_in_containers(library: _LibraryReader, at: int, end: int) -> Iterator[str]:
    """The target of each cubin and PTX of a section."""
    while at + _CONTAINER.size <= end:
        magic, _, header, length = library.unpack(_CONTAINER, at)
        if magic == 0:  # they begin at multiples of 8
            at += 8
            continue
        if magic != _MAGIC or header < _CONTAINER.size:
            raise UnreadableLibrary("its machine code is not in fatbin containers")
        yield from _find_in_container(library, at + header, at + header + length, end)
        at += header + length


def _find_in_container(library: _LibraryReader, at: int, stop: int, end: int) -> Iterator[str]:
    if stop > end:
        raise UnreadableLibrary("its machine code is not in fatbin containers")
    while at < stop:
        kind, _, header, length, _, _, _, _, version, _, _, flags, _, _ = library.unpack(_ENTRY, at)
        at += header + length
        if header < _ENTRY.size or at > stop:
            raise UnreadableLibrary("a fatbin entry is longer than its container")
        if kind in _KINDS and (flags & _SUFFIX not in _SUFFIXES or not 10 <= version < 10_000):
            raise UnreadableLibrary(f"a fatbin entry is for the unknown architecture {version}")
        if kind in _KINDS:
            yield f"{_KINDS[kind]}_{version}{_SUFFIXES[flags & _SUFFIX]}"


def is_runnable_on(target: str, capability: str) -> bool:
    """Whether a card runs machine code for a target.

    By "CUDA C++ Programming Guide", Binary and PTX Compatibility, and "NVIDIA CUDA Compiler Driver", GPU Feature List:
    a cubin runs on cards of the same major version from its own minor version on; PTX is compiled for any later card;
    with `a`, either is for one architecture alone; with `f`, for its major version from its minor version on.

    Args:
        target: Such as sm_86, sm_90a or compute_120f.
        capability: The card's, such as "8.6".

    Raises:
        ValueError: that is no target.
    """
    made = _TARGET.fullmatch(target)
    if made is None:
        raise ValueError(f"{target} is not a machine code target")
    one = (int(made[2]), int(made[3]))
    major, _, minor = capability.partition(".")
    card = (int(major), int(minor))
    if made[4] == "a" or (made[1] == "sm" and {one, card} & _INTEGRATED):
        return one == card
    if made[1] == "sm" or made[4] == "f":
        return one[0] == card[0] and one[1] <= card[1]
    return one <= card


def find_unrunnable_files(rows: Iterable[Artefact], capability: str) -> list[tuple[str, str]]:
    """The files with machine code that a card can run nothing of.

    Args:
        rows: Wheels as they are locked.
        capability: The card's, such as "8.6".

    Returns:
        (PATH/IN/THE/WHEEL.so, what its machine code is for), by path.
    """
    return sorted((path, made) for _, path, made in _find_unrunnable(rows, capability))


def _find_unrunnable(rows: Iterable[Artefact], capability: str) -> Iterator[tuple[Artefact, str, str]]:
    for row in rows:
        for line in row.machine_code or ():
            path, *made = line.split(" ")
            if not any(is_runnable_on(target, capability) for target in made):
                yield row, path, " ".join(made)


def find_machine_code_refusals(
    rows: Iterable[Artefact], patterns: Sequence[str], capability: str
) -> tuple[list[str], list[str]]:
    """The files of an environment that a card cannot run, a line each: refusals, and warnings.

    Args:
        rows: Wheels as they are locked.
        patterns: Paths of files that other cards alone use, as the input's `for_other_cards` has them.
        capability: The card's, such as "8.6".
    """
    refused: list[str] = []
    warned: list[str] = []
    for row, path, made in sorted(_find_unrunnable(rows, capability), key=lambda one: one[1]):
        known = any(fnmatchcase(path, pattern) for pattern in patterns)
        line = f"{path} of {row} has code for {made.replace(' ', ', ')}, but none for compute capability {capability}"
        (warned if known else refused).append(line)
    return refused, warned
