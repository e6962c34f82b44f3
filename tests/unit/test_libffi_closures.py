"""Executable memory of libffi's, told from memory that has taken its name."""

import os
import platform
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from checks.survey.host import mapped_code
from checks.survey.host.libffi_closures import NAME, TRAMPOLINE, AddressSpace
from checks.survey.host.mapped_code import Code

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="closures are read on x86-64 alone")
LIBRARY, HEAP = (0x7F2A_1000_0000, 0x7F2A_1000_8000), (0x7F2B_0000_0000, 0x7F2B_0010_0000)
WRITTEN, RUN = (0x7F2A_2000_0000, 0x7F2A_2000_1000), (0x7F2A_2000_1000, 0x7F2A_2000_2000)
SPACE = AddressSpace(mapped=[LIBRARY, HEAP, WRITTEN, RUN], code=[LIBRARY], links=[WRITTEN], executable=[RUN])
HEAD, TARGET, CIF, FUN, USER_DATA = 0x43, LIBRARY[0] + 0xC8, HEAP[0] + 0x10, LIBRARY[0] + 0x60, HEAP[0] + 0x30
CLOSURE = (HEAD, *TRAMPOLINE, TARGET, CIF, FUN, USER_DATA)
FREED = (0x41, WRITTEN[0], WRITTEN[0] + 0x40, *CLOSURE[3:7], 0x40)
PAGE = (0, *CLOSURE * 62, 0x39, WRITTEN[0], WRITTEN[0], 0, 0, 0)
SEGMENT = (0x38, 0x2A, WRITTEN[0], 0x1000, 0, 0x1000, 0xB, 0xB, 0xB)
OUTSIDE = 0x0002_EB00_0000
# syscall; ret; then calls of nothing
SHELLCODE = int.from_bytes(bytes.fromhex("0f05c39090909090"), "little")


def jumps(*instructions: str) -> tuple[int, ...]:
    """Instructions of two bytes, each in a word that is an address near memory, with a jump to the next word."""
    return tuple(int.from_bytes(bytes.fromhex(f"{one}eb042b7f0000"), "little") for one in instructions)


def changed(**words: int) -> tuple[int, ...]:
    """A closure with other words."""
    names = ("head", "first", "second", "third", "target", "cif", "fun", "user_data")
    return tuple(words.get(name, word) for name, word in zip(names, CLOSURE, strict=True))


CONTENTS: dict[str, tuple[tuple[int, ...], bool]] = {
    "closures": ((0, *CLOSURE, *CLOSURE, 0xEF9), True),
    "one that was freed": ((0, *FREED, *CLOSURE), True),
    "one that was freed last": ((0, *CLOSURE, *changed(head=0xF41)), True),
    "nothing yet": ((0, 0xFF9), True),
    "a full page": ((*PAGE, *SEGMENT), True),
    "a full page of another size": ((*PAGE, 0x38, 0x4000, *SEGMENT[2:]), False),
    "a segment that is elsewhere": ((*PAGE, *SEGMENT[:2], OUTSIDE, *SEGMENT[3:]), False),
    "other instructions": ((0, *CLOSURE, SHELLCODE), False),
    "instructions before all": ((SHELLCODE,), False),
    "instructions of six bytes a word": ((0, *CLOSURE, SHELLCODE & ((1 << 48) - 1)), False),
    "instructions of four bytes a word": ((0, *CLOSURE, SHELLCODE & ((1 << 32) - 1)), False),
    "instructions of two bytes a word": ((0, *CLOSURE, SHELLCODE & ((1 << 16) - 1)), False),
    "instructions of two bytes and a jump": (jumps("31ff", "b03c", "0f05"), False),
    "the same, after a closure": ((0, *CLOSURE, *jumps("31ff", "b03c", "0f05")), False),
    "a closure that leads to memory of no file": ((0, *changed(target=HEAP[0])), False),
    "a closure that calls memory of no file": ((0, *changed(fun=HEAP[0])), False),
    "a closure of a cif that is nowhere": ((0, *changed(cif=OUTSIDE)), False),
    "a closure with data that is nowhere": ((0, *changed(user_data=OUTSIDE)), False),
    "a size with a flag of nothing": ((0, *changed(head=0x47)), False),
    "a size of more than there is": ((0, *changed(head=0x2003)), False),
    "a link to other memory": ((0, 0x41, HEAP[0], *FREED[2:]), False),
    "a closure at another place": ((0, 0, *CLOSURE), False),
    "half a closure": ((0, HEAD, *TRAMPOLINE[:2]), False),
}
# The filter of any process that may not map memory that is writable and executable: seccomp(2) on x86-64 has mmap(2),
# the ninth call, refused with EPERM where its third argument is both, as systemd's MemoryDenyWriteExecute= does.
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
FREEING = "import random; random.seed(1); kept = [one for one in kept * 7 if random.random() < 0.1]; "
FORKED = """
import os, time
if not os.fork():
    os.close(1)
    heap = [bytearray(1 << 20) for _ in range(100)] + [bytes(200) for _ in range(200000)]
    kept += [made(lambda: 0) for _ in range(400)]
    open(f"/proc/self/comm", "w").write("made")
    time.sleep(60)
    os._exit(0)
"""
MANY = (
    "import mmap, os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)); "
    "file = os.memfd_create('libffi'); os.truncate(file, 8192); "
    "kept = [mmap.mmap(file, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, offset=n % 2 * 4096) for n in range(4000)]; "
)
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
def test_closures_are_distinguished_from_other_code(what: str) -> None:
    words, expected = CONTENTS[what]
    assert SPACE.are_closures(struct.pack(f"<{len(words)}Q", *words).ljust(4096, b"\0")) is expected


def test_callbacks_of_a_sandboxed_interpreter_are_libffis_closures() -> None:
    with sandboxed(CALLBACKS) as pid:
        found = Code(()).of(pid)
        with open(f"/proc/{pid}/maps") as maps:
            has_memfd = NAME in maps.read()
    assert {row for row in found if not row.startswith("file ")} == ({f"closures {NAME}"} if has_memfd else set())


@pytest.mark.parametrize("more", [FREEING, "kept = [made(lambda: 0) for _ in range(3000)]; kept = kept[::9]; "])
def test_callbacks_that_were_freed_are_libffis_closures(more: str) -> None:
    with sandboxed(CALLBACKS + more) as pid:
        assert {row for row in Code(()).of(pid) if not row.startswith("file ")} <= {f"closures {NAME}"}


def test_a_process_with_thousands_of_mappings_is_not_judged_and_takes_no_time() -> None:
    with sandboxed(MANY) as pid:
        began = time.monotonic()
        assert {row.partition(" ")[0] for row in Code(()).of(pid) if NAME in row} == {"unjudged"}
        assert time.monotonic() - began < 1


def test_a_process_with_more_mappings_than_are_read_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_code, "MAPS", 4096)
    assert Code(()).of(os.getpid()) == {"unjudged too many mappings"}
    monkeypatch.undo()
    monkeypatch.setattr(mapped_code, "REGIONS", 2)
    assert Code(()).of(os.getpid()) == {"unjudged too many executable mappings"}


def test_pages_that_a_forked_process_shares_are_read_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with sandboxed(CALLBACKS + FORKED) as pid:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            child = int(children.read())
        try:
            while True:
                with open(f"/proc/{child}/comm") as comm:
                    if comm.read() == "made\n":
                        break
            monkeypatch.setattr(mapped_code, "_neighbours", lambda _: [pid, child])
            for one in (pid, child):
                assert {row for row in Code(()).of(one) if not row.startswith("file ")} <= {f"closures {NAME}"}
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_in_memory_that_has_only_the_name_is_code_of_no_file() -> None:
    with sandboxed(FOREIGN) as pid:
        assert {row for row in Code(()).of(pid) if not row.startswith("file ")} == {f"unnamed {NAME}"}


def test_both_are_distinguished_in_one_process() -> None:
    with sandboxed(CALLBACKS + FOREIGN) as pid:
        assert f"unnamed {NAME}" in Code(()).of(pid)
