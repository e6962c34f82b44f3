"""A stand-in for a conda channel whose `python` is a real CPython of this machine's, packed so that it runs anywhere.

    channel = conda.write(folder, conda.find())
    with Channel(folder, lab.gateway) as served:  # tests.stand_ins.package_servers
        ...  # {served.url}/linux-64/repodata.json

py-rattler-build packs it, prefix placeholders and all. Beside the interpreter the package holds the libraries that its
modules load, but for the C library's, and it depends on one package without architecture.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

DEFAULT_SERIES = "3.10"
BUILD = "lab_0"
NOTE = "_lab_prefix"
"""The package without architecture that `python` depends on."""
NOTE_FILE = "share/lab/prefix"
"""The contents of NOTE: text that is the prefix."""
DISTRIBUTION = Path("/usr/bin/python3")
_TOKEN = "@lab-prefix@"
# of the standard library: modules that no program asks for, or that need libraries that servers have not
_LEFT_OUT = shutil.ignore_patterns(
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "__pycache__"),
    *("site-packages", "dist-packages", "sitecustomize.py", "EXTERNALLY-MANAGED", "*.a", "*.o"),
    *("_tkinter.*", "_curses*", "readline.*", "nis.*", "_crypt.*", "_gdbm.*", "_dbm.*", "_test*", "_ctypes_test.*"),
)
_C_LIBRARY = ("ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.", "libresolv.")


@dataclass(frozen=True)
class Interpreter:
    """A CPython of this machine's."""

    program: Path
    version: str
    """As it says itself, such as 3.10.13."""
    prefix: Path
    wanted: bool = True
    """Whether it is of the series that was asked for; otherwise it is the distribution's."""

    @property
    def series(self) -> str:
        """Such as 3.10."""
        return self.version.rpartition(".")[0]

    def __str__(self) -> str:
        return f"CPython {self.version}" + ("" if self.wanted else ", the distribution's")


@dataclass(frozen=True)
class CondaPackages:
    """The made packages."""

    folder: Path
    python: Path
    """The interpreter's package."""
    note: Path
    """The one that it depends on."""


def find_interpreter(series: str = DEFAULT_SERIES) -> Interpreter:
    """A CPython of a series: on the PATH, pyenv's or uv's; where there is none, the distribution's own.

    Raises:
        RuntimeError: not even that one is there.
    """
    for program in _candidate_programs(series):
        if (found := _query_interpreter(program)) and found.series == series:
            return found
    if not (found := _query_interpreter(DISTRIBUTION)):
        raise RuntimeError(f"no CPython {series} here, and {DISTRIBUTION} does not run")
    return replace(found, wanted=False)


def _candidate_programs(series: str) -> Iterator[Path]:
    name = f"python{series}"
    yield from (Path(folder, name) for folder in os.get_exec_path())
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{series}.*/bin/{name}"), reverse=True)
    if uv := shutil.which("uv"):
        said = subprocess.run([uv, "python", "find", "--no-python-downloads", series], capture_output=True, text=True)
        yield from (Path(line) for line in said.stdout.splitlines())


def _query_interpreter(program: Path) -> Interpreter | None:
    code = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.base_prefix]))"
    try:
        said = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, timeout=30)
        version, prefix = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None  # not there, or pyenv's shim of a version that it has not
    return Interpreter(program, version, Path(prefix))


def write_channel(folder: Path, interpreter: Interpreter, version: str | None = None) -> CondaPackages:
    """Make a channel of two packages, `python` and NOTE; or add another `python` to one. Existing files stay.

    Args:
        folder: Where.
        interpreter: The packed interpreter.
        version: The package's own version, where that is another one than the interpreter's.

    Raises:
        RuntimeError: the interpreter does not run from another folder.
        subprocess.CalledProcessError: a program fails that packs it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = [f'mkdir -p "$PREFIX/{Path(NOTE_FILE).parent}"', f'echo "$PREFIX" > "$PREFIX/{NOTE_FILE}"']
    note = folder / "noarch" / f"{NOTE}-1.0-{BUILD}.conda"
    if not note.exists():  # its bytes are known by now
        _build_package(folder, NOTE, "1.0", text, {"noarch": "generic"})
    said = version or interpreter.version
    python = folder / "linux-64" / f"python-{said}-{BUILD}.conda"
    if python.exists():
        return CondaPackages(folder, python, note)
    with tempfile.TemporaryDirectory() as staged:
        replaced = _stage_interpreter(interpreter, Path(staged))
        _verify_interpreter(interpreter, Path(staged))
        copy = [f'cp -a {shlex.quote(staged)}/. "$PREFIX"', 'cd "$PREFIX"']
        copy += [f'sed -i "s|{_TOKEN}|$PREFIX|g" {shlex.join(replaced)}'] if replaced else []
        # it is compiled, and its libraries are found beside it: nothing is to be done to what was copied
        given = {"dynamic_linking": {"binary_relocation": False}, "always_include_files": ["**"]}
        _build_package(folder, "python", said, copy, given, [f"{NOTE} 1.*"])
    return CondaPackages(folder, python, note)


def _build_package(
    folder: Path, name: str, version: str, script: list[str], given: dict[str, Any], needs: list[str] | None = None
) -> Path:
    # of the extra `test`: an operator's throwaway hosts need no packer
    from rattler_build import Stage0Recipe

    recipe = {
        "package": {"name": name, "version": version},
        "build": {"number": 0, "string": BUILD, "script": script, **given},
        "requirements": {"run": needs or []},
    }
    with tempfile.TemporaryDirectory() as around:
        made = Stage0Recipe.from_dict(recipe, recipe_dir=around).run_build(
            output_dir=folder, channels=[], no_build_id=True, package_format="conda:1", no_include_recipe=True
        )
    shutil.rmtree(folder / "bld", ignore_errors=True)
    package = Path(made[0].packages[0])
    package.chmod(0o644)
    return package


def _stage_interpreter(interpreter: Interpreter, staged: Path) -> list[str]:
    """Copy an interpreter and what it loads; returns the files in which the prefix goes in place of _TOKEN."""
    old, name = interpreter.prefix, f"python{interpreter.series}"
    for part in (f"lib/{name}", f"include/{name}"):
        if (old / part).is_dir():
            shutil.copytree(old / part, staged / part, symlinks=True, ignore=_LEFT_OUT)
    packages = staged / f"lib/{name}/site-packages"
    packages.mkdir()
    (packages / "README.txt").touch()  # as CPython's own installation does: a package has no empty folders
    if (old / "lib/python3/dist-packages").is_dir():
        # Debian's looks there alone, by what is compiled into it
        (staged / f"lib/{name}/dist-packages").symlink_to("site-packages")
    (staged / "bin").mkdir()
    shutil.copy2((old / "bin" / name).resolve(), staged / "bin" / name)
    for link in ("python3", "python"):
        (staged / "bin" / link).symlink_to(name)
    for library in _loaded_libraries(staged):
        shutil.copy2(library.resolve(), staged / "lib" / library.name)
    files = [path for path in sorted(staged.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [str(path.relative_to(staged)) for path in files if _make_relocatable(path, old, staged)]


def _loaded_libraries(staged: Path) -> list[Path]:
    """The libraries that staged programs and modules load, but those of the C library."""
    programs = [staged / "bin/python", *staged.glob("lib/python*/lib-dynload/*.so")]
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    found = [line.split() for line in said.splitlines() if " => /" in line]
    return sorted({Path(words[2]) for words in found if not words[0].startswith(_C_LIBRARY)})


def _make_relocatable(path: Path, old: Path, staged: Path) -> bool:
    """Let a file name nothing of where it was; whether _TOKEN stands in it now."""
    content = path.read_bytes()
    if content.startswith(b"\x7fELF"):
        beside = b"$ORIGIN/" + b"../" * len(path.relative_to(staged).parent.parts) + b"lib"
        place = b"\0" + os.fsencode(old / "lib") + b"\0"  # a run path, alone in the table of strings
        new = content.replace(place, (b"\0" + beside).ljust(len(place), b"\0"))
    elif path.name == "sysconfig.py":
        # Debian's installs elsewhere
        new = content.replace(b"prefix_scheme = 'posix_local'", b"prefix_scheme = 'posix_prefix'")
    elif old != Path("/usr"):  # there text names the system's programs, too
        new = content.replace(os.fsencode(old), _TOKEN.encode())
    else:
        return False
    if new != content:
        path.write_bytes(new)
    return _TOKEN.encode() in new


def _verify_interpreter(interpreter: Interpreter, staged: Path) -> None:
    """See that the staged interpreter takes nothing from where it was, and compile its library with it.

    Bytecode is for any time that a file has then, so that no user with write access there writes it again. Files that
    name the prefix are left alone: it is text that another one takes the place of.
    """
    program = [str(staged / "bin/python"), "-I"]
    code = (
        "import sys, ssl, sqlite3, ctypes, lzma, bz2, zlib, uuid, hashlib; "
        "maps = open('/proc/self/maps').read(); print(sys.prefix); "
        "print(*(m.__file__ for m in list(sys.modules.values()) if getattr(m, '__file__', None)), sep='\\n'); "
        "print(*(w for w in maps.split() if w.startswith('/')), sep='\\n')"
    )
    done = subprocess.run([*program, "-c", code], capture_output=True, text=True)
    astray = {line for line in done.stdout.splitlines() if Path(line).is_relative_to(interpreter.prefix / "lib")}
    if interpreter.prefix == Path("/usr"):
        astray = {line for line in astray if f"/python{interpreter.series}/" in line}
    if done.returncode or not done.stdout.startswith(f"{staged}\n") or astray:
        raise RuntimeError(f"{interpreter} does not run from {staged}: {done.stderr[-500:]} {' '.join(sorted(astray))}")
    compiling = [*program, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-x", "_sysconfigdata"]
    subprocess.run([*compiling, "-s", str(staged), str(staged / f"lib/python{interpreter.series}")], check=True)
