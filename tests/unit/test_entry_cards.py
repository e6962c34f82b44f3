"""An inventory's keys about cards: as tables, the driver, and what else is built for."""

import pytest

from rigwright.inventory import load_rig
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

OWN: dict[str, object] = {"name": "NVIDIA H200", "pci_ids": ["10de:2335"], "capability": "9.0", "vram_mib": 143771}


def rig(box: OperatorFolder, **changes: object) -> Rig:
    ((_, data),) = box.load_group({"box": sample_entry(**changes)})
    return load_rig(data["rig"])


def cards(*declared: object) -> dict[str, object]:
    """An entry with these cards, and nothing that is served on them."""
    return {"cards": list(declared), "instances": chat_instances()}


def described_card(**changes: object) -> dict[str, object]:
    return {key: value for key, value in (OWN | changes).items() if value is not None}


def test_a_card_may_be_described_in_place_of_being_named(box: OperatorFolder) -> None:
    named, described = rig(box, **cards("ampere", OWN)).cards
    assert (named.name, named.capability) == ("NVIDIA GeForce RTX 3090", "8.6")
    assert (described.name, described.pci_ids, described.capability) == ("NVIDIA H200", ("10de:2335",), "9.0")
    assert described.vram_mib == 143771


def test_an_instance_runs_on_a_described_card_as_on_a_named_one(box: OperatorFolder) -> None:
    one = {"chat": {"variant": "llamacpp/one", "cards": [1], "port": 8020}}
    assert rig(box, cards=["ampere", OWN], instances=one).instances[0].cards == (1,)


WRONG: list[tuple[str, tuple[object, ...], list[str]]] = [
    ("a key nobody knows", (described_card(vram=1),), ['cards[0].vram: unknown key; did you mean "vram_mib"?;']),
    ("a key less", ("ampere", described_card(capability=None)), ["cards[1].capability: missing"]),
    (
        "a capability that is invalid",
        (described_card(capability="sm_90"),),
        ["cards[0].capability: 'sm_90' is refused: must be a"],
    ),
    ("a capability as a number", (described_card(capability=9.0),), ["cards[0].capability: 9.0 is refused: must be"]),
    ("no boards", (described_card(pci_ids=[]),), ["cards[0].pci_ids: [] is refused: must be a non-empty list"]),
    (
        "another bus",
        (described_card(pci_ids=["2335"]),),
        ["cards[0].pci_ids[0]: '2335' is refused: must be vendor:device"],
    ),
    ("no memory", (described_card(vram_mib=0),), ["cards[0].vram_mib: 0 is refused"]),
    ("a number", (1,), ["cards[0]: 1 is refused: must be text"]),
    ("nothing", (None,), ["cards[0]: None is refused: must be text"]),
    ("a list", (["ampere"],), ["cards[0]: ['ampere'] is refused: must be text"]),
    ("an empty table", ({},), [f"cards[0].{key}: missing" for key in sorted(OWN)]),
    ("a name nobody has", ("ampre",), ['cards[0]: there is no card "ampre"; did you mean "ampere"?']),
    (
        "two things",
        (described_card(vram_mib=-1), None),
        ["cards[0].vram_mib: -1 is refused", "cards[1]: None is refused"],
    ),
]


@pytest.mark.parametrize(("declared", "essence"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_card_that_cannot_be_is_refused_at_its_place(box, declared, essence):
    lines = box.refusal_lines(**cards(*declared))
    assert [part in line for part, line in zip(essence, lines, strict=True)] == [True] * len(lines), lines


def test_an_instance_on_a_card_with_a_mistake_does_not_report_a_missing_card(box: OperatorFolder) -> None:
    one = {"chat": {"variant": "llamacpp/one", "cards": [0], "port": 8020}}
    (line,) = box.refusal_lines(cards=[described_card(vram_mib=-1)], instances=one)
    assert "cards[0].vram_mib: -1 is refused" in line


@pytest.mark.parametrize(
    "driver",
    [
        {},
        {"managed": False},
        {"branch": 580, "flavour": "open", "source": "distribution", "force_open_modules": True},
        {"branch": None, "flavour": "proprietary", "source": "nvidia"},
        {"pcie_link_width": [8, 16], "nvlinks": [[0, 1]]},
        {"managed": True, "reboot": True, "power_w": 280, "clocks_mhz": [210, 1695]},
        {"managed": True, "power_w": [250, 280], "module_options": {"NVreg_EnableResizableBar": 1}},
        {"managed": False, "power_w": [250, 280], "clocks_mhz": [210, 1695], "sysctl": {"vm.swappiness": 10}},
        {"managed": True, "sysctl": {"vm.swappiness": 10, "net.core.somaxconn": 4096}},
    ],
)
def test_a_driver_and_what_its_cards_are_set_to(box: OperatorFolder, driver: dict[str, object]) -> None:
    made = rig(box, driver=driver)
    assert made.cards
    assert made.driver == DriverEntry.model_validate(driver)


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ({"managed": 0}, "driver.managed: 0 is refused: must be True or False"),
        (
            {"manage": False},
            'driver.manage: unknown key; did you mean "managed"?; '
            "allowed: branch, clocks_mhz, flavour, force_open_modules, managed, module_options, nvlinks, "
            "pcie_link_width, power_w, reboot, source, sysctl",
        ),
        ({"branch": 550}, "driver.branch: 550 is refused: must be at least 580"),
        ({"branch": "580"}, "driver.branch: '580' is refused: must be a whole number: 580, without quotes"),
        ({"branch": 1000}, "driver.branch: 1000 is refused: must be at most 999"),
        ({"flavour": "closed"}, "driver.flavour: 'closed' is refused: must be 'open' or 'proprietary'"),
        ({"source": "cuda"}, "driver.source: 'cuda' is refused: must be 'distribution' or 'nvidia'"),
        (
            {"force_open_modules": "yes"},
            "driver.force_open_modules: 'yes' is refused: must be True or False, without quotes",
        ),
        (
            {"flavour": "proprietary", "force_open_modules": True},
            "driver: {'flavour': 'proprietary', 'force_open_modules': True} is refused: must be without "
            "force_open_modules where the flavour is proprietary",
        ),
        (False, 'driver: False is refused: must be a table of keys, such as {"managed": True, "branch": 580}'),
        ({"pcie_link_width": [3]}, "driver.pcie_link_width[0]: 3 is refused: must be 1, 2, 4, 8 or 16"),
        ({"pcie_link_width": [8]}, "driver.pcie_link_width: 1 are listed, but the rig declares 2 cards: one per card"),
        ({"nvlinks": [[0, 2]]}, "driver.nvlinks: no card 2: the rig declares 2 cards, counted from 0"),
        ({"reboot": True}, "driver: {'reboot': True} is refused: must be managed = True if reboot is set"),
        (
            {"managed": True, "clocks_mhz": [1700, 210]},
            "driver.clocks_mhz: [1700, 210] is refused: must be from the lower to the higher: did you mean 210, 1700?",
        ),
        ({"managed": True, "power_w": 20}, "driver.power_w: 20 is refused: must be at least 50"),
        (
            {"managed": True, "power_w": "280"},
            "driver.power_w: '280' is refused: must be a whole number: 280, without quotes",
        ),
        ({"managed": True, "power_w": [280, 2001]}, "driver.power_w[1]: 2001 is refused: must be at most 2000"),
        (
            {"managed": True, "power_w": [250]},
            "driver.power_w: 1 are listed, but the rig declares 2 cards: one per card",
        ),
    ],
)
def test_a_driver_that_cannot_be_had_is_refused(box: OperatorFolder, driver: object, said: str) -> None:
    assert box.refusal_lines(driver=driver) == [f"{box.inventory}: box.{said}"]


@pytest.mark.parametrize("value", ["9.0", ["90"], [9.0], ["9.0a"], [""], {"9.0": True}])
def test_extra_capabilities_are_compute_capabilities(box: OperatorFolder, value: object) -> None:
    (line,) = box.refusal_lines(extra_capabilities=value)
    assert line.startswith(f"{box.inventory}: box.extra_capabilities")


def test_beside_a_wrong_key_of_the_driver_the_others_are_judged_too(box: OperatorFolder) -> None:
    driver = {"managed": True, "pcie_link_width": [3], "nvlinks": [[0, 5]], "power_w": [250]}
    lines = [line.removeprefix(f"{box.inventory}: box.driver.") for line in box.refusal_lines(driver=driver)]
    assert [line.split(":")[0] for line in lines] == ["nvlinks", "pcie_link_width[0]", "power_w"]


def test_a_rule_between_keys_is_not_broken_by_one_that_was_wrong(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(driver={"managed": "yes", "power_w": 280})
    assert line.startswith(f"{box.inventory}: box.driver.managed:")
