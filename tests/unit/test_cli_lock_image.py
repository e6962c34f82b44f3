"""`rigwright lock` of container images, against a registry on the loopback interface."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from click.testing import CliRunner, Result

from cli import main
from cli.lock_resolver import downloads
from cli.lock_resolver.image_registry import ImageResolver, RegistryRepository
from rigwright.problems import Invalid
from rigwright.supply import image_manifest
from rigwright.supply.lock import Artefact, Lock, render_lock
from tests.stand_ins.oci_images import LayerEntry, OCIImage, build_image
from tests.unit import tls_certificates
from tests.unit.file_server import FileServerHandler, LoopbackFileServer, complete_file, error_status, run_file_server
from tests.unit.image_samples import image_rows
from tests.unit.registry_server import REPOSITORY, LoopbackRegistry

CATALOG = f"""
[inputs.served]
kind = "image"
version = "v0.21.0"
sources = ["docker-hub:{REPOSITORY}"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "mirrors": {{"docker-hub": ["{url}/"]}}}}}})
"""
SMALL = build_image({"bin/one": LayerEntry(b"one", 0o755)}, {"bin/two": LayerEntry(b"two")}, Env=["A=b"])


class ImageLockFixture:
    """A box's folder and its registry."""

    def __init__(self, folder: Path, files: LoopbackFileServer) -> None:
        self.folder, self.files = folder, files
        (folder / "catalog").mkdir()
        self.catalog(CATALOG)
        (folder / "rig.py").write_text(INVENTORY.format(url=files.url))

    def catalog(self, text: str) -> None:
        (self.folder / "catalog/mine.toml").write_text(text)

    def lock(self, *options: str) -> Result:
        return CliRunner().invoke(main, ["lock", str(self.folder / "rig.py"), *options])

    def rows(self) -> tuple[Artefact, ...]:
        return Lock.load([self.folder / "locks"]).groups["served"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ImageLockFixture]:
    with run_file_server() as files:
        yield ImageLockFixture(tmp_path, files)


def blobs(rows: tuple[Artefact, ...]) -> dict[str, int]:
    return {row.sha256: row.size for row in rows}


def sizes(one: OCIImage) -> dict[str, int]:
    return {digest: len(content) for digest, content in one.blobs.items()}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("docker", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_an_image_is_locked_by_its_digest_with_every_blob(world, guarded, docker, listed):
    one = build_image({"bin/one": LayerEntry(b"one")}, {"bin/two": LayerEntry(b"two")}, docker=docker)
    other = json.loads(build_image({"bin/one": LayerEntry(b"arm")}).render_index("arm64"))["manifests"][0]
    LoopbackRegistry(world.files, guarded).push_image(
        one, "v0.21.0", one.render_index("amd64", other) if listed else b""
    )
    done = world.lock()
    assert done.exit_code == 0, done.output
    rows = world.rows()
    assert blobs(rows) == sizes(one)
    manifest = image_manifest.manifest_row(rows)
    assert (manifest.sha256, manifest.text) == (one.manifest_digest, one.manifest.decode())
    assert image_manifest.configuration_row(rows).sha256 == json.loads(one.manifest)["config"]["digest"][7:]
    assert {row.kind for row in rows} == {"image"}
    # nothing of its layers is fetched to be locked
    assert not [asked for asked in world.files.asked if "/blobs/" in asked.path]
    assert world.lock("--check").exit_code == 0


def test_a_layer_that_is_there_twice_is_fetched_once(world: ImageLockFixture) -> None:
    layer = {"bin/one": LayerEntry(b"one")}
    one = build_image(layer, layer)
    LoopbackRegistry(world.files).push_image(one, "v0.21.0")
    assert (world.lock().exit_code, len(world.rows())) == (0, 3)


def test_a_locked_image_stays_though_its_tag_moves_and_check_says_so(world: ImageLockFixture) -> None:
    registry = LoopbackRegistry(world.files)
    registry.push_image(SMALL, "v0.21.0")
    assert world.lock().exit_code == 0
    moved = build_image({"bin/one": LayerEntry(b"another")})
    registry.push_image(moved, "v0.21.0")
    before = world.rows()
    assert (world.lock().output.splitlines()[0], world.rows()) == ("no change", before)
    looked = world.lock("--check")
    assert looked.exit_code == 1
    assert f"served: the tag v0.21.0 is sha256:{moved.manifest_digest} now, and another is locked" in looked.output
    assert world.lock("--refresh").exit_code == 0
    assert blobs(world.rows()) == sizes(moved)


def test_an_image_that_is_gone_upstream_is_reported(world: ImageLockFixture) -> None:
    LoopbackRegistry(world.files).push_image(SMALL, "v0.21.0")
    assert world.lock().exit_code == 0
    world.files.serve(f"v2/{REPOSITORY}/manifests/v0.21.0", error_status(404))
    looked = world.lock("--check")
    assert (looked.exit_code, "answers 404" in looked.output) == (1, True)
    world.files.serve("v2/", error_status(503))
    assert world.lock("--check").exit_code == 3


def changed(**keys: object) -> bytes:
    return json.dumps({**json.loads(SMALL.manifest), **keys}).encode()


LAYER = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{'0' * 64}", "size": 5}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"<html>", "does not answer with an image document"),
        (b"[" * 100_000, "does not answer with an image document"),
        (b"{}", "answers with something, which is not an image manifest"),
        (changed(mediaType="text/plain"), "answers with text/plain, which is not an image manifest"),
        (changed(layers=[]), "names no layers, or more than 127"),
        (changed(layers=[LAYER] * 128), "names no layers, or more than 127"),
        (changed(layers=[{**LAYER, "mediaType": "application/x-foreign"}]), "of type application/x-foreign"),
        (changed(layers=[{**LAYER, "digest": "md5:0"}]), "has a layer without SHA-256 or size"),
        (changed(layers=[{**LAYER, "size": -1}]), "has a layer without SHA-256 or size"),
        (changed(config=None), "names no configuration"),
        (changed(layers=[{**LAYER, "urls": ["http://169.254.169.254/x"]}]), "names its own URLs for a layer"),
        (changed(layers=[LAYER, {**LAYER, "size": 6}]), "lists one blob twice, with different roles"),
        (changed(layers=[{**LAYER, "size": 10**400}]), "has a layer without SHA-256 or size"),
        (SMALL.manifest.decode().encode("utf-16"), "does not answer with an image document"),
        (b'{"mediaType": "\xed\xa0\x80"}', "does not answer with an image document"),
        (build_image({"a": LayerEntry(b"a")}).render_index("arm64"), "has no image for Linux on x86_64"),
        (changed(more="x" * (4 << 20)), "answers with more than 4 MiB"),
    ],
)
def test_an_invalid_image_is_refused_in_one_sentence(world: ImageLockFixture, content: bytes, text: str) -> None:
    world.files.serve("v2/", complete_file(b"{}"))
    world.files.serve(f"v2/{REPOSITORY}/manifests/v0.21.0", complete_file(content))
    done = world.lock()
    assert done.exit_code == 1
    assert text in done.output
    assert not (world.folder / "locks").exists()


@pytest.mark.parametrize("path", ["v2/", "token"])
def test_an_answer_without_end_is_not_read_to_its_end(world: ImageLockFixture, path: str) -> None:
    LoopbackRegistry(world.files, guarded=True).push_image(SMALL, "v0.21.0")
    place = next(one for one in world.files.answers if one.startswith(path))
    left = Event()

    def endless(handler: FileServerHandler, start: int) -> None:
        handler.send_head(200, 1 << 40)
        try:
            for _ in range(200):
                handler.wfile.write(b" " * (1 << 20))
        except OSError:
            left.set()

    world.files.serve(place, endless)
    assert world.lock().exit_code == 1
    assert left.wait(10)


def test_a_token_is_asked_for_anew_once_it_is_no_longer_fresh(world, monkeypatch):
    LoopbackRegistry(world.files, guarded=True).push_image(SMALL, "v0.21.0")
    registries = ImageResolver(
        downloads.open_session(), lambda source: [RegistryRepository(world.files.url, REPOSITORY)]
    )
    (place,) = registries.places("lan:x")
    row = image_rows(SMALL)[0]
    now = 1000.0
    monkeypatch.setattr("cli.lock_resolver.image_registry.monotonic", lambda: now)
    for seconds in (0, 40, 40, 40):
        now += seconds
        registries.blob_address(row, place)
    assert len([one for one in world.files.asked if one.path.startswith("token")]) == 2


def test_a_manifest_that_is_another_than_its_index_names_is_refused(world: ImageLockFixture) -> None:
    LoopbackRegistry(world.files).push_image(SMALL, "v0.21.0", SMALL.render_index())
    world.files.serve(
        f"v2/{REPOSITORY}/manifests/sha256:{SMALL.manifest_digest}",
        complete_file(build_image({"a": LayerEntry(b"a")}).manifest),
    )
    assert "another manifest than its index names" in world.lock().output


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('sources = ["index:vllm"]', "REGISTRY:REPOSITORY"),
        ('sources = ["docker-hub:Up/Case"]', "REGISTRY:REPOSITORY"),
        ('sources = ["docker-hub:a/b"]\nrequirements = ["x"]', "its tag, and sources"),
    ],
)
def test_an_input_that_is_no_image_is_refused(world: ImageLockFixture, line: str, text: str) -> None:
    world.catalog(f'[inputs.served]\nkind = "image"\nversion = "v1"\n{line}\n')
    done = world.lock()
    assert done.exit_code != 0
    assert text in done.output


@pytest.mark.parametrize("row", ["config", "layer"])
def test_a_lock_without_one_of_the_blobs_is_no_answer(world: ImageLockFixture, row: str) -> None:
    LoopbackRegistry(world.files).push_image(SMALL, "v0.21.0")
    assert world.lock().exit_code == 0
    left = [one for one in world.rows() if one.name != row]
    (world.folder / "locks/mine.lock.toml").write_text(render_lock(left, "catalog/mine.toml"))
    assert "served is locked with other blobs than its manifest lists" in world.lock("--check").output


def test_a_manifest_in_a_lock_is_the_one_of_its_digest(world: ImageLockFixture) -> None:
    LoopbackRegistry(world.files).push_image(SMALL, "v0.21.0")
    assert world.lock().exit_code == 0
    manifest = image_manifest.manifest_row(world.rows())
    with pytest.raises((Invalid, ValueError), match="one of them was changed"):
        Artefact.model_validate({**manifest.model_dump(), "text": f" {manifest.text}"})
    with pytest.raises((Invalid, ValueError), match="image manifests have it"):
        Artefact.model_validate({**manifest.model_dump(), "text": None})


def test_a_registry_that_asks_for_a_login_is_locked_from_with_it(tmp_path, monkeypatch):
    login = base64.b64encode(b"robot:password-0123").decode()
    for name, value in tls_certificates.trusting_environment().items():
        monkeypatch.setenv(name, value)
    with run_file_server(certificate=tls_certificates.server_certificate()) as files:
        world = ImageLockFixture(tmp_path, files)
        LoopbackRegistry(files, guarded=True, login=login).push_image(SMALL, "v0.21.0")
        assert "answers 401" in world.lock().output
        with_login = INVENTORY.replace(
            '"mirrors"', '"registries": {{"docker-hub": {{"login_file": "login"}}}}, "mirrors"'
        )
        (tmp_path / "rig.py").write_text(with_login.format(url=files.url))
        (tmp_path / "login").write_text(login)
        done = world.lock()
        assert done.exit_code == 0, done.output
        assert blobs(world.rows()) == sizes(SMALL)
        shown = {one.path.partition("?")[0] for one in files.asked if one.authorization == f"Basic {login}"}
        assert shown == {"token"}
