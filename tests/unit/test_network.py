"""A rig's way to the world: the settings of its jobs, and the environment of the programs that they run."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigwright.fetch_job_spec import JobNetwork, job_network
from rigwright.model.roots import Roots
from rigwright.render import render
from tests.unit.samples import sample_rig

SYSTEM = "/etc/ssl/certs/ca-certificates.crt"
LOCAL = "localhost,127.0.0.1"
NOTHING = JobNetwork("", "", "", ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mirrors": {}}, JobNetwork("", "", LOCAL, ())),
        ({"mirrors": {"store": ("http://s",)}}, JobNetwork("", "", LOCAL, ())),
        ({"mirrors": {"apt": ("http://a", "http://b")}}, JobNetwork("", "", LOCAL, ("http://a", "http://b"))),
        (
            {"mirrors": {}, "proxy": "http://p:3128", "no_proxy": ("h", ".example.org")},
            JobNetwork("", "http://p:3128", f"{LOCAL},h,.example.org", ()),
        ),
        (
            {"mirrors": {}, "proxy": "http://p:3128", "peers": ("http://10.0.0.5:8090", "http://one")},
            JobNetwork("", "http://p:3128", f"{LOCAL},10.0.0.5,one", ()),
        ),
        ({"mirrors": {}, "ca_certificates": "x"}, JobNetwork("/etc/rigwright/ca.pem", "", LOCAL, ())),
        (
            {"mirrors": {}, "ca_certificates": "x", "roots": Roots(config="/etc/rw")},
            JobNetwork("/etc/rw/ca.pem", "", LOCAL, ()),
        ),
    ],
)
def test_a_job_gets_mirrors_proxy_and_authorities(changes: dict[str, Any], expected: JobNetwork) -> None:
    box_rig = sample_rig(**changes)
    assert job_network(box_rig.roots, box_rig.network) == expected


def run(folder: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", script], env={"PATH": path} | environment, capture_output=True, text=True, check=False
    )


def job_environment(folder: Path, one: JobNetwork, **environment: str) -> dict[str, str]:
    """The environment that a program of a job has."""
    python = "import json, os; print(json.dumps(dict(os.environ)))"
    done = run(
        folder,
        f"set -eu\n{render('jobs/network.sh.j2', network=one, sent='')}\n{os.sys.executable} -c '{python}'",
        **environment,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


BUNDLES = ("PIP_CERT", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def test_without_anything_of_its_own_a_rig_trusts_the_system_and_goes_nowhere_else(tmp_path: Path) -> None:
    found = job_environment(tmp_path, NOTHING)
    assert {found[name] for name in BUNDLES} == {SYSTEM}
    assert not {"http_proxy", "https_proxy", "no_proxy"} & set(found)


def test_the_rigs_own_authorities_are_trusted_beside_the_systems(tmp_path: Path) -> None:
    own = tmp_path / "own ca.pem"
    own.write_text("OWN\n")
    found = job_environment(tmp_path, JobNetwork(str(own), "", "", ()), TMPDIR=str(tmp_path))
    (bundle,) = {found[name] for name in BUNDLES}
    system = Path(SYSTEM).read_text() if Path(SYSTEM).exists() else ""
    assert Path(bundle).read_text() == system + "OWN\n"


def test_before_the_authorities_are_there_a_job_still_runs(tmp_path: Path) -> None:
    assert job_environment(tmp_path, JobNetwork(str(tmp_path / "gone.pem"), "", "", ()), TMPDIR=str(tmp_path))


def test_programs_go_through_the_proxy_and_around_it(tmp_path: Path) -> None:
    found = job_environment(tmp_path, JobNetwork("", "http://proxy:3128", "localhost,.example.org", ()))
    assert found["http_proxy"] == found["https_proxy"] == "http://proxy:3128"
    assert found["no_proxy"] == "localhost,.example.org"
