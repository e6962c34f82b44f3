"""Former names of keys: each is refused with its new name, all at once and beside the other mistakes of the file."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.inventory import load_rig
from rigwright.model.nvidia_tables import PLACE, load_driver_tables
from rigwright.patches.patch import load_patch
from rigwright.problems import FrozenModel, Invalid
from rigwright.project_root import ROOT
from rigwright.run_options import RENAMED, parse_run_options
from tests.unit.patch_samples import write_patch
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import OperatorFolder, sample_entry

PLUGIN = """
[blocked."sglang/default"]
why = "it ends at its start"
instead = ["llamacpp/two"]

[inputs.louder]
kind = "plugin"
version = "1.0"
sources = ["store:louder.zip"]

[plugins.louder]
input = "louder"
distribution = "louder"
of = "vllm"
versions = ["0.21.0"]
imports = ["louder"]
commands = ["louder-serve", "louder-doctor"]
launcher = "louder-serve"

[plugins.louder.owns]
speculative-config = "it guesses"

[plugins.louder.doctor]
command = "louder-doctor"

[plugins.louder.doctor.lines]
python = {says = "Python"}
topology = {says = "topology", kind = "text", holds = "SM75"}
guesses = {says = "AutoSpec", kind = "number", bare = false}
"""
PATCH = """
of = "vllm"
versions = ["0.21.0"]
verdict = "impossible"
why = "it cannot be done"
source = "written here"
licence = "Apache-2.0"
until = "0.26.0"
where = "all of vLLM"
tested = "read"
"""


def former_entry(limits: object) -> dict[str, object]:
    """An inventory's entry with every former name."""
    server = {"receivers": {"ops": {"url": "http://192.0.2.9"}}, "dead_man": "ops", "limits": limits}
    return sample_entry(
        cards=["turing", "ampere"],
        instances={},
        lent=[1],
        also_build_for=["8.9"],
        hub_token_for="https://hub.example",
        driver={"lanes": [8, 16], "open_despite_cards": True},
        monitoring={"address": "192.0.2.1", "server": server},
    )


def problem_lines(error: Invalid, file: Path) -> list[str]:
    """The lines of a refusal without the name of the file."""
    return [line.removeprefix(f"{file}: ") for line in str(error).splitlines()]


def test_former_names_in_an_inventory(box: OperatorFolder) -> None:
    lines = box.refusal_lines(**former_entry({"verdict_hours": 30, "queue": 0}))
    assert [line.removeprefix(f"{box.inventory}: box.") for line in lines] == [
        "also_build_for: is now called extra_capabilities",
        "driver.lanes: is now called pcie_link_width",
        "driver.open_despite_cards: is now called force_open_modules",
        "hub_token_for: is now called hub_token_origin",
        "lent: is now called reserved_gpus",
        "monitoring.server.alert_thresholds.queue: 0 is refused: must be at least 1",
        "monitoring.server.alert_thresholds.verdict_hours: is now called check_hours",
        "monitoring.server.dead_man: is now called heartbeat_receiver",
        "monitoring.server.limits: is now called alert_thresholds",
    ]


def test_both_names_of_a_key(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(driver={"lanes": [8], "pcie_link_width": [8, 16]}, cards=["turing", "ampere"])
    assert line == f"{box.inventory}: box.driver.lanes: is now called pcie_link_width"


def test_former_names_in_a_catalogue(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(CATALOG.replace("parallel = 2", "slots = 2") + PLUGIN)
    with pytest.raises(Invalid) as refused:
        load_catalog([tmp_path])
    assert problem_lines(refused.value, file) == [
        "blocked.sglang/default.instead: is now called alternative",
        "plugins.louder.doctor: is now called selftest",
        "plugins.louder.of: is now called target_distribution",
        "plugins.louder.owns: is now called owned_flags",
        "plugins.louder.selftest.lines.guesses.bare: is now called without_model",
        "plugins.louder.selftest.lines.guesses.says: is now called match",
        "plugins.louder.selftest.lines.python.says: is now called match",
        "plugins.louder.selftest.lines.topology.holds: is now called contains",
        "plugins.louder.selftest.lines.topology.says: is now called match",
        "variants.llamacpp/two.slots: is now called parallel",
    ]


def test_former_names_in_a_patch(tmp_path: Path) -> None:
    write_patch(tmp_path / "louder", {"patch.toml": PATCH})
    with pytest.raises(Invalid) as refused:
        load_patch(tmp_path / "louder")
    assert problem_lines(refused.value, tmp_path / "louder/patch.toml") == [
        "of: is now called target_distribution",
        "tested: is now called test_notes",
        "until: is now called obsolete_when",
        "where: is now called evidence",
        "why: is now called purpose",
    ]


def test_former_names_in_the_tables_of_drivers(tmp_path: Path) -> None:
    former = write_former_driver_tables(tmp_path)
    with pytest.raises(Invalid) as refused:
        load_driver_tables(tmp_path)
    lines = problem_lines(refused.value, former)
    assert lines and all(re.fullmatch(r"layouts\.\S+\.before: is now called prerequisites", line) for line in lines)


def write_former_driver_tables(folder: Path) -> Path:
    """The shipped tables with former names."""
    file = folder / PLACE
    file.parent.mkdir(parents=True)
    file.write_text((ROOT / PLACE).read_text().replace("\nprerequisites = ", "\nbefore = "))
    return file


def test_former_names_in_data() -> None:
    with pytest.raises(Invalid) as refused:
        parse_run_options({"expect": "0" * 64, "theirs": "vllm.service", "switch": "chat:llamacpp/two"})
    assert str(refused.value).splitlines() == [
        "--data: expect: is now called expected_digest",
        "--data: theirs: is now called existing_service",
    ]


def documented_scripts() -> dict[str, str]:
    """File -> the script of sed for it, from the page."""
    page = (ROOT / "docs/reference/inventory.md").read_text()
    return dict(re.findall(r"^`([^`]+)`:\n\n```sed\n(.*?)```", page, re.MULTILINE | re.DOTALL))


def convert(name: str, text: str) -> str:
    """A text as the page's script for a file makes it."""
    command = ["sed", "-e", documented_scripts()[name]]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def test_the_documented_scripts_convert_every_former_name(box: OperatorFolder, tmp_path: Path) -> None:
    entry = former_entry({"verdict_hours": 30}) | {
        "hub_token_file": "token",
        "mirrors": {"hub": ["https://hub.example"]},
    }
    box.write("token", "hf_secret_of_a_test\n").chmod(0o600)
    converted = ast.literal_eval(convert("rig.py", repr(entry).replace("'", '"')))
    ((_, data),) = box.load_group({"box": converted})
    rig = load_rig(data["rig"])
    assert rig.reserved_gpus == (1,) and rig.driver.force_open_modules

    catalog = tmp_path / "converted"
    catalog.mkdir()
    (catalog / "a.toml").write_text(convert("catalog/*.toml", CATALOG.replace("parallel = 2", "slots = 2") + PLUGIN))
    plugin = load_catalog([catalog]).plugins["louder"]
    assert plugin.selftest and not plugin.selftest.lines["guesses"].without_model

    write_patch(tmp_path / "louder", {"patch.toml": convert("patches/*/patch.toml", PATCH)})
    assert load_patch(tmp_path / "louder").keys.test_notes == "read"

    file = write_former_driver_tables(tmp_path / "driver")
    file.write_text(convert("catalog/driver/driver.toml", file.read_text()))
    assert load_driver_tables(tmp_path / "driver") == load_driver_tables(ROOT)


def renamed_models(model: type[FrozenModel] = FrozenModel) -> Iterator[type[FrozenModel]]:
    """Every model with former names."""
    for one in model.__subclasses__():
        if "RENAMED" in vars(one):
            yield one
        yield from renamed_models(one)


def test_every_former_name_has_a_line_in_the_documented_scripts() -> None:
    pairs = {pair for one in renamed_models() for pair in one.RENAMED.items()} | {*RENAMED.items()}
    page = "\n".join(documented_scripts().values())
    assert [pair for pair in sorted(pairs - {*RENAMED.items()}) if not re.search("{}\\b.*{}".format(*pair), page)] == []
