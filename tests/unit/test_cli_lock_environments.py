"""`rigwright lock` of environments for one Python and as of a day, against an index on the loopback interface."""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from cli.lock_resolver import wheels
from cli.lock_resolver.lock_run import load_rigs
from tests.unit.conftest import lock_fixture_box
from tests.unit.cuda_libraries import cuda_library
from tests.unit.file_server import error_status, run_file_server
from tests.unit.index_server import ProjectFile
from tests.unit.lock_world import LockFixture

MANY = "manylinux_2_28_x86_64"
CATALOG = """
[inputs.env]
kind = "wheel"
python = "3.10.20"
as_of = "{as_of}"
requirements = ["tool"]
"""


@pytest.fixture
def dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockFixture]:
    """A box that asks for tool as of 2026-06-10, on an index that says when files came."""
    with run_file_server() as files:
        world = lock_fixture_box(tmp_path, files, "json", monkeypatch)
        world.write_catalog(CATALOG.format(as_of="2026-06-10"))
        world.index.projects.clear()
        world.index.publish_wheel(
            "tool", "1.0", "part>=1", "old ; python_version < '3.11'", "new ; python_version >= '3.11'"
        )
        world.index.publish_wheel("part", "1.0")
        world.index.publish_wheel("old", "1.0")
        world.index.publish_wheel("new", "1.0")
        yield world


def files(world: LockFixture) -> list[str]:
    return [row.file for row in world.read_lock.groups["env"]]


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
def inspected_wheels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The wheels whose machine code was read."""
    names: list[str] = []
    inner = wheels.machine_code

    def read_wheel(wheel: Path) -> tuple[str, ...]:
        names.append(wheel.name)
        return inner(wheel)

    monkeypatch.setattr(wheels, "machine_code", read_wheel)
    return names


def fast(world: LockFixture, content: bytes) -> ProjectFile:
    world.write_catalog(CATALOG.format(as_of="2026-06-10").replace("tool", "fast"))
    return world.index.add("fast", ProjectFile(f"fast-1.0-cp310-cp310-{MANY}.whl", content))


def test_an_environment_is_locked_for_its_python_and_day_alone(dated: LockFixture) -> None:
    dated.index.publish_wheel("part", "1.1", uploaded="2026-06-10T00:00:00Z")
    dated.lock_lines()
    rows = dated.read_lock.groups["env"]
    assert [(row.name, row.version, row.marker) for row in rows] == [
        (name, "1.0", None) for name in ("old", "part", "tool")
    ]
    assert {(row.python, row.as_of) for row in rows} == {("3.10.20", "2026-06-10")}
    assert dated.files.url not in dated.lock_text
    assert dated.lock_lines() == ["no change"]


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
def test_the_one_wheel_that_pip_and_uv_install(dated: LockFixture, tags: list[str], chosen: str) -> None:
    dated.index.projects["part"].clear()
    for tag in tags:
        dated.index.publish_wheel("part", "1.0", tag=tag)
    dated.lock_lines()
    assert [file for file in files(dated) if file.startswith("part")] == [f"part-1.0-{chosen}.whl"]


def test_a_build_that_came_later_and_one_that_was_withdrawn_are_not_chosen(dated: LockFixture) -> None:
    dated.index.publish_wheel("part", "1.0", tag="1-py3-none-any", uploaded="2026-06-11T00:00:00Z")
    dated.index.publish_wheel("part", "1.0", tag="2-py3-none-any", yanked="bad")
    dated.lock_lines()
    assert "part-1.0-py3-none-any.whl" in files(dated)


def test_another_day_moves_versions_and_the_same_day_does_not(dated: LockFixture) -> None:
    dated.lock_lines()
    dated.index.publish_wheel("part", "1.1")
    assert dated.lock_lines() == ["no change"]
    dated.write_catalog(CATALOG.format(as_of="2026-06-12"))
    lines = dated.lock_lines()
    assert lines[0] == "~ environment env as of 2026-06-10 -> 2026-06-12"
    assert [line.partition("  ")[0] for line in lines[1:]] == ["~ wheel env/part 1.0 -> 1.1"]


def test_a_day_that_has_not_begun_is_refused(dated: LockFixture) -> None:
    dated.write_catalog(CATALOG.format(as_of=date.today() + timedelta(days=2)))
    assert "that day is in the future" in dated.run_lock().stderr


def test_an_index_that_does_not_say_when_files_came_is_no_answer(dated: LockFixture) -> None:
    for project in list(dated.index.projects):
        for package in dated.index.projects[project].values():
            package.uploaded = None
        dated.index.publish_project(project)
    done = dated.run_lock()
    assert done.exit_code == 1
    assert "inputs.env: " in done.stderr


def test_machine_code_is_read_once_and_said_by_card(dated: LockFixture, inspected_wheels: list[str]) -> None:
    package = fast(dated, packed(b=cuda_library("sm_86", "compute_80"), a=cuda_library("sm_90a"), host=cuda_library()))
    dated.lock_lines()
    (row,) = dated.read_lock.groups["env"]
    assert row.machine_code == ("fast/a.so sm_90a", "fast/b.so sm_86 compute_80")
    assert (dated.lock_lines(), inspected_wheels) == (["no change"], [package.file])


def test_a_wheel_without_machine_code_was_judged_and_one_for_any_platform_never(dated: LockFixture) -> None:
    fast(dated, packed(host=cuda_library()))
    dated.lock_lines()
    assert [row.machine_code for row in dated.read_lock.groups["env"]] == [()]
    dated.write_catalog(CATALOG.format(as_of="2026-06-10"))
    dated.lock_lines()
    assert {row.machine_code for row in dated.read_lock.groups["env"]} == {None}


def test_a_wheel_of_this_machine_is_read_in_place_of_being_fetched(dated: LockFixture, tmp_path: Path) -> None:
    content = packed(a=cuda_library("sm_75"))
    package = fast(dated, content)
    given = tmp_path / "given"
    given.mkdir()
    (given / package.file).write_bytes(content)
    dated.files.answers[f"files/{package.file}"].insert(0, dated.files.answers[f"files/{package.file}"][0])
    assert dated.run_lock("--from-dir", str(given)).exit_code == 0
    assert dated.read_lock.groups["env"][0].machine_code == ("fast/a.so sm_75",)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (packed(a=cuda_library("sm_86")[:-9]), "cannot be judged: 'fast/a.so': it is truncated"),
        (packed(**{"a b": cuda_library("sm_86")}), "'fast/a b.so' is the name of a library with machine code"),
    ],
)
def test_a_library_that_cannot_be_read_is_refused_with_its_name(dated: LockFixture, content: bytes, text: str) -> None:
    package = fast(dated, content)
    said = " ".join(dated.run_lock().stderr.split())
    assert f"{package.file}" in said
    assert text in said


def test_a_library_that_unpacks_without_end_is_refused(dated: LockFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "LARGEST", 100)
    fast(dated, packed(a=cuda_library("sm_86")))
    assert "'fast/a.so' has " in dated.run_lock().stderr


def test_a_wheel_of_other_bytes_than_the_index_says_is_refused(dated: LockFixture) -> None:
    package = fast(dated, packed(a=cuda_library("sm_86")))
    dated.index.add("fast", replace(package, digest="f" * 64))
    said = " ".join(dated.run_lock().stderr.split())
    assert f"{package.file}: its bytes do not match the index's hash" in said
    assert dated.lock_text == ""


def test_check_compares_with_today_and_reads_no_wheel(dated: LockFixture, inspected_wheels: list[str]) -> None:
    package = fast(dated, packed(a=cuda_library("sm_86")))
    dated.lock_lines()
    assert dated.check_lines(0) == ["nothing changed"]
    dated.index.publish_wheel("fast", "1.1", uploaded="2026-10-01T00:00:00Z")
    (line,) = dated.check_lines(1)
    assert line.startswith("~ wheel env/fast 1.0 -> 1.1")
    assert line.endswith("(a newer resolution)")
    assert "machine code" not in line
    assert inspected_wheels == [package.file]


@pytest.mark.parametrize("state", ["archived", "deprecated", "quarantined"])
def test_check_says_what_an_index_says_of_a_project(dated: LockFixture, state: str) -> None:
    dated.lock_lines()
    dated.index.status["part"] = {"status": state, "reason": "use \x1b[31mother"}
    dated.index.publish_project("part")
    lines = dated.check_lines(1)
    assert any(line.startswith(f"env: part is {state} on the index: 'use \\x1b[31mother'") for line in lines), lines


def test_check_says_what_was_withdrawn(dated: LockFixture) -> None:
    dated.lock_lines()
    dated.index.publish_wheel("part", "1.0", yanked="bad")
    assert "part 1.0: part-1.0-py3-none-any.whl was yanked from the index: bad" in dated.check_lines(1)


def test_check_that_cannot_reach_a_project_says_so(dated: LockFixture) -> None:
    dated.lock_lines()
    dated.files.serve("simple/part/", error_status(403))
    assert any(line.startswith("could not check: ") for line in dated.check_lines(3))


def test_unlocked_packages_are_not_missed_in_an_environment(tmp_path: Path) -> None:
    """Its packages are unknown before it was locked for the first time."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog/mine.toml").write_text(
        CATALOG.format(as_of="2026-06-10")
        + '[inputs.py]\nkind = "conda"\nrequirements = ["python ==3.10.20"]\nchannels = ["forge"]\n'
        + '[envs.small]\npython = "py"\npackages = "env"\ndistribution = "tool"\nimports = ["tool"]\n'
    )
    inventory = tmp_path / "rig.py"
    rig = {"ssh_hostname": "127.0.0.1", "envs": ["small"]}
    inventory.write_text(f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {rig}}})\n")
    (found,) = load_rigs(inventory, "lock")
    assert [env.inputs for env in found.envs] == [("py", "env")]
