"""`rigwright bundle` of a rig that serves from an image."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest

from cli.bundling.collect import Bundler
from cli.resolving.registry import Place
from cli.resolving.web import Unavailable
from lab.oci import File, image
from tests.unit.bundle_world import BundleWorld
from tests.unit.file_server import Handler, status, whole
from tests.unit.image_samples import rows
from tests.unit.registry_server import REPOSITORY, Registry

IMAGE = image({"bin/one": File(b"one", 0o755)}, {"etc/two": File(b"two")}, Env=["A=b"])


@pytest.fixture
def bundler(maker: BundleWorld, monkeypatch: pytest.MonkeyPatch) -> Bundler:
    """Of a box whose rig has an image."""
    found = rows(IMAGE)
    made = Bundler(maker.box.inventory, None, None)
    monkeypatch.setattr(made.registries, "places", lambda source: [Place(maker.files.url, REPOSITORY)])
    monkeypatch.setattr(Bundler, "artefacts", property(lambda self: list(found)))
    made.folder.mkdir(exist_ok=True)
    return made


def brought(bundler: Bundler) -> dict[str, bytes]:
    """File of the bundle -> content, of the image's."""
    made = [bundler._artefact(one) for one in bundler.artefacts]
    return {row.path: (bundler.folder / row.path).read_bytes() for row in made}


@pytest.mark.parametrize("guarded", [False, True])
def test_a_bundle_has_every_blob_of_an_image_and_its_manifest(
    maker: BundleWorld, bundler: Bundler, guarded: bool
) -> None:
    Registry(maker.files, guarded).push(IMAGE, "v0.21.0")
    found = brought(bundler)
    assert {hashlib.sha256(content).hexdigest() for content in found.values()} == IMAGE.blobs.keys()
    assert all(path.startswith("images/") for path in found)
    # the manifest is the lock's own
    assert not [one for one in maker.files.asked if "/manifests/" in one.path]
    before = len(maker.files.asked)
    assert brought(bundler) == found
    assert len(maker.files.asked) == before


def test_a_blob_without_end_does_not_fill_the_disk(maker: BundleWorld, bundler: Bundler) -> None:
    Registry(maker.files).push(IMAGE, "v0.21.0")
    layer = json.loads(IMAGE.manifest)["layers"][0]["digest"]
    written: list[int] = []

    def endless(handler: Handler, start: int) -> None:
        handler.begin(200, 1 << 40)
        with suppress(OSError):
            for _ in range(200):
                handler.wfile.write(b" " * (1 << 20))
                written.append(1)

    maker.files.serve(f"v2/{REPOSITORY}/blobs/{layer}", endless)
    with pytest.raises(Unavailable, match=r"has more than the \d+ bytes that are locked"):
        brought(bundler)
    assert len(written) < 200


@pytest.mark.parametrize("answer", [status(404), whole(b"another")])
def test_a_blob_that_is_not_to_be_had_is_named(maker: BundleWorld, bundler: Bundler, answer: Any) -> None:
    Registry(maker.files).push(IMAGE, "v0.21.0")
    layer = json.loads(IMAGE.manifest)["layers"][0]["digest"]
    maker.files.serve(f"v2/{REPOSITORY}/blobs/{layer}", answer)
    with pytest.raises(Unavailable, match=f"is not available: .*/blobs/{layer}"):
        brought(bundler)
