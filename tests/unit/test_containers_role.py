"""The operations on containers, on a host that is a shell of this machine: refusals, actions, holds and messages."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.containers.container_facts import REFRESH_PATH, REFRESH_UNIT, ContainerFacts
from rigwright.model.deb_package_groups import PackageGroup
from rigwright.model.roots import Roots
from rigwright.supply.bundle import BundledPackages, LocalFile
from roles.operations import containers, packages, reconnecting_shell
from roles.operations.containers import _hold_packages, _leaves_containers_running, _refresh_spec, _run_daemon_step
from roles.operations.packages import PackageRun, PackageTarget, _install_packages
from tests.unit import short_programs
from tests.unit.apt_simulation import simulation_lines
from tests.unit.channel_records import channel_lines
from tests.unit.container_samples import FOUR, container_facts, container_rig, plan_for_host, toolkit_group
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.ssh_host import ShellHost

LIVE = {"live-restore": True}
WATCHED = ((REFRESH_UNIT, "enabled"), (REFRESH_PATH, "enabled"))


class ContainersRoleHost(PackageRun):
    """A host whose jobs leave a test's texts, and which has a test's state."""

    def __init__(self, root: Path, *seen: ContainerFacts, **keys: Any) -> None:
        roots = Roots.model_construct(**Roots().model_dump() | {"state": str(root / "state")})
        super().__init__(None, ShellHost(), replace(container_rig(**keys), roots=roots))
        self.seen, self.jobs_run, self.says = list(seen), list[tuple[str, str]](), ["archive"]
        self.given: list[set[str]] = []

    def run_package_job(self, unit: str, script: str, files: Sequence[LocalFile] = ()) -> bool:
        self.jobs_run.append((unit, script))
        self.given.append({file.name for file in files})
        if unit.endswith("-look"):
            done = Path(self.done_path(unit))
            done.parent.mkdir(parents=True, exist_ok=True)
            how, *said = self.says
            done.write_text("\n".join(channel_lines(("how", how), ("said", "\n".join(simulation_lines(said))))))
        elif unit in ("rw-job-docker-options", "rw-job-cdi"):
            Path(self.done_path(unit)).parent.mkdir(parents=True, exist_ok=True)
            return (
                short_programs.run_program(["sh", "-c", script]).returncode == 0 and Path(self.done_path(unit)).exists()
            )
        return True


@pytest.fixture
def output_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The operator's output; apt-mark and systemctl are stand-ins that remember."""
    lines: list[str] = []
    listener = SimpleNamespace(error=lines.append, info=lambda _: None, warning=lines.append)
    for module in (containers, packages, packages):
        monkeypatch.setattr(module, "logger", listener)
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
    monkeypatch.setattr(
        containers, "_collect_container_facts", lambda one: one.seen.pop(0) if len(one.seen) > 1 else one.seen[0]
    )
    monkeypatch.setattr(containers, "IN_FORCE", str(tmp_path / "in-force"))
    answers = "case $1 in show) echo 0123 ;; is-active) echo inactive ;; -b) echo why ;; esac"
    for name in ("apt-mark", "systemctl", "journalctl"):
        write_stand_in(tmp_path / "bin", name, f'echo "{name} $*" >> {tmp_path}/asked; {answers}')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "asked").touch()
    return lines


# systemd starts a unit three times a minute at most
AGAIN = ["systemctl reset-failed docker.service", "systemctl restart docker.service"]


def recorded_commands(root: Path) -> list[str]:
    return [
        line for line in (root / "asked").read_text().splitlines() if " show " not in line and " is-active " not in line
    ]


def test_a_daemon_is_asked_to_read_its_options_or_started_again_and_that_is_written_down(output_lines, tmp_path):
    running = container_facts(docker_runs=True, containers=("own",))
    assert _run_daemon_step(ContainersRoleHost(tmp_path, running), "reload", {}) is True
    assert recorded_commands(tmp_path) == ["systemctl reload docker.service"]
    assert (tmp_path / "in-force").read_text().splitlines()[0] == "0123"
    assert _run_daemon_step(ContainersRoleHost(tmp_path, container_facts(docker_runs=True)), "restart", {}) is True
    assert (recorded_commands(tmp_path)[1:], output_lines) == (AGAIN, [])


def test_containers_that_have_started_meanwhile_are_not_ended(output_lines: list[str], tmp_path: Path) -> None:
    running = container_facts(docker_runs=True, containers=("own",))
    assert _run_daemon_step(ContainersRoleHost(tmp_path, running), "restart", {}) is False
    assert recorded_commands(tmp_path) == []
    assert output_lines == ["[box] refused: Docker containers were started since this run began: own"]
    assert _run_daemon_step(ContainersRoleHost(tmp_path, running, restart=True), "restart", {}) is True


def test_containers_that_have_started_meanwhile_are_not_ended_by_a_package(output_lines, tmp_path):
    running = container_facts(docker_runs=True, containers=("own",))
    assert _leaves_containers_running(ContainersRoleHost(tmp_path, container_facts(docker_runs=True))) is True
    assert _leaves_containers_running(ContainersRoleHost(tmp_path, running, restart=True)) is True
    live = replace(running, live_restore=True)
    assert (
        _leaves_containers_running(ContainersRoleHost(tmp_path, replace(live, options='{"live-restore": true}')))
        is True
    )
    assert output_lines == []
    assert _leaves_containers_running(ContainersRoleHost(tmp_path, live)) is False
    assert _leaves_containers_running(ContainersRoleHost(tmp_path, running)) is False
    assert output_lines[1:] == ["[box] refused: Docker containers were started since this run began: own"]


def test_containers_that_are_to_outlive_their_daemon_do_so_from_this_restart_on(output_lines, tmp_path):
    running = container_facts(docker_runs=True, containers=("own",))
    one = ContainersRoleHost(tmp_path, running, replace(running, live_restore=True))
    assert _run_daemon_step(one, "restart", LIVE) is True
    assert recorded_commands(tmp_path) == ["systemctl reload docker.service", *AGAIN]
    # one that starts without it ends them, though the one before has kept them
    assert _run_daemon_step(ContainersRoleHost(tmp_path, replace(running, live_restore=True)), "restart", {}) is False
    assert recorded_commands(tmp_path)[3:] == []
    # a daemon that does not take it, such as a swarm's
    assert _run_daemon_step(ContainersRoleHost(tmp_path, running), "restart", LIVE) is False
    assert recorded_commands(tmp_path)[3:] == ["systemctl reload docker.service"]


def test_a_daemon_that_does_not_start_with_its_options_is_reported(output_lines: list[str], tmp_path: Path) -> None:
    write_stand_in(tmp_path / "bin", "systemctl", "false")
    assert _run_daemon_step(ContainersRoleHost(tmp_path, container_facts(docker_runs=True)), "restart", {}) is False
    assert output_lines == ["[box] the Docker daemon rejects its options: see `journalctl -u docker.service`"]


def test_a_daemon_that_is_down_is_started_and_one_that_stays_down_is_reported(output_lines, tmp_path):
    assert (
        _run_daemon_step(
            ContainersRoleHost(tmp_path, container_facts(), container_facts(docker_runs=True)), "restart", {}
        )
        is True
    )
    assert "systemctl enable -q --now docker.service" in recorded_commands(tmp_path)
    assert _run_daemon_step(ContainersRoleHost(tmp_path, container_facts()), "restart", {}) is False
    assert output_lines == ["[box] the Docker daemon is not running: see `journalctl -u docker.service`"]


def test_a_spec_that_stays_wrong_is_reported_with_the_units_own_words(output_lines: list[str], tmp_path: Path) -> None:
    one = ContainersRoleHost(tmp_path, container_facts(refresh=WATCHED))
    assert _refresh_spec(one) is True
    # a job outlives the connection: the cards may take longer than a command may be silent
    assert ([unit for unit, _ in one.jobs_run], output_lines) == (["rw-job-cdi"], [])
    wrong = container_facts(stale=("the spec has no card GPU-1",), refresh=((REFRESH_UNIT, "masked"), WATCHED[1]))
    assert _refresh_spec(ContainersRoleHost(tmp_path, wrong)) is False
    assert output_lines[:2] == ["[box] the CDI spec is wrong: the spec has no card GPU-1", "[box]   why"]
    assert output_lines[2].startswith(f"[box] {REFRESH_UNIT} is masked, and must be enabled at boot")


def test_holds_of_the_operator_are_not_released(output_lines: list[str], tmp_path: Path) -> None:
    there, whole = (
        container_facts(toolkit_group(), held=frozenset(FOUR[:1])),
        container_facts(toolkit_group(), held=frozenset(FOUR)),
    )
    one = ContainersRoleHost(tmp_path, there, whole)
    assert _hold_packages(one, plan_for_host(one.rig, there)) is True
    folder = tmp_path / "state/containers"
    assert (folder / "held").read_text().split() == sorted(FOUR[1:])
    assert f"{FOUR[0]} 1.20.0-1" in (folder / "installed").read_text().splitlines()
    assert recorded_commands(tmp_path) == [f"apt-mark hold {' '.join(sorted(FOUR[1:]))}"]


def test_the_files_of_two_sets_are_kept(output_lines: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "state/containers/kept/container-toolkit"
    for age, name in enumerate(("1.20.0-c", "1.19.1-b", "1.18.0-a", "fetched.x", "1.21.0-d.new")):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (1_000_000 - age, 1_000_000 - age))
    whole = container_facts(toolkit_group(), held=frozenset(FOUR))
    one = ContainersRoleHost(tmp_path, whole)
    assert _hold_packages(one, plan_for_host(one.rig, whole)) is True
    assert sorted(path.name for path in folder.iterdir()) == ["1.19.1-b", "1.20.0-c"]


def target_packages(one: ContainersRoleHost, group: PackageGroup, *removed: str) -> PackageTarget:
    return PackageTarget(group, f"{one.rig.roots.state}/kept", (("/x.sources", "the archive of x"),), removed)


def test_packages_are_looked_at_and_installed_by_their_exact_versions(output_lines: list[str], tmp_path: Path) -> None:
    one = ContainersRoleHost(tmp_path, container_facts())
    one.says += [f"Inst {name} (1.20.0-1 x [amd64])" for name in FOUR]
    assert _install_packages(one, target_packages(one, toolkit_group(), "nvidia-docker2"), kept=False) is True
    assert [unit for unit, _ in one.jobs_run] == ["rw-job-container-toolkit-look", "rw-job-container-toolkit"]
    script = one.jobs_run[1][1]
    for name in FOUR:
        assert f"{name}=1.20.0-1" in script
        assert f'"$work"/{name}_*.deb' in script
    assert "nvidia-docker2-" in script
    assert toolkit_group().store_name in script


def test_a_transaction_that_is_objected_to_does_not_happen(output_lines: list[str], tmp_path: Path) -> None:
    one = ContainersRoleHost(tmp_path, container_facts())
    one.says.append("Remv theirs [1.0]")
    assert _install_packages(one, target_packages(one, toolkit_group()), kept=False) is False
    assert [unit for unit, _ in one.jobs_run] == ["rw-job-container-toolkit-look"]
    assert output_lines[0].startswith("[box] refused: apt would remove theirs")


def test_packages_dropped_by_an_archive_come_from_kept_files(output_lines: list[str], tmp_path: Path) -> None:
    one = ContainersRoleHost(tmp_path, container_facts())
    one.says = ["kept", *(f"Inst {name} (1.20.0-1 local-deb [amd64])" for name in FOUR)]
    assert _install_packages(one, target_packages(one, toolkit_group()), kept=True) is True
    assert output_lines == ["[box] the archive has dropped container-toolkit 1.20.0: using stored files"]
    script = one.jobs_run[1][1]
    assert f"{one.rig.roots.state}/kept/{toolkit_group().store_name}/*.deb" in script
    assert f"{FOUR[0]}=1.20.0-1" not in script


def bundled_toolkit(one: ContainersRoleHost) -> PackageTarget:
    """The toolkit, from a bundle that has what two packages of the distribution's need."""
    names = {"0/dists/trixie/InRelease": "a", "0/pool/libseccomp2_2.6_amd64.deb": "b", "0/pool/idle_1_all.deb": "c"}
    sent = tuple(LocalFile(Path(path), name, name * 64, 1) for path, name in names.items())
    files = tuple(LocalFile(Path(row.file), row.file, row.sha256, 1) for row in toolkit_group().packages.values())
    packages = BundledPackages(
        sent, tuple((name, path) for path, name in names.items()), (), "/usr/share/keyrings/x.gpg"
    )
    return replace(target_packages(one, toolkit_group()), files=files, distribution=packages)


def test_of_a_bundle_what_apt_needs_is_sent_and_no_archive_is_asked(output_lines: list[str], tmp_path: Path) -> None:
    one = ContainersRoleHost(tmp_path, container_facts())
    one.says = ["kept", *(f"Inst {name} (1.20.0-1 local-deb [amd64])" for name in FOUR), "Inst libseccomp2 (2.6 x)"]
    assert _install_packages(one, bundled_toolkit(one), kept=False) is True
    assert one.given == [{"a", *(row.file for row in toolkit_group().packages.values())}, {"a", "b"}]
    look, install = (script for _, script in one.jobs_run)
    assert "x.sources" not in look + install
    assert all(f"keep {row.file} {row.sha256}" in look for row in toolkit_group().packages.values())
    assert f"{one.rig.roots.state}/kept/{toolkit_group().store_name}/*.deb" in install
    assert output_lines == []


def test_a_bundle_that_does_not_fit_is_reported(output_lines: list[str], tmp_path: Path) -> None:
    one = ContainersRoleHost(tmp_path, container_facts())
    one.says = ["kept", "E: Unable to correct problems, you have held broken packages."]
    assert _install_packages(one, bundled_toolkit(one), kept=False) is False
    assert [line.partition(":")[0] for line in output_lines] == ["[box] refused"] * 2
    assert "if it is older than the host's packages, make it again" in output_lines[1]
