"""A patched installation is another one: its plan tells so, and its job checks before it begins."""

import io
import json
import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.engines.environment_installer import ENVIRONMENTS, render_step
from rigwright.engines.llama_cpp.build import plan_build, render_compile_step
from rigwright.envs.environment import Environment, render_install_plan
from rigwright.envs.installed_packages import locked_packages
from rigwright.model.installation import InstallJob
from rigwright.model.rig import Rig
from rigwright.patches.patch import Patch
from tests.unit.env_samples import declared_env, env_installation
from tests.unit.patch_samples import AFTER, BEFORE, read_patch, text_sha256
from tests.unit.samples import sample_engine, sample_facts, sample_instance, sample_rig

JOB = InstallJob("/opt/x/engines/env", "/var/w", "/var/l", "/opt/tools", {"make": "", "judge": ""})


def env(*patches: Patch) -> Environment:
    return env_installation(env=replace(declared_env(), patches=patches))


def test_a_patched_environment_is_another_one_beside(tmp_path: Path) -> None:
    plain, one = env_installation(), env(read_patch(tmp_path))
    assert env().folder == plain.folder
    assert one.folder != plain.folder
    assert one.record["patches"] == {"demo/words.py": text_sha256(AFTER)}
    assert "patches" not in plain.record
    assert one.what == f"{plain.what}, patched by louder"
    assert locked_packages(one) == locked_packages(plain)


def test_name_and_reason_are_no_inputs(tmp_path: Path) -> None:
    same = read_patch(tmp_path, "other-name", purpose="another reason", obsolete_when="never")
    assert env(same).digest == env(read_patch(tmp_path)).digest
    whole = {"path": "demo/words.py", "before": text_sha256(BEFORE), "after": text_sha256("x"), "file": "x.py"}
    assert env(read_patch(tmp_path, files={"x.py": "x"}, diff=None, targets=[whole])).digest != env(same).digest


def test_hosts_learn_of_which_wheel_each_patch_is(tmp_path: Path) -> None:
    one = read_patch(tmp_path)
    box_rig = sample_rig()
    (told,) = json.loads(render_install_plan(box_rig.roots, box_rig.requests, env(one), "/opt/x/engines/env"))[
        "patches"
    ]
    (shadowed,) = told.pop("shadows")
    assert shadowed == "demo/words.py"
    assert told == one.plan | {"wheel": "demo-1.0-py3-none-any.whl"}
    assert (
        json.loads(render_install_plan(box_rig.roots, box_rig.requests, env_installation(), "/opt/x/engines/env"))[
            "patches"
        ]
        == []
    )


def test_wheels_are_judged_before_anything_is_unpacked_and_patched_before_anything_is_compiled(tmp_path: Path) -> None:
    one = env(read_patch(tmp_path))
    script = ENVIRONMENTS.script(sample_rig(), one, JOB)
    assert script.index("judged patches\n") < script.index("part conda\n") < script.index("judged all\n")
    wheels, conda = render_step(one, "wheels", JOB), render_step(one, "conda", JOB)
    folder = "/opt/x/engines/env/env/lib/python3.10/site-packages"
    applied = wheels.index(f"apply.py plan.json {folder}\n")
    assert wheels.index("make.py wheels") < applied < wheels.index(f"-m py_compile {folder}/demo/words.py")
    assert "apply.py" not in conda
    for plain in (
        ENVIRONMENTS.script(sample_rig(), env_installation(), JOB),
        render_step(env_installation(), "wheels", JOB),
    ):
        assert "apply.py" not in plain
        assert "judged patches" not in plain


def box(*patches: Patch) -> Rig:
    return sample_rig(sample_instance(patches=patches))


def test_a_patched_source_is_another_engine_beside(tmp_path: Path) -> None:
    one = read_patch(tmp_path, target_distribution="llama.cpp")
    plain, patched = (
        plan_build(box(), "plain", sample_engine(), sample_facts()),
        plan_build(box(one), "plain", sample_engine(), sample_facts()),
    )
    assert plain.folder != patched.folder
    assert patched.record["patches"] == {"demo/words.py": text_sha256(AFTER)}
    assert patched.what == f"{plain.what}, patched by louder"
    script = render_compile_step(patched)
    assert script.index("tar -xzf") < script.index("apply.py patches.json") < script.index("cmake -S")
    assert "patch" not in render_compile_step(plain)


class Compilation:
    """A step that compiles, as user `nobody` runs it, with stand-ins of cmake and ninja."""

    def __init__(self, folder: Path, words: str, one: Patch) -> None:
        self.work = folder / "work"
        tools = folder / "bin"
        for place in (self.work, tools):
            place.mkdir()
        for name in ("cmake", "ninja"):
            (tools / name).write_text(f"#!/bin/sh\necho ran {name}\n")
            (tools / name).chmod(0o755)
        build_ = plan_build(box(one), "plain", sample_engine(subtree="vendor/llama.cpp"), sample_facts())
        with tarfile.open(self.work / build_.source.file, "w:gz") as packed:
            info = tarfile.TarInfo("llama-1.0/vendor/llama.cpp/demo/words.py")
            info.size = len(words)
            packed.addfile(info, io.BytesIO(words.encode()))
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        command = ["sh", "-c", render_compile_step(build_)]
        self.done = subprocess.run(command, cwd=self.work, env=environment, capture_output=True, text=True, check=False)

    @property
    def source(self) -> str:
        """The file that is patched."""
        return (self.work / "source/llama-1.0/vendor/llama.cpp/demo/words.py").read_text()


def test_a_source_is_patched_before_it_is_configured(tmp_path: Path) -> None:
    made_ = Compilation(tmp_path, BEFORE, read_patch(tmp_path / "patches", target_distribution="llama.cpp"))
    assert made_.done.returncode == 0, made_.done.stderr
    assert made_.source == AFTER
    said = made_.done.stdout
    assert said.index("patched demo/words.py") < said.index("ran cmake")


def test_another_source_than_the_patch_is_for_is_never_configured(tmp_path: Path) -> None:
    made_ = Compilation(tmp_path, "WORDS = 'hi'\n", read_patch(tmp_path / "patches", target_distribution="llama.cpp"))
    assert made_.done.returncode == 1
    assert f"patch louder: demo/words.py: expected {text_sha256(BEFORE)}, found " in made_.done.stdout
    assert "ran cmake" not in made_.done.stdout


@pytest.mark.parametrize("subtree", ["", "vendor/llama.cpp"])
def test_paths_are_from_the_top_of_its_source(tmp_path: Path, subtree: str) -> None:
    made_ = plan_build(box(read_patch(tmp_path)), "plain", sample_engine(subtree=subtree), sample_facts())
    end = f"/{subtree}" if subtree else "''"
    assert f'patches.json "source/$top"{end}\n' in render_compile_step(made_)
