"""Executable memory of libffi's, told from memory that has taken its name."""

from __future__ import annotations

import platform
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from checks.survey.host.closures import NAME, TRAMPOLINE
from checks.survey.host.code import Code

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="closures are read on x86-64 alone")
LIBRARY, HEAP = (0x7F2A_1000_0000, 0x7F2A_1000_8000), (0x7F2B_0000_0000, 0x7F2B_0010_0000)
CLOSURE = (0x43, *TRAMPOLINE, LIBRARY[0] + 0xC8, HEAP[0] + 0x10, HEAP[0] + 0x20, HEAP[0] + 0x30)
FREED = (0x43, 0, HEAP[0], *CLOSURE[3:])
# syscall; ret; then calls of nothing
SHELLCODE = int.from_bytes(bytes.fromhex("0f05c39090909090"), "little")
CONTENTS: dict[str, tuple[tuple[int, ...], bool]] = {
    "closures": ((0, *CLOSURE, *CLOSURE, 0xEF9), True),
    "one that was freed": ((0, *FREED, *CLOSURE), True),
    "nothing yet": ((0, 0xFF9), True),
    "other instructions": ((0, *CLOSURE, SHELLCODE), False),
    "instructions alone": ((SHELLCODE,), False),
    "instructions of six bytes a word": ((0, *CLOSURE, SHELLCODE & ((1 << 48) - 1)), False),
    "instructions of four bytes a word": ((0, *CLOSURE, SHELLCODE & ((1 << 32) - 1)), False),
    "a closure that leads to memory of no file": ((0, *CLOSURE[:4], HEAP[0], *CLOSURE[5:]), False),
    "half a closure": ((0, *TRAMPOLINE[:2]), False),
}
# What any process has that may not map memory that is writable and executable: seccomp(2) on x86-64 has mmap(2), the
# ninth call, refused with EPERM where its third argument is both, as systemd's MemoryDenyWriteExecute= does.
SANDBOXED = """
import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 4, 9), (0x20, 0, 0, 32), (0x54, 0, 0, 6), (0x15, 0, 1, 6)]
rules += [(0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
UP = "print('up', flush=True); input()"
CALLBACKS = "import ctypes; made = ctypes.CFUNCTYPE(ctypes.c_int); kept = [made(lambda: 0) for _ in range(300)]; "
FOREIGN = (
    "import mmap, os; kept = []; file = os.memfd_create('libffi'); "
    "os.write(file, bytes.fromhex('b801000000c3') + bytes(4090)); "
    "kept.append(mmap.mmap(file, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)); "
)


@contextmanager
def sandboxed(program: str) -> Iterator[int]:
    """A process of a sandboxed interpreter, the distribution's, once it is up."""
    words = ["/usr/bin/python3", "-c", SANDBOXED, program + UP]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout
        assert one.stdout.readline() == b"up\n"
        yield one.pid
        one.kill()


@pytest.mark.parametrize("what", CONTENTS)
def test_closures_are_told_from_other_code(what: str) -> None:
    words, expected = CONTENTS[what]
    content = struct.pack(f"<{len(words)}Q", *words)
    assert are_closures(content, [LIBRARY], [LIBRARY, HEAP]) is expected


def test_callbacks_of_a_sandboxed_interpreter_are_libffis_closures() -> None:
    with sandboxed(CALLBACKS) as pid:
        found = Code(()).of(pid)
        with open(f"/proc/{pid}/maps") as maps:
            has_memfd = NAME in maps.read()
    assert {row for row in found if not row.startswith("file ")} == ({f"closures {NAME}"} if has_memfd else set())


def test_a_file_in_memory_that_has_only_the_name_is_code_of_no_file() -> None:
    with sandboxed(FOREIGN) as pid:
        assert {row for row in Code(()).of(pid) if not row.startswith("file ")} == {f"unnamed {NAME}"}


def test_both_are_told_apart_in_one_process() -> None:
    with sandboxed(CALLBACKS + FOREIGN) as pid:
        assert f"unnamed {NAME}" in Code(()).of(pid)
