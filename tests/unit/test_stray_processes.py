"""Which processes were started from an engine's folder outside of a rig's slices."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checks.survey.host.processes import Others


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server that is a script, in an engine's folder."""
    path = tmp_path / "engines" / "plain-1.0-0123456789ab" / "bin" / "server"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\necho up\nread -r _\n")
    path.chmod(0o755)
    return path


@contextmanager
def running(*command: str | Path) -> Iterator[str]:
    """A command that says a word and then waits; yields its process id."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield str(process.pid)
        finally:
            process.kill()


def find_stray(server: Path) -> list[str]:
    others = Others(f"{server.parents[2]}/", set(), "nobodys", set())
    return [str(one["pid"]) for one in others.find_intruders(set()) if str(one["what"]).startswith("runs from")]


def test_an_unmanaged_server_is_found(server: Path) -> None:
    with running(server) as direct, running("sh", server) as by_a_shell:
        assert sorted(find_stray(server)) == sorted([direct, by_a_shell])


@pytest.fixture
def python(server: Path) -> Path:
    """An environment's Python, in an engine's folder: a link to the machine's own."""
    path = server.with_name("python3")
    path.symlink_to(os.path.realpath(sys.executable))
    return path


UP = "print('up', flush=True); input()"


def test_a_module_that_an_environments_python_runs_is_found(server: Path, python: Path) -> None:
    # by its path, by that of a link to the folder, and by what it has loaded from there
    (server.parents[3] / "current/engines").mkdir(parents=True)
    (server.parents[3] / "current/engines/x").symlink_to(server.parents[1])
    library = server.with_name("part.so")
    library.write_bytes(bytes(4096))
    loads = f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_EXEC); {UP}"
    with (
        running(python, "-c", UP) as by_path,
        running(server.parents[3] / "current/engines/x/bin/python3", "-c", UP) as by_link,
        running(sys.executable, "-c", loads) as by_library,
    ):
        assert sorted(find_stray(server)) == sorted([by_path, by_link, by_library])


def test_a_process_that_only_reads_a_file_there_is_not_counted(server: Path) -> None:
    marker = server.parents[1] / "build.json"
    marker.write_text("{}\n")
    with running("tail", "-f", marker):
        assert find_stray(server) == []
