"""A host's output is read whole, typed, or not at all."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, FileSystemLoader

from rigwright.host import script_output
from rigwright.host.script_output import (
    END,
    free_text,
    number,
    octal,
    optional,
    parse_output,
    tolerant,
    word,
    yes_or_no,
)
from rigwright.project_root import ROOT
from tests.unit import short_programs
from tests.unit.channel_records import encode_records

SCHEMA = {
    "name": (free_text,),
    "size": (word, number),
    "ours": (yes_or_no,),
    "mode": (octal,),
    "unit": (optional(word),),
}


def script(body: str) -> str:
    """A script with a body that tells."""
    text = "{% from 'channel.sh.j2' import told, record %}{% call told() %}" + body + "{% endcall %}"
    return Environment(loader=FileSystemLoader(ROOT / "templates")).from_string(text).render()


def run(body: str, *arguments: str) -> list[str]:
    """The output of a shell that runs it."""
    command = ["sh", "-c", script(body), "sh", *arguments]
    return short_programs.run_program(command, check=True).stdout.splitlines()


def test_a_shells_facts_become_typed_values() -> None:
    told = parse_output(
        run('fact size a 7; fact size b 8; fact ours yes; fact mode 0640; fact unit ""; fact name "$1"', "x y"), SCHEMA
    )
    assert told.many("size") == [("a", 7), ("b", 8)]
    assert (told.one("ours"), told.one("mode"), told.one("unit"), told.one("name")) == (True, 0o640, "", "x y")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_no_value_becomes_another_record(value: str) -> None:
    told = parse_output(encode_records(("name", value), (END,)), {"name": (str,)})
    assert told.rows == {"name": [(value,)]}


@pytest.mark.parametrize("value", ["a\nours yes", "a\\nb", "-n", "%s", "$(id)", "a\tb"])
def test_a_shell_passes_on_a_value_as_it_is(value: str) -> None:
    assert parse_output(run('fact name "$1"', value), {"name": (str,)}).one("name") == value


@pytest.mark.parametrize(
    ("records", "wrong"),
    [
        ([("colour", "red"), (END,)], "the host reported 'colour', which was not asked for"),
        ([("size", "a"), (END,)], "the host reported 1 values of 'size' instead of 2"),
        ([("size", "a", "-7"), (END,)], "the host reported '-7' for 'size': must be a number"),
        ([("size", "a", "7\n"), (END,)], "must be a number"),
        ([("ours", "perhaps"), (END,)], "the host reported 'perhaps' for 'ours': must be yes or no"),
        ([("ours", "yes")], "the host's report was cut off"),
        ([("ours", "yes"), (END,), ("ours", "no")], "the host's report has data after its end"),
    ],
)
def test_values_of_another_type_are_refused(records: list[tuple[str, ...]], wrong: str) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report") as caught:
        parse_output(encode_records(*records), SCHEMA)
    assert wrong in str(caught.value)


@pytest.mark.parametrize("output", [[], ["sudo: a password is required"], ["sh: \x1b[31mno"], ["€"]])
def test_a_host_that_says_something_else_is_quoted_without_control_characters(output: list[str]) -> None:
    with pytest.raises(ValueError, match="the host reported nothing") as caught:
        parse_output(output, SCHEMA)
    assert "\x1b" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        told = parse_output([base64.b64encode(data).decode()], SCHEMA)
    except ValueError:
        return
    assert set(told.rows) <= set(SCHEMA)


@pytest.mark.parametrize("noise", [[], [""], ["Welcome to h1!", ""], ["fact uid 7"]])
def test_output_of_a_login_before_is_left_out(noise: list[str]) -> None:
    assert parse_output([*noise, *run("fact ours yes"), ""], SCHEMA).one("ours")


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (script_output.path, ["/", "/a b/\u00e9"], ["", "a", "/a\nb", "/a\x9bb", "/\u202e", "/a\x00"]),
        (script_output.file_name, ["a b", "...", ".x"], ["", ".", "..", "a/b", "a\n"]),
        (script_output.hexadecimal, ["1F54", "0"], ["", "0x1", "-1", "1" * 17]),
        (script_output.seconds, ["1.5", "17"], ["", "nan", "inf", "1.", "-1", "1e9"]),
        (script_output.address, ["10.0.0.5", "fe80::1%eth0"], ["", "10.0.0", "x%y", "10.0.0.5\n"]),
        (script_output.version, ["13", "13.0.88"], ["", "v1", "1..2", "1.2\n"]),
        (script_output.unit, ["a.service", "dev-disk-by\\x2duuid.device"], ["", "a b", "a\n", "a;b"]),
        (script_output.pci_address, ["0000:01:00.0", "00000000:01:00.0"], ["", "01:00.0", "0000:01:00.0\n"]),
        (script_output.one_of("a", "b.c"), ["a", "b.c"], ["", "bxc", "a\n", "ab"]),
    ],
)
def test_a_type_takes_what_is_wholly_of_it(kind: script_output.Type, right: list[str], wrong: list[str]) -> None:
    for value in right:
        kind(value)
    for value in wrong:
        with pytest.raises(ValueError):
            kind(value)
        assert script_output.tolerant(kind, 7)(value) == 7


def test_a_program_prints_records_by_itself(tmp_path: Path) -> None:
    """find and stat, of names that only a NUL byte ends."""
    names = ["a b", "x\nours no", "it's", "%s\\0", "\\n"]
    for name in names:
        (tmp_path / name).write_text("12345")
    for command in (
        "find \"$1\" -type f -printf '{{ record('file', '%s', '%p') }}'",
        "find \"$1\" -type f -exec stat --printf '{{ record('file', '%s', '%n') }}' {} +",
    ):
        told = parse_output(run(command, str(tmp_path)), {"file": (number, str)})
        assert sorted(told.many("file")) == sorted((5, str(tmp_path / name)) for name in names)


def test_a_repeated_key_is_invalid() -> None:
    told = parse_output(encode_records(("ours", "yes"), ("ours", "no"), (END,)), SCHEMA)
    with pytest.raises(ValueError, match="2 times instead of once"):
        told.one("ours")


@pytest.mark.parametrize(("value", "read_as"), [("7", 7), ("", None), ("-7", None), ("7\n", None)])
def test_where_all_else_stands_for_nothing_it_stops_no_look(value: str, read_as: int | None) -> None:
    assert (
        parse_output(encode_records(("size", value), (END,)), {"size": (tolerant(number, None),)}).one("size")
        == read_as
    )


def test_free_text_stays_on_one_line() -> None:
    assert (
        script_output.free_text("a\nb\x1b[2J\x9bc")
        == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}c"
    )
