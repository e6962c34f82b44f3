"""How a job on a host installs locked wheels: the fetcher asks the rig's index, and pip has files and no network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import roles
from rigwright.fetch_job_spec import job_network, render_requirements, render_wheels_spec
from rigwright.model.rig import Rig
from rigwright.render import render
from rigwright.supply.lock import Artefact
from roles.python_tools import load_wheel_validators
from tests.unit.file_server import LoopbackFileServer, complete_file, redirect_to, run_file_server
from tests.unit.index_server import LoopbackPackageIndex
from tests.unit.rendered_scripts import WHEELS, write_stand_in
from tests.unit.samples import sample_rig, sample_wheel

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the fetcher gives its files to root")


@pytest.fixture
def index() -> Iterator[LoopbackPackageIndex]:
    with run_file_server() as server:
        yield LoopbackPackageIndex(server, "json")


@pytest.fixture
def inner() -> Iterator[LoopbackFileServer]:
    """A service of the host itself, which no inventory names."""
    with run_file_server() as server:
        server.serve("health", complete_file(b"secret state of this box"))
        yield server


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rigwright.fetch_job_spec.LOCKS", str(tmp_path / "locks"))


def publish_locked_wheel(index: LoopbackPackageIndex) -> Artefact:
    """A published wheel, as a lock has it."""
    package = index.publish_wheel("tool", "1.0")
    return sample_wheel(sha256=package.sha256, size=len(package.content))


def rig_with_mirrors(*bases: str) -> Rig:
    return sample_rig(mirrors={"index": bases})


def install(
    tmp_path: Path, made: Rig, row: Artefact, pip: str = "", sent: str = ""
) -> subprocess.CompletedProcess[str]:
    """Install one wheel as a job does, with the fetcher and pip of this machine."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / WHEELS["package"]).symlink_to(Path(roles.__file__).with_name("weights") / "host")
    write_stand_in(tmp_path / "bin", "pip", pip or f'exec {sys.executable} -m pip "$@"')
    (tmp_path / "requirements").write_text(render_requirements([row]))
    folder = str(tmp_path / "wheels")
    values = {**WHEELS, "fetched": folder, "spec": render_wheels_spec(made.network, [row], folder, sys.executable)}
    values |= {"judging": load_wheel_validators(), "requested": [row.name]}
    values |= {"programs": str(packages), "sent": sent, "network": job_network(made.roots, made.network)}
    script = f"""set -eu
{render("jobs/network.sh.j2", **values)}
{render("jobs/wheels.sh.j2", **values)}
wheels {tmp_path}/bin/pip {tmp_path}/requirements '' --target {tmp_path}/site
echo installed
"""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:1/\nno-binary = :all:\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_wheel_of_an_index_is_installed_and_no_file_of_it_stays(
    tmp_path: Path, index: LoopbackPackageIndex
) -> None:
    row = publish_locked_wheel(index)
    done = install(tmp_path, rig_with_mirrors(f"{index.files.url}/none", index.url), row)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "installed"
    assert (tmp_path / "site/tool-1.0.dist-info/METADATA").exists()
    assert not (tmp_path / "wheels").exists()
    # pip, which follows where an index leads, asks for nothing
    assert [one.path for one in index.files.asked] == ["none/tool/", "simple/tool/", f"files/{row.file}"]


@pytest.mark.parametrize("part", ["page", "file"])
def test_an_index_does_not_send_a_host_to_itself(
    tmp_path: Path, index: LoopbackPackageIndex, inner: LoopbackFileServer, part: str
) -> None:
    row = publish_locked_wheel(index)
    index.files.serve("simple/tool/" if part == "page" else f"files/{row.file}", redirect_to(f"{inner.url}/health"))
    done = install(tmp_path, rig_with_mirrors(index.url), row)
    assert done.returncode == 1
    assert inner.asked == []
    assert f"name {inner.url} among the inventory's redirects" in done.stdout
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("status", [0, 1, 7])
def test_the_job_ends_with_the_status_of_pip(tmp_path: Path, index: LoopbackPackageIndex, status: int) -> None:
    done = install(
        tmp_path,
        rig_with_mirrors(index.url),
        publish_locked_wheel(index),
        f'[ "$1" = install ] || exit 0; echo "no room" >&2; exit {status}',
    )
    assert done.returncode == status
    assert (done.stdout.splitlines()[-1] == "installed") == (status == 0)
    assert done.stderr == "no room\n"


@pytest.mark.parametrize("status", [0, 1])
def test_with_what_was_sent_no_index_is_asked_and_it_is_gone_however_the_job_ends(
    tmp_path: Path, index: LoopbackPackageIndex, status: int
) -> None:
    row, sent = publish_locked_wheel(index), tmp_path / "sent files"
    sent.mkdir()
    done = install(
        tmp_path,
        rig_with_mirrors(index.url),
        row,
        f'[ "$1" = install ] || printf "%s\\n" "$@"; exit {status}',
        str(sent),
    )
    assert done.returncode == status
    assert ["--no-index", "--find-links", str(sent)] == done.stdout.splitlines()[1:4]
    assert (index.files.asked, sent.exists()) == ([], False)
