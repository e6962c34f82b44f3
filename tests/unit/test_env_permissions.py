"""Before an environment is judged, everything in it is root's, and no other user may change it any more."""

import os
import stat
from pathlib import Path

import pytest

from roles.envs.host.tree import EnvironmentRejected, make_root_owned

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
NOBODY = 65534


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "env"
    for folder in ("bin", "lib/in"):
        (made / folder).mkdir(parents=True)
    for name, mode in {"bin/run": 0o777, "lib/open": 0o666, "lib/in/own": 0o600, "lib/in/started": 0o500}.items():
        (made / name).write_text("x")
        (made / name).chmod(mode)
    (made / "bin/link").symlink_to("../lib/open")
    (made / "lib/in").chmod(0o1777)
    for path in [made, *made.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return made


def test_all_is_roots_and_everybodys_to_read(top: Path) -> None:
    make_root_owned(top)
    found = {str(path.relative_to(top)): path.lstat() for path in [top, *top.rglob("*")]}
    assert {(one.st_uid, one.st_gid) for one in found.values()} == {(0, 0)}
    modes = {name: stat.S_IMODE(one.st_mode) for name, one in found.items() if name != "bin/link"}
    closed = {"lib/open": 0o644, "lib/in/own": 0o644}
    assert modes == {name: closed.get(name, 0o755) for name in modes}
    assert (top / "bin/link").is_symlink()


def test_the_target_of_a_link_stays(top: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("x")
    (tmp_path / "theirs").chmod(0o600)
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    (top / "bin/out").symlink_to("../../theirs")
    with pytest.raises(EnvironmentRejected, match="leads out"):
        make_root_owned(top)
    away = tmp_path / "away"
    top.rename(away)
    top.symlink_to(away)
    with pytest.raises(EnvironmentRejected, match="is not a folder"):
        make_root_owned(top)
    assert {path.lstat().st_uid for path in (tmp_path / "theirs", away, away / "bin/run")} == {NOBODY}
