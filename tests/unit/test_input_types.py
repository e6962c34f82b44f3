"""Types of input: numbers are bounded everywhere, URLs have one type, and messages hide secrets."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from checks.testinfra_backend import load_hosts
from cli import main
from cli.option_types import DecimalNumber, OutputFile, OutputFolder, WholeNumber
from rigwright.address_types import HttpUrl, HttpUrlWithQuery, Origin, Source
from rigwright.declaration.catalog_loader import CatalogFile
from rigwright.declaration.connection import ConnectionEntry
from rigwright.engines import kinds
from rigwright.gateway.keyring import ClientKeyring
from rigwright.inventory import hosts
from rigwright.model.inventory_schema import DriverEntry, RigEntry
from rigwright.model.roots import Roots
from rigwright.problems import HIDDEN_VALUE, Problem, format_value, translate_validation
from rigwright.supply.bundle import BundleIndex
from rigwright.supply.lock import LockFile
from rigwright.validation_passes import find_all_errors
from tests.unit.samples import OperatorFolder, sample_entry

FILE_MODELS: list[type[BaseModel]] = [
    RigEntry,
    ConnectionEntry,
    CatalogFile,
    LockFile,
    ClientKeyring,
    BundleIndex,
    *(kind.engine_keys for kind in kinds().values()),
    *(kind.variant_keys for kind in kinds().values()),
]


def numbers(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Schemas of numbers in a JSON schema, each with its place."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and not {"const", "enum"} & {*schema}:
            yield place, schema
        for key, inner in schema.items():
            yield from numbers(inner, f"{place}/{key}")
    elif isinstance(schema, list):
        for inner in schema:
            yield from numbers(inner, place)


@pytest.mark.parametrize("model", FILE_MODELS, ids=lambda model: model.__name__)
def test_every_number_in_a_file_is_bounded_and_finite(model: type[BaseModel]) -> None:
    unbounded = [
        place
        for place, schema in numbers(model.model_json_schema())
        if not {"minimum", "exclusiveMinimum"} & {*schema} or not {"maximum", "exclusiveMaximum"} & {*schema}
    ]
    assert unbounded == []
    assert model.model_config.get("allow_inf_nan") is False


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and all commands below it, with their names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            if found := command.get_command(context, inner):
                yield from commands(found, f"{name} {inner}")


def test_every_number_of_the_command_line_is_of_a_bounded_type() -> None:
    ours = (WholeNumber, DecimalNumber)
    numeric = (click.types.IntParamType, click.types.FloatParamType, click.IntRange, click.FloatRange)
    found = [
        (name, option.name, option.type)
        for name, command in commands(main, "rigwright")
        for option in command.params
        if isinstance(option.type, numeric) and not getattr(option, "count", False)
    ]
    assert len(found) > 20
    assert [one for one in found if not isinstance(one[2], ours)] == []


@pytest.mark.parametrize("text", ["nan", "inf", "1e3", "1_0", " 5", "٣", "", "0x10", "-1", "9" * 400, "101"])
@pytest.mark.parametrize("kind", [WholeNumber(0, 100), DecimalNumber(0, 100)], ids=["whole", "decimal"])
def test_an_odd_number_is_refused_with_what_is_allowed(kind: Any, text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"must be a (whole )?number from 0 to 100"):
        kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a" * 300, "File name too long"),
        ("resluts/x.json", 'there is no folder FOLDER/resluts; did you mean "FOLDER/results"?'),
        ("results/x.json/y", "Not a directory"),
        ("a\0b", "embedded null"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_a_command_runs(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/x.json").touch()
    with pytest.raises(click.BadParameter, match=re.escape(text.replace("FOLDER", str(tmp_path)))):
        OutputFile().convert(f"{tmp_path}/{name}", None, None)
    for good in ("results/x.json", "results/new.json"):
        assert OutputFile().convert(f"{tmp_path}/{good}", None, None) == f"{tmp_path}/{good}"
    assert OutputFile(creates_folder=True).convert(f"{tmp_path}/new/x", None, None) == f"{tmp_path}/new/x"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a" * 300, "File name too long"),
        ("x.json", "Not a directory"),
        ("x.json/y", "Not a directory"),
        ("a\0b", "embedded null"),
    ],
)
def test_a_folder_that_cannot_be_filled_is_refused_before_a_command_runs(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "x.json").touch()
    with pytest.raises(click.BadParameter, match=re.escape(text.replace("FOLDER", str(tmp_path)))):
        OutputFolder().convert(f"{tmp_path}/{name}", None, None)
    for good in (".", "new/folder"):
        assert OutputFolder().convert(f"{tmp_path}/{good}", None, None) == tmp_path / good


URLS: dict[str, str] = {
    "http://h.lan/?q=1": "a query",
    "https://h.lan/x#y": "a fragment",
    "https://u:p@h.lan/x": "user and password",
    "https://h.lan//x": "a doubled slash",
    "https://h.lan/a/../b": "the folders . and ..",
    "https://h.lan/%0a": "a % that encodes no printable character",
    "https:///x": "it names no host",
    "https://h.lan:0/x": "port up to 65535",
    "ftp://h.lan/x": "an http(s) URL",
    "https:/h.lan": "an http(s) URL",
    "https://h.lan/\n": "an http(s) URL",
    "//h.lan/x": "an http(s) URL",
    "https://h.lan/" + "a" * 3000: "at most 2048 characters",
}


@pytest.mark.parametrize("url", URLS, ids=lambda url: ascii(url[:30]))
def test_a_url_is_refused_with_its_superfluous_part(url: str) -> None:
    for kind in (HttpUrl, Origin, HttpUrlWithQuery, Source):
        if kind in (HttpUrlWithQuery, Source) and "?" in url:
            TypeAdapter(kind).validate_python(url)
            continue
        with pytest.raises(ValidationError) as caught:
            TypeAdapter(kind).validate_python(url)
        assert URLS[url] in str(caught.value)


@pytest.mark.parametrize("url", ["http://h", "https://h.lan:8443/a/b.c_d~e/", "http://10.0.0.5:8081/x%20y"])
def test_a_plain_url_is_valid(url: str) -> None:
    assert TypeAdapter(HttpUrl).validate_python(url) == url


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("box.hub_token", "short"),
        ("flags.api-key", "short"),
        ("box.gateway.listeners.lan.keys[0]", "short"),
        ("environment.HF_TOKEN", "short"),
        ("box.registries.ghcr", ["robot", "short"]),
        ("box.x", {"password": "short"}),
        ("box.x", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc"),
        ("box.x", "hf_abcdefghijklmnopqrst"),
        ("box.x", ["sk-abcdefghijklmnopqrst"]),
        ("box.x", "ghp_abcdefghijklmnopqrst"),
        ("box.x", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln"),
        ("box.x", "rw-" + "aB3_" * 11),
        ("box.x", "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4MTIzNDU="),
        ("box.x", "0123456789abcdef0123456789abcdef"),
    ],
)
def test_a_value_that_may_be_a_secret_is_hidden(key: str, value: object) -> None:
    assert format_value(value, key) == HIDDEN_VALUE


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("box.gateway.listeners.lan.keys", 5, "5"),
        ("keys.alice.models", ["qwen"], "['qwen']"),
        ("artefact[0].sha256", "0123456789abcdef" * 4, repr("0123456789abcdef" * 4)),
        ("box.x", "Qwen/Qwen3-30B-A3B-Instruct-2507-GGUF", "'Qwen/Qwen3-30B-A3B-Instruct-2507-GGUF'"),
        ("box.x", "/srv/models/Qwen3/UD-Q4_K_XL/part-00001", "'/srv/models/Qwen3/UD-Q4_K_XL/part-00001'"),
        ("box.proxy", "http://u:p@h/?token=abc", "'http://...@h/?...'"),
    ],
)
def test_other_values_are_shown(key: str, value: object, text: str) -> None:
    assert format_value(value, key) == text


def test_no_problem_shows_a_token_or_a_private_key() -> None:
    shown = str(Problem("rig.py", "box.hf_abcdefghijklmnopqrst", "unknown: -----BEGIN PRIVATE KEY-----\nabc"))
    assert shown == "rig.py: box.(hidden): unknown: (hidden)"


def test_rules_between_keys_apply_to_the_valid_ones_and_name_no_removed_one() -> None:
    def lines(model: type[BaseModel], data: dict[str, object]) -> list[str]:
        return [str(one) for one in translate_validation(find_all_errors(model, data), model, "f", "")]

    driver = {"branch": "x", "nvlinks": [[0, 0]], "reboot": True}
    (first, second) = lines(DriverEntry, driver)
    assert first == "f: branch: 'x' is refused: must be a whole number"
    assert second.endswith("must be nvlinks between two cards each; and managed = True if reboot is set")
    # the default of a removed key is not the operator's
    assert len(lines(Roots, {"models": "x", "state": "/srv/models/y"})) == 1


INVENTORY = "from rigwright.inventory import hosts\n\nE = {!r}\n{}\n"
STATIC = {
    "rigs = (hosts({'box': E}), {'ssh_user': 'root;reboot'})": "rigs.ssh_user: group data",
    "G = hosts({'box': E})\nrigs = ([*G], dict(_sudo='yes'))": "rigs: group data",
    "G = hosts({'box': E})\nrigs = (tuple(G), {'_sudo': 'yes'})": "rigs._sudo: group data",
    "rigs = hosts({'box': E, 'box': E})": 'line 4: "box" is listed twice',
}
DYNAMIC = {
    "def make():\n    return tuple(hosts({'box': E})), {'_sudo': 'yes'}\nrigs = make()": "rigs._sudo: group data",
    "def make():\n    return hosts({'box': E}), {'_sudo': 'yes'}\nrigs = make()": "rigs._sudo: group data",
    "rigs = hosts({'box': E})\nrigs[0][1]['ssh_user'] = 'a;b'": "box.ssh_user: was changed after hosts()",
    "rigs = hosts({'box': E})\nother = [('box', {'ssh_user': 'a;b'})]": "box.ssh_user: was changed after hosts()",
    "rigs = [('box', {'ssh_user': 'ops'})]": "box: was not made by hosts()",
    "rigs = ['localhost']": "localhost: was not made by hosts()",
}


@pytest.mark.parametrize("program", STATIC)
def test_hosts_itself_refuses_what_the_source_shows_before_pyinfra_connects(box: OperatorFolder, program: str) -> None:
    text = INVENTORY.format(sample_entry(), program)
    box.inventory.write_text(text)
    with pytest.raises(SystemExit) as ended:
        exec(compile(text, str(box.inventory), "exec"), {"hosts": hosts})
    assert f"{box.inventory}: {STATIC[program]}" in str(ended.value.code)


@pytest.mark.parametrize("program", STATIC | DYNAMIC)
def test_all_that_pyinfra_reads_from_an_inventory_is_judged(box: OperatorFolder, program: str) -> None:
    box.inventory.write_text(INVENTORY.format(sample_entry(), program))
    with pytest.raises(SystemExit) as ended:
        load_hosts(str(box.inventory), None)
    assert (STATIC | DYNAMIC)[program] in str(ended.value.code)
    assert str(box.inventory) in str(ended.value.code)


def test_group_files_may_have_variables_and_no_keys_of_rigs(box: OperatorFolder, tmp_path: Path) -> None:
    box.inventory.write_text(INVENTORY.format(sample_entry(), "rigs = hosts({'box': E})"))
    box.write("group_data/other.py", "ssh_user = 'x'\n")
    box.write("group_data/all.py", "import os\nlicence = 'mine'\n")
    _, found = load_hosts(str(box.inventory), None)
    assert json.dumps([*found]) == '["box"]'
    box.write("group_data/all.py", "_sudo = 'yes'\n")
    with pytest.raises(SystemExit, match=r"group_data/all\.py: _sudo: group data of pyinfra is refused"):
        load_hosts(str(box.inventory), None)
