"""Boxes that differ in name and address alone: resolved once, each judged and refused by its own name."""

import os
import time
from dataclasses import fields

import pytest

from cli.inventory_loading import load_host_rigs, load_hosts
from rigwright import inventory
from rigwright.declaration.shared_resolution import read_once, share_resolutions
from rigwright.model.rig import Rig
from tests.unit.samples import OperatorFolder, sample_entry


def entries(number: int, **changes: object) -> dict[str, object]:
    return {f"box{n}": sample_entry(ssh_hostname=f"192.0.2.{n}", **changes) for n in range(1, number + 1)}


def resolutions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the rigs that are resolved from now on."""
    names: list[str] = []
    resolve = inventory.resolve_rig
    monkeypatch.setattr(
        inventory,
        "resolve_rig",
        lambda file, name, *rest, **more: (names.append(name), resolve(file, name, *rest, **more))[1],
    )
    return names


def written(box: OperatorFolder, text: str) -> str:
    box.inventory.write_text(f"from rigwright.inventory import hosts\nrigs = hosts({text})\n")
    return str(box.inventory)


def test_equal_declarations_are_resolved_once_for_an_inventory_and_once_for_its_verb(box, monkeypatch) -> None:
    names = resolutions(monkeypatch)
    path = written(box, repr(entries(5) | {"other": sample_entry(ssh_hostname="192.0.2.99", keep_generations=7)}))
    rigs = load_host_rigs(load_hosts(path, None))
    assert names == ["box1", "other"] * 2
    assert [*rigs] == [one.name for one in rigs.values()] == ["box1", "box2", "box3", "box4", "box5", "other"]
    assert [one.keep_generations for one in rigs.values()] == [5, 5, 5, 5, 5, 7]


def test_a_shared_rig_is_the_one_that_it_would_be_alone(box: OperatorFolder) -> None:
    hosts = load_hosts(written(box, repr(entries(2))), None)
    shared = load_host_rigs(hosts)["box2"]
    alone = inventory.load_rig(hosts["box2"]["rig"])
    for field in fields(Rig):
        if field.name not in ("lock", "requests"):
            assert getattr(shared, field.name) == getattr(alone, field.name), field.name


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), ((0, 1), [0, 1]), ("5", 5), (1, 1.0)],
    ids=repr,
)
def test_values_of_different_types_are_no_equal_declarations(box, monkeypatch, one, other) -> None:
    names = resolutions(monkeypatch)
    table = entries(2)
    table["box1"] |= {"keep_generations": one}  # type: ignore[operator]
    table["box2"] |= {"keep_generations": other}  # type: ignore[operator]
    with pytest.raises(SystemExit):
        box.load_group(table)
    assert names == ["box1", "box2"]


def test_each_box_is_refused_by_its_own_name(box, monkeypatch) -> None:
    names = resolutions(monkeypatch)
    with pytest.raises(SystemExit) as ended:
        box.load_group(entries(3, keep_generations=0, cards=["turing", "amper"]))
    lines = str(ended.value.code).splitlines()
    assert names == ["box1"]
    for key in ("keep_generations", "cards[1]"):
        found = [line for line in lines if f".{key}: " in line]
        assert [line.split(": ")[1] for line in found] == [f"box{n}.{key}" for n in (1, 2, 3)]
        assert len({line.split(": ", 2)[2] for line in found}) == 1


def test_a_refusal_with_the_name_in_its_text_is_shared_by_no_other_box(box, monkeypatch) -> None:
    names = resolutions(monkeypatch)
    with pytest.raises(SystemExit):
        box.load_group({one: sample_entry(ssh_hostname=f"{one}.example", keep_generations=0) for one in ("least", "b")})
    assert names == ["least", "b"]  # "must be at least 1"


def test_files_are_read_again_after_a_block(box: OperatorFolder) -> None:
    data = load_hosts(written(box, repr(entries(1))), None)["box1"]["rig"]
    lock = next(box.folder.glob("locks/*.lock.toml"))
    text = lock.read_text()
    with share_resolutions():
        inventory.load_rig(data)
        lock.write_text("schema = 99\n")
        assert inventory.load_rig(data).name == "box1"
    with pytest.raises(inventory.Invalid, match="99"):
        inventory.load_rig(data)
    lock.write_text(text)
    assert inventory.load_rig(data).name == "box1"


def test_nothing_is_kept_outside_of_a_block_or_after_the_last_of_nested_ones() -> None:
    with share_resolutions():
        with share_resolutions():
            first = read_once("key", object)
        assert read_once("key", object) is first
    with share_resolutions():
        assert read_once("key", object) is not first
    assert read_once("key", object) is not read_once("key", object)


def test_a_thousand_boxes_are_validated_in_the_time_of_few(box: OperatorFolder) -> None:
    table = {f"box{n}": sample_entry(ssh_hostname=f"10.0.{n // 250}.{n % 250}") for n in range(1000)}
    path = written(box, repr(table))
    load_host_rigs(load_hosts(path, "box1"))
    began = time.process_time()
    assert len(load_host_rigs(load_hosts(path, None))) == 1000
    # the processor's seconds of a shared machine; one by one it takes 15
    assert time.process_time() - began < 3 * (1 + os.getloadavg()[0] / (os.cpu_count() or 1))
