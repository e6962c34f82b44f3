"""Release of containers: Docker's options are as they were found, also after changes meanwhile."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.containers import daemon_json, end_of_management
from rigwright.containers.container_facts import ContainerFacts
from rigwright.render import render
from roles import container_toolkit
from roles.container_toolkit import render_piped_script
from tests.unit import short_programs
from tests.unit.container_samples import container_rig
from tests.unit.rendered_scripts import write_stand_in

box_rig = container_rig(daemon={"log-driver": "journald"})
OURS = daemon_json.required_options(box_rig.cards, box_rig.containers)


class DockerHost:
    """A host whose Docker has options of ours."""

    def __init__(self, root: Path, found: str | None, mode: int = 0o644) -> None:
        self.root, self.path, self.store = root, root / "daemon.json", root / "store"
        self.store.mkdir()
        for name in ("systemctl", "apt-mark"):
            write_stand_in(root / "bin", name, f'echo "$(basename $0) $*" >> {root}/asked; [ "$1" != show ] || echo 1')
        if found is not None:
            self.store.joinpath("daemon.json.found").write_text(found)
            self.store.joinpath("daemon.json.found").chmod(mode)
        made, self.record = daemon_json.merge_options(
            daemon_json.parse_options(found), OURS, daemon_json.DaemonRecord(), found is None
        )
        self.path.write_text(daemon_json.render_daemon_json(made))
        self.path.chmod(mode)

    def facts(self, **changes: Any) -> ContainerFacts:
        """The output of a look at it."""
        copy = self.store / "daemon.json.found"
        seen = ContainerFacts(
            "debian",
            "13",
            options=self.path.read_text() if self.path.exists() else None,
            record=self.record.render(),
            found=copy.read_text() if copy.exists() else None,
            docker_runs=True,
            in_force=self.path.read_text() if self.path.exists() else None,
        )
        return replace(seen, **changes)

    def let_go(self, removing: bool = True, **changes: Any) -> str:
        """Let go of them; the messages about it."""
        values = end_of_management.container_release_values(container_rig().roots, self.facts(**changes), removing)
        values |= {"daemon_json": str(self.path) if values["daemon_json"] else "", "container_store": str(self.store)}
        values |= {"container_files": [], "container_folders": [str(self.root / "none")]}
        values |= {"container_preferences": str(self.root / "pins"), "in_force": str(self.root / "in-force")}
        if values["container_spec"]:
            values["container_spec"] = str(self.root / "nvidia.yaml")
        script = render("containers/release.sh.j2", ledger=str(self.root / "owned"), **values)
        done = short_programs.run_program(
            ["sh"], env={"PATH": f"{self.root}/bin:{os.environ['PATH']}"}, input=render_piped_script(script)
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    @property
    def daemon_requests(self) -> list[str]:
        """The requests to Docker's daemon."""
        if not (self.root / "asked").exists():
            return []
        return [line for line in (self.root / "asked").read_text().splitlines() if "docker" in line]


@pytest.mark.parametrize(
    "found",
    [
        '{"log-level":"warn",\n  "labels": ["rack=7"]}\n',
        # empty values that are there, and the details that JSON forgets
        '{"runtimes": {},   "features": null}',
        '{"log-driver": "journald"}',
        '\ufeff{"mtu": 1400}',
        "",
    ],
)
def test_an_unchanged_file_is_byte_for_byte_as_it_was(tmp_path: Path, found: str) -> None:
    host = DockerHost(tmp_path, found, mode=0o600)
    host.let_go()
    assert (host.path.read_text(), host.path.stat().st_mode & 0o777) == (found, 0o600)
    assert not host.store.exists()
    assert host.daemon_requests == [
        "systemctl --quiet is-active docker.service",
        "systemctl reset-failed docker.service",
        "systemctl restart docker.service",
    ]


def test_files_that_were_absent_are_absent(tmp_path: Path) -> None:
    host = DockerHost(tmp_path, None)
    host.let_go()
    assert not host.path.exists()


@pytest.mark.parametrize("found", ['{"log-level": "warn"}', None])
def test_later_edits_of_the_operator_stay_and_only_ours_go(tmp_path: Path, found: str | None) -> None:
    host = DockerHost(tmp_path, found, mode=0o640)
    host.path.write_text(json.dumps(json.loads(host.path.read_text()) | {"mtu": 9000, "log-driver": "local"}))
    host.let_go()
    assert json.loads(host.path.read_text()) == {**daemon_json.parse_options(found), "mtu": 9000, "log-driver": "local"}
    assert host.path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("found", ['{"log-level": "warn"}', None])
def test_a_file_that_the_operator_has_taken_away_or_spoiled_is_his(tmp_path: Path, found: str | None) -> None:
    host = DockerHost(tmp_path, found)
    host.path.write_text("{")
    host.let_go()
    assert host.path.read_text() == "{"
    host.store.mkdir()
    host.path.unlink()
    host.let_go()
    assert not host.path.exists()
    host.store.mkdir()
    host.path.symlink_to("elsewhere")
    host.let_go(odd="a link", options=None)
    assert host.path.is_symlink()


def test_a_copy_emptied_by_a_power_cut_is_not_restored(tmp_path: Path) -> None:
    host = DockerHost(tmp_path, '{"log-level": "warn"}')
    for torn in ("", '{"log-'):
        (tmp_path / "store").mkdir(exist_ok=True)
        (host.store / "daemon.json.found").write_text(torn)
        host.path.write_text(daemon_json.render_daemon_json(OURS | {"log-level": "warn"}))
        host.let_go()
        assert json.loads(host.path.read_text()) == {"log-level": "warn"}


def test_a_record_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    host = DockerHost(tmp_path, "{}")
    before = host.path.read_text()
    (note,) = end_of_management.describe_release(container_rig().roots, host.facts(record="{"))
    assert note.startswith("the managed Docker options stay")
    assert f"note: {note}" in host.let_go(record="{")
    assert host.path.read_text() == before


def test_a_run_that_ended_before_its_end_is_repeated(tmp_path: Path) -> None:
    host = DockerHost(tmp_path, '{"debug":  true}')
    host.path.write_text('{"debug":  true}')
    host.let_go()
    assert host.path.read_text() == '{"debug":  true}'


def test_the_spec_stays_with_the_packages_that_write_it(tmp_path: Path) -> None:
    host = DockerHost(tmp_path, "{}")
    (tmp_path / "owned").write_text("package nvidia-container-toolkit-base\n")
    (tmp_path / "nvidia.yaml").touch()
    host.let_go(removing=False)
    assert (tmp_path / "nvidia.yaml").exists()
    host.store.mkdir()
    host.let_go(removing=True)
    assert not (tmp_path / "nvidia.yaml").exists()


def test_containers_that_run_keep_the_daemon_that_they_run_on(tmp_path: Path) -> None:
    host = DockerHost(tmp_path, "{}")
    assert "until its daemon is restarted" in host.let_go(containers=("web",))
    assert (host.daemon_requests, host.path.read_text()) == ([], "{}")


@pytest.mark.parametrize(("found", "waits"), [("{}", True), ('{"live-restore": true}', False)])
def test_a_daemon_that_has_kept_containers_ends_them_where_the_next_one_does_not(tmp_path, found, waits):
    host = DockerHost(tmp_path, found)
    changes = {"containers": ("web",), "live_restore": True}
    assert bool(end_of_management.describe_release(container_rig().roots, host.facts(**changes))) == waits
    said = host.let_go(**changes)
    assert ("until its daemon is restarted" in said) == waits
    assert ("systemctl restart docker.service" in host.daemon_requests) != waits


def test_a_release_does_not_show_a_proxys_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = DockerHost(tmp_path, '{"http-proxy": "http://me:secret@proxy"}')
    there = json.loads(host.path.read_text()) | {"mtu": 9000}
    monkeypatch.setattr(container_toolkit, "read_container_facts", lambda _: host.facts(options=json.dumps(there)))
    (command,) = container_toolkit.release_container_toolkit._inner(rig=container_rig())
    assert "secret" not in str(command)
    assert "secret" in command.connector_arguments["_stdin"][0]
