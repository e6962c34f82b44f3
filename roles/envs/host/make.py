"""Put an environment together: `python make.py PART`, in a folder with plan.json, as user `nobody` and without the
network.

Runs with the Python that has uv and py-rattler. Another program judges the result afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TextIO, cast

import rattler
from rattler.package_streaming import extract

LOOK = 0.5
"""Seconds between two looks at how far uv is."""


def print_line(text: str) -> None:
    """A line for the operator."""
    print(text, flush=True)


def link_conda_packages(prefix: Path, packages: Sequence[Mapping[str, str]], work: Path) -> None:
    """Link conda packages into a prefix; their own scripts are not run.

    Args:
        prefix: Absolute: it is written into texts of the packages.
        packages: `path` and `sha256` of each.
        work: An empty folder on the prefix's file system.
    """
    records = []
    for package in packages:
        archive = Path(package["path"])
        unpacked = work / "read" / archive.name
        extract(archive, unpacked)
        size = archive.stat().st_size
        index = unpacked / "info" / "index.json"
        record = rattler.PackageRecord.from_index_json(index, size=size, sha256=package["sha256"])
        # an address is asked for; the file's own would tell the next reader of a folder that may be gone
        records.append(rattler.RepoDataRecord(record, archive.name, archive.as_uri(), archive.parent.as_uri()))
    cache = work / "cache"
    made = rattler.install(records, prefix, cache_dir=cache, show_progress=False, execute_link_scripts=False)
    asyncio.run(_await(made))


async def _await(made: object) -> None:
    await made  # type: ignore[misc]


def install_wheels(prefix: Path, packages: Sequence[Mapping[str, str]], work: Path) -> None:
    """Install wheels, each by its hash, and nothing else.

    Args:
        prefix: Where its Python is.
        packages: `name`, `version`, `sha256` and `path` of each.
        work: An empty folder on the prefix's file system: files get a second name, and are not copied.
    """
    offered, cache = work / "wheels", work / "uv"
    offered.mkdir(parents=True)
    for package in packages:
        (offered / Path(package["path"]).name).symlink_to(Path(package["path"]).absolute())
    asked = work / "requirements.txt"
    asked.write_text("".join(f"{one['name']}=={one['version']} --hash=sha256:{one['sha256']}\n" for one in packages))
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "install", "--quiet", "--no-config", "--offline", "--no-index", f"--find-links={offered}"]
    command += ["--no-deps", "--no-build", "--require-hashes", "--link-mode=hardlink", f"--cache-dir={cache}"]
    # Python would do it at every start: its user cannot write there afterwards
    command.append("--compile-bytecode")
    command += [f"--python={prefix / 'bin' / 'python'}", f"--requirements={asked}"]
    with report_unpacked_wheels(cache, len(packages)):
        subprocess.run(command, check=True)
    drop_cache_records(prefix)


def drop_cache_records(prefix: Path) -> None:
    """Remove uv's notes for a later run with its cache: each has the time of a wheel's file on this host."""
    for note in sorted(prefix.glob("lib/python3.*/site-packages/*.dist-info/uv_cache.json")):
        record = note.with_name("RECORD")
        name = f"{note.parent.name}/{note.name},"
        lines = [line for line in record.read_text().splitlines(keepends=True) if not line.startswith(name)]
        note.unlink()
        record.unlink()  # its cache has the same file
        record.write_text("".join(lines))


@contextmanager
def report_unpacked_wheels(cache: Path, total: int) -> Iterator[None]:
    """Say how many wheels are unpacked while the block runs."""
    ended = Event()

    def look() -> None:
        said = 0
        while not ended.wait(LOOK):
            there = min(total, len(list(cache.glob("archive-v*/*"))))
            if there > said:
                print_line(f"[{there}/{total}] wheels")
                said = there

    looking = Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


@contextmanager
def compile_library(prefix: Path) -> Iterator[None]:
    """Compile the uncompiled modules of Python's own library, while the block runs, on processors that unpacking leaves
    idle: its user cannot write there afterwards. uv compiles what it brings.

    A package may hold what only another Python compiles; that is left as it is.
    """
    # an isolated Python would leave out the environment's PYTHONHASHSEED, by which sets have one order
    command = [str(prefix / "bin" / "python"), "-s", "-m", "compileall", "-qq", "-i", "-"]
    libraries = sorted(prefix.glob("lib/python3.*"))
    left = [f"{one}\n" for library in libraries for one in find_uncompiled(library)]
    # files that are named it compiles one after the other, whatever -j says
    most = len(os.sched_getaffinity(0))
    running = []
    try:
        for lines in (left[number::most] for number in range(min(most, len(left)))):
            running.append(one := subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=libraries[0]))
            # one that does not even start compiles nothing, which is no reason to have no environment
            with suppress(BrokenPipeError), cast("TextIO", one.stdin) as asked:
                asked.writelines(lines)
        yield
    finally:
        for one in running:
            one.wait()


def find_uncompiled(library: Path) -> Iterator[Path]:
    """Files of a Python's own library that its package has not compiled, or of which Python would not take that.

    compileall itself takes bytecode alone that names its text's time: other packages' it would make all anew, which
    takes a fifth of what a small environment takes.
    """
    series = library.name.removeprefix("python").replace(".", "")
    for folder, folders, names in os.walk(library):
        folders[:] = [one for one in folders if one not in ("site-packages", "__pycache__")]
        for name in names:
            text = Path(folder, name)
            made = text.parent / "__pycache__" / f"{text.stem}.cpython-{series}.pyc"
            if text.suffix == ".py" and not is_bytecode_fresh(text, made):
                yield text


def is_bytecode_fresh(text: Path, made: Path) -> bool:
    """Whether Python takes bytecode for what its text compiles to (importlib, PEP 552)."""
    try:
        with made.open("rb") as file:
            _, flags, moment, size = struct.unpack("<4sLLL", file.read(16))
    except (OSError, struct.error):
        return False
    if flags:
        # by its text's hash, at which Python looks or not: both are of one locked package
        return True
    there = text.stat()
    return (int(there.st_mtime) & 0xFFFFFFFF, there.st_size & 0xFFFFFFFF) == (moment, size)


def write_texts(prefix: Path, texts: Mapping[str, str]) -> None:
    """Write texts below the prefix, by their paths in it."""
    for name, text in texts.items():
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    """Do one part of what the plan says: `conda`, of which nothing is run, and then `wheels`."""
    plan = json.loads(Path("plan.json").read_text())
    prefix, work = Path(plan["prefix"]), Path(plan["work"])
    os.umask(0o022)
    if sys.argv[1] == "conda":
        print_line(f"==> unpacking {len(plan['conda'])} conda packages")
        link_conda_packages(prefix, plan["conda"], work / "conda")
        return
    packages = plan["wheels"] + json.loads(Path("plugins", "plugins.json").read_text())
    print_line(f"==> unpacking and compiling {len(packages)} wheels")
    with compile_library(prefix):
        install_wheels(prefix, packages, work / "python")
    write_texts(prefix, plan["texts"])


if __name__ == "__main__":
    main()
    # seen once: py-rattler's threads crash the interpreter on its way out, when all is done
    sys.stdout.flush()
    os._exit(0)
