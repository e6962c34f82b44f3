"""What checks say of what they found: names that hosts made up neither steer a terminal nor hide a verdict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checks import Drift, expect
from rigwright.supply.tools import installed, installed_script
from rigwright.weights.sharing import listening, listening_script
from tests.unit import programs
from tests.unit.scripts import stand_in
from tests.unit.telling import telling

FORGED = "x\x1b[2J\n  ok  box  S01  it runs\u2028\r"


def test_what_was_found_stays_on_its_line() -> None:
    with pytest.raises(Drift) as drift:
        expect(FORGED, "y", "deploy again")
    said = str(drift.value)
    assert said.isprintable()
    assert said.startswith("expected y, found x")
    assert said.endswith("; deploy again")


def package(folder: Path, name: str, version: str) -> None:
    made = folder / f"{name}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def packages(folder: Path) -> set[str]:
    script = installed_script(str(folder))
    return installed(programs.run(["sh", "-c", script], env={"PATH": os.environ["PATH"]}).stdout.splitlines())


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with two packages."""
    site = tmp_path / "site"
    site.mkdir()
    package(site, "Some_Thing", "1.0")
    package(site, "other", "2.0.1")
    stand_in(tmp_path / "bin", "python", f'shift; exec env PYTHONPATH={site} /usr/bin/env python3 -S "$@"')
    return tmp_path


def test_packages_of_an_environment_are_known_as_an_index_spells_them(environment: Path) -> None:
    assert packages(environment) == {"some-thing==1.0", "other==2.0.1"}


def test_a_package_of_a_forged_name_is_none_of_the_locked_ones(environment: Path) -> None:
    package(environment / "site", "third", "3.0\n other==9")
    (environment / "site/odd-1.dist-info").mkdir()
    (environment / "site/odd-1.dist-info/METADATA").write_text("Name: odd x==1\\x1b\nVersion: \x1b[2J1\n")
    (environment / "site/bare-1.dist-info").mkdir()
    assert {one for one in packages(environment) if one.startswith(("some", "other"))} == {
        "some-thing==1.0",
        "other==2.0.1",
    }
    package(environment / "site", "cut", "1\03\0package\0locked\09")
    assert all(one.isprintable() for one in packages(environment))
    assert not [one for one in packages(environment) if one.startswith(("==", "locked")) or one.endswith("==")]


def test_without_an_environment_there_is_none(tmp_path: Path) -> None:
    assert packages(tmp_path) == set()


HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
GROUP = "0::/system.slice/rigwright_share.service\n"


def row(address: str, inode: int, state: str = "0A") -> str:
    return (
        f"   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100\n"
    )


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host whose unit has a main process and a worker, each with a listener, one that both have, and a connection."""
    for pid, group, sockets in ((12, GROUP, (7, 1)), (13, GROUP, (7, 2, 3)), (14, "0::/user.slice\n", (4,))):
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(group)
        (tmp_path / f"proc/{pid}/comm").write_text("nginx\n0.0.0.0:80\x1b[2J\n")
        (tmp_path / f"proc/{pid}/net").mkdir()
        for number, inode in enumerate(sockets):
            (tmp_path / f"proc/{pid}/fd/{number}").symlink_to(f"socket:[{inode}]")
    v4 = row("0A00020F:1F9A", 7) + row("00000000:0050", 1) + row("0100007F:0016", 4) + row("0A00020F:9999", 3, "01")
    (tmp_path / "proc/12/net/tcp").write_text(HEADER + v4)
    v6 = "B80D0120000000000000000001000000"
    (tmp_path / "proc/12/net/tcp6").write_text(HEADER + row(f"{v6}:1F9A", 2))
    stand_in(tmp_path / "bin", "systemctl", "echo 12")
    return tmp_path


def listens(host: Path) -> list[str]:
    script = listening_script().replace("/proc/", f"{host}/proc/")
    path = f"{host / 'bin'}:{os.environ['PATH']}"
    return listening(programs.run(["sh", "-c", script], env={"PATH": path}).stdout.splitlines())


def test_every_listener_of_the_units_processes_is_seen(host: Path) -> None:
    assert listens(host) == ["0.0.0.0:80", "15.2.0.10:8090", "[2001:db8::1]:8090"]


def test_without_a_process_nothing_is_listened_on(host: Path) -> None:
    stand_in(host / "bin", "systemctl", "echo 0")
    assert listens(host) == []


@pytest.mark.parametrize("address", ["0A00020F", "0A00020F:1F9A0", "0A00020:1F9A", "x:1F9A", "0A00020F0A00020F:1F9A"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="for 'listens'"):
        listening(telling(("listens", address)))
