"""The compiled part of an environment's Python."""

import os
import py_compile
import re
import sys
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from roles.envs.host import make

SERIES = f"{sys.version_info[0]}.{sys.version_info[1]}"
MADE = f"module.cpython-{SERIES.replace('.', '')}.pyc"
MODES = py_compile.PycInvalidationMode


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with this Python, and a library of one module."""
    library = tmp_path / f"lib/python{SERIES}"
    (library / "site-packages").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    # the program there gets the names of the files to compile
    (tmp_path / "bin/python").write_text(f'#!/bin/sh\ntee "{tmp_path}/asked" | exec {sys.executable} "$@"\n')
    (tmp_path / "bin/python").chmod(0o755)
    (library / "module.py").write_text("x = 1\n")
    (library / "site-packages/other.py").write_text("x = 1\n")
    return tmp_path


def compiled_names(prefix: Path) -> list[str]:
    with make.compile_library(prefix):
        pass
    asked = prefix / "asked"
    return [Path(line).name for line in asked.read_text().splitlines()] if asked.exists() else []


def test_missing_bytecode_is_compiled_and_other_programs_is_left(prefix: Path) -> None:
    assert compiled_names(prefix) == ["module.py"]
    library = prefix / f"lib/python{SERIES}"
    assert [one.name for one in (library / "__pycache__").iterdir()] == [MADE]
    assert not (library / "site-packages/__pycache__").exists()


@pytest.mark.parametrize("mode", [MODES.TIMESTAMP, MODES.UNCHECKED_HASH, MODES.CHECKED_HASH])
def test_compiled_modules_of_a_package_are_not_compiled_again(prefix: Path, mode: MODES) -> None:
    py_compile.compile(str(prefix / f"lib/python{SERIES}/module.py"), invalidation_mode=mode)
    assert compiled_names(prefix) == []


def test_bytecode_of_a_text_with_another_time_is_compiled_again(prefix: Path) -> None:
    module = prefix / f"lib/python{SERIES}/module.py"
    py_compile.compile(str(module), invalidation_mode=MODES.TIMESTAMP)
    os.utime(module, (1, 1))
    assert compiled_names(prefix) == ["module.py"]


def test_each_of_many_files_is_compiled(prefix: Path) -> None:
    library = prefix / f"lib/python{SERIES}"
    for number in range(40):
        (library / f"module{number}.py").write_text("x = 1\n")
    compiled_names(prefix)
    assert len(list((library / "__pycache__").iterdir())) == 41


def test_a_python_that_does_not_start_compiles_nothing(prefix: Path) -> None:
    (prefix / "bin/python").write_text("#!/bin/sh\nexit 1\n")
    assert compiled_names(prefix) == []


@pytest.mark.parametrize("bytecode", [b"", b"short", b"\0" * 15])
def test_invalid_bytecode_is_compiled_again(prefix: Path, bytecode: bytes) -> None:
    made = (prefix / f"lib/python{SERIES}/module.py").parent / "__pycache__" / MADE
    made.parent.mkdir()
    made.write_bytes(bytecode)
    assert compiled_names(prefix) == ["module.py"]


def test_bytecode_has_the_same_bytes_whenever_its_text_was_written(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = (ROOT / "templates/envs/make.sh.j2").read_text()
    (words,) = re.findall("^export (SOURCE_DATE_EPOCH=[0-9]+ PYTHONHASHSEED=[0-9]+)$", template, re.MULTILINE)
    for word in words.split():
        monkeypatch.setenv(*word.split("="))
    module = prefix / f"lib/python{SERIES}/module.py"
    made = module.parent / "__pycache__" / MADE
    found = set()
    for moment in (1, 1_700_000_000):
        made.unlink(missing_ok=True)
        os.utime(module, (moment, moment))
        assert compiled_names(prefix) == ["module.py"]
        found.add(made.read_bytes())
    assert len(found) == 1


def test_the_notes_of_uv_are_dropped_from_a_record_that_its_cache_has_too(prefix: Path) -> None:
    folder = prefix / f"lib/python{SERIES}/site-packages/demo-1.0.dist-info"
    folder.mkdir()
    (folder / "uv_cache.json").write_text("{}")
    lines = ["demo.py,sha256=x,1\n", "demo-1.0.dist-info/uv_cache.json,sha256=y,2\n", "demo-1.0.dist-info/RECORD,,\n"]
    (folder / "RECORD").write_text("".join(lines))
    (prefix / "cached").hardlink_to(folder / "RECORD")
    make.drop_cache_records(prefix)
    assert [one.name for one in folder.iterdir()] == ["RECORD"]
    assert (folder / "RECORD").read_text() == lines[0] + lines[2]
    assert (prefix / "cached").read_text() == "".join(lines)
