"""An operator's own containers: by all that Docker and podman call cards by, and through what a deploy does to both."""

from collections.abc import Callable, Iterator

import pytest

from tests.hosts.containers_box import BOTH, DEVICES, IMAGE, ContainersBox
from tests.hosts.driver_box import OLD, single_release_mark

# `gpus: all` is Compose's since 2.30, which Debian has not, for what is reserved here
COMPOSE = """
services:
  runtime:
    image: own
    network_mode: none
    command: [/bin/ls, /dev]
    runtime: nvidia
    environment: {NVIDIA_VISIBLE_DEVICES: all}
  reserved:
    image: own
    network_mode: none
    command: [/bin/ls, /dev]
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
"""


@pytest.fixture
def box(containers_box: Callable[[], ContainersBox]) -> Iterator[ContainersBox]:
    """A host with cards and a driver; Docker and podman are not there."""
    made = containers_box()
    yield made
    made.host.destroy()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_an_operators_own_containers_have_their_cards_through_a_reload_of_systemd(box: ContainersBox) -> None:
    box.declare_containers(**BOTH)
    box.run_rig("deploy")
    box.host.run(f"{IMAGE}\ndocker import /root/image.tar own && podman import -q /root/image.tar own")
    first, second = box.host.run("nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
    # machines of tests have no controllers of version 2
    for engine in ("docker run --rm --network none", "podman run --rm --network none --pids-limit=0"):
        seen = box.host.run(f"{engine} --device nvidia.com/gpu={second} own /bin/ls /dev").split()
        assert {one for one in seen if one.startswith("nvidia")} == DEVICES | {"nvidia1"}, engine
        named = box.host.run(f"{engine} --device nvidia.com/gpu=all own /bin/ls /usr/lib/x86_64-linux-gnu").split()
        assert f"libcuda.so.{OLD[box.system]}" in named, engine
    one = "docker run --rm --network none {} own /bin/ls /dev"
    for given, cards in {
        "--gpus all": {"nvidia0", "nvidia1"},
        f"--gpus device={second}": {"nvidia1"},
        "--runtime nvidia --env NVIDIA_VISIBLE_DEVICES=all": {"nvidia0", "nvidia1"},
        f"--runtime nvidia --env NVIDIA_VISIBLE_DEVICES={first}": {"nvidia0"},
        "--runtime nvidia": set(),
    }.items():
        seen = box.host.run(one.format(given)).split()
        assert {name for name in seen if name.startswith("nvidia")} == (DEVICES | cards if cards else set()), given
    box.host.run("apt-get -q -y --no-install-recommends install docker-compose")
    box.host.run(f"cat > /root/compose.yaml <<'END'\n{COMPOSE}END")
    for service in ("runtime", "reserved"):
        seen = box.host.run(f"docker-compose --file /root/compose.yaml run --rm -T {service} 2>/dev/null").split()
        assert {name for name in seen if name.startswith("nvidia")} == DEVICES | {"nvidia0", "nvidia1"}, service
    box.host.run(f"docker run -d --name own --network none --device nvidia.com/gpu={first} own /bin/sleep 3600")
    box.host.run("systemctl daemon-reload")
    assert "nvidia0" in box.host.run("docker exec own /bin/ls /dev").split()
    assert box.red_checks() == set()
    # a change that needs a restart is refused while an operator's container runs, and the daemon gets every other one
    box.declare_containers(engines=("docker", "podman"), daemon={"log-driver": "local"})
    assert "own are running" in box.run_rig("deploy", status=1)
    box.declare_containers(**{**BOTH, "daemon": {"log-driver": "journald", "debug": True}})
    box.run_rig("deploy")
    assert box.docker_info("Debug") == "true"
    assert "nvidia0" in box.host.run("docker exec own /bin/ls /dev").split()
    box.declare_containers(engines=("docker", "podman"), daemon={"log-driver": "local"}, restart=True)
    box.run_rig("deploy")
    assert box.docker_info("LoggingDriver") == "local"
    assert box.host.run("docker ps -q") == ""
    box.assert_unchanged()
