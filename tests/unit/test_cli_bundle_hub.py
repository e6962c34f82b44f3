"""`rigwright bundle` for rigs whose weights are the hub's."""

import hashlib
import json
from collections.abc import Iterator

import pytest
from huggingface_hub import close_session, constants

from rigwright.supply.lock_inputs import Input
from tests.lock_files import render_sealed_lock
from tests.stand_ins.hub import StandInHub
from tests.unit import tls_certificates
from tests.unit.bundle_world import BundleFixture
from tests.unit.sample_texts import CATALOG

TOKEN = "hf_" + "t" * 34
WEIGHTS = {"q4/model.gguf": b"4" * 20_000, "q8/model.gguf": b"8" * 30_000}
INPUT = """
[inputs.small]
kind = "weight"
repository = "org/name"
"""
MODEL = '[models.small]\nfile = "small"'


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with StandInHub() as made:
        yield made


def lock_hub_model(maker: BundleFixture, hub: StandInHub, token: str | None = None) -> str:
    """A model of the hub's in place of the box's, with a draft of the same name beside it; gives the commit."""
    commit = hub.add_commit("org/name", WEIGHTS, gated=bool(token), token=token)
    model = '[models.small]\nfile = "small:q4/model.gguf"\ndraft = "small:q8/model.gguf"'
    assert MODEL in CATALOG
    maker.box.write("catalog/box.toml", CATALOG.replace(MODEL, model) + INPUT)
    lock = (maker.box.folder / "locks" / "box.lock.toml").read_text()
    kept = [part for part in lock.split("\n[[artefact]]\n")[1:] if 'kind = "weight"' not in part]
    asked = Input.model_validate({"kind": "weight", "repository": "org/name"})
    for path, content in WEIGHTS.items():
        folder, _, file = path.rpartition("/")
        values = {"kind": "weight", "name": "small", "version": commit, "group": "small", "repository": "org/name"}
        values |= {"folder": folder, "selection": asked.selection, "file": file}
        values |= {"sha256": hashlib.sha256(content).hexdigest()}
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        kept.append("\n".join([*lines, f"size = {len(content)}", 'sources = ["hub:org/name"]']))
    maker.box.write("locks/box.lock.toml", render_sealed_lock(*(f"\n[[artefact]]\n{part}\n" for part in kept)))
    return commit


def mirror_hub(maker: BundleFixture, hub: StandInHub, **changes: object) -> None:
    maker.write_inventory("good", mirrors={"hub": [hub.url], "apt": [f"{maker.files.url}/archive/debian"]}, **changes)


def test_files_of_one_name_lie_in_folders_of_their_own(maker: BundleFixture, hub: StandInHub) -> None:
    commit = lock_hub_model(maker, hub)
    mirror_hub(maker, hub)
    expected = {f"weights/org/name/{commit}/{path}" for path in WEIGHTS}
    for _ in range(2):
        assert {row.path for row in maker.make_bundle().rows if row.path.startswith("weights/")} == expected
        assert hub.sent_bytes == sum(map(len, WEIGHTS.values()))


def test_without_a_mirror_the_clients_own_hub_is_meant(maker, hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    lock_hub_model(maker, hub)
    maker.make_bundle()


def test_the_token_opens_a_gated_repository_and_goes_nowhere_else(maker, monkeypatch):
    for name, value in tls_certificates.trusting_environment().items():
        monkeypatch.setenv(name, value)
    close_session()  # the client keeps the authorities that it was first given
    with StandInHub(certificate=tls_certificates.server_certificate()) as hub:
        lock_hub_model(maker, hub, TOKEN)
        maker.box.write("token", TOKEN)
        mirror_hub(maker, hub, hub_token_file="token", hub_token_origin=hub.url)
        maker.make_bundle()
    close_session()
    assert all(one.authorised != one.path.startswith("/cdn/") for one in hub.asked)


def test_without_a_token_it_is_asked_for(maker: BundleFixture, hub: StandInHub) -> None:
    lock_hub_model(maker, hub, TOKEN)
    mirror_hub(maker, hub)
    lines = [line for line in maker.error_lines() if "small" in line]
    assert len(lines) == len(WEIGHTS)
    assert all("org/name is gated: request access on its page, and provide your token with " in line for line in lines)


def test_a_checkpoints_folder_gives_files_by_their_paths(maker: BundleFixture, hub: StandInHub) -> None:
    lock_hub_model(maker, hub)
    mirror_hub(maker, hub)
    given = maker.box.folder / "given"
    for path, content in WEIGHTS.items():
        (given / path).parent.mkdir(parents=True)
        (given / path).write_bytes(content)
    maker.make_bundle("--from-dir", str(given))
    assert not hub.asked
