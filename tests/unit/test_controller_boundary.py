"""What the controller asks while it locks: public addresses, and the origins that its operator names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.file_server import FileServer, file_server, redirect, whole
from tests.unit.lock_world import INVENTORY, World

CATALOG = """
[inputs.small]
kind = "weight"
version = "2026-11"
sources = ["{source}"]
"""


@pytest.fixture
def inner() -> Iterator[FileServer]:
    """A service of the controller itself, which no inventory names."""
    with file_server() as server:
        server.serve("health", whole(b"secret state of this machine"))
        yield server


def refused(world: World) -> str:
    done = world.lock()
    assert done.exit_code == 1, done.output
    assert world.text == ""
    return " ".join(done.output.split())


def test_a_mirror_does_not_send_the_controller_to_itself(world: World, inner: FileServer) -> None:
    world.catalog(CATALOG.format(source="store:small.gguf"))
    world.files.serve("store/small.gguf", redirect(f"{inner.url}/health"))
    said = refused(world)
    assert inner.asked == []
    assert "leads to 127.0.0.1, at an address that is not public" in said
    assert "name its origin among the inventory's redirects" in said
    assert "secret" not in said


@pytest.mark.parametrize("place", ["inner", "http://localhost:{port}", "http://169.254.169.254"])
def test_an_address_in_a_catalogue_does_not_lead_into_the_controllers_network(
    world: World, inner: FileServer, place: str
) -> None:
    base = inner.url if place == "inner" else place.format(port=inner.url.rpartition(":")[2])
    world.catalog(CATALOG.format(source=f"{base}/health"))
    assert "at an address that is not public" in refused(world)
    assert inner.asked == []


def test_an_origin_that_the_operator_names_is_asked(world: World, inner: FileServer) -> None:
    world.catalog(CATALOG.format(source=f"{inner.url}/health"))
    text = INVENTORY.format(url=world.files.url)
    (world.folder / "rig.py").write_text(text.replace('"mirrors"', f'"redirects": ["{inner.url}"], "mirrors"'))
    assert world.lock().exit_code == 0
    assert "health" in [one.path for one in inner.asked]
