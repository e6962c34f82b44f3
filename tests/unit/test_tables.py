"""Tables: without empty columns, and no line wider than its place."""

import os
import re
import subprocess
import sys
from random import Random

import pytest

from cli import tables
from rigwright.project_root import ROOT
from tests.unit.pseudo_terminal import run_on_terminal

NAMES = ["port", "size", "files", "tokens/s", "CV %", "host", "state", "why", ""]
LETTERS = "ab1 []/-.,()\u00e9\u4e2d"


def printed_table(
    capsys: pytest.CaptureFixture[str], columns: tuple[str, ...], *rows: tuple[str, ...], width: int
) -> list[str]:
    tables.print_table(columns, list(rows), width)
    return capsys.readouterr().out.splitlines()


def test_cells_stand_under_their_columns_and_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ("box1", "8020", "", "x"), ("b", "7", "")
    assert printed_table(capsys, ("host", "port", "cards", "why"), *rows, width=80) == [
        "host  port  why",
        "box1  8020  x",
        "b        7",
    ]


def test_one_that_is_too_wide_has_a_line_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ("box1", "8020", "it is so wide that it goes on"), ("box2", "", "/a/path/that/is/to/be/copied/in/one/go")
    assert printed_table(capsys, ("host", "port", "why"), *rows, width=30) == [
        "box1",
        "  port  8020",
        "  why   it is so wide that it",
        "        goes on",
        "box2",
        "  why   /a/path/that/is/to/be/copied/in/one/go",
    ]


@pytest.mark.parametrize("seed", range(20))
def test_no_line_is_wider_than_its_place_and_no_cell_is_lost(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    chance = Random(seed)
    columns = tuple(chance.sample(NAMES, chance.randint(2, 6)))
    rows = [
        tuple("".join(chance.choices(LETTERS, k=chance.randint(0, 40))) for _ in columns[chance.randint(0, 1) :])
        for _ in range(chance.randint(1, 4))
    ]
    lines = printed_table(capsys, columns, *rows, width=80)
    assert max(map(tables._display_width, lines)) <= 80
    assert [word for row in rows for text in row for word in text.split() if word not in " ".join(lines)] == []


def test_words_of_a_host_steer_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_table(capsys, ("host", "why"), ("box", "\x1b[2Jx\ny"), width=80)[1] == "box   \\x1b[2Jx\\ny"


PROGRAM = (
    "from cli.tables import print_table; "
    "print_table(('host', 'empty', 'why'), [('box1', '', 'x' * {}), ('box2', '', 'y')])"
)


@pytest.mark.parametrize(("length", "said"), [(74, "host  why"), (75, "box1\n  why")])
def test_a_terminal_of_eighty_columns_has_what_fits_it(length: int, said: str) -> None:
    status, written = run_on_terminal([sys.executable, "-c", PROGRAM.format(length)], os.environ)
    assert status == 0, written
    plain = re.sub(r"\x1b\[[0-9;]*m", "", written)
    assert plain.startswith(said), written
    assert "empty" not in plain


def test_no_colour_holds_on_a_terminal_too() -> None:
    _, written = run_on_terminal(["env", "NO_COLOR=1", sys.executable, "-c", PROGRAM.format(3)], os.environ)
    assert "\x1b" not in written


PARAGRAPH = """
import click
from cli.tables import print_paragraph
text = "box  chat: " + "word " * 20 + "/a/path/that/is/to/be/copied"
print_paragraph(text, lead="  " + click.style("fail", fg="red") + "  ")
print_paragraph("", lead="    ")
print_paragraph("a " * 60, hang=4)
"""


def test_a_paragraph_hangs_below_its_lead_on_a_terminal_alone() -> None:
    command = [sys.executable, "-c", PARAGRAPH]
    _, written = run_on_terminal(command, os.environ)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()
    assert lines[0].startswith("  fail  box  chat: word word")
    assert lines[1].startswith("        word ")
    assert lines[-1].startswith("    a a")
    assert max(map(len, lines)) <= 80
    assert "/a/path/that/is/to/be/copied" in written
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (len(plain), len(plain[0]) > 120) == (3, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("box: " + "word " * 20 + "end", ["box: " + "word " * 15, "  " + "word " * 5 + "end"]),
        ("  cure: " + "word " * 20, ["  cure: " + "word " * 14, "    " + "word " * 6]),
        ("a\n\nb", ["a", "", "b"]),
        ("x" * 100, ["x" * 100]),
        ("a  b", ["a  b"]),
    ],
)
def test_prose_is_broken_between_words_on_a_terminal_alone(text: str, said: list[str]) -> None:
    program = f"from cli.tables import print_prose\nprint_prose({text!r})\nprint_prose({text!r}, err=True)"
    status, shown = run_on_terminal([sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(ROOT)})
    lines = [line.rstrip() for line in shown.replace("\r", "").splitlines()]
    assert (status, lines) == (0, [line.rstrip() for line in said] * 2)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == f"{text}\n"


def test_a_cell_that_may_be_broken_is_before_a_line_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    row = ("llamacpp/x", "context, documents, agents, code", "1 x 4096")
    tables.print_table(("variant", "for", "context"), [row, ("y", "", "z")], 40, broken="for")
    assert capsys.readouterr().out.splitlines() == [
        "variant     for                 context",
        "llamacpp/x  context,            1 x 4096",
        "            documents, agents,",
        "            code",
        "y                               z",
    ]
    # no cell is narrower than a word or two
    tables.print_table(("variant", "for", "context"), [row], 25, broken="for")
    assert capsys.readouterr().out.splitlines()[0] == "llamacpp/x"
