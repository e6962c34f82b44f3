"""Parts of `./rig test gpu` that need no card."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import base_images, gpu_passthrough, requirements, tiny_model
from rigwright.paths import ROOT
from tests.gpu import gpu_machine
from tests.gpu.gpu_machine import check_here
from tests.gpu.gpu_requirements import missing_requirements
from tests.unit.rendered_scripts import write_stand_in

SMI = "echo '00000000:01:00.0, 0x233510DE, 9.0, 143771, NVIDIA H200'"


def test_checks_of_this_machine_itself_come_to_verdicts(tmp_path: Path) -> None:
    write_stand_in(tmp_path, "nvidia-smi", SMI)
    done = check_here(
        *("--only", "N02,N03", str(ROOT / "checks/test_nvidia_driver.py")), path=f"{tmp_path}:{os.environ['PATH']}"
    )
    found = re.findall(r"^ *(ok|FAIL|skip) +local +(N[0-9]{2}) ", done.stdout, re.MULTILINE)
    assert {name for _, name in found} == {"N02", "N03"}, done.stdout + done.stderr


def test_all_that_a_bare_machine_lacks_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_passthrough, "CUDA_ROOT", tmp_path / "cuda")
    monkeypatch.setattr(gpu_passthrough, "DEVICES", tmp_path)
    monkeypatch.setattr(requirements, "CGROUP_MOUNT", tmp_path)
    monkeypatch.setattr(requirements, "KEYRING", tmp_path / "keys")
    monkeypatch.setattr(base_images, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    lacks = "\n".join(missing_requirements("debian-12", tmp_path))
    for words in ("no NVIDIA card", "nvidia-smi is not on", "no CUDA toolkit", "no writable cgroup hierarchy"):
        assert words in lacks
    packages = [*sorted({*requirements.PROGRAMS.values()}), "debian-archive-keyring"]
    assert f"missing {', '.join(packages)}\n" in lacks
    assert re.findall("no base image .*/(debian-[0-9]+)-", lacks) == ["debian-12", "debian-13"]
    assert f"{tmp_path} is no bundle" in lacks


def test_a_bundle_that_has_come_without_its_model_gets_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_model, "HEAVY", tiny_model.TINY)
    files = [{"path": f"weights/x/{gpu_machine.MODEL}"}, {"path": "sources/other.gguf"}]
    (tmp_path / "bundle.json").write_text(json.dumps({"files": files}))
    gpu_machine.add_model(tmp_path)
    (made,) = (path for path in tmp_path.rglob("*.gguf"))
    assert made == tmp_path / "weights/x" / gpu_machine.MODEL
    before = made.stat()
    gpu_machine.add_model(tmp_path)
    assert made.stat() == before


COLLECT = """
import json, pytest
class Names:
    def pytest_collection_finish(self, session):
        print("\\n" + json.dumps({one.nodeid: one.fixturenames for one in session.items}))
pytest.main(["--collect-only", "-q", "tests/gpu"], plugins=[Names()])
"""
# first the deploy of the machine as it was, and then as inventory/metal.py declares it
STATES = {"deployed", "first"}
"""What of the state of the machine a test may count on."""


@pytest.mark.all_only
def test_each_test_that_uses_a_card_brings_it_to_a_known_state_itself() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECT], capture_output=True, text=True, cwd=ROOT)
    rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows, done.stdout + done.stderr
    found: dict[str, list[str]] = json.loads(rows[0])
    # the driver's own checks change nothing, and hold whatever runs on the cards
    tests = {name: {*fixtures} for name, fixtures in found.items() if "test_local" not in name}
    assert tests
    of_the_machine = {name for name, fixtures in tests.items() if "machine" in fixtures}
    # that one deploys what it needs to whatever is there
    by_itself = {name for name in of_the_machine if "test_vllm" in name and "declare" in tests[name]}
    assert {name for name in of_the_machine - by_itself if not tests[name] >= STATES} == set()
    assert {name for name in tests.keys() - of_the_machine if "idle_cards" not in tests[name]} == set()
