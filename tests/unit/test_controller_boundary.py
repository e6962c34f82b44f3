"""The controller's requests while it locks: public addresses, and the origins that its operator names."""

from collections.abc import Iterator

import pytest

from tests.unit.file_server import LoopbackFileServer, complete_file, redirect_to, run_file_server
from tests.unit.lock_world import INVENTORY, LockFixture

CATALOG = """
[inputs.small]
kind = "weight"
version = "2026-11"
sources = ["{source}"]
"""


@pytest.fixture
def inner() -> Iterator[LoopbackFileServer]:
    """A service of the controller itself, which no inventory names."""
    with run_file_server() as server:
        server.serve("health", complete_file(b"secret state of this machine"))
        yield server


def lock_error(world: LockFixture) -> str:
    done = world.run_lock()
    assert done.exit_code == 1, done.output
    assert world.lock_text == ""
    return " ".join(done.output.split())


def test_a_mirror_does_not_send_the_controller_to_itself(world: LockFixture, inner: LoopbackFileServer) -> None:
    world.write_catalog(CATALOG.format(source="store:small.gguf"))
    world.files.serve("store/small.gguf", redirect_to(f"{inner.url}/health"))
    said = lock_error(world)
    assert inner.asked == []
    assert "leads to 127.0.0.1, at an address that is not public" in said
    assert f'to allow that, add it to the box\'s entry of the inventory: "redirects": ["{inner.url}"]' in said
    assert "secret" not in said


@pytest.mark.parametrize("place", ["inner", "http://localhost:{port}", "http://169.254.169.254"])
def test_an_address_in_a_catalogue_does_not_lead_into_the_controllers_network(world, inner, place):
    base = inner.url if place == "inner" else place.format(port=inner.url.rpartition(":")[2])
    world.write_catalog(CATALOG.format(source=f"{base}/health"))
    assert "at an address that is not public" in lock_error(world)
    assert inner.asked == []


def test_an_origin_that_the_operator_names_is_asked(world: LockFixture, inner: LoopbackFileServer) -> None:
    world.write_catalog(CATALOG.format(source=f"{inner.url}/health"))
    text = INVENTORY.format(url=world.files.url)
    (world.folder / "rig.py").write_text(text.replace('"mirrors"', f'"redirects": ["{inner.url}"], "mirrors"'))
    assert world.run_lock().exit_code == 0
    assert "health" in [one.path for one in inner.asked]
