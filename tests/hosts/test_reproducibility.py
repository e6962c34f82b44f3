"""Two blank hosts from one bundle have the same files, but for a table; two compilations of an engine are equal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.engine_cache import ENGINES
from lab.hosts import HostSpec
from lab.machine_requirements import CACHE
from lab.throwaway_lab import ThrowawayLab
from rigwright.model.installation import FILES, MARKER
from tests.hosts import env_box
from tests.hosts.env_box import EnvironmentServers
from tests.hosts.file_comparison import ComparedFile, collect_files, compare_files, load_permitted
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.host_layers import CompiledEngine
from tests.hosts.support import PORT, deploy, is_serving, isolate_host, red_checks, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
INSTANCES = {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT}}
LISTENERS = {
    "lan": {"address": "0.0.0.0", "port": 8000, "keys": False},
    "office": {"address": "0.0.0.0", "port": 8443, "tls": True, "names": ["llm.example.org"]},
}


@pytest.fixture
def servers(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvironmentServers]:
    """The sources of the environment."""
    lab.up([])  # its network, for the files that are served there
    with env_box.serve_environment(lab, tmp_path_factory.mktemp("channel")) as found:
        yield found


def deploy_blank_host(
    lab: ThrowawayLab, release: str, folder: Path, servers: EnvironmentServers
) -> dict[str, ComparedFile]:
    """All files that a host has written, its deploy and its checks have ended, and it is gone.

    Each host has the name and the address of the one before: both are of the inventory.
    """
    (host,) = lab.up([HostSpec("box", release)])
    try:
        server = {"allow": [f"{lab.gateway}/32"], "size_gb": 1, "receivers": {}}
        inventory = env_box.write_env_inventory(
            folder,
            lab,
            host,
            servers,
            instances=INSTANCES,
            gateway={"listeners": LISTENERS},
            monitoring={"address": host.address, "server": server},
            mirrors={**servers.source.inventory_mirrors, "shelf": [lab.shelf_url]},
            bundle="bundle",
        )
        if not (folder / "bundle").exists():
            done = run_rigwright("bundle", str(inventory), "--system", release)
            assert done.returncode == 0, done.stderr
        isolate_host(host)
        deploy(inventory)
        wait_until(lambda: is_serving(host), "serving")
        assert red_checks(inventory) == set()
        host.kill()
        return collect_files(host.upper_folder)
    finally:
        host.destroy()


def test_two_blank_hosts_from_one_bundle_have_the_same_files(
    lab: ThrowawayLab, release: str, tmp_path: Path, servers: EnvironmentServers
) -> None:
    first, second = (deploy_blank_host(lab, release, tmp_path, servers) for _ in range(2))
    assert compare_files(first, second, load_permitted()) == []


def test_two_compilations_of_an_engine_are_equal(release: str, compiled: CompiledEngine) -> None:
    """Compares the compilation of this run with those of earlier ones, on other hosts at other times."""
    (made,) = Path(compiled.layer, ENGINES).glob("llama.cpp-[0-9]*")
    earlier = [*CACHE.glob(f"{release}-engines-*/{ENGINES}/{made.name}")]
    record = (made / MARKER).read_text()
    others = [one for one in earlier if (one / MARKER).read_text() != record]
    if not others:
        pytest.skip("no earlier compilation of the same engine is kept")
    for other in others:
        assert (other / FILES).read_text() == (made / FILES).read_text()
