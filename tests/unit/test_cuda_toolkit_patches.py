"""Patches of the CUDA toolkit in inventories and in `show patches`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.unit.patch_samples import AFTER, text_sha256, write_patch

HEADER = "nvidia/cu13/include/crt/math_functions.h"
INVENTORY = """
from rigwright.inventory import hosts

chat = {"variant": "llamacpp/metal", "cards": [0], "port": 8020}
box = {"ssh_hostname": "127.0.0.1", "cards": ["rtx-3090"], "mirrors": {"shelf": ["http://127.0.0.1/"]}}
rigs = hosts({"box": {**box, "instances": {"chat": chat}}})
"""
INPUT = """
[inputs.NAME]
kind = "wheel"
requirements = ["cuda-toolkit[nvcc,cccl,crt,nvvm,cudart,cublas,curand]==13.0.2", "nvidia-cuda-cuobjdump"]
patches = ["PATCH"]
"""


@pytest.mark.parametrize(
    ("name", "patch_", "found"),
    [
        (
            "cuda",
            "nvcc-rsqrt-glib",
            "box.cuda_root: no cuda_root is set, and the locked toolkit cannot be used: there is no patch",
        ),
        ("cuda", "nvcc-rsqrt-glib", 'did you mean "nvcc-rsqrt-glibc"?'),
        ("cuda", "louder", "patch louder is for nvidia-cuda-crt 13.1.115, but CUDA toolkit has 13.0.88"),
        ("more", "louder", "inputs.more.patches: must be left out: only input cuda has patches"),
        ("cuda", "", "inputs.cuda.patches[0]"),
    ],
)
def test_patches_that_a_toolkit_cannot_have_are_refused_while_the_inventory_loads(tmp_path, name, patch_, found):
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog/mine.toml").write_text(INPUT.replace("NAME", name).replace("PATCH", patch_))
    (tmp_path / "rig.py").write_text(INVENTORY)
    target = {"path": HEADER, "before": "a" * 64, "after": text_sha256(AFTER), "file": "words"}
    head = {"target_distribution": "nvidia-cuda-crt", "versions": ["13.1.115"], "diff": None, "targets": [target]}
    write_patch(tmp_path / "patches/louder", {"words": AFTER}, **head)
    done = CliRunner().invoke(main, ["show", "patches", str(tmp_path / "rig.py")])
    assert done.exit_code != 0
    assert found in " ".join(done.output.split()), done.output


@pytest.mark.parametrize(
    ("of", "path", "refused"),
    [
        ("nvidia-cuda-nvcc", "nvidia/cu13/bin/nvcc", True),
        ("nvidia-cuda-nvcc", "nvidia/cu13/bin/nvcc.profile", True),
        ("nvidia-nvvm", "nvidia/cu13/nvvm/include/nvvm.h", True),
        ("nvidia-cuda-crt", "other/nvidia/cu13/include/crt/new.h", True),
        ("nvidia-cuda-crt", "nvidia/cu13/include/crt/new.h", False),
    ],
)
def test_a_patch_of_the_toolkit_changes_no_program_that_root_runs(tmp_path, of, path, refused):
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog/cuda.toml").write_text(INPUT.replace("NAME", "cuda").replace("PATCH", "fast-nvcc"))
    (tmp_path / "rig.py").write_text(INVENTORY)
    target = {"path": path, "before": "a" * 64, "after": text_sha256(AFTER), "file": "words"}
    versions = [next(one.version for one in Lock.load([ROOT / "locks"]).groups["cuda"] if one.name == of)]
    write_patch(
        tmp_path / "patches/fast-nvcc",
        {"words": AFTER},
        target_distribution=of,
        versions=versions,
        diff=None,
        targets=[target],
    )
    done = CliRunner().invoke(main, ["show", "patches", str(tmp_path / "rig.py")])
    file = f"{tmp_path}/patches/fast-nvcc/patch.toml"
    said = f"{file}: targets.{path}: a patch of the CUDA toolkit may only change files below"
    assert (said in " ".join(done.output.split())) == (done.exit_code == 2) == refused, done.output


def test_the_verb_names_the_shipped_patch_with_its_reason_and_end(tmp_path: Path) -> None:
    (tmp_path / "rig.py").write_text(INVENTORY)
    (row,) = json.loads(CliRunner().invoke(main, ["show", "patches", str(tmp_path / "rig.py"), "--json"]).stdout)
    assert (row["rig"], row["engine"], row["patch"]) == ("box", "CUDA toolkit", "nvcc-rsqrt-glibc")
    assert "glibc 2.42" in row["why"] and row["until"].startswith("a toolkit of 13.2.2 or later")
