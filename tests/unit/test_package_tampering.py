"""Changes to packages' files and lists, and to Python's own modules, that hide from the survey."""

import marshal
import os
import py_compile
import sys
import time
from pathlib import Path

import pytest

from checks import test_machine
from checks.survey.answers import SurveyAnswers
from checks.survey.host import common, dpkg, package_file_changes, packages, python_shadowing
from tests.unit.check_runner import red_checks
from tests.unit.nvidia_host import MANAGED
from tests.unit.samples import sample_instance, sample_rig

WRONG = package_file_changes.wrong


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a package that came ten minutes ago, and more, by its list of sums."""
    monkeypatch.setattr(dpkg, "ROOT", str(tmp_path))
    monkeypatch.setattr(packages, "ROOT", str(tmp_path))
    monkeypatch.setattr(package_file_changes, "wrong", lambda path, seen, strict: "")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/curl").write_text("evil")
    (tmp_path / "var/lib/dpkg/status").write_text("Package: curl\nStatus: install ok installed\nVersion: 1\n\n")
    (info / "curl.md5sums").write_text("d41d8cd98f00b204e9800998ecf8427e  usr/bin/curl\n")
    (info / "curl.list").write_text("/.\n/usr/bin\n/usr/bin/curl\n/usr/bin/named\n/usr/share/x\n")
    return tmp_path


def changed() -> set[tuple[str, str]]:
    found = package_file_changes.look({"strict": [], "run": ["curl"], "deep": False})["findings"]
    assert isinstance(found, list)
    return {(one["path"], one["what"]) for one in found}


def test_a_touch_of_its_list_makes_no_package_whole(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = host / "var/lib/dpkg/info"
    other = {("/usr/bin/curl", "has another content")}
    # all of it was made now, which says nothing
    assert changed() == set()
    # it was written long before it was changed, as by `chmod -R`
    os.utime(info / "curl.list", (1, 1))
    assert changed() == other
    os.utime(info / "curl.list")
    # the file system says that it is older than its times
    monkeypatch.setattr(common, "born", lambda paths: dict.fromkeys(paths, 1.0))
    assert changed() == other
    # the sums came long before
    sums = time.time() - 2 * dpkg.UNPACKING
    monkeypatch.setattr(common, "born", lambda paths: {one: sums for one in paths if one.endswith("sums")})
    assert changed() == other


def test_when_files_were_made_is_known_where_it_is_kept(tmp_path: Path) -> None:
    made = tmp_path / "a b\n"
    made.touch()
    os.utime(made, (1, 1))
    found = common.born([str(made), str(tmp_path / "none")])
    assert set(found) <= {str(made)}
    assert all(time.time() - moment < 60 for moment in found.values())


def test_a_link_to_what_no_package_has_brought_is_reported(host: Path) -> None:
    (host / "opt").mkdir()
    (host / "opt/evil").touch()
    (host / "usr/share").mkdir()
    for name in ("usr/bin/named", "usr/share/x"):
        (host / name).symlink_to(host / "opt/evil")
    assert changed() == {("/usr/bin/named", "is a link to /opt/evil, which no package has brought")}
    (host / "usr/bin/named").unlink()
    (host / "usr/bin/named").symlink_to("curl")
    assert changed() == set()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a Python's own modules, in a host that got it long ago."""
    monkeypatch.setattr(python_shadowing, "ROOT", tmp_path)
    monkeypatch.setattr(dpkg, "ROOT", str(tmp_path))
    name = f"python3.{sys.version_info[1]}"
    folder = tmp_path / f"usr/lib/{name}/json"
    folder.mkdir(parents=True)
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / f"lib{name}-stdlib:amd64.list").write_text(f"/usr/lib/{name}/json\n")
    os.utime(info / f"lib{name}-stdlib:amd64.list", (1, 1))
    for module in ("a", "b"):
        text = f"{module} = (2, 'x', frozenset({{3, 4}}))\ndef f(): return {module}\n"
        (folder / f"{module}.py").write_text(text)
        py_compile.compile(str(folder / f"{module}.py"), optimize=0)
        py_compile.compile(str(folder / f"{module}.py"), optimize=2)
    return folder


def test_compiled_code_is_that_of_its_module(library: Path, tmp_path: Path) -> None:
    assert python_shadowing.look({}) == {"foreign": [], "other": []}
    first, *_ = sorted((library / "__pycache__").glob("a.*[0-9].pyc"))
    evil = compile("import os\n", str(library / "a.py"), "exec")
    first.write_bytes(first.read_bytes()[:16] + marshal.dumps(evil))
    (library / "__pycache__" / f"b.{sys.implementation.cache_tag}.opt-2.pyc").write_bytes(b"x")
    (library / "__pycache__" / f"nobodys.{sys.implementation.cache_tag}.pyc").write_bytes(b"x")
    (library / "b.cpython-313-x86_64-linux-gnu.so").touch()
    made = f"/{library.relative_to(tmp_path)}/__pycache__"
    assert python_shadowing.look({}) == {
        "foreign": [f"/{library.relative_to(tmp_path)}/b.cpython-313-x86_64-linux-gnu.so"],
        "other": [f"{made}/{first.name}", f"{made}/b.{sys.implementation.cache_tag}.opt-2.pyc"],
    }


def test_bytecode_of_the_installation_is_not_read(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_shadowing, "INSTALLED", time.time())
    (library / "__pycache__" / f"a.{sys.implementation.cache_tag}.pyc").write_bytes(b"x")
    assert python_shadowing.look({})["other"] == []


def test_compiled_modules_of_packages_are_compared(library: Path, tmp_path: Path) -> None:
    site = tmp_path / "usr/lib/python3/dist-packages/tool"
    site.mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/info/python3-tool.list").write_text("/usr/lib/python3/dist-packages/tool/a.py\n")
    os.utime(tmp_path / "var/lib/dpkg/info/python3-tool.list", (1, 1))
    for name in ("a", "unpackaged"):
        (site / f"{name}.py").write_text("a = 1\n")
        py_compile.compile(str(site / f"{name}.py"))
    assert python_shadowing.look({})["other"] == []
    for compiled in (site / "__pycache__").iterdir():
        compiled.write_bytes(b"x")
    made = f"/usr/lib/python3/dist-packages/tool/__pycache__/a.{sys.implementation.cache_tag}.pyc"
    assert python_shadowing.look({})["other"] == [made]


@pytest.mark.parametrize("is_logged", [True, False])
def test_the_log_of_packages_tells_when_all_was_compiled(library: Path, tmp_path: Path, is_logged: bool) -> None:
    now = time.time()
    for path in (tmp_path / "var/lib/dpkg/info").iterdir():
        os.utime(path, (now - 60, now - 60))
    log = tmp_path / "var/log/dpkg.log"
    log.parent.mkdir(parents=True)
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - 50))
    name = f"libpython3.{sys.version_info[1]}-stdlib:amd64"
    log.write_text(f"{ended} status half-configured {name} 3\n" + is_logged * f"{ended} status installed {name} 3\n")
    compiled = library / "__pycache__" / f"a.{sys.implementation.cache_tag}.pyc"
    compiled.write_bytes(b"x")
    assert python_shadowing.look({})["other"] == is_logged * [f"/{compiled.relative_to(tmp_path)}"]


def test_a_file_put_in_a_programs_place_is_judged_as_it(host: Path) -> None:
    os.utime(host / "var/lib/dpkg/info/curl.list", (1, 1))
    (host / "usr/bin/curl.real").touch()
    moved = "/usr/bin/curl\n/usr/bin/curl.real\n"
    (host / "var/lib/dpkg/diversions").write_text(f"{moved}another\n")
    assert changed() == set()
    (host / "var/lib/dpkg/diversions").write_text(f"{moved}:\n")
    assert changed() == {("/usr/bin/curl", "has another content")}


@pytest.mark.parametrize(("mode", "red"), [(0o777, True), (0o4755, False)])
def test_an_override_opens_no_program(host: Path, monkeypatch: pytest.MonkeyPatch, mode: int, red: bool) -> None:
    monkeypatch.setattr(package_file_changes, "wrong", WRONG)
    (host / "usr/bin/curl").write_bytes(b"")
    (host / "usr/bin/curl").chmod(mode)
    (host / "var/lib/dpkg/statoverride").write_text(f"root root {mode:o} /usr/bin/curl\n")
    assert bool(changed()) == red


@pytest.mark.parametrize("cards", [True, False])
def test_the_next_boot_of_a_rig_without_cards_is_judged(cards: bool) -> None:
    finding = {"package": "kmod", "path": "/usr/bin/kmod", "what": "has another content"}
    told = {"findings": [finding], "files": 1, "strict": ["kmod"], "moved": [], "overridden": []}
    found = red_checks(
        test_machine,
        SurveyAnswers({"package_file_changes": {"told": told}}),
        rig=MANAGED if cards else sample_rig(sample_instance()),
    )
    assert ("kmod has another content" in found.get("M01", "")) != cards
