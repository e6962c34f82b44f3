"""What is patched is another installation: its plan says so, and its job checks before it begins."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.engines.installer import ENVIRONMENTS, step
from rigwright.engines.llama_cpp.build import build, compiling
from rigwright.envs.env import Environment, plan
from rigwright.envs.told import wanted
from rigwright.model.installation import Job
from rigwright.model.rig import Rig
from rigwright.patches.patch import Patch
from tests.unit.env_samples import declared, made
from tests.unit.patch_samples import AFTER, BEFORE, sha256
from tests.unit.patch_samples import made as patch
from tests.unit.samples import engine, facts, instance, rig

JOB = Job("/opt/x/engines/env", "/var/w", "/var/l", "/opt/tools", {"make": "", "judge": ""})


def env(*patches: Patch) -> Environment:
    return made(env=replace(declared(), patches=patches))


def test_a_patched_environment_is_another_one_beside(tmp_path: Path) -> None:
    plain, one = made(), env(patch(tmp_path))
    assert env().folder == plain.folder
    assert one.folder != plain.folder
    assert one.record["patches"] == {"demo/words.py": sha256(AFTER)}
    assert "patches" not in plain.record
    assert one.what == f"{plain.what}, patched by louder"
    assert wanted(one) == wanted(plain)


def test_what_it_is_called_and_why_is_no_input(tmp_path: Path) -> None:
    same = patch(tmp_path, "other-name", why="another reason", until="never")
    assert env(same).digest == env(patch(tmp_path)).digest
    whole = {"path": "demo/words.py", "before": sha256(BEFORE), "after": sha256("x"), "file": "x.py"}
    assert env(patch(tmp_path, files={"x.py": "x"}, diff=None, targets=[whole])).digest != env(same).digest


def test_hosts_are_told_of_which_wheel_each_patch_is(tmp_path: Path) -> None:
    one = patch(tmp_path)
    (told,) = json.loads(plan(rig(), env(one), "/opt/x/engines/env"))["patches"]
    (shadowed,) = told.pop("shadows")
    assert shadowed == "demo/words.py"
    assert told == one.plan | {"wheel": "demo-1.0-py3-none-any.whl"}
    assert json.loads(plan(rig(), made(), "/opt/x/engines/env"))["patches"] == []


def test_wheels_are_judged_before_anything_is_unpacked_and_patched_before_anything_is_compiled(tmp_path: Path) -> None:
    one = env(patch(tmp_path))
    script = ENVIRONMENTS.script(rig(), one, JOB)
    assert script.index("judged patches\n") < script.index("part conda\n") < script.index("judged all\n")
    wheels, conda = step(one, "wheels", JOB), step(one, "conda", JOB)
    folder = "/opt/x/engines/env/env/lib/python3.10/site-packages"
    applied = wheels.index(f"apply.py plan.json {folder}\n")
    assert wheels.index("make.py wheels") < applied < wheels.index(f"-m py_compile {folder}/demo/words.py")
    assert "apply.py" not in conda
    for plain in (ENVIRONMENTS.script(rig(), made(), JOB), step(made(), "wheels", JOB)):
        assert "apply.py" not in plain
        assert "judged patches" not in plain


def box(*patches: Patch) -> Rig:
    return rig(instance(patches=patches))


def test_a_patched_source_is_another_engine_beside(tmp_path: Path) -> None:
    one = patch(tmp_path, of="llama.cpp")
    plain, patched = build(box(), "plain", engine(), facts()), build(box(one), "plain", engine(), facts())
    assert plain.folder != patched.folder
    assert patched.record["patches"] == {"demo/words.py": sha256(AFTER)}
    assert patched.what == f"{plain.what}, patched by louder"
    script = compiling(patched)
    assert script.index("tar -xzf") < script.index("apply.py patches.json") < script.index("cmake -S")
    assert "patch" not in compiling(plain)


class Compilation:
    """A step that compiles, as nobody runs it, with stand-ins of cmake and ninja."""

    def __init__(self, folder: Path, words: str, one: Patch) -> None:
        self.work = folder / "work"
        tools = folder / "bin"
        for place in (self.work, tools):
            place.mkdir()
        for name in ("cmake", "ninja"):
            (tools / name).write_text(f"#!/bin/sh\necho ran {name}\n")
            (tools / name).chmod(0o755)
        build_ = build(box(one), "plain", engine(subtree="vendor/llama.cpp"), facts())
        with tarfile.open(self.work / build_.source.file, "w:gz") as packed:
            info = tarfile.TarInfo("llama-1.0/vendor/llama.cpp/demo/words.py")
            info.size = len(words)
            packed.addfile(info, io.BytesIO(words.encode()))
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        command = ["sh", "-c", compiling(build_)]
        self.done = subprocess.run(command, cwd=self.work, env=environment, capture_output=True, text=True, check=False)

    @property
    def source(self) -> str:
        """The file that is patched."""
        return (self.work / "source/llama-1.0/vendor/llama.cpp/demo/words.py").read_text()


def test_a_source_is_patched_before_it_is_configured(tmp_path: Path) -> None:
    made_ = Compilation(tmp_path, BEFORE, patch(tmp_path / "patches", of="llama.cpp"))
    assert made_.done.returncode == 0, made_.done.stderr
    assert made_.source == AFTER
    said = made_.done.stdout
    assert said.index("patched demo/words.py") < said.index("ran cmake")


def test_another_source_than_the_patch_is_for_is_never_configured(tmp_path: Path) -> None:
    made_ = Compilation(tmp_path, "WORDS = 'hi'\n", patch(tmp_path / "patches", of="llama.cpp"))
    assert made_.done.returncode == 1
    assert f"patch louder: demo/words.py: expected {sha256(BEFORE)}, found " in made_.done.stdout
    assert "ran cmake" not in made_.done.stdout


@pytest.mark.parametrize("subtree", ["", "vendor/llama.cpp"])
def test_paths_are_from_the_top_of_its_source(tmp_path: Path, subtree: str) -> None:
    made_ = build(box(patch(tmp_path)), "plain", engine(subtree=subtree), facts())
    end = f"/{subtree}" if subtree else "''"
    assert f'patches.json "source/$top"{end}\n' in compiling(made_)
