"""The probe of a host's containers, run in a folder that stands in for a host."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from rigwright.containers.container_facts import SPECS, ContainerFacts, parse, render_probe
from tests.unit import short_programs
from tests.unit.container_samples import container_rig
from tests.unit.rendered_scripts import write_stand_in

SYSTEMCTL = """
case "$*" in
  *is-active*docker.service) [ -e {root}/runs ] ;;
  *MainPID*) echo 77 ;;
  *InvocationID*) echo 0123 ;;
  *ExecMainStartTimestamp*) echo 'Mon 2026-01-05 10:00:00 UTC' ;;
  *is-enabled*) echo enabled ;;
  *NeedDaemonReload*) echo no ;;
  *is-active*nvidia-cdi-refresh.path) true ;;
  *) false ;;
esac
"""
CURL = """
case "$*" in
  */containers/json) echo '[{"Id": "0a", "Names": ["/web"]}]' ;;
  */info) echo '{"LiveRestoreEnabled": true}' ;;
esac
"""
DPKG = "printf '%s\\n' 'installed docker.io 26.1.5+dfsg1-9+b9 a;' 'half-configured podman 5.4.2 ;' 'config-files x 1 ;'"


class ProbedHostFolder:
    """A host's folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("proc/77", "etc/docker", "etc/cdi", "run/cdi", "snap"):
            (root / name).mkdir(parents=True)
        for name, body in {
            "systemctl": SYSTEMCTL.format(root=root),
            "curl": CURL,
            "dpkg-query": DPKG,
            "apt-cache": "printf 'podman:\\n  Installed: (none)\\n  Candidate: 5.4.2\\nx:\\n  Candidate: (none)\\n'",
            "nvidia-smi": "false",
        }.items():
            write_stand_in(root / "bin", name, body)
        self.options = root / "etc/docker/daemon.json"

    def runs(self, *words: str, program: str = "/usr/sbin/dockerd") -> None:
        """Have Docker's daemon run."""
        (self.root / "runs").touch()
        (self.root / "proc/77/exe").symlink_to(program)
        (self.root / "proc/77/cmdline").write_text("\0".join((program, *words, "")))

    def run_probe(self) -> ContainerFacts:
        """Its output."""
        box_rig = container_rig()
        text = render_probe(box_rig.roots, box_rig.cards, box_rig.containers, box_rig.container_supply)
        for place in ("/etc/docker/", "/proc/", "/snap/", "/run/rigwright-docker", *SPECS):
            text = text.replace(f" {place}", f" {self.root}{place}").replace(f'"{place}', f'"{self.root}{place}')
            text = text.replace(f"={place}", f"={self.root}{place}")
        done = short_programs.run_program(["sh", "-c", text], env={"PATH": f"{self.root}/bin:{os.environ['PATH']}"})
        assert done.stderr == ""
        return parse(done.stdout.splitlines())


@pytest.fixture
def host(tmp_path: Path) -> ProbedHostFolder:
    return ProbedHostFolder(tmp_path)


def test_packages_and_their_state(host: ProbedHostFolder) -> None:
    seen = host.run_probe()
    assert dict(seen.packages) == {"docker.io": "26.1.5+dfsg1-9+b9"}
    assert (seen.half, dict(seen.candidates)) == (("podman",), {"podman": "5.4.2"})
    assert (seen.docker_runs, seen.snap, seen.options, seen.odd, seen.arguments) == (False, False, None, "", ())


def test_a_daemon_that_runs_its_program_its_words_and_what_is_on_it(host: ProbedHostFolder) -> None:
    host.runs("-H", "fd://", "--label=a b", "--x=\x1b[2J", program="/usr/sbin/dockerd (deleted)")
    seen = host.run_probe()
    assert seen.program == "/usr/sbin/dockerd"
    assert seen.arguments[1:4] == ("-H", "fd://", "--label=a b")
    assert "\x1b" not in seen.arguments[4]
    assert (seen.containers, seen.asked, seen.live_restore) == (("web",), True, True)


@pytest.mark.parametrize("written", [True, False])
def test_a_daemon_has_read_the_file_from_before_its_start(host: ProbedHostFolder, written: bool) -> None:
    host.runs()
    host.options.write_text('{"debug": true}')
    # its inode is of now, and so later than the daemon
    assert host.run_probe().in_force is None
    (host.root / "run/rigwright-docker").write_text(
        '0123\n{"debug": false}\n' if written else '0000\n{"debug": false}\n'
    )
    assert host.run_probe().in_force == ('{"debug": false}' if written else None)
    host.options.unlink()
    assert host.run_probe().in_force == ('{"debug": false}' if written else "")


def test_options_with_their_mode_and_what_is_no_file(host: ProbedHostFolder) -> None:
    host.options.write_text('{"debug": true}')
    host.options.chmod(0o600)
    seen = host.run_probe()
    assert (seen.options, seen.mode, seen.odd) == ('{"debug": true}', 0o600, "")
    host.options.rename(host.root / "elsewhere.json")
    host.options.symlink_to(host.root / "elsewhere.json")
    assert (host.run_probe().options, host.run_probe().odd) == (None, "a link")
    host.options.unlink()
    host.options.mkdir()
    assert (host.run_probe().options, host.run_probe().odd) == (None, "no file")


def test_options_without_end_are_cut_and_so_refused(host: ProbedHostFolder) -> None:
    host.options.write_text(json.dumps({"labels": ["x" * (2 << 20)]}))
    assert len(host.run_probe().options or "") == 1 << 20


@pytest.mark.parametrize(
    ("name", "text", "seen"),
    [
        ("nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n", True),
        ("a.yaml", "kind: 'nvidia.com/gpu' # mine\n", True),
        ("a.json", '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}', True),
        ("a b*.json", '{"kind" : "nvidia.com/mig"}', True),
        # no engine reads it
        ("nvidia.yaml.bak", "kind: nvidia.com/gpu\n", False),
        ("other.yaml", "kind: vendor.com/net\n", False),
    ],
)
def test_specs_of_others_in_whatever_way_they_are_written(host, name, text, seen):
    (host.root / "etc/cdi" / name).write_text(text)
    (host.root / "run/cdi/nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    found = [path.removeprefix(str(host.root)) for path in host.run_probe().foreign_specs]
    assert found == ([f"/etc/cdi/{name}"] if seen else [])


def test_a_snap_of_docker(host: ProbedHostFolder) -> None:
    (host.root / "snap/bin").mkdir()
    assert not host.run_probe().snap
    (host.root / "snap/bin/docker").touch()
    assert host.run_probe().snap


def test_a_source_that_apt_cannot_read_leaves_all_but_candidates(host: ProbedHostFolder) -> None:
    whole = host.run_probe()
    write_stand_in(host.root / "bin", "apt-cache", "echo 'E: Malformed entry 1' >&2; exit 100")
    found = host.run_probe()
    assert found == replace(
        whole, candidates=MappingProxyType({}), apt_failure="apt-cache ended with status 100: E: Malformed entry 1"
    )
