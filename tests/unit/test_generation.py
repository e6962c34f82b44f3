"""A generation: the same rig gives the same bytes, every input another digest, and the host finds the same one."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rigwright.fetch_job_spec import ToolEnvironment
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.instance import loaded_weights
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.serving.generation import SETTLE, Generation, build_generation
from rigwright.serving.instance_units import OWNED_HEADER, listener_units
from tests.unit.host_states import CHAT, CODE, target_generation, two_instance_rig
from tests.unit.rendered_scripts import TOOLS
from tests.unit.samples import sample_artefact, sample_build, sample_card, sample_instance, sample_parts, sample_rig

CARDS = (sample_card("8.6"), sample_card("7.5"))


def make_generation(one: Rig | None = None, engine: str = "0123456789ab", tools: ToolEnvironment = TOOLS) -> Generation:
    return build_generation(
        one or sample_rig(sample_instance(), cards=CARDS), {"plain": sample_build(digest=engine)}, tools
    )


def test_the_same_rig_gives_the_same_bytes() -> None:
    assert make_generation() == make_generation()
    assert make_generation().digest == make_generation().digest


INPUTS: dict[str, Any] = {
    "name": lambda: make_generation(sample_rig(sample_instance(), cards=CARDS, name="other")),
    "cards": lambda: make_generation(sample_rig(sample_instance(), cards=CARDS[:1])),
    "no instance": lambda: make_generation(sample_rig(cards=CARDS)),
    "one more instance": lambda: make_generation(
        sample_rig(sample_instance(), sample_instance("code", port=8021), cards=CARDS)
    ),
    "an instance's name": lambda: make_generation(sample_rig(sample_instance("code"), cards=CARDS)),
    "port": lambda: make_generation(sample_rig(sample_instance(port=8021), cards=CARDS)),
    "card": lambda: make_generation(sample_rig(sample_instance(cards=(0,)), cards=CARDS)),
    "another card": lambda: make_generation(sample_rig(sample_instance(cards=(1,)), cards=CARDS)),
    "context": lambda: make_generation(sample_rig(sample_instance(context=8192), cards=CARDS)),
    "variant's name": lambda: make_generation(sample_rig(sample_instance(variant_name="llamacpp/other"), cards=CARDS)),
    "weights": lambda: make_generation(
        sample_rig(sample_instance(parts=sample_parts(sample_artefact(sha256="c" * 64))), cards=CARDS)
    ),
    "memory": lambda: make_generation(sample_rig(sample_instance(memory_max="1G"), cards=CARDS)),
    "tasks": lambda: make_generation(sample_rig(sample_instance(tasks_max=9), cards=CARDS)),
    "user": lambda: make_generation(sample_rig(sample_instance(), cards=CARDS, accounts=ServiceAccounts("svc"))),
    "software": lambda: make_generation(sample_rig(sample_instance(), cards=CARDS, roots=Roots(software="/data/s"))),
    "models": lambda: make_generation(sample_rig(sample_instance(), cards=CARDS, roots=Roots(models="/data/m"))),
    "config": lambda: make_generation(sample_rig(sample_instance(), cards=CARDS, roots=Roots(config="/etc/other"))),
    "engine": lambda: make_generation(engine="ba9876543210"),
    "tools": lambda: make_generation(tools=replace(TOOLS, folder="/opt/rigwright/tools-ba9876543210")),
}


def test_every_input_has_a_digest_and_a_mark_of_its_own() -> None:
    found = {name: other() for name, other in INPUTS.items()} | {"none": make_generation()}
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
def test_unserved_models_are_no_inputs(changes: dict[str, Any]) -> None:
    assert make_generation(sample_rig(sample_instance(), cards=CARDS, **changes)) == make_generation()


@pytest.mark.parametrize("path", sorted(make_generation().files))
def test_every_byte_of_every_file_counts(path: str) -> None:
    one = make_generation()
    assert replace(one, files={**one.files, path: one.files[path] + " "}).digest != one.digest
    assert replace(one, files={p: text for p, text in one.files.items() if p != path}).digest != one.digest


@pytest.mark.parametrize("path", sorted(make_generation().links))
def test_every_link_counts(path: str) -> None:
    one = make_generation()
    assert replace(one, links={**one.links, path: "/elsewhere"}).digest != one.digest
    assert replace(one, links={p: to for p, to in one.links.items() if p != path}).digest != one.digest


def test_a_generation_has_a_unit_an_instance_and_what_they_share() -> None:
    one = target_generation()
    shared = ["rigwright.slice", "rigwright.target", SETTLE]
    ports = [*listener_units(8020), *listener_units(8021)]
    assert one.unit_files == tuple(sorted([CHAT, CODE, *ports, *shared]))
    assert all(one.files[f"units/{name}"].startswith(OWNED_HEADER + "\n") for name in one.unit_files)
    assert {"env/chat", "env/code", "ready", "started", "settle"} <= set(one.files)
    target = one.files["units/rigwright.target"].splitlines()
    # the holder of a port comes before its carrier
    holders = [name for port in (8020, 8021) for name in reversed(listener_units(port))]
    assert f"Wants={' '.join([SETTLE, *holders, CHAT, CODE])}" in target
    assert f"Description=All instances of this rig, generation {one.mark}" in target


def test_another_port_changes_listeners_alone() -> None:
    """An engine does not know it, and is not started again for it."""
    before, after = (
        target_generation(two_instance_rig(sample_instance("chat"))),
        target_generation(two_instance_rig(sample_instance("chat", port=9000))),
    )
    assert before.units == after.units
    assert set(before.unit_files) ^ set(after.unit_files) == {*listener_units(8020), *listener_units(9000)}
    changed = {path for path in before.files if after.files.get(path) != before.files[path]}
    assert changed == {"manifest.json", "units/rigwright.target", *(f"units/{name}" for name in listener_units(8020))}


def test_a_generation_refers_to_all_that_it_needs_on_the_host() -> None:
    one = sample_rig(
        sample_instance("a"), sample_instance("b", port=8021, parts=sample_parts(sample_artefact(name="other")))
    )
    assert make_generation(one).files["references"].splitlines() == sorted(
        [
            "/etc/rigwright/credentials/a.api-key",
            "/etc/rigwright/credentials/b.api-key",
            "/opt/rigwright/engines/plain-1.0-0123456789ab",
            TOOLS.folder,
            *(one.roots.weight_path(weights) for weights in loaded_weights(one.instances)),
        ]
    )


def test_a_generation_links_its_engines_and_tools() -> None:
    assert make_generation().links == {
        "engines/plain": "/opt/rigwright/engines/plain-1.0-0123456789ab",
        "tools": TOOLS.folder,
    }


def test_the_manifest_says_what_the_rig_is() -> None:
    one = two_instance_rig()
    said = json.loads(target_generation(one).files["manifest.json"])
    assert said["rig"] == "box"
    assert said["engines"] == {"plain": "/opt/rigwright/engines/plain-1.0-0123456789ab"}
    assert said["weights"] == {one.roots.weight_path(sample_artefact()): sample_artefact().sha256}
    assert {name: row["port"] for name, row in said["instances"].items()} == {"chat": 8020, "code": 8021}
    assert {row["digest"] for row in said["instances"].values()} == {
        unit.digest for unit in target_generation(one).units
    }


def test_no_file_of_a_generation_holds_a_key(tmp_path: Any) -> None:
    path = tmp_path / "key"
    path.write_text("sk-secret-0123456789")
    text = json.dumps(make_generation(sample_rig(sample_instance(api_key_file=str(path)))).files)
    assert "sk-secret" not in text
    assert str(path) not in text
