"""Where a Python that runs imports from: by its words, variables, place and user, and by what it has mapped."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checks.survey.host import python_import_paths

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has -P since 3.11")
PYTHON = os.path.realpath(sys.executable)
OWN = (f"{PYTHON.rpartition('/bin/')[0]}/", "/usr/lib/")
RUNS = "import sys; print(flush=True); sys.stdin.read()"


@contextmanager
def running(*words: str, at: Path, **variables: str) -> Iterator[int]:
    """A Python that has imported what it does at its start, and waits."""
    with subprocess.Popen(
        [PYTHON, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=at, env={"HOME": str(at), **variables}
    ) as process:
        assert process.stdout and process.stdout.readline() == b"\n"
        yield process.pid
        process.kill()


def test_one_that_is_isolated_imports_from_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / ".local/lib/python3.11/site-packages").mkdir(parents=True)
    script = tmp_path / "own.py"
    script.write_text(RUNS)
    for words in (("-I", "-c", RUNS), ("-BI", str(script)), ("-E", "-s", "-P", "-c", RUNS)):
        with running(*words, at=tmp_path, PYTHONPATH="/tmp/x") as pid:
            assert python_import_paths.elsewhere(pid, OWN) == [], words


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("-s", "-P"), {"PYTHONPATH": "/tmp/x:lib"}, ["PYTHONPATH has /tmp/x", "PYTHONPATH has {}/lib"]),
        (("-s", "-P"), {"PYTHONPATH": "/usr/lib/x"}, []),
        (("-s",), {}, ["it imports first from {}"]),
        (
            ("-cimport sys; print(flush=True); sys.stdin.read()",),
            {},
            ["it imports first from {}", "its user has {}/.local/lib/python3.11/site-packages"],
        ),
        (("-X", "utf8", "-s"), {"PYTHONSAFEPATH": "1"}, []),
        (("-P",), {}, ["its user has {}/.local/lib/python3.11/site-packages"]),
        (("-P",), {"PYTHONNOUSERSITE": "1"}, []),
        (("-P",), {"PYTHONUSERBASE": "/nowhere"}, []),
    ],
)
def test_entries_of_its_variables_and_its_place_are_reported(tmp_path, words, variables, said):
    (tmp_path / ".local/lib/python3.11/site-packages").mkdir(parents=True)
    with running(*words, "-c", RUNS, at=tmp_path, **variables) as pid:
        assert python_import_paths.elsewhere(pid, OWN) == [one.format(tmp_path) for one in said]


def test_a_scripts_own_folder_is_where_it_imports_first_from(tmp_path: Path) -> None:
    script = tmp_path / "sub/own.py"
    script.parent.mkdir()
    script.write_text(RUNS)
    with running("-s", "sub/own.py", at=tmp_path) as pid:
        assert python_import_paths.elsewhere(pid, OWN) == [f"it imports first from {script.parent}"]
        assert python_import_paths.elsewhere(pid, (*OWN, f"{tmp_path}/")) == []


def test_another_program_and_what_it_has_mapped_are_reported(tmp_path: Path) -> None:
    with running("-I", "-c", f"import _ctypes; {RUNS}", at=tmp_path) as pid:
        first, *mapped = python_import_paths.elsewhere(pid, ("/nowhere/",))
        assert first == f"its program is {PYTHON}"
        assert mapped
        assert all(one.startswith("it has mapped /") for one in mapped)


def test_other_or_ended_processes_import_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert python_import_paths.elsewhere(process.pid, OWN) == []
        process.communicate()
    assert python_import_paths.elsewhere(process.pid, OWN) == []


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A process of a service, whose root is a folder: its own files are in it, and more is beside it."""
    folder = tmp_path / "proc/7"
    (folder / "root/srv").mkdir(parents=True)
    (folder / "exe").symlink_to("/usr/bin/python3.11")
    (folder / "cwd").symlink_to("/srv")
    (folder / "cmdline").write_text("python3\0-P\0-c\0pass\0")
    monkeypatch.setattr(python_import_paths, "PROC", str(tmp_path / "proc"))
    (tmp_path / "beside/lib/python3.11/site-packages").mkdir(parents=True)
    return folder


def has(process: Path, base: str) -> list[str]:
    """The message about it with this folder for its user's packages."""
    (process / "environ").write_text(f"PYTHONUSERBASE={base}\0")
    return python_import_paths.elsewhere(7, ("/usr/",))


def test_a_services_links_lead_where_they_lead_it(process: Path, tmp_path: Path) -> None:
    root = process / "root"
    (root / "opt/own/lib/python3.11/site-packages").mkdir(parents=True)
    (root / "srv/inside").symlink_to("/opt/own")
    (root / "srv/outside").symlink_to(tmp_path / "beside")
    (root / "srv/above").symlink_to("../../../../beside")
    (root / "srv/loop").symlink_to("loop")
    assert has(process, "/srv/inside") == ["its user has /srv/inside/lib/python3.11/site-packages"]
    assert has(process, "inside") == ["its user has /srv/inside/lib/python3.11/site-packages"]
    assert has(process, "/srv/outside") == has(process, "/srv/above") == has(process, "/../../../beside") == []
    assert has(process, "/srv/loop") == ["its user has /srv/loop/lib by links in a circle, or of /proc"]


def test_a_service_cannot_hide_its_packages_among_others(process: Path) -> None:
    for number in range(python_import_paths.MANY + 1):
        (process / f"root/srv/lib/a{number}").mkdir(parents=True)
    assert has(process, "/srv") == [f"its user has /srv/lib with more than {python_import_paths.MANY} entries"]


def test_a_services_pipe_in_place_of_a_folder_does_not_count(process: Path) -> None:
    os.mkfifo(process / "root/srv/lib")
    assert has(process, "/srv") == []


def test_a_map_without_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come by their addresses: a row that a process puts before its own is not to hide it."""
    monkeypatch.setattr(python_import_paths, "MAPS", 4096)
    found = python_import_paths.elsewhere(os.getpid(), ("/",))
    assert "its map is too long: its mappings are unknown" in found
