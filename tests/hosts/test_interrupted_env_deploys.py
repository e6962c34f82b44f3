"""Environments whose making is cut off at each operation of a deploy, and four boxes that fetch one's bytes once."""

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.supply.lock import Artefact
from tests.hosts import env_box
from tests.hosts.conftest import BootHost
from tests.hosts.env_box import EnvironmentServers
from tests.hosts.support import deploy, red_checks, run_deploy, run_plan

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

KILLING = Path(__file__).with_name("interrupted_deploy.py")
FETCH, INSTALL = "Fetch packages of small", "Install small"
# Seconds into an operation: its beginning, and where a job of the host's is at work.
MOMENTS = {f"Engines | {FETCH}": (0.0, 1.0), f"Engines | {INSTALL}": (0.0, 1.0, 4.0, 8.0)}
STOPPED = "! systemctl list-units --plain --no-legend 'rw-job-*' | grep -q ."
PORT = 8090


@pytest.fixture(scope="session")
def env_servers(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentServers]:
    """The sources of hosts."""
    lab.up([])
    with env_box.serve_environment(lab, tmp_path_factory.mktemp("channel")) as found:
        yield found


def left(host: LabHost) -> list[str]:
    """The environments on a host, and their sources."""
    places = "/opt/rigwright/engines /var/lib/rigwright/build /srv/models /var/lib/rigwright/trees"
    return [
        line for line in host.run(f"ls -A1 {places} | grep -v ':$' || true").split() if "small" in line or "_" in line
    ]


@pytest.mark.parametrize("kind", ["controller", "host"])
def test_a_deploy_that_is_cut_off_at_each_operation_is_finished_by_the_next_and_leaves_nothing(
    lab: ThrowawayLab,
    boot: BootHost,
    env_servers: EnvironmentServers,
    tmp_path: Path,
    kind: str,
    subtests: pytest.Subtests,
) -> None:
    host = boot()
    less = [row for row in env_servers.packages if row.name != "pathspec"]
    chosen: dict[int, Sequence[Artefact]] = {1: env_servers.packages, 2: less}
    rigs = {
        number: env_box.write_env_inventory(
            tmp_path / str(number), lab, host, env_servers, packages=rows, keep_generations=1
        )
        for number, rows in chosen.items()
    }
    first = deploy(rigs[1])
    operations = [row["name"] for row in first.report["results"]["operations"]]
    assert {*MOMENTS} <= {*operations}
    now = 1
    for operation in operations:
        for after in MOMENTS.get(operation, (0.0,)):
            with subtests.test(f"{operation} after {after} s"):
                target = 3 - now
                environment = {"KILL_AT": operation, "KILL_AFTER": str(after)}
                if kind == "host":
                    environment["KILL_HOST"] = host.namespace
                cut = run_deploy(rigs[target], "--yes", file=KILLING, **environment)
                # an operation that ends before its moment is not cut off, and says so by its exit status
                assert cut.status in (-signal.SIGKILL, 0), cut.said
                if kind == "host" and cut.status:
                    host.start()
                    host.wait()
                deploy(rigs[target])
                assert run_plan(rigs[target]).planned_operations == []
                folder = Path(env_box.environment_folder(host)).name
                assert {name for name in left(host) if not name.endswith(folder)} == set()
                now = target
    assert red_checks(rigs[now]) == set()


def test_remains_of_a_lock_after_a_power_cut_go_with_the_next(
    lab: ThrowawayLab, boot: BootHost, env_servers: EnvironmentServers, tmp_path: Path
) -> None:
    host = boot()
    one = env_box.write_env_inventory(tmp_path / "one", lab, host, env_servers)
    environment = {"KILL_AT": f"Engines | {INSTALL}", "KILL_AFTER": "2.0", "KILL_HOST": host.namespace}
    cut = run_deploy(one, "--yes", file=KILLING, **environment)
    assert cut.status == -signal.SIGKILL, cut.said
    host.start()
    host.wait()
    assert host.run("ls /srv/models/_packages") != ""
    # whatever it had come to by then, as it is written down before
    host.run(
        "cd /opt/rigwright/engines && mkdir -p small-0-0123456789ab .making-small-0-0123456789ab/tree && "
        "printf 'tree %s\\n' $PWD/small-0-0123456789ab $PWD/.making-small-0-0123456789ab >> /var/lib/rigwright/owned"
    )
    less = [row for row in env_servers.packages if row.name != "pathspec"]
    two = env_box.write_env_inventory(tmp_path / "two", lab, host, env_servers, packages=less)
    run = deploy(two)
    folder = Path(env_box.environment_folder(host)).name
    assert {name for name in left(host) if not name.endswith(folder)} == set()
    # without any environment, what puts them together is of no use
    assert host.run("ls -d /opt/rigwright/installers-*") != ""
    run = run_deploy(
        env_box.write_env_inventory(tmp_path / "none", lab, host, env_servers, envs=[], keep_generations=1)
    )
    assert run.status == 0, run.said
    assert host.run("ls -d /opt/rigwright/installers-* 2>/dev/null || true") == ""
    assert left(host) == []


def test_four_boxes_draw_the_bytes_of_one_through_a_peer(
    lab: ThrowawayLab, env_servers: EnvironmentServers, release: str, tmp_path: Path
) -> None:
    boxes = lab.up([HostSpec(f"f{number}", release) for number in range(1, 5)])
    first, *others = boxes
    shared = {"mirrors": env_servers.source.inventory_mirrors, "envs": ["small"], "instances": {}}
    entries = {host.name: {**host.inventory_keys, **shared} for host in boxes}
    entries[first.name]["share"] = {"address": first.address, "port": PORT, "allow": [str(lab.subnet)]}
    for host in others:
        entries[host.name]["peers"] = [f"http://{first.address}:{PORT}"]
    inventory = env_box.write_env_inventory(tmp_path, lab, first, env_servers)
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    deploy(inventory)
    # each box fetches the tools of environments for itself: they are there now
    for host in boxes:
        host.run("rm -rf /opt/rigwright/engines/small-* /srv/models/* /var/lib/rigwright/weights/*")
    before = env_servers.source.sent_bytes
    deploy(inventory)
    assert env_servers.source.sent_bytes - before <= 1.05 * sum(
        row.size for row in (*env_servers.python_packages, *env_servers.packages)
    )
    for host in boxes:
        assert host.run("ls -d /opt/rigwright/engines/small-*/build.json") != ""
    assert run_deploy(inventory).changed_operations == []
