"""Modules that Python imports first: its own finder tells."""

from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

import pytest

from rigwright.patches.new_files import find_shadowing_paths

NATIVE = EXTENSION_SUFFIXES[0]


@pytest.mark.parametrize("other", [f"w{suffix}" for suffix in EXTENSION_SUFFIXES])
@pytest.mark.parametrize("module", ["w.py", "w/__init__.py"])
def test_compiled_files_come_before_a_module_and_after_a_package(tmp_path: Path, module: str, other: str) -> None:
    assert_precedence(tmp_path, module, other)


@pytest.mark.parametrize(
    "other", ["w/__init__.py", "w/__init__.pyc", f"w/__init__{NATIVE}", "w/x.py", "w.pyc", "wx.so", "w.txt", "v/w.so"]
)
@pytest.mark.parametrize("module", ["w.py", "w/__init__.py"])
def test_a_package_comes_before_a_module(tmp_path: Path, module: str, other: str) -> None:
    assert_precedence(tmp_path, module, other)


def assert_precedence(folder: Path, module: str, other: str) -> None:
    for name in (module, other):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    found = PathFinder.find_spec("w", [str(folder)])
    assert found
    instead = found.origin != str(folder / module)
    assert find_shadowing_paths(module, [module, other]) == ([other] if instead else [])


def test_other_files_than_modules_have_nothing_before_them() -> None:
    assert find_shadowing_paths("w.txt", ["w.so", ".so", "w.txt.so"]) == []
