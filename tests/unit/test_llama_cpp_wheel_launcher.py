"""The program that starts the server in xllamacpp's wheel, with a stand-in for the wheel."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.engines.llama_cpp_wheel import launcher

# The part of the wheel that the launcher uses: fields with types, and a server that is ready once it is made.
WHEEL = """
from enum import IntEnum
import json, sys
__version__ = "1.2.3"
BUILD_INFO = {"compiler": "none"}
class Kind(IntEnum):
    ONE = 1
    TWO = 2
class Part:
    def __init__(self):
        self.n_threads = -1
class CommonParams:
    def __init__(self):
        self.__dict__.update(kind=Kind.ONE, part=Part(), names=set(), share=0.5, switch=False, text="", api_keys=[],
                             table={})
class Server:
    listening_address = "unix:///x"
    def __init__(self, params):
        if params.text == "broken":
            raise RuntimeError("no model")
        found = {**params.__dict__, "part": params.part.n_threads, "names": sorted(params.names)}
        print(json.dumps(found), sys.flags.isolated, sys.flags.no_site, sys.pycache_prefix, flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An installation."""
    (tmp_path / "lib" / "xllamacpp").mkdir(parents=True)
    (tmp_path / "lib" / "xllamacpp" / "__init__.py").write_text(WHEEL)
    (tmp_path / "bin").mkdir()
    (tmp_path / "key").write_text("secret\n")
    (tmp_path / "template").write_text("{{ a }}")
    made = tmp_path / "bin" / "llama-server"
    made.write_text(Path(launcher.__file__).read_text())
    made.chmod(0o755)
    return made


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=30)


@pytest.fixture
def serving(program: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that serves."""
    fields = (
        '{"kind": "TWO", "part.n_threads": 2, "names": ["b", "a"], "share": 1, "switch": true, "table": {"a": "1"}}'
    )
    words = [
        program,
        program.parents[1] / "key",
        f'{{"fields": {fields}, "files": {{"text": "{program.parents[1]}/template"}}}}',
    ]
    environment = {**os.environ, "PYTHONPATH": str(program.parent)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_sets_the_fields_reads_files_and_the_key_and_ends_at_a_signal(
    serving: subprocess.Popen[str], number: int
) -> None:
    assert serving.stdout
    assert serving.stdout.readline() == (
        '{"kind": 2, "part": 2, "names": ["a", "b"], "share": 1.0, "switch": true, "text": "{{ a }}", '
        '"api_keys": ["secret"], "table": {"a": "1"}} 1 1 /dev/null\n'
    )
    assert serving.stdout.readline() == "serving at unix:///x\n"
    assert "secret" not in Path(f"/proc/{serving.pid}/cmdline").read_text()
    begun = time.monotonic()
    serving.send_signal(number)
    assert serving.wait(10) == 0
    assert time.monotonic() - begun < 10


def test_it_says_its_version(program: Path) -> None:
    assert run(program, "--version").stdout == "xllamacpp 1.2.3, llama.cpp none\n"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('{"other": 1}', "other: this version has no such field"),
        ('{"part.other": 1}', "part.other: this version has no such field"),
        ('{"kind": "THREE"}', "kind: 'THREE' is not one of ONE, TWO"),
        ('{"kind": 2}', "kind: 2 is not one of ONE, TWO"),
        ('{"switch": 1}', "switch: bool expected, not 1"),
        ('{"part.n_threads": true}', "part.n_threads: int expected, not True"),
        ('{"part.n_threads": 1.5}', "part.n_threads: int expected, not 1.5"),
        ('{"share": true}', "share: float expected, not True"),
        ('{"names": [1]}', "names: set expected, not [1]"),
        ('{"text": "broken"}', "the model is not served, as the log says: no model"),
        ("[]", "settings or key unreadable: TypeError"),
        ("{", "settings or key unreadable: JSONDecodeError"),
    ],
)
def test_a_failed_setting_ends_it_with_a_line(program: Path, fields: str, said: str) -> None:
    found = run(program, str(program.parents[1] / "key"), f'{{"fields": {fields}, "files": {{}}}}')
    assert found.returncode == 1
    assert found.stderr.startswith(f"llama-server: {said}")
    assert len(found.stderr.splitlines()) == 1
    assert "secret" not in found.stderr


def test_a_missing_key_template_or_word_ends_it(program: Path) -> None:
    (program.parents[1] / "empty").write_text("\n")
    for words, said in (
        ((str(program.parents[1] / "empty"), '{"fields": {}, "files": {}}'), "contains no key"),
        (("/nowhere", '{"fields": {}, "files": {}}'), "settings or key unreadable: FileNotFoundError"),
        ((str(program.parents[1] / "key"), '{"fields": {}, "files": {"text": "/nowhere"}}'), "FileNotFoundError"),
        (("one",), "usage: llama-server KEY_FILE SETTINGS"),
    ):
        found = run(program, *words)
        assert found.returncode == 1
        assert said in found.stderr


def test_it_runs_on_the_oldest_python(program: Path) -> None:
    assert sys.version_info >= (3, 10)
    assert program.read_text().startswith("#!/usr/bin/python3 -ISBXpycache_prefix=/dev/null\n")
