"""Inventories: the data that `hosts()` hands to pyinfra, and the errors that it ends the run with instead."""

from pathlib import Path

import pytest

from rigwright.inventory import load_rig
from rigwright.model.instance import standalone_engines
from rigwright.problems import Invalid
from tests.lock_files import render_sealed_lock
from tests.unit.sample_texts import CATALOG, SOURCE_ROW, WEIGHT_ROW
from tests.unit.samples import HELP_FILE, OperatorFolder, chat_instances, sample_entry


def test_a_valid_inventory_becomes_a_group_of_hosts_with_their_rigs(box: OperatorFolder) -> None:
    ((name, data),) = box.load_group({"box": sample_entry(_sudo=True, ssh_port=2222)})
    rig = load_rig(data["rig"])
    assert name == rig.name == "box"
    assert (data["ssh_hostname"], data["ssh_port"], data["_sudo"]) == ("192.0.2.7", 2222, True)
    assert [card.capability for card in rig.cards] == ["7.5", "8.6"]
    assert [(i.name, i.cards, i.port) for i in rig.instances] == [("chat", (0, 1), 8020), ("code", (), 8021)]
    assert "cards" not in data


@pytest.mark.parametrize("entries", [{}, None, [], [("box", {})], "box", 5], ids=repr)
def test_an_inventory_without_entries_is_refused(box: OperatorFolder, entries: object) -> None:
    with pytest.raises(SystemExit) as ended:
        box.load_group(entries)
    assert str(ended.value.code).startswith(f"{box.inventory}: hosts(): must be a table with at least one rig")


@pytest.mark.parametrize("value", [None, [], "x", 5, [("cards", [])]], ids=repr)
def test_an_entry_that_is_no_table_is_refused_beside_the_others(box: OperatorFolder, value: object) -> None:
    with pytest.raises(SystemExit) as ended:
        box.load_group({"a": value, "b": sample_entry(cards=["turin", "ampere"])})
    first, second = str(ended.value.code).splitlines()
    assert first == f"{box.inventory}: a: {value!r} is refused: must be a table of keys"
    assert second.startswith(f"{box.inventory}: b.cards[0]: ")


@pytest.mark.parametrize(
    ("changes", "place", "near"),
    [
        ({"card": ["turing"]}, "box.card", "cards"),
        ({"instance": {}}, "box.instance", "instances"),
        ({"ssh_hostnme": "x"}, "box.ssh_hostnme", "ssh_hostname"),
        ({"_sud": True}, "box._sud", "_sudo"),
        ({"sudo": True}, "box.sudo", "_sudo"),
        ({"hostname": "x"}, "box.hostname", "ssh_hostname"),
        ({"ssh_mirrors": {}}, "box.ssh_mirrors", "mirrors"),
        ({"roots": {"modls": "/srv"}}, "box.roots.modls", "models"),
        ({"instances": chat_instances(prt=1)}, "box.instances.chat.prt", "port"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(box, changes, place, near):
    (line,) = box.refusal_lines(**changes)
    assert line.startswith(f'{box.inventory}: {place}: unknown key; did you mean "{near}"?'), line


def test_a_password_has_no_place_in_an_inventory(box: OperatorFolder) -> None:
    text = "\n".join(box.refusal_lines(ssh_password="hunter2-hunter2"))
    assert text.endswith("box.ssh_password: unknown key; passwords are not supported: use an SSH key")
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"cards": "turing"}, "box.cards"),
        ({"cards": None}, "box.cards"),
        ({"cards": [3090]}, "box.cards[0]"),
        ({"instances": []}, "box.instances"),
        ({"instances": {"chat": None}}, "box.instances.chat"),
        ({"instances": chat_instances(port="8020")}, "box.instances.chat.port"),
        ({"instances": chat_instances(port=8020.0)}, "box.instances.chat.port"),
        ({"instances": chat_instances(port=80)}, "box.instances.chat.port"),
        ({"instances": chat_instances(memory_max=48)}, "box.instances.chat.memory_max"),
        ({"instances": chat_instances(memory_max="infinity")}, "box.instances.chat.memory_max"),
        ({"instances": chat_instances(tasks_max=0)}, "box.instances.chat.tasks_max"),
        ({"instances": chat_instances(tasks_max="4096")}, "box.instances.chat.tasks_max"),
        ({"instances": chat_instances(cards=["0"])}, "box.instances.chat.cards[0]"),
        ({"instances": chat_instances(cards=[-1])}, "box.instances.chat.cards[0]"),
        ({"instances": chat_instances(cards=[True])}, "box.instances.chat.cards[0]"),
        ({"instances": chat_instances(variant=65)}, "box.instances.chat.variant"),
        ({"instances": {"chat": {"variant": "llamacpp/cpu"}}}, "box.instances.chat.port"),
        ({"mirrors": {"store": "http://x"}}, "box.mirrors.store"),
        ({"mirrors": {"store": ["ftp://x"]}}, "box.mirrors.store[0]"),
        ({"roots": "/srv"}, "box.roots"),
        ({"service_user": 5}, "box.service_user"),
        ({"cuda_root": 13}, "box.cuda_root"),
        ({"ssh_hostname": None}, "box.ssh_hostname"),
        ({"ssh_hostname": "-oProxyCommand=id"}, "box.ssh_hostname"),
        ({"ssh_user": "root; id"}, "box.ssh_user"),
        ({"ssh_user": 5}, "box.ssh_user"),
        ({"ssh_port": "22"}, "box.ssh_port"),
        ({"ssh_port": 0}, "box.ssh_port"),
        ({"ssh_port": 65536}, "box.ssh_port"),
        ({"ssh_port": True}, "box.ssh_port"),
        ({"ssh_key": ""}, "box.ssh_key"),
        ({"ssh_key": "-x"}, "box.ssh_key"),
        ({"ssh_key": "a\nb"}, "box.ssh_key"),
        ({"ssh_config_file": []}, "box.ssh_config_file"),
        ({"ssh_known_hosts_file": 5}, "box.ssh_known_hosts_file"),
        ({"ssh_strict_host_key_checking": False}, "box.ssh_strict_host_key_checking"),
        ({"ssh_forward_agent": "yes"}, "box.ssh_forward_agent"),
        ({"ssh_connect_retries": -1}, "box.ssh_connect_retries"),
        ({"ssh_connect_retries": 1.0}, "box.ssh_connect_retries"),
        ({"_sudo": "True"}, "box._sudo"),
        ({"_sudo": 1}, "box._sudo"),
        ({"service_user": "root"}, "box.service_user"),
        ({"service_user": "ops", "ssh_user": "ops"}, "box.service_user"),
        ({"ssh_user": "rigwright"}, "box.service_user"),  # where that is the default
        ({"roots": {"models": "/home/ops/models"}}, "box.roots.models"),
        ({"roots": {"models": "/data", "state": "/data/state"}}, "box.roots"),
        ({"roots": {"models": "/data", "state": "/data"}}, "box.roots"),
        ({"roots": {"models": "/opt/rigwright/models"}}, "box.roots"),
    ],
)
def test_a_wrong_type_or_value_is_refused_with_file_and_key(box, changes, place):
    lines = box.refusal_lines(**changes)
    assert any(line.startswith(f"{box.inventory}: {place}: ") for line in lines), lines


NAME_RULE = "at most 48 lowercase letters, digits and dashes"
HOSTILE = ["x\n", "x y", "x'", 'x"', "%n", "-x", "../x", "$(id)", "`id`", "x;id", "x\0", "\x1b[31m", "é", "\u2028", ""]
FIELDS = {
    "cards": lambda text: {"cards": [text]},
    "instance": lambda text: {"instances": {text: {"variant": "llamacpp/cpu", "port": 8020}}},
    "variant": lambda text: {"instances": chat_instances(variant=text)},
    "engine/variant": lambda text: {"instances": chat_instances(variant=f"llamacpp/{text}")},
    "service_user": lambda text: {"service_user": text},
    "cuda_root": lambda text: {"cuda_root": text},
    "root": lambda text: {"roots": {"models": text}},
    "mirror": lambda text: {"mirrors": {text: ["http://127.0.0.1"]}},
    "ssh_hostname": lambda text: {"ssh_hostname": text},
    "ssh_user": lambda text: {"ssh_user": text},
}


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("field", FIELDS)
def test_hostile_text_is_refused_in_every_field(box: OperatorFolder, field: str, text: str) -> None:
    assert str(box.inventory) in "".join(box.refusal_lines(**FIELDS[field](text)))


@pytest.mark.parametrize("text", [text for text in HOSTILE if text not in ("%n", "-x", "../x", "")], ids=ascii)
@pytest.mark.parametrize("before", ["http://", "http://host/", "http://host:80/a/"])
def test_hostile_text_is_refused_everywhere_in_a_mirrors_address(box: OperatorFolder, before: str, text: str) -> None:
    lines = box.refusal_lines(mirrors={"store": ["http://127.0.0.1", before + text]})
    assert any(line.startswith(f"{box.inventory}: box.mirrors.store[1]: ") for line in lines), lines


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a\n", "@local", "a.b", "a" * 49, "é", "$(id)"], ids=ascii)
def test_a_rig_is_called_what_a_host_can_be_called(box: OperatorFolder, name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        box.load_group({name: sample_entry()})
    shown = name.replace("\n", "\\n") or "''"
    message = str(ended.value.code).partition("; did you mean ")[0]
    assert message == f"{box.inventory}: {shown}: is not a valid rig name: must be {NAME_RULE}"


@pytest.mark.parametrize("name", [5, None, True, (1, 2)], ids=repr)
def test_a_rig_is_named_by_text(box: OperatorFolder, name: object) -> None:
    with pytest.raises(SystemExit) as ended:
        box.load_group({name: sample_entry()})
    assert ended.value.code == f"{box.inventory}: {name}: is not a valid rig name: must be text"


@pytest.mark.parametrize("key", [5, None, 1.5, True, b"cards", (1, 2), "\ud800"], ids=ascii)
def test_keys_and_instances_are_named_by_text(box: OperatorFolder, key: object) -> None:
    declared: dict[object, object] = {
        **sample_entry(instances={**chat_instances(), key: chat_instances()["chat"]}),
        key: 1,
    }
    with pytest.raises(SystemExit) as ended:
        box.load_group({"box": declared})
    assert str(ended.value.code).startswith(f"{box.inventory}: box")


def test_a_key_of_nearly_pyinfras_is_reported_once(box: OperatorFolder) -> None:
    assert len(box.refusal_lines(ssh_prot=22, _su=True)) == 2


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\u2028", "\x7f"], ids=ascii)
def test_a_key_is_shown_on_one_line_without_what_a_terminal_obeys(box: OperatorFolder, text: str) -> None:
    (line,) = box.refusal_lines(**{text: 1})
    assert line.startswith(f"{box.inventory}: box.{text.encode('unicode_escape').decode()}: unknown key")


def test_two_rigs_that_are_one_machine_are_refused(box: OperatorFolder) -> None:
    other = {"ssh_port": 2222}
    file = {"ssh_config_file": str(box.write("ssh_config", ""))}
    box.load_group(
        {
            "a": sample_entry(),
            "b": sample_entry(**other),
            "c": sample_entry(**file),
            "d": sample_entry(ssh_hostname="192.0.2.8"),
        }
    )
    with pytest.raises(SystemExit) as ended:
        box.load_group(
            {
                "a": sample_entry(),
                "b": sample_entry(**other),
                "c": sample_entry(ssh_port=22),
                "192.0.2.7": sample_entry(**other),
            }
        )
    lines = str(ended.value.code).splitlines()
    assert f"{box.inventory}: c.ssh_hostname: 192.0.2.7 is already the address of a" in lines
    assert f"{box.inventory}: 192.0.2.7.ssh_hostname: 192.0.2.7 is already the address of b" in lines


def test_mistakes_of_all_rigs_are_reported_at_once(box: OperatorFolder) -> None:
    entries = {
        "a": sample_entry(cards=["turin", "ampere"], mirrors={}),
        "b": sample_entry(
            instances={"x": {"variant": "llamacpp/tow", "port": 8020}, "y": chat_instances(cards=[7])["chat"]}
        ),
        "C": sample_entry(),
        "d": sample_entry(ssh_user="a b", service_user="A", cuda_root="cuda"),
        "e": sample_entry(),
    }
    entries = {name: {**keys, "ssh_hostname": name.lower()} for name, keys in entries.items()}
    with pytest.raises(SystemExit) as ended:
        box.load_group(entries)
    lines = str(ended.value.code).splitlines()
    assert [line.removeprefix(f"{box.inventory}: ").split(": ")[0] for line in lines] == [
        "C",
        "a.cards[0]",
        "a.mirrors",
        "b.instances.x.variant",
        "b.instances.y.cards",
        "b.instances.y.cards",
        "b.instances.y.port",
        "d.cuda_root",
        "d.service_user",
        "d.ssh_user",
    ]


def test_folders_beside_the_inventory_are_laid_over_ours(box: OperatorFolder) -> None:
    # `llama.cpp` and its source are ours, the rest is the box's
    mine = CATALOG.replace('engine = "plain"', 'engine = "llama.cpp"') + '[engines."llama.cpp"]\n'
    mine += f'kind = "llama.cpp"\nsource = "llama.cpp"\ncommit = "{"f" * 40}"\n'
    box.write("catalog/box.toml", mine)
    for version in ("0.3.36", "1.0"):
        box.write(f"catalog/flags/llama.cpp-{version}-fffffff.txt", HELP_FILE.read_bytes())
    ((_, data),) = box.load_group({"box": sample_entry()})
    rig = load_rig(data["rig"])
    assert standalone_engines(rig.instances)["llama.cpp"].commit == "f" * 40
    assert [one.kind for one in rig.engine_artefacts["llama.cpp"]] == ["source"]
    box.write("locks/box.lock.toml", render_sealed_lock(WEIGHT_ROW, SOURCE_ROW.replace("engine-source", "llama.cpp")))
    with pytest.raises(Invalid, match=r"llama.cpp is locked with version 1.0, not 0.3.36: run `rigwright lock "):
        load_rig(data["rig"])
    mine += '[inputs."llama.cpp"]\nkind = "source"\nversion = "1.0"\n'
    mine += 'sources = ["index:some-project", "store:engine-1.0.tar.gz"]\n'
    box.write("catalog/box.toml", mine)
    assert [one.sha256 for one in load_rig(data["rig"]).engine_artefacts["llama.cpp"]] == ["a" * 64]


def test_a_box_without_folders_has_what_we_ship(tmp_path: Path) -> None:
    rig = {"name": "a", "inventory": str(tmp_path / "rig.py"), "entry": {"cards": ["rtx-3090"]}}
    assert load_rig(rig).cards[0].capability == "8.6"


def test_an_inventory_that_is_a_link_has_the_folders_beside_the_file_itself(box, tmp_path):
    box.inventory.touch()
    link = tmp_path / "elsewhere" / "link.py"
    link.parent.mkdir()
    link.symlink_to(box.inventory)
    ((_, data),) = box.load_group({"box": sample_entry()})
    rig = dict(data["rig"]) | {"inventory": str(link)}  # type: ignore[call-overload]
    assert [card.capability for card in load_rig(rig).cards] == ["7.5", "8.6"]


@pytest.mark.parametrize(
    "data", [None, "rig", [], {}, {"name": "a"}, {"name": "a", "inventory": "x", "entry": {}, "z": 1}]
)
def test_host_data_that_was_overridden_is_refused(data: object) -> None:
    with pytest.raises(Invalid, match=r"host data: rig: was not made by .*"):
        load_rig(data)


def test_an_overridden_entry_is_validated_again(box: OperatorFolder) -> None:
    ((_, data),) = box.load_group({"box": sample_entry()})
    changed = dict(data["rig"]) | {"entry": {"cards": ["turin"]}}  # type: ignore[call-overload]
    with pytest.raises(Invalid, match='there is no card "turin"; did you mean "turing"'):
        load_rig(changed)
