"""A generation: the same rig gives the same bytes, every input another digest, and the host finds the same one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rigwright.delivery.tools import Tools
from rigwright.model.entry import Roots
from rigwright.model.rig import Rig
from rigwright.serving.generation import SETTLE, Generation, generation
from rigwright.serving.listeners import names
from rigwright.serving.units import OWNED
from tests.unit.samples import artefact, card, instance, parts, plan, rig
from tests.unit.scripts import TOOLS
from tests.unit.states import CHAT, CODE, two, wanted

CARDS = (card("8.6"), card("7.5"))


def made(one: Rig | None = None, engine: str = "0123456789ab", tools: Tools = TOOLS) -> Generation:
    return generation(one or rig(instance(), cards=CARDS), {"plain": plan(digest=engine)}, tools)


def test_the_same_rig_gives_the_same_bytes() -> None:
    assert made() == made()
    assert made().digest == made().digest


INPUTS: dict[str, Any] = {
    "name": lambda: made(rig(instance(), cards=CARDS, name="other")),
    "cards": lambda: made(rig(instance(), cards=CARDS[:1])),
    "no instance": lambda: made(rig(cards=CARDS)),
    "one more instance": lambda: made(rig(instance(), instance("code", port=8021), cards=CARDS)),
    "an instance's name": lambda: made(rig(instance("code"), cards=CARDS)),
    "port": lambda: made(rig(instance(port=8021), cards=CARDS)),
    "card": lambda: made(rig(instance(cards=(0,)), cards=CARDS)),
    "another card": lambda: made(rig(instance(cards=(1,)), cards=CARDS)),
    "context": lambda: made(rig(instance(context=8192), cards=CARDS)),
    "variant's name": lambda: made(rig(instance(variant_name="llamacpp/other"), cards=CARDS)),
    "weights": lambda: made(rig(instance(parts=parts(artefact(sha256="c" * 64))), cards=CARDS)),
    "memory": lambda: made(rig(instance(memory_max="1G"), cards=CARDS)),
    "tasks": lambda: made(rig(instance(tasks_max=9), cards=CARDS)),
    "user": lambda: made(rig(instance(), cards=CARDS, service_user="svc")),
    "software": lambda: made(rig(instance(), cards=CARDS, roots=Roots(software="/data/s"))),
    "models": lambda: made(rig(instance(), cards=CARDS, roots=Roots(models="/data/m"))),
    "config": lambda: made(rig(instance(), cards=CARDS, roots=Roots(config="/etc/other"))),
    "engine": lambda: made(engine="ba9876543210"),
    "tools": lambda: made(tools=replace(TOOLS, folder="/opt/rigwright/tools-ba9876543210")),
}


def test_every_input_has_a_digest_and_a_mark_of_its_own() -> None:
    found = {name: other() for name, other in INPUTS.items()} | {"none": made()}
    assert len({one.digest for one in found.values()}) == len(found)
    assert len({one.mark for one in found.values()}) == len(found)


@pytest.mark.parametrize(
    "changes",
    [
        {"mirrors": {}},
        {"proxy": "http://proxy:3128", "no_proxy": ("example.org",)},
        {"ca_certificates": "-----BEGIN CERTIFICATE-----\n"},
        {"keep_generations": 1},
        {"cuda_root": "/opt/cuda"},
        {"inventory": "/elsewhere/rig.py"},
    ],
    ids=lambda changes: "+".join(changes),
)
def test_what_is_not_served_is_no_input(changes: dict[str, Any]) -> None:
    assert made(rig(instance(), cards=CARDS, **changes)) == made()


@pytest.mark.parametrize("path", sorted(made().files))
def test_every_byte_of_every_file_counts(path: str) -> None:
    one = made()
    assert replace(one, files={**one.files, path: one.files[path] + " "}).digest != one.digest
    assert replace(one, files={p: text for p, text in one.files.items() if p != path}).digest != one.digest


@pytest.mark.parametrize("path", sorted(made().links))
def test_every_link_counts(path: str) -> None:
    one = made()
    assert replace(one, links={**one.links, path: "/elsewhere"}).digest != one.digest
    assert replace(one, links={p: to for p, to in one.links.items() if p != path}).digest != one.digest


def test_a_generation_has_a_unit_an_instance_and_what_they_share() -> None:
    one = wanted()
    shared = ["rigwright.slice", "rigwright.target", SETTLE]
    ports = [*names(8020), *names(8021)]
    assert one.unit_files == tuple(sorted([CHAT, CODE, *ports, *shared]))
    assert all(one.files[f"units/{name}"].startswith(OWNED + "\n") for name in one.unit_files)
    assert {"env/chat", "env/code", "ready", "started", "settle"} <= set(one.files)
    target = one.files["units/rigwright.target"].splitlines()
    # what holds a port comes before what carries it
    holders = [name for port in (8020, 8021) for name in reversed(names(port))]
    assert f"Wants={' '.join([SETTLE, *holders, CHAT, CODE])}" in target
    assert f"Description=All instances of this rig, generation {one.mark}" in target


def test_another_port_changes_listeners_alone() -> None:
    """An engine does not know it, and is not started again for it."""
    before, after = wanted(two(instance("chat"))), wanted(two(instance("chat", port=9000)))
    assert before.units == after.units
    assert set(before.unit_files) ^ set(after.unit_files) == {*names(8020), *names(9000)}
    changed = {path for path in before.files if after.files.get(path) != before.files[path]}
    assert changed == {"manifest.json", "units/rigwright.target", *(f"units/{name}" for name in names(8020))}


def test_a_generation_refers_to_all_that_it_needs_on_the_host() -> None:
    one = rig(instance("a"), instance("b", port=8021, parts=parts(artefact(name="other"))))
    assert made(one).files["references"].splitlines() == sorted(
        [
            "/etc/rigwright/credentials/a.api-key",
            "/etc/rigwright/credentials/b.api-key",
            "/opt/rigwright/engines/plain-1.0-0123456789ab",
            TOOLS.folder,
            *(one.weight_path(weights) for weights in one.weights),
        ]
    )


def test_a_generation_links_its_engines_and_tools() -> None:
    assert made().links == {"engines/plain": "/opt/rigwright/engines/plain-1.0-0123456789ab", "tools": TOOLS.folder}


def test_the_manifest_says_what_the_rig_is() -> None:
    one = two()
    said = json.loads(wanted(one).files["manifest.json"])
    assert said["rig"] == "box"
    assert said["engines"] == {"plain": "/opt/rigwright/engines/plain-1.0-0123456789ab"}
    assert said["weights"] == {one.weight_path(artefact()): artefact().sha256}
    assert {name: row["port"] for name, row in said["instances"].items()} == {"chat": 8020, "code": 8021}
    assert {row["digest"] for row in said["instances"].values()} == {unit.digest for unit in wanted(one).units}


def test_no_file_of_a_generation_holds_a_key(tmp_path: Any) -> None:
    path = tmp_path / "key"
    path.write_text("sk-secret-0123456789")
    text = json.dumps(made(rig(instance(api_key_file=str(path)))).files)
    assert "sk-secret" not in text
    assert str(path) not in text
