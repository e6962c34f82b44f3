"""The gate that all text goes through before a terminal sees it."""

import io
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import VerbGroup, safe_output
from cli.tables import style_text
from tests.unit.example_counts import example_count

ESC = "\x1b"
# Sequences that terminals obey: colours that hide, titles, cursors, answers as if typed, 8-bit controls.
ATTACKS = (
    *(
        f"{ESC}[2J",
        f"{ESC}[8mhidden",
        f"{ESC}[5m",
        f"{ESC}[1;8m",
        *(
            f"{ESC}[{code}m"
            for code in ("", "2", "7", "30", "37", "39", "40", "41", "49", "90", "97", "100", "107", "255")
        ),
        *(
            f"{ESC}[{code}m"
            for code in ("31;41", "38;5;0", "48;5;1", "38;2;0;0;0", "48;2;0;0;0", "01", "031", "4", "9")
        ),
        f"{ESC}]0;title\x07",
        f"{ESC}P+q544e{ESC}\\",
        f"{ESC}[6n",
    ),
    *("\x9b2J", "\x90x\x9c", "a\rb", "a\bb", "\x07", "\x7f", "\0", "\v", "\f", "\x85", "\u2028", "\u2029"),
    *("\u202eexe.gpj", "\u2066x\u2069", "\u200b", "\u200f", "\u061c", "\ufeff", "\U000e0041", "\ud800", f"{ESC}c", ESC),
)
LETTERS = frozenset(map(chr, range(32, 127))) | {"\n", "\t"}


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_nothing_that_a_terminal_obeys_gets_through(attack: str) -> None:
    for text in (attack, f"a{attack}b", attack * 2, f"{ESC}[31m{attack}{ESC}[0m"):
        found = safe_output.escape_controls(text).replace(f"{ESC}[31m", "").replace(f"{ESC}[0m", "")
        assert {*found} <= LETTERS, ascii(found)
        assert {*safe_output.escape_controls(text, styles=False)} <= LETTERS


TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def test_whatever_is_a_control_ends_a_line_or_turns_it_is_spelt() -> None:
    for number in range(example_count(0x110000)):
        letter = chr(number)
        obeyed = (
            unicodedata.category(letter) in ("Cc", "Zl", "Zp", "Cs") or unicodedata.bidirectional(letter) in TURNING
        )
        if letter.isprintable():
            assert safe_output.escape_controls(letter) == letter
        elif obeyed and letter not in "\n\t":
            assert safe_output.escape_controls(letter) == f"\\u{number:04x}"


def test_our_own_styles_and_all_letters_are_left_as_they_are() -> None:
    for text in (click.style("é 漢 🙂", fg="red", bold=True), click.style("x", fg="cyan"), "a\tb\n", "1 €", ""):
        assert safe_output.escape_controls(text) == text


FAMILY, PERSIAN = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "می\u200cخواهم"


def test_joiners_are_spelt_in_a_name_and_join_letters_in_what_a_model_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert safe_output.escape_controls(f"box\u200d1 {FAMILY}").count("\\u200d") == 3
    monkeypatch.setattr(sys, "stdout", safe_output.EscapingStream(sys.stdout))
    safe_output.print_model_text(f"{FAMILY} {PERSIAN} 1\u202f000\u00a0€\n\t")
    assert capsys.readouterr().out == f"{FAMILY} {PERSIAN} 1\u202f000\u00a0€\n\t"


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_an_answer_writes_nowhere_else_on_the_terminal(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    # red text may not come from a model, either
    safe_output.print_model_text(f"{ESC}[31m{attack}")
    assert {*capsys.readouterr().out} <= LETTERS


def test_json_with_some_in_it_stays_what_it_is() -> None:
    for attack in ATTACKS:
        assert json.loads(safe_output.escape_controls(json.dumps([attack]))) == [attack]
        assert json.loads(safe_output.escape_controls(json.dumps([attack], ensure_ascii=False))) == [attack]


def echo_output(echo: object, **how: object) -> str:
    @click.command("say")
    def say() -> None:
        if isinstance(echo, BaseException):
            raise echo
        click.echo(echo, **how)  # type: ignore[arg-type]

    group = VerbGroup(commands={"say": say})
    return CliRunner().invoke(group, ["say"]).output


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
@pytest.mark.parametrize("kind", ["refusal", "usage", "output", "error output"])
def test_every_way_out_of_a_verb_goes_through(kind: str, attack: str) -> None:
    text = f"a {attack} b"
    ways = {
        "refusal": lambda: echo_output(click.ClickException(text)),
        "usage": lambda: echo_output(click.UsageError(text)),
        "output": lambda: echo_output(text),
        "error output": lambda: echo_output(text, err=True),
    }
    found = ways[kind]()
    assert {*found} <= LETTERS, ascii(found)
    assert "a " in found


PROGRAM = """
import logging, sys, warnings
from cli import safe_output
safe_output.install_streams()
sys.stdout.writelines(["\\x1b[2J", "\\x9b"])
print("\\x1b]0;x\\x07", file=sys.stderr)
warnings.warn("w\\x1b[2J")
logging.getLogger("x").error("l\\x1b[2J")
logging.basicConfig()
logging.getLogger("x").error("h\\x1b[2J")
raise ValueError("\\x1b[2J \\ud800")
"""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_messages_of_libraries_and_tracebacks_go_through(encoding: str) -> None:
    given = {"PYTHONIOENCODING": encoding, "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, env=given, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 1
    found = (done.stdout + done.stderr).decode("latin-1")
    assert {*found} <= LETTERS, ascii(found)
    assert found.count("\\u001b") == 6


def test_drawing_programs_have_the_stream_below_and_styles_are_seen() -> None:
    below = io.StringIO()
    gated = safe_output.EscapingStream(below)
    gated.write(style_text("x", fg="red") + f"{ESC}[2K")
    assert below.getvalue().startswith(f"{ESC}[31mx{ESC}[0m\\u001b")
    assert gated.ungated is below
    assert gated.isatty() is False
