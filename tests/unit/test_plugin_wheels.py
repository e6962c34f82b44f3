"""A plugin's file is untrusted: a file that is no wheel of its description is refused before anything of it is
unpacked."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from roles.envs.host.plugins import FOLDER, NAMED, PluginWheel, extract_plugin_wheels, extract_wheel, inspect_wheel
from roles.envs.host.tree import EnvironmentRejected
from tests.sample_plugins import COMMANDS, MODULE, NAME, file_name, plugin_wheel, release_zip, zip_files

WANTED = {"name": NAME, "version": "1.0", "imports": [MODULE], "commands": [*COMMANDS]}
SITE = "lib/python3.10/site-packages"


def write_plugin_file(folder: Path, content: bytes, name: str = "given.zip") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def wheel_problems(file: Path, into: Path, **wanted: object) -> str:
    with pytest.raises(EnvironmentRejected) as error:
        inspect_wheel(extract_wheel(file, into), WANTED | wanted)
    return str(error.value)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    return folder


@pytest.mark.parametrize(("content", "name"), [(plugin_wheel(), file_name()), (release_zip(), "louder-v1.0.zip")])
def test_a_wheel_is_taken_as_it_is_or_out_of_its_zip(tmp_path: Path, into: Path, content: bytes, name: str) -> None:
    path = extract_wheel(write_plugin_file(tmp_path, content, name), into)
    assert (path, path.read_bytes()) == (into / file_name(), plugin_wheel())
    assert inspect_wheel(path, WANTED) == PluginWheel(frozenset({MODULE}), frozenset(COMMANDS), ())


ONE = f"dist/{file_name()}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zip_files({ONE: plugin_wheel(), "../evil.py": "x"}), "'?../evil.py'? leads out of it"),
        (zip_files({ONE: plugin_wheel(), "a/../../evil.py": "x"}), "a/../../evil.py leads out of it"),
        (zip_files({ONE: plugin_wheel(), "/etc/passwd": "x"}), "/etc/passwd leads out of it"),
        (zip_files({ONE: plugin_wheel(), "a\\..\\evil": "x"}), "leads out of it"),
        (zip_files({ONE: plugin_wheel(), "two\nlines": "x"}), r"'two\\nlines' leads out of it, or is not a valid name"),
        (zip_files({ONE: plugin_wheel(), "away": "/etc"}, links=["away"]), "away is a link"),
        (
            zip_files({ONE: plugin_wheel(), "dist/other-1.0-py3-none-any.whl": plugin_wheel()}),
            "one wheel, in dist/, and has dist/louder",
        ),
        (zip_files({"README.md": "x"}), "one wheel, in dist/, and has none"),
        (zip_files({file_name(): plugin_wheel()}), f"in dist/, and has {file_name()}"),
        (release_zip()[:-40], "cannot be read: it is truncated"),
        (b"", "cannot be read: it is truncated"),
        (zip_files({ONE: plugin_wheel()[:-40]}), "cannot be read: it is truncated"),
    ],
)
def test_a_zip_that_is_no_plugin_is_refused(tmp_path: Path, into: Path, content: bytes, said: str) -> None:
    with pytest.raises(EnvironmentRejected, match=said):
        inspect_wheel(extract_wheel(write_plugin_file(tmp_path, content), into), WANTED)
    assert not (tmp_path.parent / "evil.py").exists()


def test_a_changed_byte_of_a_wheel_in_a_zip_is_seen(tmp_path: Path, into: Path) -> None:
    content = zip_files({ONE: plugin_wheel()})
    at = len(content) // 2
    assert "cannot be read" in wheel_problems(
        write_plugin_file(tmp_path, content[:at] + b"\0\0\0" + content[at + 3 :]), into
    )


CODE = {f"{MODULE}/__init__.py": "x = 1\n"}
INFO = f"{MODULE}-1.0.dist-info"
FORMAT = "Wheel-Version: 9.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": "1.1"}, "it says that it is louder-plugin 1.1, and is to be louder-plugin 1.0"),
        ({"name": "other"}, "it says that it is other 1.0, and is to be louder-plugin 1.0"),
        ({"files": {**CODE, "a.pth": "import os\n"}}, "every Python would run a.pth"),
        ({"files": {**CODE, "sitecustomize.py": ""}}, "every Python would run sitecustomize"),
        ({"files": {**CODE, "usercustomize/__init__.py": ""}}, "every Python would run usercustomize"),
        ({"files": {**CODE, "x-1.data/data/bin/python": ""}}, "x-1.data/data/bin/python would be installed beside"),
        ({"files": {**CODE, "x-1.data/purelib/vllm/a.py": ""}}, "vllm/a.py would be installed beside its modules"),
        ({"files": {**CODE, "x-1.data/scripts/python": ""}}, "it brings the program python, which its description"),
        ({"files": {**CODE, "dep-1.0.dist-info/RECORD": ""}}, "one distribution, and is dep-1.0.dist-info, louder"),
        ({"files": {**CODE, "dep-1.0.Dist-Info/METADATA": ""}}, "one distribution, and is dep-1.0.Dist-Info, louder"),
        ({"files": {**CODE, "demo-0.9.egg-info/PKG-INFO": "Name: demo"}}, "demo-0.9.egg-info would describe a package"),
        ({"files": {**CODE, "demo-0.9.Egg-Info": "Name: demo"}}, "demo-0.9.Egg-Info would describe a package"),
        ({"files": {**CODE, "demo-0.9.egg/demo.py": ""}}, "demo-0.9.egg would describe a package"),
        ({"files": {**CODE, "demo.egg-link": "/srv"}}, "demo.egg-link would describe a package"),
        ({"files": {**CODE, f"{INFO}/WHEEL": None}}, f"it has no {INFO}/WHEEL, without which nothing installs it"),
        ({"files": {**CODE, f"{INFO}/WHEEL": FORMAT}}, "Wheel-Version: it is 9.0, and is to be 1.0 or another of 1"),
        ({"info": "demo-1.0.dist-info"}, "distribution: demo-1.0.dist-info describes it, and is named for another"),
        ({"info": f"{MODULE}-0.9.dist-info"}, f"distribution: {MODULE}-0.9.dist-info describes it, and is named for"),
        ({"requires": ["x\nName: demo"]}, "it says that it is louder-plugin, demo 1.0, and is to be louder-plugin 1.0"),
        ({"files": {**CODE, "a": "x", "a/b.py": "x"}}, "a/b.py lies below a file"),
        (
            {"files": {**CODE, f"{INFO}/entry_points.txt": "junk"}},
            "its entry_points.txt is not an INI file: File contains",
        ),
        ({"files": {"other/__init__.py": ""}}, "imports: it has no module louder_plugin; it has other"),
        ({"commands": ["louder-serve"]}, "commands: it has no program louder-doctor; it has louder-serve"),
        (
            {"commands": [*COMMANDS, "vllm"]},
            "commands: it brings the program vllm, which its description does not name",
        ),
        ({"files": CODE, "listed": {f"{MODULE}/__init__.py": "x = 2\n"}}, "__init__.py has other bytes than its own"),
        ({"files": CODE, "listed": {"gone.py": ""}}, "gone.py is in its own list alone"),
        ({"files": {**CODE, "away.py": "/etc/passwd"}, "links": ["away.py"]}, "away.py is a link"),
    ],
)
def test_a_wheel_that_is_not_as_described_is_refused(
    tmp_path: Path, into: Path, changes: dict[str, Any], said: str
) -> None:
    assert said in wheel_problems(write_plugin_file(tmp_path, plugin_wheel(**changes), file_name()), into)


def test_a_file_that_its_list_lacks_is_refused(tmp_path: Path, into: Path) -> None:
    content = write_plugin_file(tmp_path, plugin_wheel(), file_name())
    with zipfile.ZipFile(content, "a") as made:
        made.writestr(f"{MODULE}/more.py", "x")
    assert f"{MODULE}/more.py is not in its own list" in wheel_problems(content, into)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path, into: Path) -> None:
    content = write_plugin_file(tmp_path, plugin_wheel(), file_name())
    with zipfile.ZipFile(content, "a") as made, pytest.warns(UserWarning, match="Duplicate name"):
        made.writestr(f"{MODULE}/__init__.py", "x")
    assert f"{MODULE}/__init__.py is there twice" in wheel_problems(content, into)


def test_all_that_is_wrong_is_reported_at_once(tmp_path: Path, into: Path) -> None:
    files = {"other.py": "", "a.pth": "x"}
    said = wheel_problems(
        write_plugin_file(tmp_path, plugin_wheel(files=files, commands=()), file_name()), into
    ).splitlines()
    assert len(said) == 4
    assert all(line.startswith(f"plugin {file_name()}: ") for line in said)


class PluginInstallPlan:
    """A plan with one plugin, a wheel of another package, and what conda packages list."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        other = write_plugin_file(
            folder, plugin_wheel(files={"engine/__init__.py": ""}, name="engine", commands=["engine"]), "engine.whl"
        )
        self.plan: dict[str, Any] = {"wheels": [{"path": str(other)}], "plugins": []}
        self.conda = ["bin/python3.10", f"{SITE}/pip/__init__.py", "lib/python3.10/os.py"]

    def add(self, content: bytes, **wanted: object) -> None:
        path = write_plugin_file(self.folder, content, f"{len(self.plan['plugins'])}.zip")
        self.plan["plugins"].append(WANTED | {"path": str(path)} | wanted)

    def installed_paths(self) -> list[dict[str, str]]:
        into = self.folder / FOLDER
        into.mkdir(exist_ok=True)
        extract_plugin_wheels(self.plan, self.conda, into)
        found: list[dict[str, str]] = json.loads((into / NAMED).read_text())
        return found


@pytest.fixture
def box(tmp_path: Path) -> PluginInstallPlan:
    return PluginInstallPlan(tmp_path)


def test_removals_are_recorded(box: PluginInstallPlan) -> None:
    assert box.installed_paths() == []
    box.add(release_zip())
    (one,) = box.installed_paths()
    assert (one["name"], one["version"], one["sha256"]) == (NAME, "1.0", hashlib.sha256(plugin_wheel()).hexdigest())
    assert Path(one["path"]).read_bytes() == plugin_wheel()


@pytest.mark.parametrize(
    ("files", "commands", "said"),
    [
        ({"engine/more.py": ""}, COMMANDS, "its module engine is engine.whl's"),
        ({"engine.py": ""}, COMMANDS, "its module engine is engine.whl's"),
        ({"pip/more.py": ""}, COMMANDS, "its module pip is a conda package's"),
        ({}, ("engine",), "its program engine is engine.whl's"),
        ({}, ("python3.10",), "its program python3.10 is a conda package's"),
    ],
)
def test_nothing_of_another_package_is_replaced(
    box: PluginInstallPlan, files: dict[str, str], commands: tuple[str, ...], said: str
) -> None:
    box.add(release_zip(files=CODE | files, commands=commands), commands=commands)
    with pytest.raises(EnvironmentRejected, match=said):
        box.installed_paths()


def test_a_wheel_that_is_named_as_another_packages_is_refused(box: PluginInstallPlan) -> None:
    other = write_plugin_file(
        box.folder, plugin_wheel(files={"engine/__init__.py": ""}, name="engine", commands=()), file_name()
    )
    box.plan["wheels"].append({"path": str(other)})
    box.add(release_zip())
    with pytest.raises(EnvironmentRejected, match=f"its wheel {file_name()} is named as another package's"):
        box.installed_paths()


def test_two_plugins_do_not_replace_each_other(box: PluginInstallPlan) -> None:
    box.add(release_zip())
    again = zip_files({"dist/again-1.0-py3-none-any.whl": plugin_wheel(name="again")})
    box.add(again, name="again")
    with pytest.raises(EnvironmentRejected, match=r"its module louder_plugin is 0\.zip's"):
        box.installed_paths()
