"""A container of an operator's that served before us, by real Docker and podman: taken over, back where ours fails."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.containers_box import DISKS
from tests.hosts.support import is_serving, red_checks, run_deploy, wait_until
from tests.hosts.test_generations import rigwright
from tests.hosts.test_takeover import PORT, existing_service_answers, rigwright_answers, write_takeover_inventory

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
PACKAGES = {"docker": "docker.io docker-cli", "podman": "podman crun passt netavark aardvark-dns"}
# The missing parts of a throwaway host: counts of processes, and writable settings of networks, without which podman
# gives no container a network of its own
LACKING = {"docker": "", "podman": "--pids-limit=0"}
LENIENT = """
cd /etc/systemd/system && mkdir -p docker.service.d
printf '[Service]\\nEnvironment=DOCKER_ALLOW_IPV6_ON_IPV4_INTERFACE=1\\n' > docker.service.d/lab.conf
"""
# Its file system is the host's own programs, and nothing else
IMAGE = """
cd "$(mktemp -d)" && mkdir -p usr etc srv && ln -s usr/bin bin && ln -s usr/lib lib && ln -s usr/lib64 lib64
tar -c . > /root/image.tar
"""
SERVES = f"/usr/bin/python3 -m http.server {PORT} --directory /srv/theirs"
NETWORKS = {"the host's": "--network=host", "its own": f"--publish=127.0.0.1:{PORT}:{PORT}"}


@dataclass(frozen=True)
class OperatorContainerHost:
    """A host that serves `chat`, and on another port a container of its operator's."""

    host: LabHost
    program: str

    def run(self, network: str, *options: str) -> None:
        """Start the container, as people do."""
        mounts = "--volume=/usr:/usr:ro --volume=/srv/theirs:/srv/theirs:ro"
        words = " ".join((NETWORKS[network], LACKING[self.program], *options))
        self.host.run(f"{self.program} run --detach --name=vllm {words} {mounts} own {SERVES}")
        wait_until(lambda: existing_service_answers(self.host), "an answer of theirs")

    def its(self, what: str) -> str:
        """The file in its program's view."""
        return self.host.run(f"{self.program} container inspect --format '{{{{.{what}}}}}' vllm").strip()

    @property
    def how(self) -> tuple[str, str, str]:
        """Which it is, whether it runs, and whether it starts by itself."""
        return self.its("Id"), self.its("State.Status"), self.its("HostConfig.RestartPolicy.Name")


@pytest.fixture(params=PACKAGES)
def operators(boot: BootHost, first_run: ConvergedLayers, request: pytest.FixtureRequest) -> OperatorContainerHost:
    """A host with the program for containers that a distribution has."""
    host = boot(first_run.layer, disks=DISKS)
    wait_until(lambda: is_serving(host), "serving after a boot")
    host.run(f"{LENIENT} apt-get -q update; apt-get -q -y --no-install-recommends install {PACKAGES[request.param]}")
    host.run(f"mkdir /srv/theirs && echo mine > /srv/theirs/who; {IMAGE} {request.param} import /root/image.tar own")
    return OperatorContainerHost(host, request.param)


@pytest.mark.parametrize(
    ("operators", "network"),
    [("docker", "the host's"), ("docker", "its own"), ("podman", "the host's")],
    indirect=["operators"],
)
def test_a_container_is_taken_over_and_stays_away(
    operators: OperatorContainerHost, lab: ThrowawayLab, tmp_path: Path, network: str
) -> None:
    operators.run(network, "--restart=always")
    host, program = operators.host, operators.program
    identity, *before = operators.how
    assert before == ["running", "always"]
    inventory = write_takeover_inventory(tmp_path, lab, host)
    take = ("switch", str(inventory), "code", "--from", "vllm", "--unverified")
    dry = rigwright(*take, "--dry")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert f"vllm uses port {PORT}: it stops, and code replaces it" in " ".join(dry.stdout.split())
    assert existing_service_answers(host)
    done = rigwright(*take, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert rigwright_answers(host)
    assert operators.how == (identity, "exited", "no")
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []
    host.reboot()
    wait_until(lambda: rigwright_answers(host), "an answer after a boot")
    assert operators.how == (identity, "exited", "no")
    removed = rigwright("remove", str(inventory), "--yes")
    back = f"{program} update --restart=always vllm && {program} start vllm"
    assert f"vllm was taken over: `{back}` restores it" in " ".join(removed.stdout.split())
    # the Python that the container runs is the host's, and went with all that we had brought, as what asks it did
    host.run(f"apt-get -q -y --no-install-recommends install python3 curl; {back}")
    wait_until(lambda: existing_service_answers(host), "an answer of theirs")
    assert operators.how == (identity, "running", "always")


def test_one_gives_no_way_to_what_does_not_serve(
    operators: OperatorContainerHost, lab: ThrowawayLab, tmp_path: Path
) -> None:
    operators.run("the host's", "--restart=on-failure:3")
    before = operators.how
    inventory = write_takeover_inventory(tmp_path, lab, operators.host, "llamacpp/bad")
    current = operators.host.run("readlink /etc/rigwright/current")
    done = rigwright("switch", str(inventory), "code", "--from", f"{operators.program}:vllm", "--yes")
    assert done.returncode == 1
    assert "vllm is as it was found" in done.stdout + done.stderr
    wait_until(lambda: existing_service_answers(operators.host), "an answer of theirs")
    assert operators.how == before
    assert operators.its("HostConfig.RestartPolicy.MaximumRetryCount") == "3"
    assert operators.host.run("readlink /etc/rigwright/current") == current


def test_one_that_could_not_come_back_is_left_alone(
    operators: OperatorContainerHost, lab: ThrowawayLab, tmp_path: Path
) -> None:
    operators.run("the host's", "--rm")
    inventory = write_takeover_inventory(tmp_path, lab, operators.host)
    done = rigwright("switch", str(inventory), "code", "--from", "vllm", "--yes")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "vllm disappears when it stops (--rm)" in done.stderr
    other = rigwright("switch", str(inventory), "code", "--from", "vllm_1", "--yes")
    assert "neither Docker nor podman has a container vllm_1" in other.stderr
    assert existing_service_answers(operators.host)
