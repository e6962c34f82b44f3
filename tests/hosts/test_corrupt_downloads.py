"""One byte wrong in a file from outside: refused, and nothing of it is installed.

A character of the lock itself is refused before any host is reached (tests/unit/test_lock.py, at every place).
"""

import re
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.download_servers import StandInMirror, folder_content, index_content
from tests.hosts.support import deploy, is_serving, main_pid, red_checks, run_deploy, write_inventory
from tests.hosts.test_interrupted_deploys import pack, rig

# the tested code runs on this machine and in shell scripts that every release has
pytestmark = [pytest.mark.parametrize("release", ["debian-13"], indirect=True), pytest.mark.all_only]

# The file that shows an installation, by the name of its source.
INSTALLED = {
    ".tar.gz": "ls -d /opt/rigwright/engines/*/build.json",
    ".gguf": "find /srv/models -type f",
    ".whl": "ls -d /opt/rigwright/tools-*/.complete",
}


def assert_deploy_refused(host: LabHost, inventory: Path, what: str) -> None:
    """A deploy that has to fail, and to leave what is installed of its kind and what is served as it was."""
    look = next(command for suffix, command in INSTALLED.items() if what.endswith(suffix))
    before, pid = host.run(look, check=False), main_pid(host)
    run = run_deploy(inventory)
    assert run.status == 1, f"{what} was taken"
    assert "Traceback" not in run.said
    assert host.run(look, check=False) == before
    assert (main_pid(host), is_serving(host)) == (pid, True)


def test_a_byte_flipped_in_any_file_is_refused(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path, wheels: Path, subtests: pytest.Subtests
) -> None:
    archive = pack(converged, lab)
    files = [archive.name, MODEL, *sorted(path.name for path in wheels.iterdir())]
    # none of our hosts fetches wheels for another Python
    asked = [name for name in files if not name.startswith(("exceptiongroup", "tomli", "typing"))]
    for number, name in enumerate(asked, start=1):
        with subtests.test(name):
            lie = re.escape(name)
            shelf = StandInMirror(lab.gateway, folder_content(lab.shelf_folder), lies_about=lie)
            lying = StandInMirror(lab.gateway, index_content(wheels), lies_about=lie)
            inventory = rig(tmp_path / str(number), lab, converged, number, archive)
            text = inventory.read_text().replace(lab.shelf_url, shelf.url)
            inventory.write_text(text.replace("'mirrors': {", f"'mirrors': {{'index': ['{lying.url}'], "))
            if name.endswith(".whl"):
                # wheels that a refused run has verified are kept for the next one, which then fetches none of them
                converged.run("rm -rf /opt/rigwright/tools-* /var/lib/rigwright/jobs/rw-job-tools-*/wheels")
            assert_deploy_refused(converged, inventory, name)
            assert any(name in path for path in [*shelf.asked, *lying.asked])
    whole = write_inventory(tmp_path / "whole", lab, converged)
    deploy(whole)
    assert red_checks(whole) == set()
