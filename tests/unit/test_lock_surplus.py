"""Rows of a lock beyond what an input asks for: refused while the inventory loads."""

import hashlib
import json

import pytest

from rigwright.model.lock_coverage import describe_mismatch, describe_uncovered
from rigwright.supply import image_manifest
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.lock_inputs import Input, provisional_lock

COMMIT = "0123456789abcdef" * 2 + "01234567"
WEIGHTS = Input.model_validate(
    {
        "kind": "weight",
        "repository": "owner/model",
        "version": COMMIT,
        "include": ["*.safetensors", "config.json", "tokenizer/"],
        "exclude": ["original/*"],
    }
)


def weight(path: str) -> Artefact:
    folder, _, file = path.rpartition("/")
    return Artefact(
        kind="weight",
        name=file,
        version=COMMIT,
        group="model",
        repository="owner/model",
        selection=WEIGHTS.selection,
        folder=folder or None,
        file=file,
        sha256=hashlib.sha256(path.encode()).hexdigest(),
        size=5,
        sources=("hub:owner/model",),
    )


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("config.json", True),
        ("tokenizer/vocab.json", True),
        ("original/model.safetensors", False),
        ("pytorch_model.bin", False),
        ("modeling_evil.py", False),
    ],
)
def test_a_file_that_the_patterns_do_not_select_is_refused(path: str, selected: bool) -> None:
    wrong = describe_mismatch(
        WEIGHTS, [weight("config.json"), weight(path)] if path != "config.json" else [weight(path)]
    )
    assert (wrong == "") is selected
    assert selected or path in wrong


def blob(kind: str, content: str) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(content.encode()).hexdigest()}", "size": 9}


IMAGE = Input.model_validate({"kind": "image", "version": "1", "sources": ["docker-hub:owner/image"]})
MANIFEST = {
    "mediaType": image_manifest.MANIFESTS[0],
    "config": blob(image_manifest.CONFIGURATIONS[0], "config"),
    "layers": [blob(next(iter(image_manifest.LAYERS)), "layer")],
}


@pytest.mark.parametrize("asked", [True, False], ids=["with input", "without input"])
def test_a_layer_that_the_manifest_does_not_list_is_refused(asked: bool) -> None:
    rows = image_manifest.image_rows("served", IMAGE, json.dumps(MANIFEST).encode())
    extra = rows[-1].model_copy(update={"sha256": "f" * 64, "file": f"layer-{'f' * 16}.tar"})
    inputs = {"served": IMAGE} if asked else {}
    for surplus in ((), (extra,)):
        lock = Lock({}, {"served": (*rows, *surplus)})
        wrong = describe_uncovered("served", "image", inputs, lock, "rig.py")
        assert ("is locked with other blobs than its manifest lists" in wrong) is bool(surplus)


def test_an_image_that_is_only_being_locked_lacks_nothing() -> None:
    assert describe_uncovered("served", "image", {}, provisional_lock({"served": IMAGE}), "rig.py") == ""
