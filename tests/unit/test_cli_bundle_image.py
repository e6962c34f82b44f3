"""`rigwright bundle` of a rig that serves from an image."""

import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest

from cli.bundle_builder import BundleBuilder
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.image_registry import RegistryRepository
from tests.stand_ins.oci_images import LayerEntry, build_image
from tests.unit.bundle_world import BundleFixture
from tests.unit.file_server import FileServerHandler, complete_file, error_status
from tests.unit.image_samples import image_rows
from tests.unit.registry_server import REPOSITORY, LoopbackRegistry

IMAGE = build_image({"bin/one": LayerEntry(b"one", 0o755)}, {"etc/two": LayerEntry(b"two")}, Env=["A=b"])


@pytest.fixture
def bundler(maker: BundleFixture, monkeypatch: pytest.MonkeyPatch) -> BundleBuilder:
    """Of a box whose rig has an image."""
    found = image_rows(IMAGE)
    made = BundleBuilder(maker.box.inventory, None, None)
    monkeypatch.setattr(made.registries, "places", lambda source: [RegistryRepository(maker.files.url, REPOSITORY)])
    monkeypatch.setattr(BundleBuilder, "locked_artefacts", property(lambda self: list(found)))
    made.folder.mkdir(exist_ok=True)
    return made


def image_files(bundler: BundleBuilder) -> dict[str, bytes]:
    """File of the bundle -> content, of the image's."""
    made = [bundler._add_artefact(one) for one in bundler.locked_artefacts]
    return {row.path: (bundler.folder / row.path).read_bytes() for row in made}


@pytest.mark.parametrize("guarded", [False, True])
def test_a_bundle_has_every_blob_of_an_image_and_its_manifest(maker, bundler, guarded):
    LoopbackRegistry(maker.files, guarded).push_image(IMAGE, "v0.21.0")
    found = image_files(bundler)
    assert {hashlib.sha256(content).hexdigest() for content in found.values()} == IMAGE.blobs.keys()
    assert all(path.startswith("images/") for path in found)
    # the manifest is the lock's own
    assert not [one for one in maker.files.asked if "/manifests/" in one.path]
    before = len(maker.files.asked)
    assert (image_files(bundler), len(maker.files.asked)) == (found, before)


def test_a_blob_without_end_does_not_fill_the_disk(maker: BundleFixture, bundler: BundleBuilder) -> None:
    LoopbackRegistry(maker.files).push_image(IMAGE, "v0.21.0")
    layer = json.loads(IMAGE.manifest)["layers"][0]["digest"]
    written: list[int] = []

    def endless(handler: FileServerHandler, start: int) -> None:
        handler.send_head(200, 1 << 40)
        with suppress(OSError):
            for _ in range(200):
                handler.wfile.write(b" " * (1 << 20))
                written.append(1)

    maker.files.serve(f"v2/{REPOSITORY}/blobs/{layer}", endless)
    with pytest.raises(DownloadUnavailable, match=r"has more than the \d+ bytes that are locked"):
        image_files(bundler)
    assert len(written) < 200


@pytest.mark.parametrize("answer", [error_status(404), complete_file(b"another")])
def test_a_blob_that_is_not_to_be_had_is_named(maker: BundleFixture, bundler: BundleBuilder, answer: Any) -> None:
    LoopbackRegistry(maker.files).push_image(IMAGE, "v0.21.0")
    layer = json.loads(IMAGE.manifest)["layers"][0]["digest"]
    maker.files.serve(f"v2/{REPOSITORY}/blobs/{layer}", answer)
    with pytest.raises(DownloadUnavailable, match=f"is not available: .*/blobs/{layer}"):
        image_files(bundler)
