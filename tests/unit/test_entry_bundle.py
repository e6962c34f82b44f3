"""An inventory's newer keys: cards as tables, driver, also_build_for and bundle."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rigwright import bundle
from rigwright.bundle import INDEX, Row
from rigwright.cli import main
from rigwright.cli.hosts import named
from rigwright.entry import Driver
from rigwright.inventory import load, making
from rigwright.lock import Lock
from rigwright.rig import Rig
from tests.locks import lock_text
from tests.unit.samples import Box, chat, entry

OWN: dict[str, object] = {
    "name": "NVIDIA H200",
    "pci_ids": ["10de:2335"],
    "capability": "9.0",
    "vram_mib": 143771,
}


def rig(box: Box, **changes: object) -> Rig:
    ((_, data),) = box.group({"box": entry(**changes)})
    return load(data["rig"])


def faults(box: Box, **changes: object) -> list[str]:
    """What is wrong with the bundle of a rig that is otherwise as it should be."""
    return sorted(map(str, rig(box, **changes).bundle_faults))


def cards(*declared: object) -> dict[str, object]:
    """An entry with these cards, and nothing that is served on them."""
    return {"cards": list(declared), "instances": chat()}


def own(**changes: object) -> dict[str, object]:
    return {key: value for key, value in (OWN | changes).items() if value is not None}


def test_a_card_may_be_described_in_place_of_being_named(box: Box) -> None:
    named, described = rig(box, **cards("ampere", OWN)).cards
    assert (named.name, named.capability) == ("NVIDIA GeForce RTX 3090", "8.6")
    assert (described.name, described.pci_ids, described.capability) == ("NVIDIA H200", ("10de:2335",), "9.0")
    assert described.vram_mib == 143771


def test_an_instance_runs_on_a_described_card_as_on_a_named_one(box: Box) -> None:
    one = {"chat": {"variant": "llamacpp/one", "cards": [1], "port": 8020}}
    assert rig(box, cards=["ampere", OWN], instances=one).instances[0].cards == (1,)


WRONG: list[tuple[str, tuple[object, ...], list[str]]] = [
    (
        "a key nobody knows",
        (own(vram=1),),
        ['cards[0].vram: unknown key; did you mean "vram_mib"?;'],
    ),
    ("a key less", ("ampere", own(capability=None)), ["cards[1].capability: missing"]),
    (
        "a capability that is none",
        (own(capability="sm_90"),),
        ["cards[0].capability: 'sm_90' is refused: must be a"],
    ),
    ("a capability as a number", (own(capability=9.0),), ["cards[0].capability: 9.0 is refused: must be"]),
    ("no boards", (own(pci_ids=[]),), ["cards[0].pci_ids: [] is refused: must be a list that is not empty"]),
    ("another bus", (own(pci_ids=["2335"]),), ["cards[0].pci_ids[0]: '2335' is refused: must be vendor:device"]),
    ("no memory", (own(vram_mib=0),), ["cards[0].vram_mib: 0 is refused"]),
    ("a number", (1,), ["cards[0]: 1 is refused: must be text"]),
    ("nothing", (None,), ["cards[0]: None is refused: must be text"]),
    ("a list", (["ampere"],), ["cards[0]: ['ampere'] is refused: must be text"]),
    ("an empty table", ({},), [f"cards[0].{key}: missing" for key in sorted(OWN)]),
    ("a name nobody has", ("ampre",), ['cards[0]: no card is called "ampre"; did you mean "ampere"?']),
    ("two things", (own(vram_mib=-1), None), ["cards[0].vram_mib: -1 is refused", "cards[1]: None is refused"]),
]


@pytest.mark.parametrize(("declared", "essence"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_card_that_cannot_be_is_refused_at_its_place(
    box: Box, declared: tuple[object, ...], essence: list[str]
) -> None:
    lines = box.refusal(**cards(*declared))
    assert [part in line for part, line in zip(essence, lines, strict=True)] == [True] * len(lines), lines


def test_an_instance_on_a_card_with_a_mistake_is_not_told_that_there_is_none(box: Box) -> None:
    one = {"chat": {"variant": "llamacpp/one", "cards": [0], "port": 8020}}
    (line,) = box.refusal(cards=[own(vram_mib=-1)], instances=one)
    assert "cards[0].vram_mib: -1 is refused" in line


@pytest.mark.parametrize(
    "driver",
    [
        {},
        {"managed": False},
        {"branch": 580, "flavour": "open", "source": "distribution", "open_despite_cards": True},
        {"branch": None, "flavour": "proprietary", "source": "nvidia"},
        {"lanes": [8, 16], "nvlinks": [[0, 1]]},
        {"managed": True, "reboot": True, "power_w": 280, "clocks_mhz": [210, 1695]},
        {"managed": True, "power_w": [250, 280], "module_options": {"NVreg_EnableResizableBar": 1}},
        {"managed": True, "sysctl": {"vm.swappiness": 10, "net.core.somaxconn": 4096}},
    ],
)
def test_a_driver_and_what_its_cards_are_set_to(box: Box, driver: dict[str, object]) -> None:
    made = rig(box, driver=driver)
    assert made.cards
    assert made.driver == Driver.model_validate(driver)


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ({"managed": 0}, "driver.managed: 0 is refused: must be True or False"),
        (
            {"manage": False},
            'driver.manage: unknown key; did you mean "managed"?; '
            "allowed: branch, clocks_mhz, flavour, lanes, managed, module_options, nvlinks, open_despite_cards, "
            "power_w, reboot, source, sysctl",
        ),
        ({"branch": 550}, "driver.branch: 550 is refused: must be at least 580"),
        ({"branch": "580"}, "driver.branch: '580' is refused: must be a whole number"),
        ({"branch": 1000}, "driver.branch: 1000 is refused: must be at most 999"),
        ({"flavour": "closed"}, "driver.flavour: 'closed' is refused: must be 'open' or 'proprietary'"),
        ({"source": "cuda"}, "driver.source: 'cuda' is refused: must be 'distribution' or 'nvidia'"),
        ({"open_despite_cards": "yes"}, "driver.open_despite_cards: 'yes' is refused: must be True or False"),
        (
            {"flavour": "proprietary", "open_despite_cards": True},
            "driver: {'flavour': 'proprietary', 'open_despite_cards': True} is refused: must be without "
            "open_despite_cards where the flavour is proprietary",
        ),
        (False, "driver: False is refused: must be a table of keys"),
        ({"lanes": [3]}, "driver.lanes[0]: 3 is refused: must be 1, 2, 4, 8 or 16"),
        ({"lanes": [8]}, "driver.lanes: 1 are named, and the rig declares 2 cards: one a card"),
        ({"nvlinks": [[0, 2]]}, "driver.nvlinks: no card 2: the rig declares 2 cards, counted from 0"),
        (
            {"power_w": 300},
            "driver: {'power_w': 300} is refused: must be managed = True beside power_w: nothing else brings them "
            "about",
        ),
        (
            {"managed": True, "clocks_mhz": [1700, 210]},
            "driver: {'managed': True, 'clocks_mhz': [1700, 210]} is refused: must be clocks_mhz from the lower to the "
            "higher",
        ),
        ({"managed": True, "power_w": 20}, "driver.power_w: 20 is refused: must be at least 50"),
        ({"managed": True, "power_w": "280"}, "driver.power_w: '280' is refused: must be a whole number"),
        ({"managed": True, "power_w": [280, 2001]}, "driver.power_w[1]: 2001 is refused: must be at most 2000"),
        (
            {"managed": True, "power_w": [250]},
            "driver.power_w: 1 are named, and the rig declares 2 cards: one a card",
        ),
    ],
)
def test_a_driver_that_cannot_be_had_is_refused(box: Box, driver: object, said: str) -> None:
    assert box.refusal(driver=driver) == [f"{box.inventory}: box.{said}"]


@pytest.mark.parametrize("value", ["9.0", ["90"], [9.0], ["9.0a"], [""], {"9.0": True}])
def test_also_build_for_takes_capabilities_alone(box: Box, value: object) -> None:
    (line,) = box.refusal(also_build_for=value)
    assert line.startswith(f"{box.inventory}: box.also_build_for")


def bundled(box: Box, *, weights: bytes = b"weights", rows: int = 99) -> Path:
    """A bundle beside the inventory with what the box's lock has, and the lock for it."""
    folder, found, texts = box.folder / "the bundle", [], []
    contents = {"source": b"source", "weight": weights, "wheel": b"wheel"}
    for kind, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        name = {"source": "engine-source", "weight": "small", "wheel": "scikit-build-core"}[kind]
        file = "scikit_build_core-1.0-py3-none-any.whl" if kind == "wheel" else f"{name}.bin"
        row = {"kind": kind, "name": name, "version": "1.0", "file": file, "sha256": digest, "size": len(content)}
        row |= {"group": "tools"} if kind == "wheel" else {}
        lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in row.items()]
        texts.append("\n".join(["[[artefact]]", *lines, 'sources = ["store:x"]', ""]))
        path = f"{kind}s/{file}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        found.append(Row(path=path, sha256=digest, size=len(content)))
    box.write("locks/box.lock.toml", lock_text(*texts))
    (folder / INDEX).write_text(bundle.text("now", ["debian-12"], found[:rows]))
    return folder


def test_with_a_bundle_no_mirror_is_needed(box: Box) -> None:
    folder = bundled(box)
    made = rig(box, bundle="the bundle", mirrors={}, instances=chat())
    assert made.bundle == bundle.read(folder)
    assert made.bundle_folder == str(folder)
    assert "mirrors: the lock's small 1.0 has no address" in "\n".join(box.refusal(mirrors={}, instances=chat()))


def test_without_one_nothing_is_bundled(box: Box) -> None:
    made = rig(box)
    assert (made.bundle, made.bundle_folder) == (None, None)


def test_a_bundle_is_found_from_the_inventory_from_home_and_from_the_root(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bundled(box)
    monkeypatch.setenv("HOME", str(box.folder))
    for name in ("the bundle", "./the bundle/", "~/the bundle", str(folder)):
        assert rig(box, bundle=name, instances=chat()).bundle is not None
    (line,) = faults(box, bundle="~nobody-at-all/bundle", instances=chat())
    assert "No such file or directory: make it again with `rigwright bundle`" in line


@pytest.mark.parametrize("value", ["", 5, [], True, {"folder": "x"}])
def test_a_bundle_that_is_no_folders_name_is_refused(box: Box, value: object) -> None:
    (line,) = box.refusal(bundle=value)
    assert line.startswith(f"{box.inventory}: box.bundle: ")


def test_a_bundle_that_is_not_there_is_a_fault_with_what_to_do(box: Box) -> None:
    (line,) = faults(box, bundle="offline", instances=chat())
    said = "the bundle: No such file or directory: make it again with `rigwright bundle`"
    assert line == f"{box.folder}/offline/{INDEX}: {said}"


def test_everything_that_a_bundle_lacks_is_named(box: Box) -> None:
    folder = bundled(box, rows=0)
    lines = faults(box, bundle="the bundle", instances=chat())
    assert lines == [
        f"{box.inventory}: box.bundle: {folder} lacks {name}: make it again with `rigwright bundle`"
        for name in (
            "engine-source 1.0 (engine-source.bin)",
            "scikit-build-core 1.0 (scikit_build_core-1.0-py3-none-any.whl)",
            "small 1.0 (small.bin)",
        )
    ]


def test_a_bundle_made_for_another_lock_has_faults(box: Box) -> None:
    bundled(box)
    text = (box.folder / "the bundle" / INDEX).read_text()
    bundled(box, weights=b"newer")
    (box.folder / "the bundle" / INDEX).write_text(text)
    (line,) = faults(box, bundle="the bundle", instances=chat())
    assert "small.bin: has 5 bytes, 7 are listed" in line.replace("weights/", "")
    (box.folder / "the bundle/weights/small.bin").write_bytes(b"weights")
    (line,) = faults(box, bundle="the bundle", instances=chat())
    assert "the bundle lacks small 1.0 (small.bin)" in line


def test_a_rig_whose_bundle_is_away_never_falls_back_to_the_network(box: Box) -> None:
    made = rig(box, bundle="offline", mirrors={}, instances=chat())
    assert (made.bundle, made.bundle_folder) == (None, str(box.folder / "offline"))
    assert made.bundle_faults


def test_a_bundle_that_is_away_stands_in_the_way_of_validating_and_of_a_deploy_alone(box: Box) -> None:
    declared = entry(bundle="offline", instances=chat())
    text = f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {declared!r}}})\n"
    box.write("rig.py", text)
    for verb in (["validate"], ["deploy"], ["deploy", "--dry"]):
        done = CliRunner().invoke(main, [verb[0], str(box.inventory), *verb[1:]])
        assert (done.exit_code, "make it again" in done.output) == (1, True), done.output
    named(str(box.inventory), None)  # what rollback, remove, status, logs and generations begin with


def test_while_a_bundle_is_made_it_need_not_be_there_and_nothing_need_be_reached(box: Box) -> None:
    with making("bundle"):
        made = rig(box, bundle="offline", mirrors={}, instances=chat())
    assert (made.bundle, made.bundle_folder) == (None, str(box.folder / "offline"))
    with making("bundle"):
        assert rig(box, mirrors={}, instances=chat()).bundle is None
        # names are still names
        assert "no variant" in box.refusal(instances=chat(variant="llamacpp/cpo"))[0]


def test_while_a_lock_is_made_a_bundle_need_not_be_there_but_mirrors_must(box: Box) -> None:
    with making("lock"):
        assert rig(box, bundle="offline", instances=chat()).bundle is None
        assert "has no address" in box.refusal(mirrors={}, instances=chat())[0]
    # afterwards everything counts again
    assert len(faults(box, bundle="offline", instances=chat())) == 1


def test_one_mistake_ends_what_is_made_all_the_same(box: Box) -> None:
    with pytest.raises(SystemExit), making("bundle"):
        box.group({"box": entry(keep_generations=0)})
    assert "offline" in faults(box, bundle="offline", instances=chat())[0]


def _rows(lock: Lock) -> list[Any]:
    return [*lock.artefacts.values(), *lock.groups["tools"]]


def test_what_is_found_in_a_bundle_goes_by_its_hash_whatever_it_is_called(box: Box) -> None:
    folder = bundled(box)
    found = bundle.read(folder)
    lock = Lock.load([box.folder / "locks"])
    assert [file.name for file in found.files(_rows(lock))] == [row.file for row in _rows(lock)]
