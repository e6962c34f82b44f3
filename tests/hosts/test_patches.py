"""Patches on a real host: a patched engine lies next to the other, does as its patch has it, and goes as it came."""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from lab.hosts import LabHost
from lab.ssh_tunnel import forward_port
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts import env_box, patch_box, vllm_box
from tests.hosts.conftest import BootHost
from tests.hosts.env_box import EnvironmentServers
from tests.hosts.support import (
    PORT,
    check_verdicts,
    deploy,
    red_check_lines,
    red_checks,
    run_deploy,
    wait_until,
    write_inventory,
)
from tests.lock_files import render_sealed_lock

# neither Python nor what patches it is the release's own
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

TITLE = "packaging/__init__.py"
NAME = "louder"
COMPILING = Path(__file__).with_name("engine_deploy.py")


@pytest.fixture(scope="session")
def env_servers(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentServers]:
    """The sources of hosts."""
    lab.up([])  # its network, for what is served there
    with env_box.serve_environment(lab, tmp_path_factory.mktemp("channel")) as found:
        yield found


def rigwright_output(*words: str) -> str:
    """The output of `rigwright`."""
    done = subprocess.run([sys.executable, "-m", "cli", *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def title(inventory: Path) -> str:
    """The text of the patched module, as a process in the environment sees it."""
    return rigwright_output(
        "ssh", "--in", "small", str(inventory), "python", "-c", "import packaging; print(packaging.__title__)"
    )


@pytest.mark.all_only
def test_it_comes_beside_stays_and_goes(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    row = next(row for row in env_servers.packages if row.name == "packaging")
    before = patch_box.wheel_text(row, TITLE)
    plain = env_box.write_env_inventory(tmp_path / "plain", lab, host, env_servers)
    deploy(plain)
    first = env_box.environment_folder(host)
    assert title(plain) == "packaging"

    patched = env_box.write_env_inventory(tmp_path / "patched", lab, host, env_servers, patches=(NAME,))
    after = before.replace('"packaging"', '"PACKAGING"', 1)
    patch_box.write_wheel_patch(tmp_path / "patched/patches" / NAME, row, TITLE, after)
    assert f"patched by {NAME}" in rigwright_output("plan", str(patched))
    run = deploy(patched)
    assert "Engines | Install small" in run.changed_operations
    assert title(patched) == "PACKAGING"
    assert run_deploy(patched).changed_operations == []
    assert red_checks(patched) == set()
    (second,) = {*host.run(f"ls -d {env_box.FOLDER}/small-*").split()} - {first}
    site = f"{second}/env/lib/python*/site-packages/packaging"
    # it was compiled after it was patched, and for these bytes: there is no later chance
    (compiled,) = host.run(f"ls {site}/__pycache__/__init__.*.pyc").split()
    assert "PACKAGING" in host.run(f"strings {compiled} || cat {compiled}")
    assert host.run(f"find {site}/__init__.py -newer {compiled}") == ""

    run = deploy(plain)
    assert "Engines | Install small" not in run.changed_operations
    assert title(plain) == "packaging"
    assert red_checks(plain) == set()


@pytest.mark.all_only
def test_it_is_put_right_where_it_was_changed_and_never_put_into_another_file(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    row = next(row for row in env_servers.packages if row.name == "packaging")
    before = patch_box.wheel_text(row, TITLE)
    patched = env_box.write_env_inventory(tmp_path / "patched", lab, host, env_servers, patches=(NAME,))
    after = before.replace('"packaging"', '"PACKAGING"', 1)
    patch_box.write_wheel_patch(tmp_path / "patched/patches" / NAME, row, TITLE, after)
    deploy(patched)
    folder = env_box.environment_folder(host)
    host.run(f"sed -i s/PACKAGING/Packaging/ {folder}/env/lib/python*/site-packages/{TITLE}")
    assert red_checks(patched) == {"L02", "V04"}
    (cure,) = [line for line in red_check_lines(patched)["L02"] if "rm -rf" in line][:1]
    assert folder in cure
    host.run(f"rm -r {folder}")
    deploy(patched)
    assert red_checks(patched) == set()

    moved = env_box.write_env_inventory(tmp_path / "moved", lab, host, env_servers, patches=(NAME,))
    other = before.replace("26", "27")
    patch_box.write_wheel_patch(
        tmp_path / "moved/patches" / NAME, row, TITLE, other.replace("Core", "core"), before=other
    )
    run = run_deploy(moved)
    assert run.status == 1
    assert f"patch {NAME}: {TITLE} of {row.file}: expected " in run.said
    assert "unpacking" not in host.run("cat $(ls -td /var/lib/rigwright/jobs/rw-job-small-*/log | head -n 1)")
    assert set(host.run(f"ls -d {env_box.FOLDER}/small-*").split()) == {folder}


VERSION = "vllm/entrypoints/serve/instrumentator/basic.py"


def version(host: LabHost) -> dict[str, str]:
    """The instance's own version."""
    with forward_port(host, PORT) as local:
        answer: dict[str, str] = requests.get(f"http://127.0.0.1:{local}/version", timeout=20).json()
    return answer


@pytest.mark.all_only
def test_vllm_itself_is_patched_and_served(boot: BootHost, vllm: vllm_box.VllmServers, tmp_path: Path) -> None:
    host = boot(*vllm.host_layers)
    row = next(row for row in vllm.packages if row.name == "vllm")
    before = patch_box.wheel_text(row, VERSION)
    patched = vllm_box.write_vllm_inventory(tmp_path / "patched", host, vllm, patches=(NAME,))
    after = before.replace('{"version": VLLM_VERSION}', '{"version": VLLM_VERSION, "patched": "yes"}')
    patch_box.write_wheel_patch(tmp_path / "patched/patches" / NAME, row, VERSION, after)
    run = run_deploy(patched)
    assert run.status == 0, run.said[-4000:]
    assert version(host) == {"version": "0.21.0", "patched": "yes"}
    verdicts = check_verdicts(patched)
    assert (verdicts["V04"], verdicts["L02"], verdicts["S21"]) == ("ok", "ok", "ok")

    # as if it had been changed under the process, which goes on with what it has loaded
    (file,) = host.run(f"grep -l patched {env_box.FOLDER}/vllm-*/env/lib/python*/site-packages/{VERSION}").split()
    host.run(f"touch $(dirname {file})/__pycache__/basic.*.pyc")
    (line,) = red_check_lines(patched)["V04"]
    assert "rigwright-chat.service" in line
    host.run("systemctl restart rigwright-chat")
    assert "V04" not in red_checks(patched)

    # and one beside it that finds its modules elsewhere
    group = f"/sys/fs/cgroup{host.run('systemctl show --property=ControlGroup --value rigwright-chat').strip()}"
    python = f"{Path(file).parents[7]}/bin/python"
    host.run(
        f"systemd-run -q --unit=beside sh -c 'echo 0 > {group}/cgroup.procs && "
        f'cd /opt && PYTHONPATH=/srv/own exec {python} -c "import time; time.sleep(600)"\''
    )
    wait_until(lambda: "PYTHONPATH has /srv/own" in str(red_check_lines(patched).get("V04")), "it is seen")
    host.run("pkill -f '[t]ime[.]sleep'")
    wait_until(lambda: "V04" not in red_checks(patched), "it has ended")

    plain = vllm_box.write_vllm_inventory(tmp_path / "plain", host, vllm)
    run = run_deploy(plain)
    assert run.status == 0, run.said[-4000:]
    assert version(host) == {"version": "0.21.0"}
    assert red_checks(plain) - {"F09"} == set()


CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(small C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_executable(llama-server server.c)
"""
SERVER = """
#include <stdio.h>
int main(void) {
  puts("plain");
  return 0;
}
"""
ENGINE = """
[engines.small]
kind = "llama.cpp"
source = "small"
commit = "0123456789abcdef0123456789abcdef01234567"
patches = [PATCHES]

[variants."small/demo"]
engine = "small"
model = "tiny-rig"
context = 4096
"""


def compiled_box(folder: Path, lab: ThrowawayLab, host: LabHost, patches: str = "", server: str = SERVER) -> Path:
    """An inventory with an engine that is compiled in a second."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in {"CMakeLists.txt": CMAKE, "server.c": server}.items():
            member = tarfile.TarInfo(f"small/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    content = packed.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    file = f"small-{digest[:8]}.tar.gz"
    (lab.shelf_folder / file).write_bytes(content)
    row = {"kind": "source", "name": "small", "version": "1", "file": file, "sha256": digest}
    lines = [f'{key} = "{value}"' for key, value in row.items()]
    lines += [f"size = {len(content)}", f'sources = ["shelf:{file}"]']
    instances = {"chat": {"variant": "small/demo", "port": PORT}}
    inventory = write_inventory(folder, lab, host, instances=instances)
    for noun in ("catalog", "locks"):
        (folder / noun).mkdir(exist_ok=True)
    (folder / "catalog/small.toml").write_text(ENGINE.replace("PATCHES", patches))
    (folder / "locks/small.lock.toml").write_text(render_sealed_lock("\n[[artefact]]\n" + "\n".join(lines) + "\n"))
    return inventory


@pytest.mark.all_only
def test_a_source_is_compiled_as_it_is_patched(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    plain = compiled_box(tmp_path / "plain", lab, host)
    deploy(plain, file=COMPILING)
    patched = compiled_box(tmp_path / "patched", lab, host, f'"{NAME}"')
    place = tmp_path / "patched/patches" / NAME
    patch_box.write_patch(place, "llama.cpp", "1", "server.c", SERVER, SERVER.replace("plain", "patched"))
    run = deploy(patched, file=COMPILING)
    servers = host.run(f"ls {env_box.FOLDER}/small-*/bin/llama-server").split()
    assert {host.run(one).strip() for one in servers} == {"plain", "patched"}
    assert run_deploy(patched, file=COMPILING).changed_operations == []

    # the same version, built anew upstream
    moved = compiled_box(tmp_path / "moved", lab, host, f'"{NAME}"', SERVER + "\n")
    shutil.copytree(tmp_path / "patched/patches", tmp_path / "moved/patches")
    run = run_deploy(moved, file=COMPILING)
    assert run.status == 1
    assert f"patch {NAME}: server.c: expected " in run.said
    assert host.run(f"ls {env_box.FOLDER}/small-*/bin/llama-server").split() == servers
    assert run_deploy(plain, file=COMPILING).changed_operations == []
