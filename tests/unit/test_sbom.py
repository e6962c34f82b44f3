"""Bills of materials: valid CycloneDX, equal bytes for equal inputs, and every part and advisory of a box."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from cli import main
from rigwright.advisories.assessment import AdvisoryFinding, Assessment, PathState
from rigwright.advisories.audit import audit
from rigwright.advisories.components import Gap
from rigwright.advisories.predicates import PREDICATES
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.sbom.bill_of_materials import render_bom
from rigwright.sbom.part_list import describe_model
from rigwright.sbom.vulnerability_states import JUSTIFICATIONS, justify
from rigwright.supply.bundle import Bundle, BundleRow
from tests.unit import golden_hosts, shipped_inventories
from tests.unit.driver_samples import C3090, driver_rig
from tests.unit.samples import COMMIT, changed_rig, sample_artefact
from tests.unit.test_advisory_data import record, zipped

NOTHING = Assessment("box", (), ())


def check_bom(text: str) -> dict[str, Any]:
    """A bill of materials as data, once schema, library and references accept it."""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found: dict[str, Any] = json.loads(text)
    assert Bom.from_json(found).validate()  # type: ignore[attr-defined] # the library adds it
    references = {found["metadata"]["component"]["bom-ref"], *(one["bom-ref"] for one in found["components"])}
    assert {one["ref"] for one in found["dependencies"]} == references
    assert {part for one in found["dependencies"] for part in one.get("dependsOn", ())} < references
    found.setdefault("vulnerabilities", [])
    assert {one["ref"] for each in found["vulnerabilities"] for one in each["affects"]} <= references
    return found


def by_reference(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["bom-ref"]: one for one in found["components"]}


def values(component: dict[str, Any]) -> dict[str, str]:
    return {one["name"].removeprefix("rigwright:"): one["value"] for one in component.get("properties", ())}


def render(rigs: dict[str, Rig]) -> dict[str, str]:
    return {one.rig: render_bom(rigs[one.rig], one, "1.2.3") for one in audit(rigs)}


@pytest.mark.parametrize("name", ["rig5090solo", "everything", "demo"])
def test_two_folders_give_equal_bytes(name: str, tmp_path: Path) -> None:
    texts = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        texts.append(render(golden_hosts.rigs(name, tmp_path / place)))
    assert texts[0] == texts[1]
    for text in texts[0].values():
        found = check_bom(text)
        assert str(tmp_path) not in text
        # each advisory names its part
        box = found["metadata"]["component"]["bom-ref"]
        assert found["vulnerabilities"]
        assert box not in {one["ref"] for each in found["vulnerabilities"] for one in each["affects"]}


def test_a_box_with_every_feature_lists_each_part(tmp_path: Path) -> None:
    (text,) = render(golden_hosts.rigs("everything", tmp_path)).values()
    found = check_bom(text)
    parts = by_reference(found)
    assert "timestamp" not in found["metadata"]
    assert found["metadata"]["lifecycles"] == [{"phase": "pre-build"}]
    assert values(found["metadata"])["state"].startswith("declared")
    engine = parts["engine llama.cpp"]
    assert engine["purl"] == f"pkg:github/ggml-org/llama.cpp@{values(engine)['commit']}"
    assert engine["pedigree"]["commits"] == [{"uid": values(engine)["commit"]}]
    assert values(engine)["compile:LLAMA_OPENSSL"] == "OFF"
    purls = {one.get("purl", "").partition("@")[0] for one in parts.values()}
    assert {"pkg:pypi/llama-cpp-python", "pkg:deb/nvidia/nvidia-container-toolkit"} < purls
    image = parts["image of vllm-image"]
    assert image["purl"].startswith("pkg:oci/vllm-openai-0.21.0@sha256:")
    assert image["hashes"][0]["content"] == image["version"].removeprefix("sha256:")
    edges = {one["ref"]: one.get("dependsOn", []) for one in found["dependencies"]}
    assert "image of vllm-image" in edges["engine vllm-image"]
    assert any(one.startswith("model ") for one in edges["instance chat"])
    models = [one for one in parts.values() if one["type"] == "machine-learning-model"]
    assert models
    assert all(edges[one["bom-ref"]] for one in models)


def test_a_patch_is_the_pedigree_of_its_part_and_advisories_have_justifications(tmp_path: Path) -> None:
    rigs = shipped_inventories.load_rigs("rig3090", tmp_path)
    found = check_bom(render({"rig3090": rigs["rig3090"]})["rig3090"])
    parts = by_reference(found)
    env = parts["environment vllm-mtp"]
    (patch,) = env["pedigree"]["patches"]
    diff = (ROOT / "patches/mamba-prefix-cache-mtp/change.diff").read_text()
    assert patch == {"type": "unofficial", "diff": {"text": {"content": diff, "contentType": "text/plain"}}}
    assert len(values(env)["patch:mamba-prefix-cache-mtp:diff-sha256"]) == 64
    assert "Licence: Apache-2.0" in env["pedigree"]["notes"]
    assert any(one.get("purl", "").startswith("pkg:conda/python@3.10.20?build=") for one in parts.values())
    states = {values(one)["state"]: one["analysis"] for one in found["vulnerabilities"]}
    assert states["open"]["state"] == "exploitable"
    assert states["unknown"]["state"] == "in_triage"
    for one in found["vulnerabilities"]:
        analysis = one["analysis"]
        assert ("justification" in analysis) == (analysis["state"] == "not_affected")
        assert all(parts[target["ref"]] for target in one["affects"])


def test_an_engine_for_cards_has_its_compile_options(tmp_path: Path) -> None:
    (text,) = render(golden_hosts.rigs("rig5090solo", tmp_path)).values()
    compiled = values(by_reference(json.loads(text))["engine llama.cpp"])
    assert (compiled["compile:GGML_CUDA"], compiled["compile:CMAKE_CUDA_ARCHITECTURES"]) == ("ON", "120a-real")


def test_an_export_names_a_source_by_its_project_of_the_index(tmp_path: Path) -> None:
    rigs = golden_hosts.rigs("rig5090solo", tmp_path)
    export = zipped(tmp_path / "PyPI.zip", {"a.json": json.dumps(record("PYSEC-2026-1", "llama-cpp-python")).encode()})
    (made,) = audit(rigs, [export])
    found = check_bom(render_bom(rigs[made.rig], made, "1"))
    (one,) = [each for each in found["vulnerabilities"] if each["id"] == "PYSEC-2026-1"]
    (target,) = one["affects"]
    assert by_reference(found)[target["ref"]]["purl"].startswith("pkg:pypi/llama-cpp-python@")


def test_another_lock_gives_another_number() -> None:
    one = driver_rig(C3090, managed=True)
    other = changed_rig(one, tools=(sample_artefact(kind="wheel", name="tool", version="1", group="tools"),))
    numbers = {json.loads(render_bom(rig, NOTHING, "1"))["serialNumber"] for rig in (one, other, one)}
    assert len(numbers) == 2
    assert all(number[len("urn:uuid:") :][14] == "5" for number in numbers)


def test_driver_firmware_and_bundled_packages_are_debian_packages() -> None:
    rows = [
        BundleRow(path=f"packages/debian-12/0/pool/{file}", sha256=digit * 64, size=1)
        for digit, file in (
            ("a", "curl_8.1_amd64.deb"),
            ("b", "firmware-nvidia-gsp_550.1-1_all.deb"),
            ("c", "Packages"),
        )
    ]
    bundle = Bundle(Path("/nowhere"), ("debian-12",), tuple(rows), (), "d" * 64)
    one = changed_rig(driver_rig(C3090, managed=True), bundle=bundle)
    gap = Assessment("box", (), (Gap("NVIDIA driver", "its version is not locked"),))
    found = check_bom(render_bom(one, gap, "1"))
    parts = by_reference(found)
    driver = parts["driver locked for debian-13"]
    assert (driver["version"], values(driver)["system"]) == ("595.71.05", "debian-13")
    purls = {values(each).get("file", each["name"]): each.get("purl") for each in parts.values()}
    assert purls["curl_8.1_amd64.deb"] == "pkg:deb/debian/curl@8.1?arch=amd64&distro=debian-12"
    (firmware,) = [each for each in parts.values() if each["type"] == "firmware"]
    assert firmware["hashes"] == [{"alg": "SHA-256", "content": "b" * 64}]
    assert "packages of the distribution" not in parts
    gaps = [each["value"] for each in found["metadata"]["properties"] if each["name"].endswith("not-covered")]
    assert gaps == ["NVIDIA driver: its version is not locked"]


@pytest.mark.parametrize(
    ("licence", "expected"), [("apache-2.0", ["Apache-2.0", None]), ("other", [None, "other"]), (None, [])]
)
def test_a_model_has_its_licence_and_revision(licence: str | None, expected: list[str | None]) -> None:
    row = sample_artefact(
        kind="weight", name="m", group="m", version=COMMIT, repository="owner/name", licence=licence, sources=["hub:x"]
    )
    made = describe_model("model", [row])
    assert str(made.purl) == f"pkg:huggingface/owner/name@{COMMIT}"
    assert [
        text for one in made.licenses for text in (getattr(one, "id", None), getattr(one, "name", None))
    ] == expected


def test_each_predicate_has_a_justification() -> None:
    assert JUSTIFICATIONS.keys() == PREDICATES.keys()


def test_ways_that_are_closed_differently_have_the_general_justification() -> None:
    way = PathState("lan", "closed", "it is off", ("flag_absent",))
    finding = AdvisoryFinding("A-1", (), "PyPI:vllm", "1", "environment e", "closed", (way,))
    assert justify(finding) == "requires_configuration"
    others = (way, replace(way, closed_by=("no_network",)))
    assert justify(replace(finding, paths=others)) == "protected_by_mitigating_control"
    assert justify(replace(finding, state="open")) is None


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """An inventory of one host, and one of two, with their lock."""
    shipped_inventories.write_lock(tmp_path)
    shutil.copy(ROOT / "inventory/rig5090two.py", tmp_path)
    return Path(shutil.copy(ROOT / "inventory/rig5090solo.py", tmp_path))


def run_verb(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["sbom", *map(str, words)])


def test_the_verb_writes_a_file_a_folder_or_standard_output(inventory: Path, tmp_path: Path) -> None:
    shown = run_verb(inventory)
    assert shown.exit_code == 0, shown.output
    check_bom(shown.stdout)
    assert run_verb(inventory, "--output", tmp_path / "one.json").exit_code == 0
    assert run_verb(inventory, "--output", f"{tmp_path}/all/").exit_code == 0
    written = [(tmp_path / "one.json").read_text(), (tmp_path / "all/rig5090solo.cdx.json").read_text()]
    assert written == [shown.stdout] * 2


def test_several_hosts_need_a_folder(inventory: Path, tmp_path: Path) -> None:
    two = inventory.with_name("rig5090two.py")
    refused = run_verb(two)
    assert (refused.exit_code, "2 hosts: name a folder with --output" in refused.output) == (2, True)
    (tmp_path / "file").touch()
    refused = run_verb(two, "--output", tmp_path / "file")
    assert (refused.exit_code, "is a file, and 2 hosts need a folder" in refused.output) == (2, True)
    refused = run_verb(inventory, "--output", tmp_path / "none" / "file")
    assert (refused.exit_code, "there is no folder" in refused.output) == (2, True)


def test_an_unlocked_inventory_is_refused() -> None:
    refused = run_verb(ROOT / "inventory/rig5090solo.py")
    assert (refused.exit_code, "is not locked" in refused.output) == (2, True)


def test_a_damaged_bundle_is_refused(inventory: Path) -> None:
    inventory.with_name("box.bundle").mkdir()
    text = inventory.read_text().replace('"ssh_hostname"', '"bundle": "box.bundle", "ssh_hostname"')
    inventory.write_text(text.replace('"managed": True', '"managed": False'))
    refused = run_verb(inventory)
    assert (refused.exit_code, "recreate it with `rigwright bundle`" in refused.output) == (2, True)


def test_no_host_can_be_reached(inventory: Path, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom cli import main\n"
        "try:\n    main(sys.argv[1:], prog_name='rigwright')\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "assert not {'paramiko', 'pyinfra', 'gevent', 'requests', 'testinfra'} & set(sys.modules)\n"
    )
    words = [sys.executable, "-c", program, "sbom", str(inventory), "--output", str(tmp_path / "out.json")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    check_bom((tmp_path / "out.json").read_text())


def test_the_library_has_no_types_for_the_absent_fields() -> None:
    """With a release that has them, docs/guides/sbom.md names fewer, and the file can have more."""
    assert [name for name in ("formulation", "compositions", "annotations", "signature") if hasattr(Bom, name)] == []
    assert [name for name in ("model_card", "data") if hasattr(Component, name)] == []
