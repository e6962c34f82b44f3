"""`rigwright lock` of environments for one Python and as of a day, against an index on the loopback interface."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from cli.resolving import judging
from cli.resolving.verb import rigs_of
from tests.unit.conftest import locking
from tests.unit.file_server import file_server, status
from tests.unit.index_server import Package
from tests.unit.libraries import library
from tests.unit.lock_world import World

MANY = "manylinux_2_28_x86_64"
CATALOG = """
[inputs.env]
kind = "wheel"
python = "3.10.20"
as_of = "{as_of}"
requirements = ["tool"]
"""


@pytest.fixture
def dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A box that asks for tool as of 2026-06-10, on an index that says when files came."""
    with file_server() as files:
        world = locking(tmp_path, files, "json", monkeypatch)
        world.catalog(CATALOG.format(as_of="2026-06-10"))
        world.index.projects.clear()
        world.index.wheel("tool", "1.0", "part>=1", "old ; python_version < '3.11'", "new ; python_version >= '3.11'")
        world.index.wheel("part", "1.0")
        world.index.wheel("old", "1.0")
        world.index.wheel("new", "1.0")
        yield world


def files(world: World) -> list[str]:
    return [row.file for row in world.read.groups["env"]]


def packed(**libraries: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        info = "fast-1.0.dist-info"
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: fast\nVersion: 1.0\n"),
            ("WHEEL", ""),
            ("RECORD", ""),
        ):
            archive.writestr(f"{info}/{name}", text)
        for name, content in libraries.items():
            archive.writestr(f"fast/{name}.so", content)
    return buffer.getvalue()


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The wheels whose machine code was read."""
    names: list[str] = []
    inner = judging.machine_code

    def seen(wheel: Path) -> tuple[str, ...]:
        names.append(wheel.name)
        return inner(wheel)

    monkeypatch.setattr(judging, "machine_code", seen)
    return names


def fast(world: World, content: bytes) -> Package:
    world.catalog(CATALOG.format(as_of="2026-06-10").replace("tool", "fast"))
    return world.index.add("fast", Package(f"fast-1.0-cp310-cp310-{MANY}.whl", content))


def test_an_environment_is_locked_for_its_python_and_day_alone(dated: World) -> None:
    dated.index.wheel("part", "1.1", uploaded="2026-06-10T00:00:00Z")
    dated.locked()
    rows = dated.read.groups["env"]
    assert [(row.name, row.version, row.marker) for row in rows] == [
        (name, "1.0", None) for name in ("old", "part", "tool")
    ]
    assert {(row.python, row.as_of) for row in rows} == {("3.10.20", "2026-06-10")}
    assert dated.files.url not in dated.text
    assert dated.locked() == ["no change"]


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        (["py3-none-any", f"cp310-cp310-{MANY}", f"cp38-abi3-{MANY}"], f"cp310-cp310-{MANY}"),
        (["cp310-cp310-manylinux_2_17_x86_64", f"cp310-cp310-{MANY}"], f"cp310-cp310-{MANY}"),
        (
            [f"cp38-abi3-{MANY}", f"1-cp38-abi3-{MANY}", f"10-cp38-abi3-{MANY}", f"9-cp38-abi3-{MANY}"],
            f"10-cp38-abi3-{MANY}",
        ),
        ([f"1-cp38-abi3-{MANY}", f"cp310-cp310-{MANY}"], f"cp310-cp310-{MANY}"),
        (["cp310-cp310-manylinux_2_39_x86_64", "cp311-cp311-manylinux_2_17_x86_64", "py3-none-any"], "py3-none-any"),
    ],
)
def test_the_one_wheel_that_pip_and_uv_install(dated: World, tags: list[str], chosen: str) -> None:
    dated.index.projects["part"].clear()
    for tag in tags:
        dated.index.wheel("part", "1.0", tag=tag)
    dated.locked()
    assert [file for file in files(dated) if file.startswith("part")] == [f"part-1.0-{chosen}.whl"]


def test_a_build_that_came_later_and_one_that_was_withdrawn_are_not_chosen(dated: World) -> None:
    dated.index.wheel("part", "1.0", tag="1-py3-none-any", uploaded="2026-06-11T00:00:00Z")
    dated.index.wheel("part", "1.0", tag="2-py3-none-any", yanked="bad")
    dated.locked()
    assert "part-1.0-py3-none-any.whl" in files(dated)


def test_another_day_moves_versions_and_the_same_day_does_not(dated: World) -> None:
    dated.locked()
    dated.index.wheel("part", "1.1")
    assert dated.locked() == ["no change"]
    dated.catalog(CATALOG.format(as_of="2026-06-12"))
    lines = dated.locked()
    assert lines[0] == "~ environment env as of 2026-06-10 -> 2026-06-12"
    assert [line.partition("  ")[0] for line in lines[1:]] == ["~ wheel env/part 1.0 -> 1.1"]


def test_a_day_that_has_not_begun_is_refused(dated: World) -> None:
    dated.catalog(CATALOG.format(as_of=date.today() + timedelta(days=2)))
    assert "that day has not begun" in dated.lock().stderr


def test_an_index_that_does_not_say_when_files_came_is_no_answer(dated: World) -> None:
    for project in list(dated.index.projects):
        for package in dated.index.projects[project].values():
            package.uploaded = None
        dated.index.show(project)
    done = dated.lock()
    assert done.exit_code == 1
    assert "inputs.env: " in done.stderr


def test_machine_code_is_read_once_and_said_by_card(dated: World, judged: list[str]) -> None:
    package = fast(dated, packed(b=library("sm_86", "compute_80"), a=library("sm_90a"), host=library()))
    dated.locked()
    (row,) = dated.read.groups["env"]
    assert row.machine_code == ("fast/a.so sm_90a", "fast/b.so sm_86 compute_80")
    assert dated.locked() == ["no change"]
    assert judged == [package.file]


def test_a_wheel_without_machine_code_was_judged_and_one_for_any_platform_never(dated: World) -> None:
    fast(dated, packed(host=library()))
    dated.locked()
    assert [row.machine_code for row in dated.read.groups["env"]] == [()]
    dated.catalog(CATALOG.format(as_of="2026-06-10"))
    dated.locked()
    assert {row.machine_code for row in dated.read.groups["env"]} == {None}


def test_a_wheel_of_this_machine_is_read_in_place_of_being_fetched(dated: World, tmp_path: Path) -> None:
    content = packed(a=library("sm_75"))
    package = fast(dated, content)
    given = tmp_path / "given"
    given.mkdir()
    (given / package.file).write_bytes(content)
    dated.files.answers[f"files/{package.file}"].insert(0, dated.files.answers[f"files/{package.file}"][0])
    assert dated.lock("--from-dir", str(given)).exit_code == 0
    assert dated.read.groups["env"][0].machine_code == ("fast/a.so sm_75",)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (packed(a=library("sm_86")[:-9]), "cannot be judged: 'fast/a.so': it is truncated"),
        (packed(**{"a b": library("sm_86")}), "'fast/a b.so' is the name of a library with machine code"),
    ],
)
def test_a_library_that_cannot_be_read_is_refused_with_its_name(dated: World, content: bytes, text: str) -> None:
    package = fast(dated, content)
    said = " ".join(dated.lock().stderr.split())
    assert f"{package.file}" in said
    assert text in said


def test_a_library_that_unpacks_without_end_is_refused(dated: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "LARGEST", 100)
    fast(dated, packed(a=library("sm_86")))
    assert "'fast/a.so' has " in dated.lock().stderr


def test_a_wheel_of_other_bytes_than_the_index_says_is_refused(dated: World) -> None:
    package = fast(dated, packed(a=library("sm_86")))
    dated.index.add("fast", replace(package, digest="f" * 64))
    said = " ".join(dated.lock().stderr.split())
    assert f"{package.file}: its bytes do not match the index's hash" in said
    assert dated.text == ""


def test_check_compares_with_today_and_reads_no_wheel(dated: World, judged: list[str]) -> None:
    package = fast(dated, packed(a=library("sm_86")))
    dated.locked()
    assert dated.checked(0) == ["nothing changed"]
    dated.index.wheel("fast", "1.1", uploaded="2026-10-01T00:00:00Z")
    (line,) = dated.checked(1)
    assert line.startswith("~ wheel env/fast 1.0 -> 1.1")
    assert line.endswith("(a newer resolution)")
    assert "machine code" not in line
    assert judged == [package.file]


@pytest.mark.parametrize("state", ["archived", "deprecated", "quarantined"])
def test_check_says_what_an_index_says_of_a_project(dated: World, state: str) -> None:
    dated.locked()
    dated.index.status["part"] = {"status": state, "reason": "use \x1b[31mother"}
    dated.index.show("part")
    lines = dated.checked(1)
    assert any(line.startswith(f"env: part is {state} on the index: 'use \\x1b[31mother'") for line in lines), lines


def test_check_says_what_was_withdrawn(dated: World) -> None:
    dated.locked()
    dated.index.wheel("part", "1.0", yanked="bad")
    assert "part 1.0: part-1.0-py3-none-any.whl was yanked from the index: bad" in dated.checked(1)


def test_check_that_cannot_reach_a_project_says_so(dated: World) -> None:
    dated.locked()
    dated.files.serve("simple/part/", status(403))
    assert any(line.startswith("could not check: ") for line in dated.checked(3))


def test_what_is_not_locked_yet_is_not_missed_in_an_environment(tmp_path: Path) -> None:
    """Nobody knows its packages before it was locked for the first time."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog/mine.toml").write_text(
        CATALOG.format(as_of="2026-06-10")
        + '[inputs.py]\nkind = "conda"\nrequirements = ["python ==3.10.20"]\nchannels = ["forge"]\n'
        + '[envs.small]\npython = "py"\npackages = "env"\ndistribution = "tool"\nimports = ["tool"]\n'
    )
    inventory = tmp_path / "rig.py"
    rig = {"ssh_hostname": "127.0.0.1", "envs": ["small"]}
    inventory.write_text(f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {rig}}})\n")
    (found,) = rigs_of(inventory, "lock")
    assert found.env_inputs == {"py", "env"}
