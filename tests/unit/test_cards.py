"""Stand-in cards: the probe finds the requested ones in the tree."""

from pathlib import Path

import pytest

from lab import stand_in_pci
from rigwright.plan.host_facts import parse
from rigwright.render import render
from tests.unit import short_programs
from tests.unit.samples import sample_probe_values


def found_in(tree: Path) -> tuple[tuple[str, str], ...]:
    """The cards that the real probe finds, reading this tree as the PCI bus."""
    script = render("probe/probe.sh.j2", **sample_probe_values())
    assert "/sys/bus/pci/devices" in script
    script = script.replace("/sys/bus/pci/devices", str(tree))
    found = parse(short_programs.run_program(["sh", "-c", script], check=True).stdout.splitlines()).pci_cards
    return tuple((one.address, one.pci_id) for one in found)


@pytest.mark.parametrize(
    ("pci_ids", "found"),
    [
        ((), ()),
        (("10de:2204",), (("0000:01:00.0", "10de:2204"),)),
        (("10de:2204", "10de:2204"), (("0000:01:00.0", "10de:2204"), ("0000:02:00.0", "10de:2204"))),
        (("1002:744c", "10de:2b85"), (("0000:02:00.0", "10de:2b85"),)),
    ],
)
def test_a_host_finds_the_nvidia_cards_it_is_given(tmp_path, pci_ids, found):
    stand_in_pci.boot_options(tmp_path, pci_ids)
    assert found_in(tmp_path / "pci") == found


def test_a_device_that_is_no_display_adapter_is_no_card(tmp_path: Path) -> None:
    stand_in_pci.boot_options(tmp_path, ("10de:2204", "10de:1aef"))
    (tmp_path / "pci" / "0000:02:00.0" / "class").write_text("0x040300\n")  # the same board's sound device
    assert found_in(tmp_path / "pci") == (("0000:01:00.0", "10de:2204"),)


def test_the_tree_hides_the_machines_own_cards_also_when_it_is_empty(tmp_path: Path) -> None:
    (option,) = stand_in_pci.boot_options(tmp_path, ())
    assert option == f"--bind-ro={tmp_path / 'pci'}:/sys/bus/pci/devices"
    assert list((tmp_path / "pci").iterdir()) == []


def test_an_invalid_pci_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        stand_in_pci.boot_options(tmp_path, ("2204",))
