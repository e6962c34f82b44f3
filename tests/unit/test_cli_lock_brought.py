"""`rigwright lock` has a patch bring files into its own package alone, and none in the place of another."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cli.resolving.patching import Patched, Patching
from cli.resolving.resolver import Resolver
from tests.unit.lock_world import World
from tests.unit.patch_samples import made, sha256, write
from tests.unit.test_cli_lock_patches import archive, publish, said, wheel
from tests.unit.test_cli_lock_patches import world as world


def bringing(world: World, path: str, of: str = "x = 1\n") -> None:
    new = {"path": path, "after": sha256(of), "file": "new.txt"}
    write(world.folder / "patches/louder", files={"new.txt": of}, diff=None, targets=[new])


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
def test_a_file_that_would_stand_in_anothers_place_is_not_brought(world: World, path: str, found: str) -> None:
    publish(world, wheel(**{"__init__.py": "", "more/__init__.py": ""}))
    bringing(world, path)
    assert f"small: patch louder: {path} {found}" in said(world)
    assert world.text == ""


def test_a_new_module_of_its_own_package_is_brought(world: World) -> None:
    publish(world, wheel(**{"__init__.py": ""}))
    bringing(world, "demo/inner/new.py")
    world.locked()


def test_nothing_is_brought_into_a_folder_that_packages_share(world: World) -> None:
    bringing(world, "demo/new.py")
    assert "demo/new.py is in no package of its wheel: must be below one, and it has none" in said(world)


@pytest.mark.parametrize(
    ("path", "line"), [("demo/words.py/x", "is below demo/words.py, which is a file"), ("new/x", "")]
)
def test_the_same_of_a_source(tmp_path: Path, path: str, line: str) -> None:
    row = archive(tmp_path / "llama-1.0.tar.gz")
    new = {"path": path, "after": sha256("x"), "file": "new.txt"}
    patch = made(tmp_path, of="llama.cpp", files={"new.txt": "x"}, diff=None, targets=[new])
    one = Patched("engine", (patch,), {"llama-cpp": "1.0"}, (row,), "vendor/llama.cpp")
    found = Patching(cast("Resolver", SimpleNamespace(from_dir=tmp_path))).refusals([one])
    assert [line in str(problem) for problem in found] == [True for _ in line[:1]]
