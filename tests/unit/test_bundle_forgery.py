"""A bundle brings nothing but what is locked: by its index, by its bytes, and whatever its index says of them."""

import json

import pytest

from rigwright.inventory import load_rig
from rigwright.model.rig import Rig, locked_artefacts
from rigwright.supply.bundle import AGAIN, INDEX, LocalFile
from rigwright.supply.lock import Artefact
from rigwright.validated_types import LARGEST_NUMBER
from tests import forged_bundles
from tests.unit.bundle_world import SOURCE, WEIGHT, WHEEL, BundleFixture
from tests.unit.samples import chat_instances, sample_entry

EACH = pytest.mark.parametrize("path", [SOURCE, WHEEL, WEIGHT])


def rig(maker: BundleFixture) -> Rig:
    """The rig, as a deploy reads it."""
    (item,) = maker.box.load_group({"box": sample_entry(bundle="the bundle", mirrors={}, instances=chat_instances())})
    return load_rig(item[1]["rig"])


def find_locked(made: Rig, path: str) -> tuple[Artefact, LocalFile | None]:
    """The lock's row of one of the bundle's files, and the file that would be sent for it."""
    (one,) = {one for one in locked_artefacts(made) if path.endswith(one.file)}
    assert made.bundle
    return one, made.bundle.find(one)


@EACH
def test_other_bytes_with_an_index_that_is_right_about_them_are_lacking(maker: BundleFixture, path: str) -> None:
    maker.make_bundle()
    content = (maker.bundle_folder / path).read_bytes()
    (maker.bundle_folder / path).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    forged_bundles.rewrite_index(maker.bundle_folder)
    made = rig(maker)
    one, found = find_locked(made, path)
    assert found is None
    (fault,) = made.bundle_faults
    assert f"the bundle lacks {one} ({one.file}): {AGAIN}" in str(fault)


@EACH
def test_other_bytes_with_an_index_that_tells_of_the_right_ones_are_not_sent(maker: BundleFixture, path: str) -> None:
    maker.make_bundle()
    content = (maker.bundle_folder / path).read_bytes()
    (maker.bundle_folder / path).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    made = rig(maker)
    assert made.bundle_faults == ()
    one, found = find_locked(made, path)
    assert found
    assert found.sha256 == one.sha256
    assert found.refusal().startswith(f"{maker.bundle_folder / path} has SHA-256 ")


@EACH
def test_a_name_or_place_of_the_bundles_own_is_not_the_hosts(maker: BundleFixture, path: str) -> None:
    maker.make_bundle()
    elsewhere = "weights/elsewhere/authorized_keys"
    (maker.bundle_folder / elsewhere).parent.mkdir(parents=True)
    (maker.bundle_folder / path).rename(maker.bundle_folder / elsewhere)
    index = json.loads((maker.bundle_folder / INDEX).read_text())
    next(row for row in index["files"] if row["path"] == path)["path"] = elsewhere
    (maker.bundle_folder / INDEX).write_text(json.dumps(index))
    forged_bundles.rewrite_index(maker.bundle_folder)
    one, found = find_locked(rig(maker), path)
    assert found
    assert (found.path, found.name, found.sha256) == (maker.bundle_folder / elsewhere, one.file, one.sha256)


@EACH
@pytest.mark.parametrize("size", [0, LARGEST_NUMBER])
def test_a_size_of_the_bundles_own_is_found_out(maker: BundleFixture, path: str, size: int) -> None:
    maker.make_bundle()
    index = json.loads((maker.bundle_folder / INDEX).read_text())
    next(row for row in index["files"] if row["path"] == path)["size"] = size
    forged_bundles.write_index(maker.bundle_folder, index)
    (fault,) = rig(maker).bundle_faults
    real = (maker.bundle_folder / path).stat().st_size
    assert str(fault) == f"{maker.bundle_folder / INDEX}: {path}: has {real} bytes, but {size} are listed: {AGAIN}"
