"""An inventory's key `bundle`."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli import main
from cli.inventory_loading import load_hosts
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.declaration.features import FEATURES
from rigwright.declaration.rig_resolution import resolve_rig
from rigwright.inventory import load_for, load_rig
from rigwright.model.inventory_feature import Feature
from rigwright.model.rig import Rig, locked_artefacts
from rigwright.patches.patch import load_patches
from rigwright.project_root import ROOT
from rigwright.supply import bundle
from rigwright.supply.bundle import INDEX, BundleRow
from rigwright.supply.lock import Artefact, Lock
from tests.lock_files import render_sealed_lock
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry


def rig(box: OperatorFolder, **changes: object) -> Rig:
    ((_, data),) = box.load_group({"box": sample_entry(**changes)})
    return load_rig(data["rig"])


def faults(box: OperatorFolder, **changes: object) -> list[str]:
    """The problems of the bundle of a rig that is otherwise sound."""
    return sorted(map(str, rig(box, **changes).bundle_faults))


def write_bundle(box: OperatorFolder, *, weights: bytes = b"weights", rows: int = 99) -> Path:
    """A bundle beside the inventory with what the box's lock has, and the lock for it."""
    folder, found, texts = box.folder / "the bundle", [], []
    contents = {"source": b"source", "weight": weights, "wheel": b"wheel"}
    for kind, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        name = {"source": "engine-source", "weight": "small", "wheel": "scikit-build-core"}[kind]
        files = {"source": f"{name}.bin", "weight": f"{name}.gguf", "wheel": "scikit_build_core-1.0-py3-none-any.whl"}
        file = files[kind]
        row = {"kind": kind, "name": name, "version": "1.0", "file": file, "sha256": digest, "size": len(content)}
        row |= {"group": "tools"} if kind == "wheel" else {}
        lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in row.items()]
        texts.append("\n".join(["[[artefact]]", *lines, 'sources = ["store:x"]', ""]))
        path = f"{kind}s/{file}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        found.append(BundleRow(path=path, sha256=digest, size=len(content)))
    box.write("locks/box.lock.toml", render_sealed_lock(*texts))
    (folder / INDEX).write_text(bundle.render_index("now", ["debian-12"], [], found[:rows]))
    return folder


def test_with_a_bundle_no_mirror_is_needed(box: OperatorFolder) -> None:
    folder = write_bundle(box)
    made = rig(box, bundle="the bundle", mirrors={}, instances=chat_instances())
    assert made.bundle == bundle.load_bundle(folder)
    assert made.bundle_folder == str(folder)
    assert "mirrors: small 1.0 has no address" in "\n".join(box.refusal_lines(mirrors={}, instances=chat_instances()))


def test_without_one_nothing_is_bundled(box: OperatorFolder) -> None:
    made = rig(box)
    assert (made.bundle, made.bundle_folder) == (None, None)


def test_a_bundle_is_found_from_the_inventory_from_home_and_from_the_root(box, monkeypatch):
    folder = write_bundle(box)
    monkeypatch.setenv("HOME", str(box.folder))
    for name in ("the bundle", "./the bundle/", "~/the bundle", str(folder)):
        assert rig(box, bundle=name, instances=chat_instances()).bundle is not None
    (line,) = faults(box, bundle="~nobody-at-all/bundle", instances=chat_instances())
    assert "No such file or directory: recreate it with `rigwright bundle`" in line


@pytest.mark.parametrize("value", ["", 5, [], True, {"folder": "x"}])
def test_a_bundle_that_is_no_folders_name_is_refused(box: OperatorFolder, value: object) -> None:
    (line,) = box.refusal_lines(bundle=value)
    assert line.startswith(f"{box.inventory}: box.bundle: ")


def test_a_bundle_that_is_not_there_is_a_fault_with_what_to_do(box: OperatorFolder) -> None:
    (line,) = faults(box, bundle="offline", instances=chat_instances())
    said = "the bundle: No such file or directory: recreate it with `rigwright bundle`"
    assert line == f"{box.folder}/offline/{INDEX}: {said}"


def test_everything_that_a_bundle_lacks_is_named(box: OperatorFolder) -> None:
    folder = write_bundle(box, rows=0)
    lines = faults(box, bundle="the bundle", instances=chat_instances())
    assert lines == [
        f"{box.inventory}: box.bundle: {folder} lacks {name}: recreate it with `rigwright bundle`"
        for name in (
            "engine-source 1.0 (engine-source.bin)",
            "scikit-build-core 1.0 (scikit_build_core-1.0-py3-none-any.whl)",
            "small 1.0 (small.gguf)",
        )
    ]


def test_a_bundle_made_for_another_lock_has_faults(box: OperatorFolder) -> None:
    write_bundle(box)
    text = (box.folder / "the bundle" / INDEX).read_text()
    write_bundle(box, weights=b"newer")
    (box.folder / "the bundle" / INDEX).write_text(text)
    (line,) = faults(box, bundle="the bundle", instances=chat_instances())
    assert "small.gguf: has 5 bytes, but 7 are listed" in line.replace("weights/", "")
    (box.folder / "the bundle/weights/small.gguf").write_bytes(b"weights")
    (line,) = faults(box, bundle="the bundle", instances=chat_instances())
    assert "the bundle lacks small 1.0 (small.gguf)" in line


def test_a_rig_whose_bundle_is_away_never_falls_back_to_the_network(box: OperatorFolder) -> None:
    made = rig(box, bundle="offline", mirrors={}, instances=chat_instances())
    assert (made.bundle, made.bundle_folder) == (None, str(box.folder / "offline"))
    assert made.bundle_faults


def test_a_bundle_that_is_away_stands_in_the_way_of_validating_and_of_a_deploy_alone(box: OperatorFolder) -> None:
    declared = sample_entry(bundle="offline", instances=chat_instances())
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {declared!r}}})\n")
    for verb in (["validate"], ["deploy"], ["deploy", "--dry"]):
        done = CliRunner().invoke(main, [verb[0], str(box.inventory), *verb[1:]])
        assert (done.exit_code, "recreate it" in done.output) == (2, True), done.output
    load_hosts(str(box.inventory), None)  # the first step of rollback, remove, status, logs and generations


def test_while_a_bundle_is_made_it_need_not_be_there_and_nothing_need_be_reached(box: OperatorFolder) -> None:
    with load_for("bundle"):
        made = rig(box, bundle="offline", mirrors={}, instances=chat_instances())
    assert (made.bundle, made.bundle_folder) == (None, str(box.folder / "offline"))
    with load_for("bundle"):
        assert rig(box, mirrors={}, instances=chat_instances()).bundle is None
        # names are still names
        assert "no variant" in box.refusal_lines(instances=chat_instances(variant="llamacpp/cpo"))[0]


def test_while_a_lock_is_made_a_bundle_need_not_be_there_but_mirrors_must(box: OperatorFolder) -> None:
    with load_for("lock"):
        assert rig(box, bundle="offline", instances=chat_instances()).bundle is None
        assert "has no address" in box.refusal_lines(mirrors={}, instances=chat_instances())[0]
    # afterwards everything counts again
    assert len(faults(box, bundle="offline", instances=chat_instances())) == 1


def test_one_mistake_ends_what_is_made_all_the_same(box: OperatorFolder) -> None:
    with pytest.raises(SystemExit), load_for("bundle"):
        box.load_group({"box": sample_entry(keep_generations=0)})
    assert "offline" in faults(box, bundle="offline", instances=chat_instances())[0]


def _rows(lock: Lock) -> list[Any]:
    return [*lock.artefacts.values(), *lock.groups["tools"]]


def test_files_in_a_bundle_go_by_their_hash_with_any_name(box: OperatorFolder) -> None:
    found = bundle.load_bundle(write_bundle(box))
    lock = Lock.load([box.folder / "locks"])
    assert [file.name for file in found.files(_rows(lock))] == [row.file for row in _rows(lock)]


def test_a_bundle_collects_everything_that_a_rig_needs_of_it(box: OperatorFolder) -> None:
    needed: list[Artefact] = []
    catch = Feature("catch", resolve=lambda draft: needed.extend(draft.artefacts) or {})
    catalog = load_catalog([ROOT / "catalog", box.folder / "catalog"])
    lock = Lock.load([ROOT / "locks", box.folder / "locks"])
    catalog = catalog.model_copy(update={"patches": load_patches([ROOT / "patches"])})
    entry = sample_entry(monitoring={"address": "192.0.2.7"}, bundle="the bundle")
    del entry["ssh_hostname"]
    made = resolve_rig(str(box.inventory), "box", entry, catalog, lock, making="bundle", features=(*FEATURES, catch))
    assert made.gpu_exporter
    assert set(needed) <= set(locked_artefacts(made))
