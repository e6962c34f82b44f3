"""Environments on a real host: they come whole or not at all, stay as they are, and what touches one is seen."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.throwaway_lab import ThrowawayLab
from tests.hosts import env_box
from tests.hosts.conftest import BootHost
from tests.hosts.env_box import EnvironmentServers
from tests.hosts.support import deploy, deploy_command, red_checks, run_deploy, run_plan, wait_until
from tests.stand_ins.hub.faults import EndlessAnswer, flipped_byte, truncated_content

# neither Python nor what installs packages is the release's own
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)


@pytest.fixture(scope="session")
def env_servers(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentServers]:
    """The sources of hosts."""
    lab.up([])  # its network, for what is served there
    with env_box.serve_environment(lab, tmp_path_factory.mktemp("channel")) as found:
        yield found


def entered(inventory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`rigwright ssh --in`."""
    command_ = [sys.executable, "-m", "cli", "ssh", "--in", "small", str(inventory), *words]
    return subprocess.run(command_, capture_output=True, text=True)


DRIFTS = {
    "a byte of a module": ("cp -a $site/yaml/__init__.py /root/; echo >> $site/yaml/__init__.py", {"L02"}),
    "a module too many": ("touch $site/more.py", {"F07"}),
    "a .pth": ("echo 'import os' > $site/more.pth", {"F07"}),
    "sitecustomize": ("touch $site/sitecustomize.py", {"F07"}),
    "another distribution": ("mkdir $site/more-1.0.dist-info", {"F07", "V01"}),
    "another version": ("mv $site/pathspec-*.dist-info $site/pathspec-0.1.dist-info", {"F07", "L02", "V01"}),
    "a distribution that lacks": ("mv $site/pathspec-*.dist-info /root/", {"L02", "V01"}),
    "another Python": ("ln -sf /bin/true env/bin/python", {"L02", "L03"}),
    "a module that others can write": ("chmod o+w $site/yaml/__init__.py", {"F08"}),
    "somebody's module": ("chown nobody $site/yaml/__init__.py", {"F08"}),
}


def test_it_comes_and_stays(lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path) -> None:
    host = boot()
    inventory = env_box.write_env_inventory(tmp_path, lab, host, env_servers)
    planned = run_plan(inventory).planned_operations
    run = deploy(inventory)
    assert set(run.changed_operations) <= set(planned)
    assert "Engines | Install small" in run.changed_operations
    assert host.run("ls /srv/models") == ""  # an installed wheel is not kept twice
    assert run_deploy(inventory).changed_operations == []
    python = env_servers.python_packages[0].version
    said = entered(inventory, "python", "-c", "import sys, os, yaml; print(sys.version.split()[0], os.getuid() > 0)")
    assert (said.stdout, said.returncode) == (f"{python} True\n", 0), said.stderr
    assert entered(inventory, "sh", "-c", "exit 7").returncode == 7
    host.reboot()
    assert run_plan(inventory).planned_operations == []
    assert red_checks(inventory, "--deep") == set()
    host.run(f"cd {env_box.environment_folder(host)} && touch env/lib/{_series(python)}/site-packages/more.pth")
    assert red_checks(inventory) == {"F07"}


def _series(version: str) -> str:
    return f"python{version.rpartition('.')[0]}"


@pytest.mark.all_only
def test_each_drift_is_seen(lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path) -> None:
    host = boot()
    inventory = env_box.write_env_inventory(tmp_path, lab, host, env_servers)
    deploy(inventory)
    folder = env_box.environment_folder(host)
    host.run(f"cp -a {folder} /root/kept")
    for what, (change, seen) in DRIFTS.items():
        host.run(f"cd {folder} && site=$(echo env/lib/python3.*/site-packages) && {change}")
        assert red_checks(inventory) - {"B02"} == seen, what
        host.run(f"rm -rf {folder} && cp -a /root/kept {folder}")
        assert red_checks(inventory) == set(), what


@pytest.mark.all_only
def test_unlocked_files_never_get_there(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    inventory = env_box.write_env_inventory(tmp_path, lab, host, env_servers)
    source, python = env_servers.source, env_servers.python_packages[0]
    # inputs that no other folder of ours on the host has
    wheel = next(row for row in env_servers.packages if row.name == env_box.NATIVE)
    for fault in (flipped_byte("middle"), truncated_content(), EndlessAnswer()):
        source.index.add_fault(fault, wheel.name, wheel.file)
        source.channel.add_fault(fault, "linux-64", python.file)
        run = run_deploy(inventory)
        source.index.clear_faults()
        source.channel.clear_faults()
        assert run.status == 1
        for file in (wheel.file, python.file):
            assert file in run.said
        assert host.run(f"ls {env_box.FOLDER}") == ""
    # the bytes are right, and are of another version than the lock says
    lying = python.model_copy(update={"version": "3.10.99", "file": python.file.replace(python.version, "3.10.99")})
    run = run_deploy(
        env_box.write_env_inventory(
            tmp_path / "lying", lab, host, env_servers, python=[lying, *env_servers.python_packages[1:]]
        )
    )
    assert run.status == 1
    assert "not the locked conda packages" in run.said
    assert host.run(f"ls -A {env_box.FOLDER}") == ""
    poisoned = f"/srv/models/{wheel.package_path}"
    host.run(f"mkdir -p $(dirname {poisoned}) && rm -f {poisoned} && head -c {wheel.size} /dev/zero > {poisoned}")
    run = deploy(inventory)
    assert red_checks(inventory) == set()


STEPS = ("unpacking", "verifying every file", "trying it")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.all_only
def test_a_power_cut_in_a_step_of_it_leaves_nothing_half_done(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path, step: str
) -> None:
    host = boot()
    inventory = env_box.write_env_inventory(tmp_path, lab, host, env_servers)
    log = "cat /var/lib/rigwright/jobs/rw-job-small-*/log"
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as controller:
        wait_until(lambda: step in host.run(log, check=False), f"at {step}")
        host.kill()
        controller.kill()
    host.start()
    host.wait()
    assert host.run(f"ls {env_box.FOLDER}/small-*/build.json 2>/dev/null", check=False) == ""
    deploy(inventory)
    assert red_checks(inventory) == set()
    assert host.run(f"ls -A {env_box.FOLDER}").split() == [Path(env_box.environment_folder(host)).name]
    assert host.run("ls /var/lib/rigwright/build") == ""


@pytest.mark.all_only
def test_two_lie_side_by_side_and_what_nothing_needs_goes(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    whole = env_box.write_env_inventory(tmp_path / "one", lab, host, env_servers, keep_generations=2)
    deploy(whole)
    first = env_box.environment_folder(host)
    less = [row for row in env_servers.packages if row.name != "pathspec"]
    smaller = env_box.write_env_inventory(tmp_path / "two", lab, host, env_servers, packages=less, keep_generations=2)
    deploy(smaller)
    assert len(host.run(f"ls {env_box.FOLDER}").split()) == 2
    assert red_checks(smaller) == set()
    alone = env_box.write_env_inventory(tmp_path / "three", lab, host, env_servers, packages=less, keep_generations=1)
    deploy(alone)
    (left,) = host.run(f"ls -d {env_box.FOLDER}/*").split()
    assert left != first
