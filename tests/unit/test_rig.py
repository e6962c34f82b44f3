"""A rig's entry: every name in it is resolved, and what cannot be is refused."""

import json
from dataclasses import replace

import pytest

from rigwright.fetch_job_spec import render_fetch_spec
from rigwright.inventory import load_rig
from rigwright.model.instance import loaded_weights, standalone_engines
from rigwright.model.rig import Rig
from rigwright.supply.artefact_addresses import artefact_urls
from tests.lock_files import render_sealed_lock
from tests.unit import samples
from tests.unit.sample_texts import CATALOG, LOCK, SOURCE_ROW, WEIGHT_ROW
from tests.unit.samples import (
    OperatorFolder,
    changed_rig,
    chat_instances,
    sample_artefact,
    sample_entry,
    sample_instance,
)


@pytest.mark.parametrize(
    ("instances", "cards", "line"),
    [
        ({"a": ("cpu", [], 8020), "b": ("cpu", [], 8020)}, 2, "b.port: 8020 is already the port of a"),
        ({"a": ("two", [0, 1], 8020), "b": ("one", [1], 8021)}, 2, "b.cards: card 1 is already taken by a"),
        ({"a": ("two", [1, 1], 8020)}, 2, "a.cards: card 1 is listed twice"),
        ({"a": ("one", [1], 8020)}, 1, "a.cards: no card 1: the rig declares 1 card, counted from 0"),
        ({"a": ("two", [0, 15], 8020)}, 2, "a.cards: no card 15: the rig declares 2 cards, counted from 0"),
        ({"a": ("two", [0], 8020)}, 2, "a.cards: llamacpp/two needs 2 cards, but 1 are listed"),
        ({"a": ("two", [], 8020)}, 2, "a.cards: llamacpp/two needs 2 cards, but 0 are listed"),
        ({"a": ("one", [0, 1], 8020)}, 2, "a.cards: llamacpp/one needs 1 card, but 2 are listed"),
        ({"a": ("cpu", [0], 8020)}, 2, "a.cards: llamacpp/cpu needs 0 cards, but 1 are listed"),
        (
            {"a": ("tow", [0, 1], 8020)},
            2,
            'a.variant: there is no variant "llamacpp/tow"; did you mean "llamacpp/two"?',
        ),
    ],
)
def test_ports_and_cards_that_instances_cannot_have_are_refused(
    box: OperatorFolder, instances: dict[str, tuple[str, list[int], int]], cards: int, line: str
) -> None:
    declared = {
        name: {"variant": f"llamacpp/{variant}", "cards": listed, "port": port}
        for name, (variant, listed, port) in instances.items()
    }
    found = box.refusal_lines(cards=["turing", "ampere"][-cards:], instances=declared)
    assert [one[: len(f"{box.inventory}: box.instances.{line}")] for one in found] == [
        f"{box.inventory}: box.instances.{line}"
    ]


def test_an_unknown_card_is_refused_with_the_nearest_one(box: OperatorFolder) -> None:
    (line,) = box.refusal_lines(cards=["turing", "amper"])
    assert line.startswith(f'{box.inventory}: box.cards[1]: there is no card "amper"; did you mean "ampere"?')


@pytest.mark.parametrize(
    ("name", "text", "essence"),
    [
        ("catalog/box.toml", CATALOG.replace('engine = "plain"', 'engine = "plane"'), 'there is no engine "plane"'),
        ("catalog/box.toml", CATALOG.replace('model = "small"', 'model = "smal"'), 'there is no model "smal"'),
        ("locks/box.lock.toml", render_sealed_lock(WEIGHT_ROW), 'there is no locked source "engine-source"'),
        ("locks/box.lock.toml", render_sealed_lock(SOURCE_ROW), 'there is no locked weight "small"'),
    ],
)
def test_a_variant_whose_parts_are_missing_is_refused(box: OperatorFolder, name: str, text: str, essence: str) -> None:
    box.write(name, text)
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.startswith(f"{box.inventory}: box.instances.chat.variant: llamacpp/cpu: {essence}")


EYE = 'file = "small"\nmmproj = "eye"\n'
EYE_ROW = WEIGHT_ROW.replace('name = "small"', 'name = "eye"').replace("small-q4", "eye-f16")


def test_a_models_projector_is_a_weight_of_the_rig(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG.replace('file = "small"\n', EYE))
    box.write("locks/box.lock.toml", render_sealed_lock(SOURCE_ROW, WEIGHT_ROW, EYE_ROW))
    (group,) = box.load_group({"box": sample_entry()})
    made = load_rig(group[1]["rig"])
    assert [[(part.option, part.files[0].name) for part in i.parts] for i in made.instances] == [
        [("model", "small"), ("mmproj", "eye")]
    ] * 2
    assert [artefact.file for artefact in loaded_weights(made.instances)] == ["eye-f16.gguf", "small-q4.gguf"]


@pytest.mark.parametrize(
    ("row", "essence"),
    [
        ("", 'llamacpp/cpu: there is no locked weight "eye"'),
        (
            EYE_ROW.replace('kind = "weight"', 'kind = "source"'),
            "llamacpp/cpu: the lock's eye is a source, not a weight",
        ),
    ],
)
def test_a_projector_that_the_lock_lacks_or_has_as_another_kind_is_refused(
    box: OperatorFolder, row: str, essence: str
) -> None:
    box.write("catalog/box.toml", CATALOG.replace('file = "small"\n', EYE))
    box.write("locks/box.lock.toml", render_sealed_lock(SOURCE_ROW, WEIGHT_ROW, *([row] if row else [])))
    assert f"box.instances.chat.variant: {essence}" in "\n".join(box.refusal_lines(instances=chat_instances()))


def test_a_projector_without_any_address_is_refused(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG.replace('file = "small"\n', EYE))
    box.write("locks/box.lock.toml", render_sealed_lock(SOURCE_ROW, WEIGHT_ROW, EYE_ROW.replace("store:", "other:")))
    (line,) = box.refusal_lines(instances=chat_instances())
    assert "box.mirrors: eye" in line


def test_a_missing_engine_and_a_missing_model_are_reported_together(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG.replace('engine = "plain"', 'engine = "x"').replace('"small"', '"y"'))
    assert len(box.refusal_lines(instances=chat_instances())) == 2


def test_mistakes_in_catalogue_and_lock_are_reported_together(box: OperatorFolder) -> None:
    catalog = box.write("catalog/box.toml", CATALOG.replace("pci_ids", "pci_idz"))
    lock = box.write("locks/box.lock.toml", LOCK.replace("schema = 1", "schema = 7"))
    lines = box.refusal_lines()
    assert any(line.startswith(f"{catalog}: cards.turing.pci_idz: unknown key") for line in lines)
    assert any(line.startswith(f"{lock}: schema: 7 is refused: must be 1") for line in lines)


@pytest.mark.parametrize(
    "mirrors", [{}, {"stor": ["http://x"]}, {"store": []}], ids=["none", "another", "without addresses"]
)
def test_weights_without_any_address_are_refused(box: OperatorFolder, mirrors: dict[str, list[str]]) -> None:
    (line,) = box.refusal_lines(mirrors=mirrors)
    essence = f"small {samples.COMMIT} has no address: the lock places it in the mirror store (store:small-q4.gguf)"
    assert line == f'{box.inventory}: box.mirrors: {essence}; add "mirrors": {{"store": ["https://..."]}}'


@pytest.mark.parametrize(("source", "lines"), [("index:some-project", 0), ("http://h/x", 0), ("other:x", 1)])
def test_a_source_may_come_from_the_index_alone(box: OperatorFolder, source: str, lines: int) -> None:
    box.write("locks/box.lock.toml", LOCK.replace('["index:some-project", "store:engine-1.0.tar.gz"]', f'["{source}"]'))
    if lines:
        (line,) = box.refusal_lines()
        assert line.startswith(f"{box.inventory}: box.mirrors: engine-source 1.0 has no address")
    else:
        assert len(box.load_group({"box": sample_entry()})) == 1


def test_weights_do_not_come_from_the_index(box: OperatorFolder) -> None:
    box.write("locks/box.lock.toml", LOCK.replace('["store:small-q4.gguf"]', '["index:some-project"]'))
    (line,) = box.refusal_lines()
    assert "box.mirrors: small" in line


@pytest.mark.parametrize(
    ("old", "new", "essence"),
    [
        ('kind = "source"', 'kind = "weight"', "the lock's engine-source is a weight, not a source"),
        ('kind = "weight"', 'kind = "source"', "the lock's small is a source, not a weight"),
    ],
)
def test_an_artefact_of_another_kind_is_refused(box: OperatorFolder, old: str, new: str, essence: str) -> None:
    box.write("locks/box.lock.toml", LOCK.replace(old, new))
    lines = box.refusal_lines(instances=chat_instances())
    assert f"{box.inventory}: box.instances.chat.variant: llamacpp/cpu: {essence}" in lines


@pytest.mark.parametrize(
    "changes",
    [
        {"service_user": 5},
        {"roots": {"models": "srv"}},
        {"roots": "/srv"},
        {"cud_root": "/x"},
        {"instances": {"a": chat_instances(variant="llamacpp/tow")["chat"], "b": {"variant": 5, "port": 1}}},
    ],
    ids=lambda changes: "+".join(changes),
)
def test_a_wrong_type_hides_no_wrong_name(box: OperatorFolder, changes: dict[str, object]) -> None:
    wrong = {
        "cards": ["turin", "ampere"],
        "instances": chat_instances(variant="llamacpp/tow") | {"a": chat_instances()["chat"]},
    } | changes
    keys = [line.removeprefix(f"{box.inventory}: box.").split(": ")[0] for line in box.refusal_lines(**wrong)]
    assert "cards[0]" in keys
    assert any(key.startswith("instances.") and key.endswith(".variant") for key in keys)
    assert any(key.split(".")[0] in changes and key != "cards[0]" for key in keys)


def test_a_mirror_that_nothing_needs_is_not_missed(box: OperatorFolder) -> None:
    (group,) = box.load_group({"box": sample_entry(instances={}, mirrors={})})
    assert load_rig(group[1]["rig"]).instances == ()


@pytest.mark.parametrize(
    ("sources", "mirrors", "urls"),
    [
        (["store:a/b.gguf"], {"store": ("http://x/", "https://y/z")}, ["http://x/a/b.gguf", "https://y/z/a/b.gguf"]),
        (["https://x/b", "store:b"], {"store": ("http://y",)}, ["https://x/b", "http://y/b"]),
        (["index:project", "http://x/b"], {}, ["http://x/b"]),
        (["index:project"], {"index": ("http://x",)}, []),
        (["hub:org/name", "http://x/b"], {"hub": ("http://h",)}, ["http://x/b"]),
        (["store:b", "other:b"], {"other": ("http://o",), "store": ("http://s",)}, ["http://s/b", "http://o/b"]),
    ],
)
def test_addresses_are_tried_in_the_locks_order_and_below_every_mirror(
    sources: list[str], mirrors: dict[str, tuple[str, ...]], urls: list[str]
) -> None:
    assert artefact_urls(sample_artefact(sources=sources), samples.sample_rig(mirrors=mirrors).network.mirrors) == urls


def test_weights_that_two_instances_load_are_one_file() -> None:
    other = sample_artefact(name="another")
    made = samples.sample_rig(
        sample_instance("a"), sample_instance("b"), sample_instance("c", parts=samples.sample_parts(other))
    )
    assert loaded_weights(made.instances) == (other, sample_artefact())


def test_a_file_that_two_inputs_lock_of_one_repository_is_one() -> None:
    one, other = (
        sample_artefact(name=name, group=name, repository="org/name", sources=["hub:org/name"])
        for name in ("one", "two")
    )
    made = samples.sample_rig(
        sample_instance("a", parts=samples.sample_parts(other)), sample_instance("b", parts=samples.sample_parts(one))
    )
    assert loaded_weights(made.instances) == (one,)


def test_two_revisions_of_weights_lie_beside_each_other() -> None:
    made = samples.sample_rig()
    paths = {made.roots.weight_path(sample_artefact(version=version)) for version in ("1" * 40, "2" * 40)}
    assert paths == {f"/srv/models/small/{digit * 40}/small-q4.gguf" for digit in "12"}


def test_only_engines_that_instances_use_are_needed() -> None:
    made: Rig = samples.sample_rig(sample_instance("a"), replace(sample_instance("b"), engine_name="other"))
    assert sorted(standalone_engines(made.instances)) == ["other", "plain"]
    assert standalone_engines(samples.sample_rig().instances) == {}


def test_instances_are_in_the_order_of_their_names_whatever_the_inventorys(box: OperatorFolder) -> None:
    names = ("z", "a", "m")
    declared = {name: {"variant": "llamacpp/cpu", "port": 8020 + n} for n, name in enumerate(names)}
    (group,) = box.load_group({"box": sample_entry(instances=declared)})
    assert [i.name for i in load_rig(group[1]["rig"]).instances] == ["a", "m", "z"]


def test_a_file_that_two_inputs_select_is_one_file(box: OperatorFolder) -> None:
    group = f'group = "{{name}}"\nrepository = "org/name"\nversion = "{samples.COMMIT}"\nfile = "x.gguf"\n'
    rest = f'sha256 = "{"b" * 64}"\nsize = 5\nsources = ["hub:org/name"]\n'
    rows = [f'\n[[artefact]]\nkind = "weight"\nname = "{name}"\n{group.format(name=name)}{rest}' for name in "ab"]
    box.write("locks/box.lock.toml", render_sealed_lock(SOURCE_ROW, WEIGHT_ROW, *rows))
    variant = '[models.{0}]\nfile = "{0}"\n[variants."llamacpp/{0}"]\nengine = "plain"\nmodel = "{0}"\ncontext = 4096\n'
    box.write("catalog/box.toml", CATALOG + "".join(variant.format(name) for name in "ab"))
    instances = {name: {"variant": f"llamacpp/{name}", "port": 8020 + at} for at, name in enumerate("ab")}
    rig = load_rig(box.load_group({"box": sample_entry(instances=instances)})[0][1]["rig"])
    assert [row.weight_path for row in loaded_weights(rig.instances)] == [f"org/name/{samples.COMMIT}/x.gguf"]
    assert [len(instance.weights) for instance in rig.instances] == [1, 1]
    box_rig = changed_rig(rig, mirrors={"hub": ()})
    told = json.loads(
        render_fetch_spec(
            box_rig.roots,
            box_rig.accounts,
            box_rig.network,
            box_rig.fs_verity,
            loaded_weights(rig.instances),
            client="",
        )
    )
    # a table of mirrors that names no endpoint leaves the client's own
    assert [source["endpoint"] for file in told["files"] for source in file["sources"]] == [""]
