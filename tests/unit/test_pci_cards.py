"""Cards on the PCI bus: the shell's collector and Python's fill one type with the same values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from checks.survey.host import pci_cards as collector
from checks.survey.kernel import BusDisplay
from rigwright import render
from rigwright.host.pci_cards import CARD_SCHEMA, PciCard, parse_lanes, read_pci_cards
from rigwright.host.script_output import parse_output
from tests.unit import short_programs

PART = "{% from 'channel.sh.j2' import told %}{% call told() %}{% include 'probe/cards.sh.j2' %}{% endcall %}"
FULL = {
    "numa_node": "1",
    "local_cpulist": "0-31,64-95",
    "current_link_width": "8",
    "max_link_width": "16",
    "current_link_speed": "2.5 GT/s PCIe",
    "max_link_speed": "16.0 GT/s PCIe",
}
DOWN = {"numa_node": "-1", "current_link_width": "63", "max_link_width": "255", "current_link_speed": "Unknown"}
BUS = {
    "0000:c1:00.0": {"device": "0x2335", "class": "0x030200", **FULL},
    "0000:21:00.0": {"device": "0x2204", "class": "0x030000", **DOWN},
    "0000:01:00.0": {"device": "0x1e07", "class": "0x030000"},
    "0000:01:00.1": {"device": "0x10f7", "class": "0x040300"},
    "0000:02:00.0": {"device": "0x744c", "class": "0x030000", "vendor": "0x1002"},
    "0000:03:00.0": {"device": "0x1234"},
}
EXPECTED = (
    PciCard("0000:01:00.0", "10de:1e07"),
    PciCard("0000:21:00.0", "10de:2204", bound="nouveau", speed="Unknown"),
    PciCard("0000:c1:00.0", "10de:2335", "nvidia", 3, 1, "0-31,64-95", 8, 16, "2.5 GT/s PCIe", "16.0 GT/s PCIe"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for address, files in BUS.items():
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, text in {"vendor": "0x10de", **files}.items():
            (folder / name).write_text(f"{text}\n")
    for address, driver in (("0000:21:00.0", "nouveau"), ("0000:c1:00.0", "nvidia")):
        (tmp_path / "sys/bus/pci/devices" / address / "driver").symlink_to(f"/nowhere/drivers/{driver}")
    information = tmp_path / "proc/driver/nvidia/gpus/0000:c1:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA H200\nDevice Minor: \t 3\nGPU Excluded:\t No\n")
    return tmp_path


def test_both_collectors_fill_the_type_alike(root: Path) -> None:
    devices = f"{root}/sys/bus/pci/devices"
    script = render._environment().from_string(PART).render(devices=devices).replace("/proc/", f"{root}/proc/")
    done = short_programs.run_program(["sh", "-c", script], check=True)
    assert done.stderr == ""
    assert read_pci_cards(parse_output(done.stdout.splitlines(), CARD_SCHEMA)) == EXPECTED
    rows = json.dumps(collector.list_cards(str(root)))
    found = TypeAdapter(list[BusDisplay]).validate_json(rows, strict=True)
    names = PciCard.__dataclass_fields__
    assert tuple(PciCard(**{name: getattr(one, name) for name in names}) for one in found) == EXPECTED
    assert [one.path for one in found] == [f"/sys/bus/pci/devices/{one.address}" for one in EXPECTED]


@pytest.mark.parametrize(("value", "lanes"), [("", None), ("0", None), ("16", 16), ("32", 32), ("63", None)])
def test_a_link_that_is_down_has_no_lanes(value: str, lanes: int | None) -> None:
    assert parse_lanes(value) == lanes


def test_an_invalid_number_of_lanes_is_refused() -> None:
    with pytest.raises(ValueError, match="a number"):
        parse_lanes("x16")
