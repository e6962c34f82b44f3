"""TOML files: what is no TOML, or not what is wanted, is refused with its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from rigwright.problems import Frozen, Invalid
from rigwright.toml import parse


class Shape(Frozen):
    number: int


class Model(Frozen):
    file: str
    wide: Annotated[bool, Field(strict=True)] = False
    flags: dict[str, bool] = Field(default_factory=dict)


class Models(Frozen):
    models: dict[str, Model]


def test_a_file_becomes_a_value(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("number = 3 # three\n")
    assert parse(path, Shape).number == 3


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
def test_what_cannot_be_read_is_refused_with_file_and_key(tmp_path: Path, content: bytes, place: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(Invalid) as caught:
        parse(path, Shape)
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
        ("[models.a]\nfile = 'x'\nwide = 'true'\n", "models.a.wide: 'true' is refused: must be true or false"),
    ],
)
def test_a_mistake_is_said_in_tomls_words(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(content)
    with pytest.raises(Invalid) as caught:
        parse(path, Models)
    assert str(caught.value).splitlines()[0].endswith(said)


def test_a_file_that_is_not_there_and_a_folder_in_its_place_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.toml", tmp_path):
        with pytest.raises(Invalid, match="cannot be read as TOML"):
            parse(path, Shape)


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    numbers = []
    for text in ("number = 3\n", "number = 4\n", "number = 3\n"):
        path.write_text(text)
        os.utime(path, (0, 0))
        numbers.append(parse(path, Shape).number)
    assert numbers == [3, 4, 3]
    assert parse(path, Shape) is parse(path, Shape)
