"""Machine code of libraries: its targets, the cards that run it, and files that are no libraries."""

import io
import random
import struct

import pytest

from rigwright.supply import cuda_machine_code
from rigwright.supply.cuda_machine_code import (
    UnreadableLibrary,
    find_machine_code_refusals,
    find_targets,
    find_unrunnable_files,
    is_runnable_on,
)
from tests.unit.cuda_libraries import cuda_library, elf_file, fatbin_container, fatbin_part
from tests.unit.samples import sample_wheel


def read(content: bytes) -> tuple[str, ...]:
    return find_targets(io.BytesIO(content))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (cuda_library("sm_120", "sm_75", "compute_80", "sm_75"), ("sm_75", "sm_120", "compute_80")),
        (cuda_library("sm_90a", "sm_100f", "sm_90", "compute_100f"), ("sm_90", "sm_90a", "sm_100f", "compute_100f")),
        (
            elf_file(
                {
                    ".nv_fatbin": fatbin_container(fatbin_part("sm_86"), fatbin_part("sm_89"))
                    + b"\0" * 8
                    + fatbin_container(fatbin_part("sm_75"))
                }
            ),
            ("sm_75", "sm_86", "sm_89"),
        ),
        (
            elf_file({".nv_fatbin": fatbin_container(fatbin_part("sm_86"), b"\x10" + fatbin_part("sm_89")[1:])}),
            ("sm_86",),
        ),
        (elf_file({"__nv_relfatbin": fatbin_container(fatbin_part("sm_86"))}), ()),
        (
            elf_file(
                {
                    ".ldata": b"x" * 13
                    + fatbin_container(fatbin_part("sm_86"))
                    + b"\0" * 3
                    + fatbin_container(fatbin_part("compute_75"))
                }
            ),
            ("sm_86", "compute_75"),
        ),
        (elf_file({".ldata": fatbin_container(fatbin_part("sm_86"))[:-1]}), ()),
        (elf_file({".ldata": b"\x50\xed\x55\xba\x01\x00\x10\x00"}), ()),
        (elf_file({".ldata": fatbin_container(b"\0" * 64) + fatbin_container(fatbin_part("sm_75"))}), ("sm_75",)),
        (elf_file({".text": b""}), ()),
        (b"", ()),
        (b"INPUT ( libc.so.6 )" * 9, ()),
        (b"\x7fELF\x01" + cuda_library("sm_86")[5:], ()),
    ],
)
def test_targets_of_machine_code(content: bytes, found: tuple[str, ...]) -> None:
    assert read(content) == found


FATBIN = cuda_library("sm_86").index(struct.pack("<I", 0xBA55ED50))


def changed(at: int, *fields: tuple[str, int]) -> bytes:
    content = bytearray(cuda_library("sm_86"))
    for shape, value in fields:
        struct.pack_into(shape, content, at, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (cuda_library("sm_86")[:-1], "it is truncated"),
        (cuda_library("sm_86")[: FATBIN + 20], "it is truncated"),
        (changed(40, ("<Q", 1 << 63)), "it points outside the file"),
        (changed(40, ("<Q", 1 << 62)), "it is truncated"),
        (changed(58, ("<H", 65)), "3 sections of 65 bytes"),
        (changed(62, ("<H", 3)), "names in section 3"),
        (changed(60, ("<H", 65535)), "it is truncated"),
        (changed(FATBIN, ("<I", 1)), "its machine code is not in fatbin containers"),
        (changed(FATBIN + 6, ("<H", 8)), "its machine code is not in fatbin containers"),
        (changed(FATBIN + 8, ("<Q", 1 << 60)), "its machine code is not in fatbin containers"),
        (changed(FATBIN + 20, ("<I", 0)), "longer than its container"),
        (changed(FATBIN + 24, ("<Q", 1 << 60)), "longer than its container"),
        (changed(FATBIN + 44, ("<I", 1)), "for the unknown architecture 1"),
        (changed(FATBIN + 44, ("<I", 1 << 31)), "for the unknown architecture 2147483648"),
        (changed(FATBIN + 16 + 40, ("<Q", 0x300000)), "for the unknown architecture 86"),
    ],
)
def test_a_library_that_contradicts_itself_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(UnreadableLibrary, match=text):
        read(content)


@pytest.mark.parametrize("section", [".nv_fatbin", ".ldata"])
def test_a_library_of_parts_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, section: str) -> None:
    monkeypatch.setattr(cuda_machine_code, "READS", 1000)
    nested = b""
    for _ in range(60):
        nested = fatbin_container(fatbin_part("sm_86", nested), *[fatbin_part("sm_86")] * 30)
    content = elf_file({section: nested if section == ".ldata" else fatbin_container(*[fatbin_part("sm_86")] * 1000)})
    with pytest.raises(UnreadableLibrary, match="more than 1000 reads"):
        read(content)


def test_any_damage_is_refused_or_read_and_never_more() -> None:
    whole, chance = cuda_library("sm_86", "compute_90a", "sm_120f"), random.Random(7)
    for _ in range(3000):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        try:
            read(bytes(content[: chance.randrange(len(content) // 2, len(content) + 1)]))
        except UnreadableLibrary as error:
            assert str(error)


@pytest.mark.parametrize(
    ("target", "capabilities"),
    [
        ("sm_75", {"7.5"}),
        ("sm_80", {"8.0", "8.6", "8.9"}),
        ("sm_86", {"8.6", "8.9"}),
        ("sm_87", {"8.7"}),
        ("sm_89", {"8.9"}),
        ("sm_90a", {"9.0"}),
        ("sm_100", {"10.0", "10.3"}),
        ("sm_100f", {"10.0", "10.3"}),
        ("sm_100a", {"10.0"}),
        ("sm_103f", {"10.3"}),
        ("sm_120f", {"12.0", "12.1"}),
        ("sm_121a", {"12.1"}),
        ("compute_80", {"8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"}),
        ("compute_90a", {"9.0"}),
        ("compute_120", {"12.0", "12.1"}),
        ("compute_100f", {"10.0", "10.3"}),
    ],
)
def test_which_cards_run_a_target(target: str, capabilities: set[str]) -> None:
    cards = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
    assert {card for card in cards if is_runnable_on(target, card)} == capabilities


def test_an_invalid_target_is_no_answer() -> None:
    with pytest.raises(ValueError, match="sm_x is not a machine code target"):
        is_runnable_on("sm_x", "8.6")


ROWS = [
    sample_wheel(
        "vllm", machine_code=("v/_fa3_C.so sm_90a", "v/_C.so sm_75 sm_80 compute_90", "v/_fa2_C.so sm_80 compute_80")
    ),
    sample_wheel("pure"),
    sample_wheel("numpy", machine_code=()),
]


@pytest.mark.parametrize(
    ("capability", "files"),
    [
        ("7.5", [("v/_fa2_C.so", "sm_80 compute_80"), ("v/_fa3_C.so", "sm_90a")]),
        ("8.6", [("v/_fa3_C.so", "sm_90a")]),
        ("9.0", []),
        ("12.0", [("v/_fa3_C.so", "sm_90a")]),
    ],
)
def test_the_files_that_a_card_cannot_run(capability: str, files: list[tuple[str, str]]) -> None:
    assert find_unrunnable_files(ROWS, capability) == files


def test_machine_code_of_only_other_cards_is_a_warning_and_the_rest_refused() -> None:
    refused, warned = find_machine_code_refusals(ROWS, ("v/_fa3_*",), "7.5")
    fa2 = "v/_fa2_C.so of vllm 1.0 has code for sm_80, compute_80, but none for compute capability 7.5"
    assert refused == [fa2]
    assert warned == ["v/_fa3_C.so of vllm 1.0 has code for sm_90a, but none for compute capability 7.5"]


def test_sections_that_lie_in_each_other_are_not_searched_one_by_one() -> None:
    content = b"x" * 4096
    one = elf_file({".ldata": content, ".again": b"", ".names": b""})
    table = struct.unpack_from("<Q", one, 40)[0]
    first = one[table : table + 64]
    with pytest.raises(UnreadableLibrary, match="overlap"):
        read(one[: table + 64] + first + one[table + 128 :])
