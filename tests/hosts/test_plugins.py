"""Plugins on a real host: one comes beside, is exchanged for another version, and goes without a trace."""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from lab.hosts import LabHost
from lab.ssh_tunnel import forward_port
from lab.throwaway_lab import ThrowawayLab
from rigwright.supply.lock import Artefact, render_lock
from tests import sample_plugins
from tests.hosts import env_box, vllm_box
from tests.hosts.conftest import BootHost
from tests.hosts.env_box import EnvironmentServers
from tests.hosts.support import (
    PORT,
    api_key,
    deploy,
    deploy_command,
    is_serving,
    main_pid,
    red_checks,
    run_deploy,
    wait_until,
)
from tests.hosts.test_patches import rigwright_output

# neither Python nor what is installed into it is the release's own
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

NAME = "louder"
TABLE = f"""
[plugins.{NAME}]
input = "{NAME}"
distribution = "{sample_plugins.NAME}"
target_distribution = "packaging"
versions = [VERSION]
imports = ["{sample_plugins.MODULE}"]
commands = {json.dumps(sample_plugins.COMMANDS)}
"""


TRIES = "command -v louder-serve louder-doctor || echo neither"


@pytest.fixture(scope="session")
def env_servers(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentServers]:
    """The sources of hosts."""
    lab.up([])  # its network, for what is served there
    with env_box.serve_environment(lab, tmp_path_factory.mktemp("channel")) as found:
        yield found


def module(version: str) -> dict[str, str]:
    """A plugin that says its version."""
    return {f"{sample_plugins.MODULE}/__init__.py": f"def main():\n    print('louder {version}')\n"}


def shelved(lab: ThrowawayLab, version: str, content: bytes) -> Artefact:
    """Put a file of the plugin's on the shelf, and lock it."""
    digest = hashlib.sha256(content).hexdigest()
    file = f"louder-{version}-{digest[:8]}.zip"
    (lab.shelf_folder / file).write_bytes(content)
    own = {"kind": "plugin", "name": NAME, "version": version, "file": file, "sha256": digest}
    return Artefact.model_validate({**own, "size": len(content), "sources": [f"shelf:{file}"]})


class PluginBox:
    """A box with a small environment, and a plugin in it."""

    def __init__(self, lab: ThrowawayLab, host: LabHost, made: EnvironmentServers, folder: Path) -> None:
        self.lab, self.host, self.made, self.folder = lab, host, made, folder

    def write(self, version: str, content: bytes | None = None) -> Path:
        """An inventory with a version of it, whose file is on the shelf, be it a right one or not."""
        content = sample_plugins.release_zip(version, files=module(version)) if content is None else content
        row = shelved(self.lab, version, content)
        place = self.folder / f"{version}-{row.sha256[:8]}"
        mirrors = {**self.made.source.inventory_mirrors, "shelf": [self.lab.shelf_url]}
        inventory = env_box.write_env_inventory(place, self.lab, self.host, self.made, plugins=(NAME,), mirrors=mirrors)
        of = next(row for row in self.made.packages if row.name == "packaging")
        (place / "catalog/louder.toml").write_text(TABLE.replace("VERSION", json.dumps(of.version)))
        (place / "locks/louder.lock.toml").write_text(render_lock([row], "catalog/louder.toml"))
        return inventory

    @property
    def plain(self) -> Path:
        """An inventory without it."""
        return env_box.write_env_inventory(self.folder / "plain", self.lab, self.host, self.made)

    @property
    def folders(self) -> set[str]:
        return set(self.host.run(f"ls -d {env_box.FOLDER}/small-* || true").split())


def speaks(inventory: Path, word: str = "louder-serve") -> str:
    """The output of a program of it, as a process in the environment sees it."""
    return rigwright_output("ssh", "--in", "small", str(inventory), word)


@pytest.mark.all_only
def test_it_comes_is_exchanged_and_goes(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    box = PluginBox(lab, host, env_servers, tmp_path)
    first = box.write("1.0")
    assert "with the plugin louder 1.0" in rigwright_output("plan", str(first))
    run = deploy(first)
    assert "Engines | Install small" in run.changed_operations
    assert speaks(first) == "louder 1.0"
    assert run_deploy(first).changed_operations == []
    assert red_checks(first) == set()
    assert host.run("ls /srv/models") == ""
    (older,) = box.folders

    second = box.write("1.1")
    deploy(second)
    assert speaks(second) == "louder 1.1"
    assert older in box.folders

    run = deploy(first)
    assert "Engines | Install small" not in run.changed_operations
    assert speaks(first) == "louder 1.0"

    plain = box.plain
    assert red_checks(plain) != set()
    deploy(plain)
    assert red_checks(plain) == set()
    left = rigwright_output(
        "ssh",
        "--in",
        "small",
        str(plain),
        "sh",
        "-c",
        f"{TRIES}; python -c 'import {sample_plugins.MODULE}' 2>&1 || true",
    )
    assert left.splitlines()[0] == "neither"
    assert "ModuleNotFoundError" in left


BAD = {
    "another distribution's module": {"files": {**module("1.0"), "yaml/more.py": ""}},
    "a program of Python's": {"commands": [*sample_plugins.COMMANDS, "python3"]},
    "a .pth": {"files": {**module("1.0"), "louder.pth": "import os"}},
    "a dependency": {"requires": ["requests"]},
}
SAID = {
    "another distribution's module": "its module yaml is ",
    "a program of Python's": "brings the program python3, which its description does not name",
    "a .pth": "every Python would run louder.pth",
    "a dependency": "requests",
}


@pytest.mark.all_only
def test_a_plugin_unlike_its_description_never_gets_there(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    box = PluginBox(lab, host, env_servers, tmp_path)
    for what, changes in BAD.items():
        run = run_deploy(box.write("1.0", sample_plugins.release_zip(**({"files": module("1.0")} | changes))))
        assert run.status == 1, what
        assert SAID[what] in run.said, what
        assert box.folders == set(), what
    # the right name on the shelf, and other bytes
    inventory = box.write("1.0")
    locked = (inventory.parent / "locks/louder.lock.toml").read_text()
    (file,) = [one for one in lab.shelf_folder.iterdir() if f'"{one.name}"' in locked]
    file.write_bytes(sample_plugins.release_zip("1.0", files=module("2.0")))
    run = run_deploy(inventory)
    assert run.status == 1
    assert file.name in run.said
    assert box.folders == set()


@pytest.mark.all_only
def test_a_deploy_that_is_killed_while_it_is_exchanged_leaves_the_older_one(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    box = PluginBox(lab, host, env_servers, tmp_path)
    first, second = box.write("1.0"), box.write("1.1")
    deploy(first)
    running = subprocess.Popen(deploy_command(second, "--yes"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    units = "systemctl list-units --plain --no-legend 'rw-job-small-*'"
    wait_until(lambda: host.run(units).strip(), "installing")
    host.kill()
    running.kill()
    running.wait()
    host.start()
    host.wait()
    assert speaks(first) == "louder 1.0"
    deploy(second)
    assert speaks(second) == "louder 1.1"
    assert red_checks(second) == set()


STARTS_VLLM = f"""
[plugins.{NAME}]
input = "{NAME}"
distribution = "{sample_plugins.NAME}"
target_distribution = "vllm"
versions = ["0.21.0+cpu"]
imports = ["{sample_plugins.MODULE}"]
commands = {json.dumps(sample_plugins.COMMANDS)}
launcher = "louder-serve"

[plugins.{NAME}.owned_flags]
speculative-config = "it guesses by itself"

[plugins.{NAME}.modes.loud]
flags = {{additional-config = {{louder = "loud"}}}}

[plugins.{NAME}.selftest]
command = "louder-doctor"
seconds = 60

[plugins.{NAME}.selftest.lines]
python = {{match = "Python"}}
guesses = {{match = "AutoSpec", kind = "number", without_model = false}}
"""


SICK = {
    "fails": "louder-doctor bare: python: FAIL: Python 3.10",
    "hangs": "louder-doctor bare: it did not finish within 60 seconds",
}


@pytest.mark.all_only
def test_vllm_is_started_by_a_plugin_once_its_doctor_has_found_all_well(
    lab: ThrowawayLab, boot: BootHost, vllm: vllm_box.VllmServers, tmp_path: Path
) -> None:
    host = boot(*vllm.host_layers)
    recipe = vllm_box.CATALOG.replace("utilization = 0.03", "utilization = 0.06")
    plain = vllm_box.write_vllm_inventory(tmp_path / "plain", host, vllm, recipe)
    vllm_box.deploy_and_save(plain, host, vllm)
    before = main_pid(host)
    row = shelved(lab, "1.0", sample_plugins.vllm_plugin_zip())
    (version,) = {one.version for one in vllm.packages if one.name == "vllm"}

    def write(name: str, **variables: str) -> Path:
        more = "".join(f'{key} = "{value}"\n' for key, value in variables.items())
        catalog = recipe.replace("ready_timeout = 300\n", 'ready_timeout = 300\nmode = "loud"\n')
        catalog = catalog.replace(".environment]\n", f".environment]\n{more}")
        folder = tmp_path / name
        allow = [f"environment.{key}" for key in variables]
        inventory = vllm_box.write_vllm_inventory(folder, host, vllm, catalog, plugins=(NAME,), allow=allow)
        (folder / "catalog/louder.toml").write_text(STARTS_VLLM.replace("0.21.0+cpu", version))
        (folder / "locks/louder.lock.toml").write_text(render_lock([row], "catalog/louder.toml"))
        return inventory

    for sick, reason in SICK.items():
        run = run_deploy(write(sick, LOUDER_SICK=sick))
        assert run.status == 1
        assert reason in run.said
        assert main_pid(host) == before
        assert is_serving(host)

    plugged = write("well")
    run = run_deploy(plugged)
    assert run.status == 0, run.said[-4000:]
    assert "louder-doctor with what chat serves: python PASS, guesses " in run.said
    assert f"/srv/models/{vllm_box.MODEL}" not in run.said
    words = host.run(f"tr '\\0' ' ' < /proc/{main_pid(host)}/cmdline")
    assert " louder-serve /srv/models/" in words
    assert '--additional-config={"louder": "loud"}' in words
    assert "louder: compiled /var/cache/rigwright/compiled/louder-" in host.run("journalctl -u rigwright-chat")
    with forward_port(host, PORT) as local:
        asked = f"http://127.0.0.1:{local}/v1/models"
        assert requests.get(asked, timeout=20).status_code == 401
        with_key = {"Authorization": f"Bearer {api_key(host)}"}
        assert requests.get(asked, headers=with_key, timeout=20).status_code == 200
    assert run_deploy(plugged).changed_operations == []
    assert red_checks(plugged) - {"F09"} == set()
    host.run("systemctl restart rigwright-chat")
    assert host.run("journalctl -u rigwright-chat | grep -c 'louder: compiled'").strip() == "1"

    run = run_deploy(plain)
    assert run.status == 0, run.said[-4000:]
    assert "louder" not in host.run(f"tr '\\0' ' ' < /proc/{main_pid(host)}/cmdline")
    assert red_checks(plain) - {"F09"} == set()
