"""TOML files: an invalid or unfit one is refused with its name."""

import os
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from rigwright.problems import FrozenModel, Invalid
from rigwright.project_root import ROOT
from rigwright.supply import lock
from rigwright.toml import load_toml, parse_lock_text, tomllib
from tests.unit.samples import SOURCE, sample_artefact, sample_wheel


class Shape(FrozenModel):
    number: int


class SampleModel(FrozenModel):
    file: str
    wide: Annotated[bool, Field(strict=True)] = False
    flags: dict[str, bool] = Field(default_factory=dict)


class SampleModels(FrozenModel):
    models: dict[str, SampleModel]


def test_a_file_becomes_a_value(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("number = 3 # three\n")
    assert load_toml(path, Shape).number == 3


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'number = "3', "the file: cannot be read as TOML"),
        (b"number = 3\nnumber = 4\n", "the file: cannot be read as TOML"),
        (b"number = 3\0\n", "the file: cannot be read as TOML"),
        (b"number = 3 # \xff\n", "the file: cannot be read as TOML"),
        (b"", "number: missing"),
        (b"number = 'three'\n", "number: 'three' is refused"),
        (b"number = 3\nnumbr = 3\n", 'numbr: unknown key; did you mean "number"?'),
    ],
)
def test_an_unreadable_file_is_refused_with_file_and_key(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(Invalid) as caught:
        load_toml(path, Shape)
    assert str(caught.value).startswith(f"{path}: {place}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "[models.Qwen3.6-27B]\nfile = 'x'\n",
            "models.Qwen3.6-27B: unknown key; allowed: file, flags, wide; a name with a dot needs quotes: "
            '[models."Qwen3.6-27B"]',
        ),
        ("[models.a]\nfile = 'x'\n[models.a.flag]\n", 'unknown key; did you mean "flags"?; allowed: file, flags, wide'),
        ("[models.a]\nfile = 'x'\nzzz = 1\n", "models.a.zzz: unknown key; allowed: file, flags, wide"),
        (
            "[models.a]\nfile = 'x'\nwide = 'true'\n",
            "models.a.wide: 'true' is refused: must be true or false, without quotes",
        ),
    ],
)
def test_a_mistake_is_reported_in_tomls_words(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(Invalid) as caught:
        load_toml(path, SampleModels)
    assert str(caught.value).splitlines()[0].endswith(said)


def test_a_file_that_is_not_there_and_a_folder_in_its_place_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.toml", tmp_path):
        with pytest.raises(Invalid, match=r"does not exist|is not a file: a folder"):
            load_toml(path, Shape)


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    numbers = []
    for text in ("number = 3\n", "number = 4\n", "number = 3\n"):
        path.write_text(text)
        os.utime(path, (0, 0))
        numbers.append(load_toml(path, Shape).number)
    assert numbers == [3, 4, 3]
    assert load_toml(path, Shape) is load_toml(path, Shape)


# a table in a row, as the header of a model is, wants the general reader
LOCKS = [path for path in sorted((ROOT / "locks").glob("*.lock.toml")) if " = { " not in path.read_text()]
ROWS = (
    SOURCE,
    sample_artefact(),
    sample_wheel(marker='python_version < "3.11" and platform_machine != "a\\\\b"'),
    sample_wheel("other"),
)
WRITTEN = lock.render_lock(ROWS, "catalog/x.toml")


@pytest.mark.parametrize("written", [*(path.read_text() for path in LOCKS), WRITTEN], ids=range(len(LOCKS) + 1))
def test_locks_as_they_are_written_are_read_without_a_general_reader_and_the_same(written: str) -> None:
    assert parse_lock_text(written) == tomllib.loads(written)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # no TOML, though most of it would be JSON
        ('kind = "source"', 'kind = "source"\nkind = "source"'),
        ("schema = 1", "schema = 1\nschema = 1"),
        ("schema = 1", "schema = 1\nartefact = 2"),
        ("schema = 1", "schema = 01"),
        ("schema = 1", "schema = null"),
        ("schema = 1", 'schema = {"a": 1}'),
        ('kind = "source"', 'kind = "sour\\/ce"'),
        ('kind = "source"', 'kind = "\\ud83d"'),
        ('kind = "source"', 'kind = "\x7f"'),
        ('kind = "source"', 'kind = "source"s'),
        ('kind = "source"', 'kind = "source'),
        ('kind = "source"', 'kind = "source", a = 1'),
        ("catalog/x.toml", "catalog/\x01.toml"),
        # TOML that is written another way
        ("schema = 1", "schema=1"),
        ("schema = 1", "schema = 1 # one"),
        ("schema = 1", "schema = 1.0"),
        ("schema = 1", 'a.b = "c"'),
        ("schema = 1", "schema = 2026-01-01"),
        ('kind = "source"', "kind = 'source'"),
        ('kind = "source"', 'kind = "sour\\u0063e"'),
        ("[[artefact]]", "[[other]]"),
        ("[[artefact]]", "[artefact]"),
        ("[[artefact]]", "[[artefact.more]]"),
    ],
)
def test_other_text_is_left_to_the_full_parser(before: str, after: str) -> None:
    assert before in WRITTEN
    assert parse_lock_text(WRITTEN.replace(before, after, 1)) is None


@given(
    at=st.integers(0, len(WRITTEN)), cut=st.integers(0, 9), put=st.text('"\\[]={},#\n\r\t a01.é\u2028\x85', max_size=4)
)
def test_nothing_is_read_that_the_general_reader_refuses_or_takes_for_something_else(
    at: int, cut: int, put: str
) -> None:
    changed = WRITTEN[:at] + put + WRITTEN[at + cut :]
    found = parse_lock_text(changed)
    assert found is None or found == tomllib.loads(changed)
