"""The script `rig` at the top, before there is an environment to run anything from."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.unit.pseudo_terminal import run_on_terminal


@pytest.mark.parametrize("there", [True, False], ids=["another clone's", "nobody's"])
def test_an_environment_behind_a_link_is_refused_and_left_as_it_is(tmp_path: Path, there: bool) -> None:
    clone, other = tmp_path / "clone", tmp_path / "other"
    clone.mkdir()
    shutil.copy(ROOT / "rig", clone)
    if there:
        (other / "bin").mkdir(parents=True)
        (other / "bin/rigwright").touch()
    (clone / ".venv").symlink_to(other)
    done = subprocess.run([clone / "rig", "check"], capture_output=True, text=True, check=False, timeout=60)
    said = f"rig: {clone}/.venv is a symbolic link: remove it, then run this again\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert {path.name for path in clone.iterdir()} == {"rig", ".venv"}
    assert [path.name for path in other.rglob("rigwright")] == ["rigwright"] * there


PYTHON = """#!/bin/sh
# stands in for a machine's own: knows what the script asks of one, and makes an environment that tells what it is told
case "$*" in
  *venv\\ --without-pip\\ *)
    for folder; do :; done
    rm -rf "$folder" && mkdir -p "$folder/bin" "$folder/lib/python3.13/site-packages"
    echo "venv" >> "$LOG"
    cat > "$folder/bin/uv" <<'EOF'
#!/bin/sh
[ "$*" != "cache dir" ] || { echo "${LOG%/*}/cache"; exit; }
for word; do case "$word" in */locks/*) echo "uv ${word##*/}" >> "$LOG"; ;; esac; done
case "$*" in *\\ -r\\ *)
    echo "Resolved 2 packages in 1ms"
    [ -z "${SLOW-}" ] || sh -c "$SLOW"
    echo "index $UV_DEFAULT_INDEX" >> "$LOG.uv"
    exit "${FAILS:-0}" ;;
esac
EOF
    printf '#!/bin/sh\\necho "rigwright $*"\\n' > "$folder/bin/rigwright"
    cat > "$folder/bin/python3" <<'EOF'
#!/bin/sh
case "$*" in *config\\ list) echo "global.index-url='https://index.example.org/simple'" ;; esac
[ -z "$COMPILED" ] || echo "$*" >> "$COMPILED"
EOF
    chmod +x "$folder"/bin/* ;;
  -VV) echo "Python 3.13.0" ;;
  -) cat > /dev/null; echo "/pip.whl" ;;
esac
"""


class ProjectClone:
    """A clone of the project before its first run, on a machine of which a stand-in is the Python."""

    def __init__(self, folder: Path) -> None:
        self.root, self.log, self.programs = folder / "clone", folder / "log", folder / "bin"
        (self.root / "locks").mkdir(parents=True)
        self.programs.mkdir()
        for name in ("rig", "pyproject.toml", *(f"locks/controller{one}.txt" for one in ("", "-lab", "-test"))):
            shutil.copy(ROOT / name, self.root / name)
        self.log.touch()
        python = self.programs / "python3"
        python.write_text(PYTHON)
        python.chmod(0o755)

    def compiles(self, *words: str) -> bool:
        """Whether its own files are compiled before a command line goes through."""
        compiled = self.log.with_name("compiled")
        compiled.unlink(missing_ok=True)
        self.run(*words, COMPILED=str(compiled))
        return compiled.exists() and "compileall" in compiled.read_text()

    def run(self, *words: str, **variables: str) -> list[str]:
        """The actions on the environment for the sake of a command line, which then came through as it was."""
        self.log.write_text("")
        environment = {"PATH": f"{self.programs}:{os.environ['PATH']}", "LOG": str(self.log)} | variables
        done = subprocess.run(
            [self.root / "rig", *words], capture_output=True, text=True, check=False, timeout=60, env=environment
        )
        assert (done.returncode, done.stdout) == (0, f"rigwright {' '.join(words)}\n"), done.stderr
        return self.log.read_text().splitlines()


LAB, TEST = "uv controller-lab.txt", "uv controller-test.txt"


@pytest.mark.parametrize(
    ("words", "prepared"),
    [
        ("--help", "uv controller.txt"),
        ("test --help", "uv controller.txt"),
        ("demo -h", "uv controller.txt"),
        ("deploy lab", "uv controller.txt"),
        ("lab up 2", LAB),
        ("demo", LAB),
        ("bench speed", "uv controller.txt"),
        ("test lint", TEST),
        ("", "uv controller.txt"),
    ],
)
def test_a_verb_prepares_the_packages_that_it_needs_once(tmp_path: Path, words: str, prepared: str) -> None:
    clone = ProjectClone(tmp_path)
    assert clone.run(*words.split()) == ["venv", prepared]
    assert clone.run(*words.split()) == []


def test_packages_are_added_to_an_environment_and_serve_the_lesser_verbs_too(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    clone.run("status")
    assert clone.run("lab", "list") == [LAB]
    assert clone.run("test") == [TEST]
    assert [clone.run(verb) for verb in ("status", "demo", "test")] == [[], [], []]


@pytest.mark.parametrize(("first", "again"), [("test lint", TEST), ("lab up", LAB), ("check", "uv controller.txt")])
def test_an_environment_that_is_made_anew_for_a_verb_holds_what_it_held(tmp_path: Path, first: str, again: str) -> None:
    clone = ProjectClone(tmp_path)
    clone.run(*first.split())
    (clone.root / "pyproject.toml").write_text("# another version\n")
    assert clone.run("check") == ["venv", again]
    assert clone.run(*first.split()) == []


def test_an_environment_is_made_anew_when_the_lock_of_what_is_asked_for_moved(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    clone.run("test")
    lock = clone.root / "locks/controller.txt"
    lock.write_text(lock.read_text() + "# moved\n")
    assert clone.run("status") == ["venv", TEST]


def test_changed_modules_are_compiled_once_for_pythons_without_a_cache(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    folder = clone.root / "rigwright/serving"
    (folder / "__pycache__").mkdir(parents=True)
    assert [clone.compiles("status") for _ in range(2)] == [True, False]
    (folder / "new.py").touch()
    assert [clone.compiles("status") for _ in range(2)] == [True, False]
    (folder / "__pycache__/new.pyc").touch()
    assert not clone.compiles("status")


@pytest.mark.all_only
def test_another_run_that_prepares_the_environment_is_named_and_waited_for(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    lock = clone.root / ".rig.lock"
    lock.write_text("process 7 of ops since noon\n")
    lock.chmod(0o644)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        environment = {"PATH": f"{clone.programs}:{os.environ['PATH']}", "LOG": str(clone.log)}
        with subprocess.Popen(
            [clone.root / "rig", "status"], env=environment, stderr=subprocess.PIPE, text=True
        ) as run:
            assert run.stderr
            assert run.stderr.readline() == f"waiting: process 7 of ops since noon prepares {clone.root}/.venv\n"
            fcntl.flock(held, fcntl.LOCK_UN)
            run.communicate()
    assert run.returncode == 0
    # no other user can hold it from now on
    assert lock.stat().st_mode & 0o777 == 0o600


def test_the_index_that_pip_is_configured_to_use_is_uvs(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    clone.run("status")
    assert clone.log.with_name("log.uv").read_text() == "index https://index.example.org/simple\n"
    # an index's address can hold a password
    assert (clone.root / ".venv/pip-settings.txt").stat().st_mode & 0o777 == 0o600
    (clone.root / ".venv/.quick-controller").unlink()
    clone.run("lab", UV_DEFAULT_INDEX="https://other.example.org/simple")
    assert clone.log.with_name("log.uv").read_text().splitlines()[1] == "index https://other.example.org/simple"


def test_preparing_says_what_it_does_from_the_first_moment_and_how_far_it_is(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    lines = "".join(f"package==1.{number}\n" for number in range(70))
    (clone.root / "locks/controller.txt").write_text(lines)
    (cache := tmp_path / "cache/archive-v0").mkdir(parents=True)
    clone.log.write_text("")
    # a second's line comes after the first package of two has come
    slow = f"sleep 0.1; mkdir {cache}/one; sleep 2.5"
    environment = {"PATH": f"{clone.programs}:{os.environ['PATH']}", "LOG": str(clone.log), "SLOW": slow}
    status, said = run_on_terminal([str(clone.root / "rig"), "status"], environment)
    first, *_ = said.splitlines()
    assert status == 0
    assert first == f"preparing {clone.root}/.venv: at most 70 packages, from locks/controller.txt"
    assert re.search(r"\x1b\[K1 of 2 packages fetched, about \d+ s left", said)
    assert said.splitlines()[-1].endswith("rigwright status")


def test_a_failed_installation_shows_what_uv_says_and_leaves_no_stamp(tmp_path: Path) -> None:
    clone = ProjectClone(tmp_path)
    environment = {"PATH": f"{clone.programs}:{os.environ['PATH']}", "LOG": str(clone.log), "FAILS": "2"}
    done = subprocess.run([clone.root / "rig", "status"], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[1:] == [
        "Resolved 2 packages in 1ms",
        f"rig: could not prepare {clone.root}/.venv (the index is what pip is configured to use)",
    ]
    assert clone.run("status") == ["venv", "uv controller.txt"]
