"""An environment is used only when every file of it is a locked package's, with the bytes that it says."""

import base64
import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigwright.patches.new_files import shadow_pattern
from roles.envs.host.judge import reject_surplus_packages, validate_environment, validate_patched_wheels
from roles.envs.host.lists import list_conda_files
from roles.envs.host.tree import EnvironmentRejected
from tests.unit.wheel_files import write_wheel

SITE = "lib/python3.10/site-packages"
PYTHON = "python-3.10.20-0_a.conda"
Plan = dict[str, Any]


class VerifiedEnvFolder:
    """One that is as it should be: a Python, and a distribution in it."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.write("bin/python3.10", "a program")
        self.write("lib/python3.10/os.py", "import sys")
        (top / "bin/python").symlink_to("python3.10")
        self.write(f"{SITE}/demo/__init__.py", "x = 1")
        self.write(f"{SITE}/demo/__pycache__/__init__.cpython-310.pyc", "compiled")
        self.write("bin/demo", "#!python")
        self.write("conda-meta/history", "")
        self.write("etc/conda/activate.d/rigwright.sh", "export A=1")
        self.plan: Plan = {
            "conda": [{"path": f"/srv/{PYTHON}", "sha256": "1" * 64}],
            "wheels": [{"name": "Demo_Package", "version": "1.0", "sha256": "2" * 64, "path": f"{top}.whl"}],
            "texts": {"etc/conda/activate.d/rigwright.sh": "export A=1"},
            "patches": [],
        }
        self.conda({"bin/python3.10": "a program", "lib/python3.10/os.py": "import sys"}, links=["bin/python"])
        self.record({f"{SITE}/demo/__init__.py": "x = 1", "bin/demo": "#!python"})
        self.wheel({"demo/__init__.py": "x = 1"})
        self.listed = list_conda_files(top, self.plan)

    def judge(self) -> dict[str, str]:
        return {path: one.sha256 for path, one in validate_environment(self.top, self.plan, self.listed).items()}

    def wheel(self, files: dict[str, str], name: str = "demo_package-1.0.dist-info/RECORD", rows: str = "") -> None:
        """The installed files: its list, with more rows, and no more."""
        listed = "".join(f"{path},sha256={_encoded(text)},{len(text)}\n" for path, text in files.items())
        with zipfile.ZipFile(f"{self.top}.whl", "w") as made:
            made.writestr(name, f"{listed}{rows}{name},,\n")

    def write(self, name: str, text: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def conda(self, files: dict[str, str], links: list[str], **more: object) -> None:
        rows = [{"_path": name, "path_type": "hardlink", "sha256": _sha256(text)} for name, text in files.items()]
        rows += [{"_path": name, "path_type": "softlink", "sha256": "0" * 64} for name in links]
        said = {"name": "python", "version": "3.10.20", "build": "0_a"}
        meta = {**said, "fn": PYTHON, "sha256": "1" * 64, "paths_data": {"paths": rows}, **more}
        self.write("conda-meta/python-3.10.20-0_a.json", json.dumps(meta))

    def record(self, files: dict[str, str], folder: str = "demo_package-1.0.dist-info") -> None:
        rows = [f"{_from_site(name)},sha256={_encoded(text)},{len(text)}" for name, text in files.items()]
        self.write(f"{SITE}/{folder}/RECORD", "\n".join([*rows, f"{folder}/RECORD,,"]) + "\n")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _from_site(name: str) -> str:
    return os.path.relpath(name, SITE)


@pytest.fixture
def env(tmp_path: Path) -> VerifiedEnvFolder:
    return VerifiedEnvFolder(tmp_path / "env")


def test_one_that_is_as_it_was_locked_is_right(env: VerifiedEnvFolder) -> None:
    found = env.judge()
    assert found["bin/demo"] == _sha256("#!python")
    assert "bin/python" not in found  # a link has no bytes
    assert f"{SITE}/demo/__pycache__/__init__.cpython-310.pyc" in found


def _setuid(env: VerifiedEnvFolder) -> None:
    (env.top / "bin/demo").chmod(0o4755)


def _second_name(env: VerifiedEnvFolder) -> None:
    os.link(env.top / "bin/demo", env.top.parent / "elsewhere")


def _pipe(env: VerifiedEnvFolder) -> None:
    os.mkfifo(env.top / "bin/pipe")


def _out_of_it(env: VerifiedEnvFolder) -> None:
    (env.top / "bin/away").symlink_to("../../etc/passwd")


def _absolute(env: VerifiedEnvFolder) -> None:
    (env.top / "bin/away").symlink_to("/etc/passwd")


def _folder_away(env: VerifiedEnvFolder) -> None:
    (env.top / "lib/python3.10/away").symlink_to("/etc")


EVIL = {f"{SITE}/demo/__init__.py": "x = 2", "bin/demo": "#!python"}
WRONG: dict[str, tuple[Callable[[VerifiedEnvFolder], object], str]] = {
    "a byte of a wheel's": (lambda env: env.write(f"{SITE}/demo/__init__.py", "x = 2"), "demo/__init__.py has other"),
    "a byte of Python's": (lambda env: env.write("lib/python3.10/os.py", "import os"), "os.py has other bytes"),
    "a file too many": (lambda env: env.write(f"{SITE}/more.py", ""), "more.py belongs to no package"),
    "a .pth": (lambda env: env.write(f"{SITE}/evil.pth", "import evil"), "evil.pth belongs to no package"),
    "sitecustomize": (lambda env: env.write("lib/python3.10/sitecustomize.py", ""), "sitecustomize.py belongs to no"),
    "compiled of nothing": (
        lambda env: env.write(f"{SITE}/__pycache__/a.cpython-310.pyc", ""),
        "a.cpython-310.pyc belongs",
    ),
    "a file that lacks": (lambda env: (env.top / "bin/demo").unlink(), "bin/demo is missing"),
    "our own text": (lambda env: env.write("etc/conda/activate.d/rigwright.sh", "rm"), "rigwright.sh has other"),
    "another distribution": (lambda env: env.record({}, "other-2.0.dist-info"), "not the locked dist.*other 2.0"),
    "another version": (lambda env: env.plan["wheels"][0].update(version="1.1"), "demo-package 1.0, demo-package 1.1"),
    "a link out of it": (_out_of_it, "bin/away leads out"),
    "an absolute link": (_absolute, "bin/away leads out"),
    "a folder that leads away": (_folder_away, "away leads out"),
    "a link of nobody's": (
        lambda env: (env.top / "bin/p").symlink_to("python"),
        "bin/p is a link that belongs to no package",
    ),
    "a link through another": (
        lambda env: (env.top / "bin/away").symlink_to("python/../../../etc"),
        "bin/away leads out",
    ),
    "setuid": (_setuid, "bin/demo has another name, or"),
    "a second name": (_second_name, "bin/demo has another name"),
    "a pipe": (_pipe, "bin/pipe is neither"),
    "a name of two lines": (lambda env: env.write("bin/a\nb", ""), r"'bin/a\\nb' has a name"),
    "a list that is invalid": (
        lambda env: env.write(f"{SITE}/demo_package-1.0.dist-info/RECORD", "a,b"),
        "an invalid row",
    ),
    "another hash": (
        lambda env: env.write(f"{SITE}/demo_package-1.0.dist-info/RECORD", "a,md5=00,1"),
        "a md5 of a: only sha256",
    ),
    "a list without end": (
        lambda env: env.write(f"{SITE}/demo_package-1.0.dist-info/RECORD", "a" * 200_000),
        "RECORD cannot be read",
    ),
    "a module that the list of what was installed was changed for, too": (
        lambda env: (env.write(f"{SITE}/demo/__init__.py", "x = 2"), env.record(EVIL)),
        "demo/__init__.py has other bytes",
    ),
    "a module that it alone has": (
        lambda env: (env.write(f"{SITE}/demo/a.pth", "import a"), env.record({f"{SITE}/demo/a.pth": "import a"})),
        "demo/a.pth belongs to no package",
    ),
    "a file of Python's that its record was changed for, too": (
        lambda env: (env.write("lib/python3.10/os.py", "x"), env.conda({"lib/python3.10/os.py": "x"}, [])),
        "os.py has other bytes",
    ),
    "a wheel that has one of Python's": (
        lambda env: env.wheel({"demo/__init__.py": "x = 1", "../../../bin/python3.10": "another"}),
        "bin/python3.10 is a conda package's, and env.whl has another one",
    ),
    "a wheel that has one of Python's as data": (
        lambda env: env.wheel({"demo/__init__.py": "x = 1", "d-1.data/data/bin/python3.10": "another"}),
        "bin/python3.10 is a conda package's",
    ),
    "a wheel with a hash of nothing": (lambda env: env.wheel({}, rows="demo/a.py,sha256=,1\n"), "an invalid hash"),
    "a wheel without a list": (lambda env: env.wheel({}, name="demo/RECORD"), "env.whl has no list"),
    "no wheel": (lambda env: Path(f"{env.top}.whl").write_text(""), "env.whl has no list"),
}
CONDA: dict[str, tuple[Callable[[VerifiedEnvFolder], object], str]] = {
    "another conda package": (lambda env: env.plan["conda"][0].update(sha256="3" * 64), "not the locked conda"),
    "a package that says it is another version": (
        lambda env: env.conda({}, [], version="3.10.13"),
        "python-3.10.20-0_a.conda says that it is python-3.10.13-0_a",
    ),
    "no JSON": (lambda env: env.write("conda-meta/python-3.10.20-0_a.json", "{"), "python-3.10.20-0_a.json cannot be"),
    "no end of JSON": (lambda env: env.write("conda-meta/python-3.10.20-0_a.json", "[" * 100_000), "cannot be read"),
    "a path of two lines": (lambda env: env.conda({"bin/a\n==> done": ""}, []), r"bin/a\\n==> done' is missing"),
    "a package that forges lines": (lambda env: env.conda({}, [], fn="a\nb"), r"a\\nb' says"),
    "a list without paths": (lambda env: env.conda({}, [], paths_data=[]), "python-3.10.20-0_a.json cannot be read"),
}


@pytest.mark.parametrize("what", CONDA)
def test_problems_before_a_run_are_named(env: VerifiedEnvFolder, what: str) -> None:
    change, said = CONDA[what]
    change(env)
    with pytest.raises(EnvironmentRejected, match=said):
        validate_environment(env.top, env.plan, list_conda_files(env.top, env.plan))


@pytest.mark.parametrize("what", WRONG)
def test_problems_are_named(env: VerifiedEnvFolder, what: str) -> None:
    change, said = WRONG[what]
    change(env)
    with pytest.raises(EnvironmentRejected, match=said):
        env.judge()


def test_a_link_in_the_place_of_a_list_is_not_followed(env: VerifiedEnvFolder, tmp_path: Path) -> None:
    path = env.top / SITE / "demo_package-1.0.dist-info" / "RECORD"
    path.rename(tmp_path / "RECORD")
    path.symlink_to("../../../../../RECORD")
    with pytest.raises(EnvironmentRejected, match="RECORD leads out"):
        env.judge()


def test_one_that_is_a_link_itself_is_not_followed(env: VerifiedEnvFolder) -> None:
    env.top.symlink_to(env.top.rename(env.top.with_name("somebodys")))
    with pytest.raises(EnvironmentRejected, match="is not a folder"):
        env.judge()


def _patch_env(env: VerifiedEnvFolder, **target: object) -> Plan:
    own = {"path": "demo/__init__.py", "before": _sha256("x = 1"), "after": _sha256("x = 2")} | target
    one = {"name": "two", "diff": "", "targets": [own], "wheel": env.top.name + ".whl"}
    env.plan["patches"] = [one | {"shadows": {str(own["path"]): shadow_pattern(str(own["path"]))}}]
    return env.plan


def test_a_patched_file_has_the_bytes_that_its_patch_says(env: VerifiedEnvFolder) -> None:
    _patch_env(env)
    with pytest.raises(EnvironmentRejected, match=r"demo/__init__\.py has other bytes than its package says"):
        env.judge()
    env.write(f"{SITE}/demo/__init__.py", "x = 2")
    assert env.judge()[f"{SITE}/demo/__init__.py"] == _sha256("x = 2")
    env.write(f"{SITE}/demo/__init__.py", "x = 3")
    with pytest.raises(EnvironmentRejected, match=r"demo/__init__\.py has other bytes than its package says"):
        env.judge()


def test_a_file_that_a_patch_brings_is_missed(env: VerifiedEnvFolder) -> None:
    _patch_env(env, path="demo/more.py", before=None)
    with pytest.raises(EnvironmentRejected, match=r"demo/more\.py is missing"):
        env.judge()


def test_a_patched_module_that_another_one_is_imported_for_is_refused(env: VerifiedEnvFolder) -> None:
    plan = _patch_env(env)
    native = "demo/__init__.abi3.so"
    env.write(f"{SITE}/demo/__init__.py", "x = 2")
    env.write(f"{SITE}/{native}", "x")
    env.record({f"{SITE}/demo/__init__.py": "x = 1", f"{SITE}/{native}": "x", "bin/demo": "#!python"})
    env.wheel({"demo/__init__.py": "x = 1", native: "x"})
    for judged in (env.judge, lambda: validate_patched_wheels(plan)):
        with pytest.raises(EnvironmentRejected) as refused:
            judged()
        assert str(refused.value) == f"patch two: demo/__init__.py is never imported: {native} takes precedence"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({}, ""),
        ({"path": "demo/more.py", "before": None}, ""),
        ({"before": "0" * 64}, f"demo/__init__.py of env.whl: expected {'0' * 64}, found {_sha256('x = 1')}"),
        ({"before": None}, f"demo/__init__.py of env.whl: expected no file, found {_sha256('x = 1')}"),
        ({"path": "demo/gone.py"}, f"demo/gone.py of env.whl: expected {_sha256('x = 1')}, found no file"),
    ],
)
def test_a_wheel_has_in_it_what_its_patches_are_for(env, target, said):
    plan = _patch_env(env, **target)
    if not said:
        validate_patched_wheels(plan)
        return
    with pytest.raises(EnvironmentRejected) as refused:
        validate_patched_wheels(plan)
    assert str(refused.value) == f"patch two: {said}"


def test_a_file_that_a_patch_brings_is_no_other_packages(env: VerifiedEnvFolder) -> None:
    plan = _patch_env(env, path="demo/more.py", before=None)
    own = Path(f"{env.top}.whl").rename(env.top.with_name("own.whl"))
    env.wheel({"demo/more.py": "x"}, "other-1.0.dist-info/RECORD")
    plan["patches"][0]["wheel"] = own.name
    plan["wheels"].append({"name": "other", "version": "1.0", "sha256": "3" * 64, "path": str(own)})
    with pytest.raises(EnvironmentRejected, match=r"^patch two: demo/more\.py is a file of env\.whl$"):
        validate_patched_wheels(plan)


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        ({"conda": ["python ==3.10.20"], "wheels": ["tool[more]"]}, ""),
        ({"conda": None, "wheels": None}, ""),
        ({"conda": ["python"], "wheels": ["part"]}, "tool is locked, and nothing that is asked for requires it"),
        ({"conda": ["_note >=1"], "wheels": ["tool"]}, "python is locked, and nothing that is asked for depends on it"),
    ],
)
def test_packages_of_an_environment_are_needed_by_what_is_asked_for(tmp_path, requests, reason):
    wheels = [write_wheel(tmp_path, "tool", requires=["part"]), write_wheel(tmp_path, "part")]
    (tmp_path / "env/conda-meta").mkdir(parents=True)
    for name, depends in {"python": ["_note >=1", "__glibc"], "_note": []}.items():
        (tmp_path / f"env/conda-meta/{name}.json").write_text(json.dumps({"name": name, "depends": depends}))
    plan = {"requests": requests, "wheels": [{"name": one.name.split("-")[0], "path": str(one)} for one in wheels]}
    if reason:
        with pytest.raises(EnvironmentRejected, match=reason):
            reject_surplus_packages(tmp_path / "env", plan)
    else:
        reject_surplus_packages(tmp_path / "env", plan)
