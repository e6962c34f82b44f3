"""Files of an initramfs: the one reader of its archives."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

HEAD = 110  # bytes of a file's header
CPIO, LAST = (b"070701", b"070702"), "TRAILER!!!"
UNPACKERS = {
    b"\x1f\x8b": ("gzip", "-dc"),
    b"\x28\xb5\x2f\xfd": ("zstd", "-dcq"),
    b"\xfd7zX": ("xz", "-dc"),
    b"\x02\x21\x4c\x18": ("lz4", "-dc"),
    b"\x04\x22\x4d\x18": ("lz4", "-dc"),
    b"BZh": ("bzip2", "-dc"),
}
"""How what is packed begins -> the program that unpacks it, for modules as well."""


class InitramfsFile(NamedTuple):
    """One file."""

    name: str
    mode: int
    md5: str
    """Of its content; empty where contents are not hashed."""
    content: bytes
    """Empty of a file that was not wanted."""


def unpacker(begin: bytes) -> tuple[str, ...] | None:
    """The command that unpacks what begins so; None for what is not packed, or in an unknown way."""
    return next((words for mark, words in UNPACKERS.items() if begin.startswith(mark)), None)


def list_files(path: str, wants: Callable[[str], bool], *, hashes: bool = False) -> Iterator[InitramfsFile]:
    """The files of an initramfs: archives of cpio, of which the last one is packed.

    Args:
        path: Of the initramfs.
        wants: Whether the content of a file of this name is to be read.
        hashes: Whether all contents are hashed.

    Raises:
        ValueError: it is invalid, or not complete.
        OSError: it cannot be read, or no program unpacks it.
    """
    # without a buffer, what a program reads begins where this has stopped
    with open(path, "rb", buffering=0) as file:
        found = False
        while True:
            start = file.tell()
            begin = file.read(6)
            if not begin.strip(b"\0"):
                if len(begin) < 6:
                    break
                continue
            found = True
            if begin.startswith(b"0707"):
                file.seek(start)
                yield from read_archive(file, wants, hashes)
                # archives begin at whole words of four bytes
                file.seek(-(-file.tell() // 4) * 4)
                continue
            # zeros before it belong to no archive
            offset = len(begin) - len(begin.lstrip(b"\0"))
            file.seek(start + offset)
            magic = file.read(4)
            file.seek(start + offset)
            if magic == CPIO[0][:4]:
                continue
            words = unpacker(magic)
            if words is None:
                raise ValueError("packed in an unknown way")
            with subprocess.Popen(words, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as unpacking:
                if unpacking.stdout:
                    yield from read_archives(unpacking.stdout, wants, hashes)
            if unpacking.returncode:
                raise ValueError("its packed part is broken")
            return
    if not found:
        raise ValueError("empty")


def read_archives(stream: IO[bytes], wants: Callable[[str], bool], hashes: bool) -> Iterator[InitramfsFile]:
    """The files of all archives of a stream; raises as `read_archive`."""
    begin = b""
    while True:
        yield from read_archive(stream, wants, hashes, begin)
        # the kernel skips zeros and reads a further archive
        begin = stream.read(4)
        while begin == bytes(4):
            begin = stream.read(4)
        if not begin.strip(b"\0"):
            return


def read_archive(
    stream: IO[bytes], wants: Callable[[str], bool], hashes: bool, begin: bytes = b""
) -> Iterator[InitramfsFile]:
    """The files of one archive of cpio (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).

    Args:
        stream: From where the archive begins.
        wants: As `list_files` has it.
        hashes: As `list_files` has it.
        begin: The first bytes of the archive, where they are read already.

    Raises:
        ValueError: it is invalid, or not complete.
    """
    while True:
        head = begin + stream.read(HEAD - len(begin))
        begin = b""
        if len(head) < HEAD or head[:6] not in CPIO:
            raise ValueError("no archive of cpio" if len(head) == HEAD else "ends in the middle")
        fields = [int(head[at : at + 8], 16) for at in range(6, HEAD, 8)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = os.fsdecode(stream.read(length).rstrip(b"\0")).removeprefix("./")
        stream.read(-(HEAD + length) % 4)
        digest, content = hashlib.md5(usedforsecurity=False), bytearray()
        is_wanted, left = wants(name), size
        while left:
            piece = stream.read(min(left, 1 << 20))
            if not piece:
                raise ValueError("ends in the middle")
            left -= len(piece)
            if hashes:
                digest.update(piece)
            if is_wanted:
                content += piece
        stream.read(-size % 4)
        if name == LAST:
            return
        yield InitramfsFile(name, mode, digest.hexdigest() if hashes else "", bytes(content))
