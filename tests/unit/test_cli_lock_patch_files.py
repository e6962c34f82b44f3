"""`rigwright lock` has a patch bring files into its own package alone, and none in the place of another."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cli.lock_resolver.patch_validation import PatchedInput, PatchValidator
from cli.lock_resolver.resolver import LockResolver
from tests.unit.lock_world import LockFixture
from tests.unit.patch_samples import read_patch, text_sha256, write_patch
from tests.unit.test_cli_lock_patches import archive, lock_output, patched_wheel, publish
from tests.unit.test_cli_lock_patches import world as world


def bringing(world: LockFixture, path: str, of: str = "x = 1\n") -> None:
    new = {"path": path, "after": text_sha256(of), "file": "new.txt"}
    write_patch(world.folder / "patches/louder", files={"new.txt": of}, diff=None, targets=[new])


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("demo/words.py/x", "is below demo/words.py, which is a file"),
        ("demo/more", "is a folder of the package's"),
        ("other/new.py", "is in no package of its wheel: must be below demo"),
        ("Demo/words.py", "is in no package of its wheel: must be below demo"),
        ("new.py", "is in no package of its wheel: must be below demo"),
        ("demo/words/__init__.py", "would be imported in the place of demo/words.py"),
        ("demo/words.cpython-310-x86_64-linux-gnu.so", "would be imported in the place of demo/words.py"),
    ],
)
def test_a_file_that_would_stand_in_anothers_place_is_not_brought(world: LockFixture, path: str, found: str) -> None:
    publish(world, patched_wheel(**{"__init__.py": "", "more/__init__.py": ""}))
    bringing(world, path)
    assert f"small: patch louder: {path} {found}" in lock_output(world)
    assert world.lock_text == ""


def test_a_new_module_of_its_own_package_is_brought(world: LockFixture) -> None:
    publish(world, patched_wheel(**{"__init__.py": ""}))
    bringing(world, "demo/inner/new.py")
    world.lock_lines()


def test_nothing_is_brought_into_a_folder_that_packages_share(world: LockFixture) -> None:
    bringing(world, "demo/new.py")
    assert "demo/new.py is in no package of its wheel: must be below one, and it has none" in lock_output(world)


@pytest.mark.parametrize(
    ("path", "line"), [("demo/words.py/x", "is below demo/words.py, which is a file"), ("new/x", "")]
)
def test_the_same_of_a_source(tmp_path: Path, path: str, line: str) -> None:
    row = archive(tmp_path / "llama-1.0.tar.gz")
    new = {"path": path, "after": text_sha256("x"), "file": "new.txt"}
    patch = read_patch(tmp_path, target_distribution="llama.cpp", files={"new.txt": "x"}, diff=None, targets=[new])
    one = PatchedInput("engine", (patch,), {"llama-cpp": "1.0"}, (row,), "vendor/llama.cpp")
    found = PatchValidator(cast("LockResolver", SimpleNamespace(from_dir=tmp_path))).find_problems([one])
    assert [line in str(problem) for problem in found] == [True for _ in line[:1]]
