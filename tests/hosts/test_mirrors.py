"""Mirrors that lie, are down or are slow; a proxy; an authority of one's own. Hashes come from the lock alone."""

import re
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.download_servers import (
    StandInMirror,
    folder_content,
    index_content,
    make_certificate,
    upstream_content,
)
from tests.hosts.support import deploy, is_serving, red_checks, run_deploy, wait_until, write_inventory

# the tested code runs on this machine and in shell scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

BASE = Path(__file__).with_name("base_deploy.py")
DOWN = "http://127.0.0.1:9"
FORGET = "systemctl stop rigwright-chat; rm -rf /srv/models/* /var/lib/rigwright/weights/*"
# the names of /etc/apt, on the base image that debootstrap made
ARCHIVE = re.compile(r"(https?://\S+?)/debian/? ")


def test_mirrors_that_all_lie_are_refused_and_nothing_is_left(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    liars = [StandInMirror(lab.gateway, folder_content(lab.shelf_folder), lies_about=MODEL) for _ in range(2)]
    converged.run(FORGET)
    run = run_deploy(write_inventory(tmp_path, lab, converged, mirrors={"shelf": [liar.url for liar in liars]}))
    assert run.status == 1
    assert run.said.count("not the locked file") >= 2
    assert converged.run("find /srv/models -type f") == ""


@pytest.mark.all_only
def test_a_mirror_of_ones_own_authority_behind_a_proxy(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    authority, server = make_certificate(tmp_path, lab.gateway)
    private = StandInMirror(lab.gateway, folder_content(lab.shelf_folder), certificate=server)
    converged.run(FORGET)
    stranger = run_deploy(write_inventory(tmp_path, lab, converged, mirrors={"shelf": [private.url]}))
    assert stranger.status == 1
    assert "certificate" in stranger.said
    trusted = write_inventory(tmp_path, lab, converged, mirrors={"shelf": [private.url]}, ca_file=authority.name)
    deploy(trusted)
    assert red_checks(trusted) == set()
    # the system's own trust is the operator's affair
    assert "a test's authority" not in converged.run("cat /etc/ssl/certs/ca-certificates.crt")

    proxy = StandInMirror(lab.gateway, upstream_content(""))
    converged.run(FORGET)
    behind = write_inventory(tmp_path, lab, converged, proxy=proxy.url)
    deploy(behind)
    assert proxy.asked == [f"{lab.shelf_url}/{MODEL}"]
    converged.run(FORGET)
    around = write_inventory(tmp_path, lab, converged, proxy=DOWN, no_proxy=[lab.gateway])
    deploy(around)
    assert converged.run("ls /etc/rigwright").split() == ["credentials", "current", "generations"]


@pytest.mark.all_only
def test_tools_come_from_the_first_index_that_is_up_and_honest(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path, wheels: Path
) -> None:
    liar, honest = (
        StandInMirror(lab.gateway, index_content(wheels), lies_about=r"pathspec.*whl"),
        StandInMirror(lab.gateway, index_content(wheels)),
    )
    converged.run("rm -rf /opt/rigwright/tools-*")
    mirrors = {"shelf": [lab.shelf_url], "index": [DOWN, liar.url, honest.url]}
    inventory = write_inventory(tmp_path, lab, converged, mirrors=mirrors)
    deploy(inventory)
    assert any("pathspec" in path for path in liar.asked)
    assert any("pathspec" in path for path in honest.asked)
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_packages_come_from_the_first_archive_that_is_up_and_honest(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    found = ARCHIVE.search(host.run("cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null; true"))
    assert found, "the base image's archive"
    own = host.run("find /etc/apt -type f | sort | xargs cat | sha256sum")
    archive = upstream_content(f"{found[1]}/")
    liar, honest = (
        StandInMirror(lab.gateway, archive, lies_about=r"/ninja-build.*deb"),
        StandInMirror(lab.gateway, archive),
    )
    mirrors = {"apt": [f"{url}/debian" for url in (DOWN, liar.url, honest.url)], "shelf": [lab.shelf_url]}
    inventory = write_inventory(tmp_path, lab, host, mirrors=mirrors)
    deploy(inventory, file=BASE)
    assert any("ninja-build" in path for path in liar.asked)
    assert any("ninja-build" in path for path in honest.asked)
    assert "Hash Sum mismatch" in host.run("cat /var/lib/rigwright/jobs/rw-job-packages/log")
    assert host.run("find /etc/apt -type f | sort | xargs cat | sha256sum") == own
    assert run_deploy(inventory, file=BASE).changed_operations == []


def test_a_host_that_has_everything_asks_no_mirror(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    host = boot(first_run.layer)
    wait_until(lambda: is_serving(host), "serving after a boot")
    dead = {name: [DOWN] for name in ("shelf", "index", "apt")}
    assert run_deploy(write_inventory(tmp_path, lab, host, mirrors=dead)).changed_operations == []


@pytest.mark.all_only
def test_a_repository_that_cannot_be_read_keeps_no_package_away_that_another_has(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    host.run(f"echo 'deb [trusted=yes] {lab.shelf_url}/none any main' > /etc/apt/sources.list.d/theirs.list")
    run = deploy(write_inventory(tmp_path, lab, host), file=BASE)
    assert f"a package repository of this host cannot be read: Failed to fetch {lab.shelf_url}/none/" in run.said
    assert run_deploy(write_inventory(tmp_path, lab, host), file=BASE).changed_operations == []
