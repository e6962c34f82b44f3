"""Files that are looked at where anybody may put as much as he likes: what one has hides nothing of another's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checks.survey.host import common, fs_responsiveness, privilege_escalation, program_paths

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files are given to several owners, which is root's to do")
EVE, BOB = 4001, 4002
MANY = 20


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with homes and a folder that all may write to, of which little is looked at."""
    monkeypatch.setattr(program_paths, "HELD", ())
    monkeypatch.setattr(program_paths, "BELOW", (f"{tmp_path}/home", f"{tmp_path}/tmp", f"{tmp_path}/root"))
    monkeypatch.setattr(program_paths, "MANY", MANY)
    monkeypatch.setattr(program_paths, "CROWD", 4 * MANY)
    monkeypatch.setattr(program_paths, "ALL", 12 * MANY)
    monkeypatch.setattr(fs_responsiveness, "silent", lambda folders: [])
    make_crowded_folder(tmp_path / "home", 0)
    make_crowded_folder(tmp_path / "root", 0)
    make_crowded_folder(tmp_path / "tmp", 0, 0o1777)
    return tmp_path


def make_crowded_folder(folder: Path, owner: int, mode: int = 0o755, entries: int = 0) -> Path:
    """A folder of somebody's with so many files of his."""
    folder.mkdir(exist_ok=True)
    for path in [folder, *(folder / f"{owner}-{number}" for number in range(entries))]:
        path.exists() or path.touch()
        os.chown(path, owner, owner)
    folder.chmod(mode)
    return folder


def setuid(path: Path) -> str:
    """A program that runs as root, whoever starts it."""
    path.touch()
    path.chmod(0o4755)
    return str(path)


def collect_paths() -> list[tuple[str, str]]:
    return [(one["file"], one["text"]) for one in privilege_escalation.programs()]


def test_what_a_user_has_hides_nobody_elses(host: Path) -> None:
    eve, bob = (
        make_crowded_folder(host / "home/eve", EVE, entries=3 * MANY),
        make_crowded_folder(host / "home/bob", BOB, entries=2),
    )
    deep = make_crowded_folder(make_crowded_folder(bob / "a", BOB) / "b", BOB)
    make_crowded_folder(host / "tmp", 0, 0o1777)
    make_crowded_folder(host / "tmp/eve", EVE, entries=3 * MANY)
    wanted = {setuid(deep / "own"), setuid(host / "root/own"), setuid(host / "tmp/own"), setuid(host / "tmp/zz")}
    assert {*collect_paths()} == {(path, "mode 4755") for path in wanted}
    assert len([*program_paths.held((), [])]) < 5 * MANY
    assert eve.exists()


def test_what_roots_own_has_hides_nothing_elsewhere(host: Path) -> None:
    make_crowded_folder(host / "home/system", 0, entries=3 * MANY)
    own = setuid(host / "root/own")
    assert collect_paths() == [(own, "mode 4755")]


@pytest.mark.parametrize("held", [(), ("tmp",)])
def test_a_folder_that_others_may_crowd_is_not_known(
    host: Path, monkeypatch: pytest.MonkeyPatch, held: tuple[str, ...]
) -> None:
    monkeypatch.setattr(program_paths, "HELD", tuple(f"{host}/{name}" for name in held))
    for number in range(5 * MANY):
        (host / f"tmp/{number}").touch()
        os.chown(host / f"tmp/{number}", EVE, EVE)
    own = setuid(host / "root/own")
    assert len([*program_paths.held((), [])]) < 6 * MANY
    assert {*collect_paths()} == {
        (own, "mode 4755"),
        (f"{host}/tmp", "has too many entries: nobody knows what lies there"),
    }


def test_owners_without_number_are_not_known(host: Path) -> None:
    for number in range(20):
        make_crowded_folder(host / f"home/{number}", EVE + number, entries=MANY)
    assert [said for _, said in collect_paths()] == ["has too many entries: nobody knows what lies there"]


def test_one_that_goes_while_it_is_looked_at_hides_nothing(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    class Gone:
        """An entry that is no more."""

        def __init__(self, path: str) -> None:
            self.path = path

        def stat(self, **_: bool) -> os.stat_result:
            raise FileNotFoundError(self.path)

    @contextmanager
    def scandir(folder: str) -> Iterator[Iterator[object]]:
        with real(folder) as entries:
            yield iter([Gone(f"{folder}/x"), *entries])

    monkeypatch.setattr(program_paths.os, "scandir", scandir)
    own = setuid(host / "tmp/own")
    assert collect_paths() == [(own, "mode 4755")]


@pytest.mark.parametrize(("group", "said"), [("", []), ("bob", ["has too many entries: nobody knows what lies there"])])
def test_a_users_own_group_is_nobody_elses(
    host: Path, monkeypatch: pytest.MonkeyPatch, group: str, said: list[str]
) -> None:
    lists = {"/etc/passwd": f"eve:x:{EVE}:{EVE}::/:/bin/sh\nbob:x:{BOB}:{BOB}::/:/bin/sh\n"}
    lists["/etc/group"] = f"eve:x:{EVE}:{group}\nbob:x:{BOB}:\n"
    monkeypatch.setattr(common, "read", lambda path, most=0: lists.get(str(path), ""))
    make_crowded_folder(host / "home/eve", EVE, 0o775, entries=5 * MANY)
    assert [text for _, text in collect_paths()] == said
