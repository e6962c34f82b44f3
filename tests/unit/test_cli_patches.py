"""`rigwright show patches`: the patches of engines, from only the inventory and its neighbours."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli import main
from rigwright.project_root import ROOT
from rigwright.supply.lock import render_lock
from tests.unit.env_samples import conda_row
from tests.unit.patch_samples import AFTER, text_sha256, write_patch
from tests.unit.samples import sample_wheel

CATALOG = """
[envs.small]
python = "py"
packages = "pk"
distribution = "demo"
imports = ["demo"]
patches = ["louder"]
"""
PACKAGES = """
[inputs.pk]
kind = "wheel"
python = "3.10.20"
requirements = ["demo"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "envs": ["small"]}})
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    for name in ("catalog", "locks"):
        (tmp_path / name).mkdir()
    (tmp_path / "catalog/mine.toml").write_text(CATALOG)
    rows = [conda_row(), sample_wheel("demo", version="1.0", group="pk")]
    (tmp_path / "locks/mine.lock.toml").write_text(render_lock(rows, "catalog/mine.toml"))
    (tmp_path / "rig.py").write_text(INVENTORY)
    write_patch(tmp_path / "patches/louder")
    write_patch(tmp_path / "patches/other", verdict="impossible", diff=None, targets=[])
    return tmp_path


def run_patches(box: Path, verb: str, *options: str) -> Result:
    return CliRunner().invoke(main, [*verb.split(), str(box / "rig.py"), *options])


def test_patches_of_each_engine_with_reason_and_end(box: Path) -> None:
    done = run_patches(box, "show patches")
    assert done.exit_code == 0, done.output
    _, row = done.stdout.splitlines()
    assert row.split() == ["box", "small", "louder", "demo", "1.0", "needed", "demo", "2.0", "to", "be", "heard"]
    (found,) = json.loads(run_patches(box, "show patches", "--json").stdout)
    assert found["files"] == {"demo/words.py": text_sha256(AFTER)}


def test_all_there_are(box: Path) -> None:
    found = {row["patch"]: row for row in json.loads(run_patches(box, "show patches", "--all", "--json").stdout)}
    assert found["louder"]["engine"] == "small"
    assert (found["other"]["engine"], found["other"]["verdict"]) == ("", "impossible")


def test_a_patch_of_another_rig_is_not_called_unused(box: Path) -> None:
    more = INVENTORY.replace('{"box":', '{"plain": {"ssh_hostname": "192.0.2.7"}, "box":')
    (box / "rig.py").write_text(more)
    said = run_patches(box, "show patches", "--all", "--limit", "plain", "--json").stdout
    assert "louder" not in {row["patch"] for row in json.loads(said)}


def test_no_lock_is_needed_for_what_the_catalogue_says(box: Path) -> None:
    (box / "catalog/mine.toml").write_text(PACKAGES + CATALOG)
    (box / "locks/mine.lock.toml").write_text(render_lock([conda_row()], "catalog/mine.toml"))
    done = run_patches(box, "show patches", "--all", "--json")
    assert done.exit_code == 0, done.output
    assert {row["patch"] for row in json.loads(done.stdout)} >= {"louder", "other"}
    assert "some inputs are not locked" in done.stderr
    # its other problems are reported, as with a lock
    (box / "catalog/mine.toml").write_text(PACKAGES + CATALOG.replace('"louder"', '"lauder"'))
    done = run_patches(box, "show patches")
    assert (done.exit_code, 'there is no patch "lauder"' in done.output) == (2, True)


@pytest.mark.parametrize("name", ["rig3090", "rig2080ti", "rig5090"])
def test_a_shipped_inventory_says_what_it_carries(name: str) -> None:
    done = CliRunner().invoke(main, ["show", "patches", "--all", str(ROOT / f"inventory/{name}.py")])
    assert done.exit_code == 0, done.output
    assert "mamba-prefix-cache-mtp" in done.stdout


def test_none(box: Path) -> None:
    (box / "catalog/mine.toml").write_text(CATALOG.replace('["louder"]', "[]"))
    assert run_patches(box, "show patches").stdout == "no patches\n"


@pytest.mark.parametrize("verb", ["show patches", "validate"])
def test_an_inventory_says_all_that_is_wrong_with_its_patches(box: Path, verb: str) -> None:
    (box / "catalog/mine.toml").write_text(CATALOG.replace('["louder"]', '["lauder", "other", "louder", "more"]'))
    write_patch(box / "patches/more", versions=["1.0", "1.1"])
    said = run_patches(box, verb).output.splitlines()
    assert [line.partition("small: ")[2].partition("; allowed")[0] for line in said] == [
        "patch other cannot be with demo 1.0: to be heard",
        "patches louder and more both change demo/words.py: merge them into one",
        'there is no patch "lauder"; did you mean "louder"?',
    ]


def test_a_patch_that_cannot_be_read_is_reported_with_everything_else(box: Path) -> None:
    write_patch(box / "patches/louder", files={"change.diff": "no diff\n"})
    write_patch(box / "patches/other", purpose=None)
    said = run_patches(box, "validate").output
    assert said.count("patch.toml: ") == 2
