"""Tables look as rich draws them, whether rich does."""

from __future__ import annotations

from random import Random

import pytest

from cli import tables

NAMES = [*tables.NUMBERS, "host", "state", "why", ""]
# without a colon: rich takes a word between two for a picture
LETTERS = "ab1 []/-.,()\u00e9\u4e2d"


@pytest.mark.parametrize("seed", range(20))
def test_a_table_is_what_rich_makes_of_it(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    chance = Random(seed)
    for letters in (LETTERS, LETTERS[:-2]):
        columns = tuple(chance.sample(NAMES, chance.randint(1, 6)))
        rows = [
            tuple("".join(chance.choices(letters, k=chance.randint(0, 40))) for _ in columns[chance.randint(0, 1) :])
            for _ in range(chance.randint(0, 4))
        ]
        tables.show(columns, rows)
        ours = capsys.readouterr().out
        tables._folded(columns, rows)
        assert ours == capsys.readouterr().out


def test_what_is_wider_than_its_place_goes_on_in_the_next_line(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(("host", "why"), [("box", "x" * (tables.WIDTH + 20))])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == tables.WIDTH
    assert "".join(lines[1:]).count("x") == tables.WIDTH + 20 + 1
