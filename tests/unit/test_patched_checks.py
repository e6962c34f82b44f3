"""Patched files on a host: whether they are the patches', and processes that began later."""

import os
import py_compile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from checks import test_envs
from checks.survey.answers import SurveyAnswers
from checks.survey.host import patched_files
from checks.survey.section import SurveyScope
from checks.survey.trees import PATCHED, patched_file_digests
from rigwright.envs.environment import Environment
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import build_target_state
from tests.unit.check_runner import collect_answers, red_checks
from tests.unit.env_samples import declared_env
from tests.unit.patch_samples import AFTER, BEFORE, read_patch
from tests.unit.samples import sample_facts, sample_rig


@pytest.fixture
def box(tmp_path: Path) -> tuple[Rig, Environment]:
    """A rig with a patched environment, whose file lies there."""
    box_ = sample_rig(envs=(replace(declared_env(), patches=(read_patch(tmp_path / "patches"),)),))
    box_ = replace(box_, roots=box_.roots.model_copy(update={"software": str(tmp_path / "opt")}))
    environment = build_target_state(box_, sample_facts()).installations["env"]
    assert isinstance(environment, Environment)
    file = Path(*patched_file_digests(box_.roots, environment))
    file.parent.mkdir(parents=True)
    file.write_text(AFTER)
    py_compile.compile(str(file), doraise=True)
    return box_, environment


def patched_answers(box_: Rig) -> object:
    return PATCHED.asks(SurveyScope(box_, build_target_state(box_, sample_facts())))


def red(box: tuple[Rig, Environment], **units: object) -> dict[str, str]:
    box_, environment = box
    answer = collect_answers({"patched_files": (20.0, patched_answers(box_))})
    told = answer["patched_files"]["told"]
    assert isinstance(told, dict)
    told["units"] |= units
    found = red_checks(test_envs, SurveyAnswers(answer), rig=box_, environment=environment, unsupplied=["V03"])
    return {name: text for name, text in found.items() if name == "V04"}


def test_it_is_green_where_all_is_as_it_was_patched(box: tuple[Rig, Environment]) -> None:
    assert red(box) == {}


def test_bytecode_whose_hash_python_compares_is_never_stale(box: tuple[Rig, Environment]) -> None:
    (file,) = patched_file_digests(box[0].roots, box[1])
    py_compile.compile(file, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    _stale(Path(file))
    assert red(box) == {}


def test_a_rig_without_patches_is_asked_for_nothing() -> None:
    assert patched_answers(sample_rig(envs=(declared_env(),))) is None


def _unpatched(file: Path) -> None:
    file.write_text(BEFORE)


def _without_file(file: Path) -> None:
    file.unlink()


def _link(file: Path) -> None:
    file.rename(file.with_suffix(".kept"))
    file.symlink_to(file.with_suffix(".kept"))


def _stale(file: Path) -> None:
    state = file.stat()
    os.utime(file, (state.st_atime, state.st_mtime - 100))


def _by_hash(file: Path) -> None:
    py_compile.compile(str(file), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _compiled_fifo(file: Path) -> None:
    (compiled,) = file.parent.glob("__pycache__/words.*.pyc")
    compiled.unlink()
    os.mkfifo(compiled)


def _compiled_link(file: Path) -> None:
    (compiled,) = file.parent.glob("__pycache__/words.*.pyc")
    compiled.rename(file.with_suffix(".kept"))
    compiled.symlink_to(file.with_suffix(".kept"))


def _native(file: Path) -> None:
    file.with_name("words.cpython-310-x86_64-linux-gnu.so").touch()


def _package(file: Path) -> None:
    file.with_suffix("").mkdir()
    (file.with_suffix("") / "__init__.py").touch()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_native, "demo/words.py: words.cpython-310-x86_64-linux-gnu.so"),
        (_package, "demo/words.py: __init__.py"),
        (_folder, "demo/words.py: nothing"),
        (_fifo, "demo/words.py: nothing"),
        (_compiled_fifo, "words.cpython-"),
        (_compiled_link, "words.cpython-"),
        (_unpatched, "demo/words.py: "),
        (_without_file, "demo/words.py: nothing"),
        (_link, "demo/words.py: nothing"),
        (_stale, "words.cpython-"),
        (_by_hash, "words.cpython-"),
    ],
)
def test_another_file_and_what_is_compiled_of_another_one_are_seen(
    box: tuple[Rig, Environment], change: object, said: str
) -> None:
    change(Path(*patched_file_digests(box[0].roots, box[1])))  # type: ignore[operator] # one of those above
    assert said in red(box)["V04"]


def test_a_process_that_began_before_it_was_patched_is_seen(box: tuple[Rig, Environment]) -> None:
    box_, environment = box
    written = Path(*patched_file_digests(box[0].roots, box[1])).stat().st_mtime
    instance = SimpleNamespace(unit="rigwright-chat.service", installed_as="env")
    serving = SimpleNamespace(instances=(instance,), roots=box_.roots, cards=())
    for begun, wrong in ((written - 60, True), (written + 60, False)):
        answer = collect_answers({"patched_files": (20.0, patched_answers(box_))})
        answer["patched_files"]["told"]["units"] = {instance.unit: [{"pid": 7, "begun": begun, "elsewhere": []}]}  # type: ignore[index]
        found = red_checks(test_envs, SurveyAnswers(answer), rig=serving, environment=environment, unsupplied=["V03"])
        assert ("process 7 of rigwright-chat.service" in found.get("V04", "")) is wrong


def test_a_process_that_imports_from_elsewhere_is_seen(box: tuple[Rig, Environment]) -> None:
    box_, environment = box
    instance = SimpleNamespace(unit="rigwright-chat.service", installed_as="env")
    serving = SimpleNamespace(instances=(instance,), roots=box_.roots, cards=())
    answer = collect_answers({"patched_files": (20.0, patched_answers(box_))})
    row = {"pid": 7, "begun": time.time() + 60, "elsewhere": ["PYTHONPATH has /tmp/x"]}
    answer["patched_files"]["told"]["units"] = {instance.unit: [row]}  # type: ignore[index]
    found = red_checks(test_envs, SurveyAnswers(answer), rig=serving, environment=environment, unsupplied=["V03"])
    assert "process 7 of rigwright-chat.service: PYTHONPATH has /tmp/x" in found["V04"]


def test_when_processes_of_a_service_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat/container").mkdir(parents=True)
    (tmp_path / "chat/cgroup.procs").write_text(f"{os.getpid()}\n")
    (tmp_path / "chat/container/cgroup.procs").write_text("0\n")
    monkeypatch.setattr(patched_files, "GROUPS", str(tmp_path))
    monkeypatch.setattr(
        patched_files.systemd_properties, "properties", lambda units, name: {one: {name: "/chat"} for one in units}
    )
    told = patched_files.look({"files": {}, "units": {"chat.service": ["/"]}})["units"]
    assert isinstance(told, dict)
    (mine,) = told["chat.service"]
    assert mine["pid"] == os.getpid()
    assert 0 <= time.time() - mine["begun"] < 3600
