"""fs-verity: the visible part on a kernel without it, and that it is asked as its documentation describes."""

import errno
import hashlib
import json
import os

import pytest

from rigwright.fetch_job_spec import render_fetch_spec
from roles.weights.host import records, verity
from roles.weights.host.place import ModelsRoot
from roles.weights.host.spec import FetchSpec
from tests.unit.samples import sample_artefact, sample_rig
from tests.unit.weight_shelf import WeightShelf, is_fresh


def test_a_kernel_or_file_system_without_it_says_so(shelf: WeightShelf) -> None:
    file = shelf.add_file("x")
    why = verity.describe_unsupported(shelf.root / "x")
    if not why:
        pytest.skip("this kernel and file system have fs-verity")
    assert why in verity.REASONS.values()
    assert verity.enable_verity(shelf.records, shelf.root, file) == why
    assert not (shelf.records / "verity").exists()
    assert verity.describe_verity_violation(shelf.records, records.record_name(file), shelf.root / "x") == ""
    assert shelf.has_file(file)


class VerityKernel:
    """Answers fs-verity's requests as its documentation says."""

    def __init__(self) -> None:
        self.digests: dict[int, bytes] = {}

    def ioctl(self, handle: int, request: int, argument: bytes | bytearray) -> int:
        inode = os.fstat(handle).st_ino
        if request == verity.FS_IOC_ENABLE_VERITY:
            assert (len(argument), argument[:12]) == (128, b"\1\0\0\0\1\0\0\0\0\x10\0\0")
            assert not any(argument[12:])
            if inode in self.digests:
                raise OSError(errno.EEXIST, "File exists")
            self.digests[inode] = hashlib.sha256(os.pread(handle, 1 << 20, 0)).digest()
        else:
            assert request == verity.FS_IOC_MEASURE_VERITY
            if inode not in self.digests:
                raise OSError(errno.ENODATA, "No data available")
            assert isinstance(argument, bytearray)
            argument[:] = b"\1\0\x20\0" + self.digests[inode]
        return 0


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> VerityKernel:
    made = VerityKernel()
    monkeypatch.setattr(verity, "ioctl", made.ioctl)
    return made


def test_a_protected_file_is_known_by_its_digest(shelf: WeightShelf, kernel: VerityKernel) -> None:
    file = shelf.add_file("x")
    assert verity.describe_unsupported(shelf.root / "x") == ""
    for _ in range(2):
        assert verity.enable_verity(shelf.records, shelf.root, file) == ""
    digest = next(iter(kernel.digests.values())).hex()
    assert (shelf.records / "verity" / records.record_name(file)).read_text() == f"{digest}\n"
    assert verity.measure_verity(shelf.root / "x") == digest
    assert shelf.run_rehash() == 0
    assert is_fresh(shelf.deep_record(file))


@pytest.mark.parametrize("found", [None, b"?" * 32])
def test_a_protected_file_that_is_another_one_now_is_wrong(
    shelf: WeightShelf, kernel: VerityKernel, found: bytes | None
) -> None:
    file = shelf.add_file("x")
    assert verity.enable_verity(shelf.records, shelf.root, file) == ""
    kernel.digests = {(shelf.root / "x").stat().st_ino: found} if found else {}
    assert shelf.run_rehash() == 1
    assert shelf.wrong_record(file).exists()
    assert not shelf.has_file(file)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a fetch gives files to root")


def place(shelf: WeightShelf, fs_verity: bool) -> ModelsRoot:
    return ModelsRoot(
        FetchSpec(
            shelf.root, shelf.records, shelf.root / "owned", shelf.root / "locks", "", "", None, (), fs_verity=fs_verity
        )
    )


@as_root
def test_a_fetch_that_cannot_have_it_says_so_once_and_records(
    shelf: WeightShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [shelf.add_file(name) for name in ("x", "y")]
    why = verity.describe_unsupported(shelf.root / "x")
    if not why:
        pytest.skip("this kernel and file system have fs-verity")
    shop = place(shelf, fs_verity=True)
    for file in files:
        shop.adopt_file(file, shelf.root / file.path, lambda: None)
        assert shelf.has_file(file)
    assert capsys.readouterr().out.count("note: ") == 1
    place(shelf, fs_verity=False).adopt_file(files[0], shelf.root / "x", lambda: None)
    assert "note: " not in capsys.readouterr().out


@as_root
def test_a_fetch_guards_a_file_before_it_records_it(
    shelf: WeightShelf, kernel: VerityKernel, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shelf.add_file("x")
    (shelf.root / "x").rename(shelf.root / "x.part")
    (shelf.records / records.record_name(file)).unlink()
    place(shelf, fs_verity=True).name_verified_part(file, shelf.root / "x")
    assert (shelf.records / "verity" / records.record_name(file)).read_text().strip() == verity.measure_verity(
        shelf.root / "x"
    )
    assert shelf.has_file(file)
    assert "note: " not in capsys.readouterr().out


def test_a_rigs_wish_reaches_the_fetch() -> None:
    for wish in (False, True):
        box_rig = sample_rig(fs_verity=wish)
        assert (
            json.loads(
                render_fetch_spec(
                    box_rig.roots, box_rig.accounts, box_rig.network, box_rig.fs_verity, [sample_artefact()], ""
                )
            )["fs_verity"]
            is wish
        )


def test_numbers_are_made_as_the_kernel_makes_them() -> None:
    # asm-generic/ioctl.h: direction << 30 | size << 16 | type << 8 | number
    size = verity.ENABLE_ARGUMENT.size
    assert 1 << 30 | size << 16 | ord("f") << 8 | 133 == verity.FS_IOC_ENABLE_VERITY
    assert 3 << 30 | 4 << 16 | ord("f") << 8 | 134 == verity.FS_IOC_MEASURE_VERITY
