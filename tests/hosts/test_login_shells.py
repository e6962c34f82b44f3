"""Users whose login shell is fish or csh: a box is set up, checked and managed through them as through sh."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.download_servers import folder_content, internet_server
from tests.hosts.support import deploy, is_serving, red_checks, run_deploy
from tests.hosts.test_init import login_options

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

INSTALL = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq -y --no-install-recommends install"
PRINTED = 'it\'s $HOME !1 \\ "x" 50%'
"""Each of its characters means something to fish, csh or sh."""


def rig(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as an operator whose home is `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "cli", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"HOME": str(folder), "COLUMNS": "160"},
        stdin=subprocess.DEVNULL,
    )


def add_user(host: LabHost, name: str, shell: str) -> None:
    host.run(
        f"useradd --create-home --shell $(command -v {shell}) {name} && cp -r /root/.ssh /home/{name}/ "
        f"&& chown -R {name} /home/{name}/.ssh && echo '{name} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{name}"
    )


def test_a_box_is_managed_through_fish_and_csh(
    lab: ThrowawayLab, boot: BootHost, engine_layer: str, tmp_path: Path
) -> None:
    host = boot(engine_layer)
    host.run(f"{INSTALL} fish csh")
    (tmp_path / "catalog").mkdir()
    with internet_server(folder_content(lab.shelf_folder)) as server:
        weight = f'[inputs.tiny-rig]\nkind = "weight"\nversion = "1"\nsources = ["{server.url}/{MODEL}"]\n'
        (tmp_path / "catalog/box.toml").write_text(weight)
        manage(host, tmp_path)
    assert is_serving(host)


def manage(host: LabHost, tmp_path: Path) -> None:
    for shell in ("fish", "csh"):
        add_user(host, f"of-{shell}", shell)
        init = rig(
            tmp_path,
            *("init", f"of-{shell}@{host.address}", *login_options(host)),
            *("--name", "box", "--variant", "llamacpp/demo", "--output", f"{shell}.py"),
        )
        assert init.returncode == 0, init.stdout + init.stderr
        inventory = tmp_path / f"{shell}.py"
        locked = rig(tmp_path, "lock", inventory.name)
        assert locked.returncode == 0, locked.stdout + locked.stderr
        # a blank host through fish, and what it made through csh
        deploy(inventory)
        assert run_deploy(inventory).changed_operations == []
        assert red_checks(inventory) == set()
        ran = rig(tmp_path, "ssh", inventory.name, "printf", "%s\\n", PRINTED)
        assert (ran.returncode, PRINTED in ran.stdout) == (0, True), ran.stdout + ran.stderr
        line = rig(tmp_path, "ssh", inventory.name, "for i in 1 2; do echo $i; done | wc -l")
        assert (line.returncode, line.stdout.split()[-1]) == (0, "2"), line.stdout + line.stderr
