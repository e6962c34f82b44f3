"""Mistakes of a first week: each message alone names the file, the key and the correction. The rows have the names,
values and formats that operators know from other programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from checks import connections
from cli import main, status
from rigwright.gateway import certificate_authority
from tests.unit.samples import OperatorFolder
from tests.unit.test_model_fit import GIB, lock_sized_weights

HEAD = "from rigwright.inventory import hosts\n\n"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
CARDS = '["rtx-3090", "rtx-3090"]'
IN_VARIANT = "belongs in a variant of the catalogue, as context, model, cards or one of its flags"


def with_host(**keys: object) -> str:
    """An inventory of one rig with a card and an instance, of which some keys are changed; None removes a key."""
    entry: dict[str, Any] = {
        "ssh_hostname": "192.0.2.7",
        "cards": ["rtx-3090"],
        "instances": {"chat": {"variant": "llamacpp/one", "cards": [0], "port": 8020}},
        "mirrors": {"store": ["http://127.0.0.1:8000/files/"]},
    }
    changed = {key: value for key, value in (entry | keys).items() if value is not None}
    return f"{HEAD}rigs = hosts({{'rig1': {changed!r}}})\n"


def with_instance(**keys: object) -> str:
    """The same with some keys of its instance changed."""
    instance: dict[str, Any] = {"variant": "llamacpp/one", "cards": [0], "port": 8020}
    return with_host(instances={"chat": {key: value for key, value in (instance | keys).items() if value is not None}})


def with_gateway(**listener: object) -> str:
    """The same with a gateway."""
    listeners = {"lan": {"address": "192.0.2.7", "port": 8443, **listener}}
    return with_host(gateway={"listeners": listeners, "models": {"small": {"instances": ["chat"]}}})


def validate(box: OperatorFolder, *words: str, file: str = "rig.py") -> Result:
    """`rigwright validate` on a file of the folder."""
    return CliRunner().invoke(main, ["validate", str(box.folder / file), *words])


def assert_message(box: OperatorFolder, done: Result, message: str, file: str = "rig.py") -> None:
    """A refusal with exit status 2 has this text, with the file before it and nothing that Python prints itself."""
    text = done.output.replace(f"{box.folder}/", "")
    assert done.exit_code == 2, text
    assert f"{file}: {message}" in text, text
    assert "Traceback" not in text


def test_the_inventory_that_the_mistakes_change_is_valid(box: OperatorFolder) -> None:
    box.inventory.write_text(with_host())
    assert validate(box).exit_code == 0


KEYS = [
    *((with_instance(**{key: 1}), f'rig1.instances.chat.{key}: "{key}" {IN_VARIANT}') for key in (
        "ctx_size", "ctx-size", "n-gpu-layers", "tensor_parallel", "max_model_len", "model", "flags", "quantization",
    )),
    *((with_instance(**{key: 0}), f'rig1.instances.chat.{key}: unknown key; did you mean "{right}"?')
      for key, right in (
        ("gpu", "cards"), ("GPUs", "cards"), ("devices", "cards"), ("api_key", "api_key_file"),
        ("memory", "memory_max"), ("prot", "port"), ("varaint", "variant"),
    )),
    (with_instance(host="0.0.0.0"), "rig1.instances.chat.host: unknown key; an instance listens only on the loopback"),
    (with_instance(name="x"), "rig1.instances.chat.name: unknown key; the name of an instance is the key of its table"),
    *((with_host(**{key: value}), f'rig1.{key}: unknown key; did you mean "{right}"?') for key, value, right in (
        ("host", "192.0.2.7", "ssh_hostname"), ("ansible_host", "192.0.2.7", "ssh_hostname"),
        ("user", "ops", "ssh_user"), ("become", True, "_sudo"), ("fingerprint", "x", "ssh_host_key"),
        ("gpus", [], "cards"), ("nvidia", {}, "driver"),
        ("services", {}, "instances"), ("docker", True, "containers"), ("hf_token", "x", "hub_token_file"),
        ("nginx", {}, "gateway"), ("prometheus", {}, "monitoring"),
    )),
    (with_host(password="x"), "rig1.password: unknown key; passwords are not supported: use an SSH key and sudo witho"),
    (with_host(driver={"version": 580}), 'rig1.driver.version: unknown key; did you mean "branch"?'),
    (with_host(driver={"power": 280}), 'rig1.driver.power: unknown key; did you mean "power_w"?'),
    (with_host(gateway={"port": 8443}), 'rig1.gateway.port: unknown key; did you mean "listeners"?'),
]  # fmt: skip
VALUES = [
    (with_host(cards=["RTX 3090"]), 'rig1.cards[0]: there is no card "RTX 3090"; did you mean "rtx-3090"?'),
    (with_host(cards=["NVIDIA GeForce RTX 3090"]), '; did you mean "rtx-3090"?'),
    *((with_host(cards=cards), f"rig1.cards: {cards!r} is refused: must be a list, such as {CARDS}: a catalogue name")
      for cards in ("all", 0, 1, "rtx-3090")),
    (with_host(cards=[0]), f"rig1.cards[0]: 0 is refused: must be text, in a list such as {CARDS}"),
    (with_host(cards=None), 'chat.cards: no card 0: the rig declares no cards: list them in its key "cards"'),
    *((with_instance(cards=cards), f"chat.cards: {cards!r} is refused: must be a list, such as [0]: a GPU index")
      for cards in ("all", 0, "0")),
    (with_instance(cards=None), 'chat.cards: llamacpp/one needs 1 card, but 0 are listed: add "cards": [0]'),
    (with_instance(cards=[1]), "chat.cards: no card 1: the rig declares 1 card, counted from 0"),
    (with_instance(cards=[0, 0]), "chat.cards: card 0 is listed twice"),
    (with_instance(port="8020"), "chat.port: '8020' is refused: must be a whole number: 8020, without quotes"),
    (with_instance(memory_max="64GB"), '; did you mean "64G"?'),
    (with_instance(memory_max="32M"), 'must be an amount of memory from 64M to 64T, such as "48G" or "80%"\n'),
    (with_instance(memory_max=64), 'chat.memory_max: 64 is refused: must be text, such as "48G" or "80%"'),
    (with_host(driver={"power_w": "280W"}), "driver.power_w: '280W' is refused: must be a whole number: 280, without"),
    (with_host(_sudo="yes"), "rig1._sudo: 'yes' is refused: must be True or False, without quotes"),
    (with_host(ssh_hostname="http://192.0.2.7"), "a host name or an IP address alone; did you mean '192.0.2.7'?"),
    (with_host(ssh_hostname="ops@192.0.2.7"), "; did you mean '192.0.2.7' with ssh_user = 'ops'?"),
    (with_gateway(address="https://192.0.2.7"), "or 0.0.0.0 or :: for all; did you mean '192.0.2.7'?"),
    (with_host(ssh_host_key="SHA256:" + "a" * 43), "this is a fingerprint: `rigwright key host` prints the key of eac"),
    (with_host(ssh_host_key=f"192.0.2.7 {HOST_KEY}"), f"leave out the host's name before it: {HOST_KEY}"),
    (with_host(ssh_key="no.key"), "'no.key' is refused: does not exist; the path starts at the current folder, "),
    (with_host(ssh_key="id.pub"), "contains no private key: must begin with -----BEGIN ... PRIVATE KEY-----"),
    (with_instance(variant="llamacp/one"), 'there is no variant "llamacp/one"; did you mean "llamacpp/one"?'),
    (with_instance(variant="65k"), 'there is no variant "65k"; did you mean "llamacpp/65k"?'),
    (with_instance(variant="llamacpp"), 'there is no variant "llamacpp"; did you mean one of llamacpp/65k, llamacpp/c'),
    (with_instance(variant="Acme/small"), "'Acme/small' is a model, served by llamacpp/cpu, llamacpp/one, llamacpp/tw"),
    (with_instance(variant="Qwen/Qwen3-32B"), "` lists those for its cards"),
    (with_instance(variant="llamacpp/65k"), "is not locked: run `rigwright lock "),
    (with_host(instances=[{"variant": "llamacpp/one"}]), 'must be a table of names, such as {"chat": {"variant": '),
    (with_host(instances={"chat": "llamacpp/one"}), 'must be a table of keys, such as {"variant": "llamacpp/65k"'),
    (with_host(instances={"my_chat": {"variant": "llamacpp/cpu", "port": 8020}}), '; did you mean "my-chat"?'),
    (with_host(instances={name: {"variant": "llamacpp/cpu", "port": 8020} for name in ("a", "b")}),
     "rig1.instances.b.port: 8020 is already the port of a"),
    (with_host(instances=None, gateway={"listeners": {"lan": {"address": "192.0.2.7", "port": 8443}}}),
     "rig1.gateway: the rig declares no instances"),
    # two cards would fit llamacpp/two as well
    (with_instance(variant="llamacpp/toe"), 'there is no variant "llamacpp/toe"; did you mean "llamacpp/one"?'),
    (with_instance(variant="llamacpp/nosuch"), 'there is no variant "llamacpp/nosuch"; allowed: '),
    (with_host(ssh_host_key="ssh-ed25519 AAAA!"), "is refused: the key is not base64; must be a host's public key: "),
    (with_host(mirrors=None), 'has no address: the lock places it in the mirror store (store:'),
    (with_host(mirrors=None), '; add "mirrors": {"store": ["https://..."]}'),
    (with_host(gateway=True), 'must be a table of keys, such as {"listeners": {"lan": {"address": "192.0.2.7"'),
    (with_host(gateway={}), 'rig1.gateway.listeners: missing, such as {"lan": {"address": "192.0.2.7"'),
]  # fmt: skip
TABLE = "{'ssh_hostname': '192.0.2.7'}"
PROGRAMS = [
    (f"{HEAD}rigs = hosts({{\n  'rig1': {{\n    'ssh_hostname': 192.0.2.7,\n  }},\n}})\n",
     "line 5: invalid syntax. Perhaps you forgot a comma? in `'ssh_hostname': 192.0.2.7,`; text needs quotes"),
    (f"{HEAD}rigs = hosts({{\n  'rig1': {{\n    'ssh_hostname': '192.0.2.7,\n  }},\n}})\n", "a text ends with the quo"),
    (f"{HEAD}rigs = hosts({{'rig1': {{ssh_hostname: '192.0.2.7'}}}})\n", 'text needs quotes: "ssh_hostname"'),
    (f"{HEAD}rigs = hosts({{'rig1': {{'_sudo': true}}}})\n", "line 3: NameError: name 'true' is not defined; Python h"),
    (f"{HEAD}rigs = hosts({{'rig1': {TABLE}}})\n\tx = 1\n", "; indent with spaces only"),
    (f"{HEAD}rigs = hosts({{'rig1': {TABLE})\n", "; each {, [ and ( needs its }, ] and )"),
    (f"rigs = hosts({{'rig1': {TABLE}}})\n", "; the first line must be: from rigwright.inventory import hosts"),
    (f"from rigwright import hosts\nrigs = hosts({{'a': {TABLE}}})\n", "; the first line must be: from rigwright.inve"),
    (f"{HEAD}rigs = hosts(rig1={TABLE})\n", "; hosts() takes one table: rigs = hosts({"),
    (f"rigs = {{'rig1': {TABLE}}}\n", "no hosts; rigs is a table: hosts() makes rigs of it: rigs = hosts({...}), afte"),
    (f"rigs = [{TABLE}]\n", "no hosts; rigs is not a group, because it contains {'ssh_hostname': '192.0.2.7'}: rigs ="),
    (f"{HEAD}rigs = hosts([{TABLE}])\n", 'hosts(): must be a table with at least one rig: name -> keys, such as {"rig'),
    (f"{HEAD}rigs = hosts({TABLE})\n", 'ssh_hostname is a key of a rig: hosts({"rig1": {"ssh_hostname": ...}})'),
    (f"{HEAD}hosts({{'rig1': {TABLE}}})\n", "no hosts; the result of hosts() needs a name without an underscore befor"),
    (f"{HEAD}rigz = hosts({{'rig1': {TABLE}}})\n", 'rig.py: assigns no "rigs": rename "rigz"\n'),
    (f"{HEAD}rigs = hosts({{'rig1': {{'cards': [], 'cards': [], **{TABLE}}}}})\n",
     'line 3: "cards" is listed twice in this line: Python keeps only the last'),
    (f"{HEAD}rigs = hosts({{'a': {TABLE}, 'b': {TABLE}}})\n", "b.ssh_hostname: 192.0.2.7 is already the address of a"),
    (f"{HEAD}rigs = hosts({{'Rig_1': {TABLE}}})\n", 'Rig_1: is not a valid rig name: must be at most 48 lowercase '
     'letters, digits and dashes; did you mean "rig-1"?'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [*KEYS, *VALUES, *PROGRAMS])
def test_a_mistake_in_an_inventory_is_refused_with_its_correction(
    box: OperatorFolder, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(box.folder)
    box.write("id.pub", HOST_KEY)
    box.inventory.write_text(text)
    done = validate(box)
    shown = done.output.replace(f"{box.folder}/", "")
    assert done.exit_code == 2, shown
    assert message in shown, shown
    assert "rig.py: " in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        ("hosts.cfg", "[gpu]\n192.0.2.7 ansible_user=ops\n", "an INI file with such a name"),
        ("rig.toml", '[rig1]\nssh_hostname = "192.0.2.7"\n', "TOML"),
    ],
)
def test_an_inventory_of_another_program_is_refused_with_the_form_of_ours(box, file, text, kind):
    box.write(file, text)
    done = validate(box, file=file)
    assert_message(box, done, f"{kind} is not an inventory: must be a Python file, NAME.py, with 'from rigwright", file)
    assert "`rigwright init USER@HOST` writes one" in done.output


def swap_certificates(box: OperatorFolder) -> None:
    """A certificate and its key, each in the place of the other."""
    now = certificate_authority.certificate_now()
    pair = certificate_authority.ensure_authority(box.folder / "ca", now).issue(("192.0.2.7",), now)
    box.write("net.key", pair.certificates)
    box.write("net.pem", pair.key)
    box.inventory.write_text(with_gateway(tls=True, cert_file="net.pem", key_file="net.key"))


def lose_certificates(box: OperatorFolder) -> None:
    """Names of a certificate and a key that do not exist."""
    box.inventory.write_text(with_gateway(tls=True, cert_file="net.pem", key_file="net.key"))


def edit_lock(box: OperatorFolder) -> None:
    """A lock with a changed hash."""
    (file, *_) = sorted((box.folder / "locks").glob("*.lock.toml"))
    text = file.read_text()
    file.write_text(re.sub(r'(?<=\nversion = ")[^"]+', "9.9", text, count=1))
    box.inventory.write_text(with_host())


def damage_lock(box: OperatorFolder) -> None:
    """A lock that ends in the middle, and a mistake that needs no lock."""
    (file, *_) = sorted((box.folder / "locks").glob("*.lock.toml"))
    file.write_text(file.read_text()[:-20])
    box.inventory.write_text(with_gateway(port=8020))


def misspell_model_of_key(box: OperatorFolder) -> None:
    """A client's key for a model that no variant serves."""
    key = f'sha256 = "{"a" * 64}"\nmade = 2026-11-01\nmodels = ["smal"]\n'
    box.write("gateway-keys.toml", f"[keys.alice]\n{key}")
    box.inventory.write_text(with_gateway())


def outgrow_cards(box: OperatorFolder) -> None:
    """Weights that are larger than the memory of their cards."""
    lock_sized_weights(box, 36 * GIB)


def misspell_catalogue(text: str) -> Callable[[OperatorFolder], None]:
    """A catalogue of the operator's with this text."""

    def write(box: OperatorFolder) -> None:
        box.write("catalog/mine.toml", text)
        box.inventory.write_text(with_instance(variant="llamacpp/mine", cards=None))

    return write


MINE = '[variants."llamacpp/mine"]\nengine = "plain"\nmodel = "small"\n'
FILES: list[tuple[Callable[[OperatorFolder], None], str]] = [
    (swap_certificates, "rig1.gateway.listeners.lan.key_file: net.key contains no PEM private key"),
    (lose_certificates, "rig1.gateway.listeners.lan.cert_file: net.pem does not exist"),
    (lose_certificates, "rig1.gateway.listeners.lan.key_file: net.key does not exist"),
    (edit_lock, "one was edited by hand; restore the file from version control, or run `rigwright lock rig.py`"),
    (damage_lock, "; restore the file from version control, or run `rigwright lock rig.py`"),
    (damage_lock, "rig1.gateway.listeners.lan.port: 8020 is the port of instance chat on the loopback interface"),
    (misspell_catalogue('[variants."llamacpp/mine"]\nengine = "plain"\nmodle = "small"\n'),
     'variants.llamacpp/mine.modle: unknown key; did you mean "model"?'),
    (misspell_catalogue('[variants."llamacpp/mine"]\nengien = "plain"\nmodel = "small"\n'),
     'variants.llamacpp/mine.engien: unknown key; did you mean "engine"?'),
    (misspell_catalogue('[variants."llamacpp/mine"]\nmodel = "small"\n'), 'mine.engine: missing; allowed: '),
    (swap_certificates, "rig1.gateway.listeners.lan.cert_file: net.pem contains no PEM certificate"),
    (misspell_model_of_key, 'gateway-keys.toml: keys.alice.models: there is no model "smal"; did you mean "small"?'),
    (outgrow_cards, "llamacpp/two: its weights need 36.0 of 35.0 GiB: use more cards, or a smaller model"),
    (misspell_catalogue(f"{MINE}ctx_size = 4096\n"), 'llamacpp/mine.ctx_size: unknown key; did you mean "context"?'),
    (misspell_catalogue(f'{MINE}context = "4096"\n'), "'4096' is refused: must be a whole number: 4096, without quote"),
    (
        misspell_catalogue(f"{MINE}context = 4096\nflags = {{ ctx_size = 4096 }}\n"),
        "must be a long option's name without its dashes; did you mean \"ctx-size\"?",
    ),
    (
        misspell_catalogue('[variants.llamacpp/mine]\nengine = "plain"\n'),
        'a name with a slash or a space needs quotes: [variants."llamacpp/mine"]',
    ),
    (misspell_catalogue('[variant."llamacpp/mine"]\n'), 'mine.toml: variant: unknown key; did you mean "variants"?'),
]  # fmt: skip


@pytest.mark.parametrize(("prepare", "message"), FILES, ids=[message[:40] for _, message in FILES])
def test_a_mistake_in_a_file_next_to_the_inventory_is_refused_with_its_correction(box, prepare, message):
    prepare(box)
    done = validate(box)
    shown = done.output.replace(f"{box.folder}/", "")
    assert done.exit_code == 2, shown
    assert message in shown, shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rig2.py",), 'rig2.py does not exist; did you mean "rig.py"?'),
        ((".",), ". is not a file: a folder"),
        (
            ("rig.py", "--limit", "rig2"),
            '--limit: there is no host or group "rig2"; did you mean "rig1"?; allowed: rig1',
        ),
        (("rig.py", "--limit", "chat"), '--limit: there is no host or group "chat"; allowed: rig1\n'),
    ],
)
def test_a_mistake_on_the_command_line_is_refused_with_its_correction(box, words, message, monkeypatch):
    monkeypatch.chdir(box.folder)
    box.inventory.write_text(with_host())
    done = CliRunner().invoke(main, ["validate", *words])
    assert done.exit_code == 2
    assert message in done.output, done.output


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"instances": {"chat": {"variant": "llamacpp/one", "port": "x"}}}, "declares no instances"),
        ({"instances": None, "instnaces": {}}, "declares no instances"),
    ],
)
def test_a_mistake_in_instances_hides_that_the_table_is_empty(box, changes, absent):
    gateway = {"listeners": {"lan": {"address": "192.0.2.7", "port": 8443}}}
    box.inventory.write_text(with_host(gateway=gateway, **changes))
    done = validate(box)
    assert done.exit_code == 2
    assert absent not in done.output


def test_a_missing_lock_hides_no_mistake_that_needs_none(box: OperatorFolder) -> None:
    listeners = {"lan": {"address": "192.0.2.7", "port": 8020}}
    box.inventory.write_text(with_host(gateway={"listeners": listeners}).replace("llamacpp/one", "llamacpp/65k"))
    done = validate(box)
    assert "is not locked" in done.output
    assert "lan.port: 8020 is the port of instance chat on the loopback interface" in done.output


def test_a_missing_model_is_reported_once_where_its_key_is_misspelt(box: OperatorFolder) -> None:
    misspell_catalogue('[variants."llamacpp/mine"]\nengine = "plain"\nmodle = "small"\n')(box)
    assert "mine.model: missing" not in validate(box).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("check rig.py --severity bogus", 'there is no severity "bogus"; allowed: '),
        ("check rig.py --only nosuch", "docs/reference/checks.md lists all"),
        ("check rig.py --html /nonexistent/x.html", "cannot be written: there is no folder /nonexistent"),
        ("check rig.py --junit /nonexistent/x.xml", "cannot be written: there is no folder /nonexistent"),
        ("bundle rig.py --system debian-12 --output rig.py/x", "cannot be written: Not a directory"),
        ("init root@box --output nowhere/rig.py", "cannot be written: there is no folder nowhere"),
        ("show report rig.py --output /nonexistent/x.md", "cannot be written: there is no folder /nonexistent"),
        ("show nosuch", 'there is no command "nosuch"; allowed: advisories, compose, '),
        ("show modles rig.py", 'there is no command "modles"; did you mean "models"?'),
        ("logs rig.py nosuch", "(nosuch): use --instance nosuch"),
    ],
)
def test_a_mistake_in_words_of_a_verb_is_refused_before_a_host_is_contacted(box, words, message, monkeypatch):
    monkeypatch.chdir(box.folder)
    monkeypatch.setattr(connections, "connect_targets", lambda *_: pytest.fail("a host was contacted"))
    box.inventory.write_text(with_host())
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split()), done.output


def test_the_missing_inventory_names_a_misspelt_one(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(box.folder)
    monkeypatch.delenv("RIGWRIGHT_INVENTORY", raising=False)
    box.inventory.write_text(with_host().replace("rigs = ", "boxes = "))
    done = CliRunner().invoke(main, ["validate"])
    assert done.exit_code == 2
    assert "rig.py assigns hosts() to `boxes`: rename it to `rigs`." in " ".join(done.output.split())


def test_a_login_needs_no_address_of_weights(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "connect_targets", lambda _, targets, *_more: dict.fromkeys(targets, "no route"))
    box.inventory.write_text(with_host(mirrors=None))
    assert CliRunner().invoke(main, ["ssh", str(box.inventory), "uptime"]).exit_code == 3


def test_status_reports_the_inventory_before_it_contacts_a_host(box, monkeypatch, capsys):
    def connect(_: object, targets: dict[str, object], *_more: object) -> tuple[dict[str, object], dict[str, str]]:
        click.echo("contacted", err=True)
        return {}, dict.fromkeys(targets, "no route")

    monkeypatch.setattr(status, "connect_and_map", connect)
    box.inventory.write_text(with_host(mirrors=None))
    done = CliRunner().invoke(main, ["status", str(box.inventory)])
    assert 0 < done.stderr.index("mirrors") < done.stderr.index("contacted")
