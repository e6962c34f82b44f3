"""How a job on a host judges locked wheels: nothing of one runs before all of them are judged."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rigwright.fetch_job_spec import ToolEnvironment
from roles.envs.host import wheels
from roles.envs.host.tree import EnvironmentRejected
from tests.unit import rendered_scripts, short_programs
from tests.unit.wheel_files import write_wheel

EVIL = "import pathlib; pathlib.Path({!r}).touch()\n"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a .pth": ({"files": {"extra.pth": "import os\n"}}, "every Python would run extra.pth"),
    "sitecustomize": ({"files": {"sitecustomize.py": ""}}, "every Python would run sitecustomize"),
    "usercustomize": ({"files": {"usercustomize/__init__.py": ""}}, "every Python would run usercustomize"),
    "files beside its modules": ({"files": {"tool-1.0.data/data/x.pth": ""}}, "would be installed beside its modules"),
    "pip's modules": ({"files": {"pip/__main__.py": ""}}, "its module pip is Python's"),
    "pip's program": ({"programs": ["pip3"]}, "its program pip3 is Python's"),
    "Python's program": ({"programs": ["python3"]}, "its program python3 is Python's"),
    "another one's file": ({"files": {"part/__init__.py": "x = 1\n"}}, "takes the place of what part-1.0"),
    "another one's module as a folder": ({"files": {"part/inner/__init__.py": ""}}, "takes the place of what part-1.0"),
    "another one's module as a library": ({"files": {"part/inner.abi3.so": ""}}, "takes the place of what part-1.0"),
    "another one's folder as a module": ({"files": {"part.py": ""}}, "takes the place of what part-1.0"),
    "a program by a continued line": (
        {"files": {"tool-1.0.dist-info/entry_points.txt": "[console_scripts]\na = tool:main\n  pip = tool:main\n"}},
        "has a line that begins with",
    ),
    "a program behind a slash": (
        {"files": {"tool-1.0.dist-info/entry_points.txt": "[console_scripts]\na/python = tool:main\n"}},
        "has an invalid name",
    ),
    "a compiled module of another one": (
        {"files": {"part/__pycache__/__init__.cpython-311.pyc": "x"}},
        "would run in the place of a module's text",
    ),
    "another one's program": ({"programs": ["part"]}, "its program part is part-1.0-py3-none-any.whl's"),
}


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """The counted part of a new virtual environment."""
    for path in ("lib/python3.11/site-packages/pip/__init__.py", "bin/pip3", "bin/python3"):
        (tmp_path / "venv" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "venv" / path).touch()
    return tmp_path / "venv"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the wheels of a group lie, one that others require among them."""
    (tmp_path / "wheels").mkdir()
    write_wheel(tmp_path / "wheels", "part", {"part/inner.py": "", "shared/part.py": ""}, programs=["part"])
    return tmp_path / "wheels"


@pytest.mark.parametrize(("made", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_wheel_that_would_run_by_itself_or_replace_something_is_refused(
    folder: Path, venv: Path, made: dict[str, Any], reason: str
) -> None:
    write_wheel(folder, "tool", requires=["part"], **made)
    with pytest.raises(EnvironmentRejected, match=re.escape(reason)):
        wheels.validate_wheels(folder, venv, ["tool"])


def test_wheels_that_share_a_folder_are_not(folder: Path, venv: Path) -> None:
    write_wheel(folder, "tool", {"shared/tool.py": "", "tool/inner.py": ""}, requires=["part>=1 ; extra == 'more'"])
    wheels.validate_wheels(folder, venv, ["Tool[more]>=1"])


def test_a_wheel_that_nothing_requires_is_refused(folder: Path, venv: Path) -> None:
    write_wheel(folder, "tool", requires=["part"])
    write_wheel(folder, "helpful-extra")
    with pytest.raises(EnvironmentRejected, match="helpful-extra is locked, and nothing that is asked for requires it"):
        wheels.validate_wheels(folder, venv, ["tool"])


@pytest.mark.parametrize(
    ("requirements", "needed"),
    [
        (["a"], "a b"),
        (["A >= 1 ; python_version < '3'"], "a b"),
        (["a[x]"], "a b c"),
        (["a[X_y, x]==1"], "a b c d"),
        (["a[every]"], "a b c d"),
        (["b", "a @ https://h/a.whl"], "a b"),
        ([], ""),
        (["?"], ""),
    ],
)
def test_wheels_themselves_decide_the_requirements(requirements: list[str], needed: str) -> None:
    has: Mapping[str, list[str]] = {
        "a": ["B>1", 'c (>=1) ; extra == "x"', "d; os_name == 'posix' and extra == 'x-y'", "a[x,x_y]; extra=='every'"],
        "b": ["a"],
        "c": [],
        "d": [],
    }
    assert {one for one in wheels.required_distributions(requirements, has) if one in has} == {*needed.split()}


@pytest.mark.all_only  # on a host: tests/hosts/test_tools.py
@pytest.mark.parametrize("hostile", [False, True])
def test_a_hostile_wheel_never_runs_as_an_environment_is_made(tmp_path: Path, hostile: bool) -> None:
    """With real pip and a real virtual environment, as root makes them."""
    ran, sent = tmp_path / "ran", tmp_path / "sent"
    sent.mkdir()
    made = [write_wheel(sent, "tool", requires=["part"]), write_wheel(sent, "part")]
    if hostile:
        made.append(write_wheel(sent, "helpful-extra", {"helpful_extra.pth": EVIL.format(str(ran))}))
    pins = [(one.name.split("-")[0], hashlib.sha256(one.read_bytes()).hexdigest()) for one in made]
    text = "".join(f"{name}==1.0 --hash=sha256:{digest}\n" for name, digest in pins)
    wanted = ToolEnvironment(text, str(tmp_path / "tools"))
    script = rendered_scripts.tools_script(
        rendered_scripts.job_network(rendered_scripts.PLAIN.roots, rendered_scripts.PLAIN.network),
        wanted,
        str(tmp_path / "owned"),
        sent=str(sent),
    )
    done = short_programs.run_program(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"})
    assert (done.returncode == 0) is not hostile, done.stdout + done.stderr
    assert not ran.exists()
    assert Path(wanted.marker).exists() is not hostile
    if hostile:
        assert "every Python would run helpful_extra.pth" in done.stdout
