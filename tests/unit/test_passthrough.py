"""The owner of an option: a verb that runs a command elsewhere, or that command."""

from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from checks import connections
from cli import main
from cli.remote_terminal import PassthroughCommand
from cli.shell_completion import LIMIT_OPTION
from tests.unit.samples import OperatorFolder, sample_entry

TWO = {f"box{number}": sample_entry(cards=[], ssh_hostname=f"192.0.2.{number}", instances={}) for number in (1, 2)}


@click.command(cls=PassthroughCommand)
@LIMIT_OPTION
@click.option("--instance", is_flag=True)
@click.argument("inventory")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def verb(**given: object) -> None:
    """Say what was given."""
    click.echo(repr((given["limit"], given["instance"], given["inventory"], given["words"])))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("--limit a rig.py df -h", ("a", False, "rig.py", ("df", "-h"))),
        ("rig.py --limit a df", ("a", False, "rig.py", ("df",))),
        ("rig.py --limit=a --instance df --help", ("a", True, "rig.py", ("df", "--help"))),
        ("rig.py --limit a", ("a", False, "rig.py", ())),
        ("rig.py -- --limit a", (None, False, "rig.py", ("--limit", "a"))),
        ("-- rig.py df --limit a", (None, False, "rig.py", ("df", "--limit", "a"))),
        ("rig.py df -- --limit a", (None, False, "rig.py", ("df", "--", "--limit", "a"))),
        ("rig.py - -x", (None, False, "rig.py", ("-", "-x"))),
    ],
)
def test_options_are_the_verbs_own_up_to_the_first_word_of_the_command(words: str, given: object) -> None:
    done = CliRunner().invoke(verb, words.split())
    assert done.output == f"{given!r}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rig.py df --limit a", "--limit is among COMMAND's words"),
        ("rig.py df -h --limit=a", "--limit is among COMMAND's words"),
        ("rig.py df --instance", "--instance is among COMMAND's words"),
        ("rig.py --limti a df", "No such option '--limti'. Did you mean '--limit'?"),
        ("rig.py --limit", "Option '--limit' requires an argument."),
        ("", "Missing argument 'INVENTORY'"),
    ],
)
def test_an_option_that_could_be_either_is_refused(words: str, said: str) -> None:
    done = CliRunner().invoke(verb, words.split())
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_half_typed_words_are_completed() -> None:
    complete = ShellComplete(verb, {}, "verb", "_VERB_COMPLETE")
    assert [one.value for one in complete.get_completions(["rig.py"], "--l")] == ["--limit"]
    assert complete.get_completions(["rig.py", "--limit"], "b") == []


@pytest.mark.parametrize(
    ("words", "named", "status"),
    [
        ("ssh {} --limit box1 uptime", ["box1"], 3),
        ("ssh {} uptime --limit box1", [], 2),
        ("ssh {} --limit box1", ["box1"], 3),
        ("ssh {} --limit bxo1", [], 2),
        ("ssh {} --limit box2 --in chat", [], 2),  # it has no such instance
        ("ssh --in chat {} env --limit box1", [], 2),
    ],
)
def test_only_hosts_that_the_limit_names_are_reached(
    box: OperatorFolder, monkeypatch: pytest.MonkeyPatch, words: str, named: list[str], status: int
) -> None:
    asked: list[str] = []

    def reach(_: object, targets: dict[str, Any], *_more: object) -> dict[str, str]:
        asked.extend(targets)
        return dict.fromkeys(targets, "nobody answers")

    monkeypatch.setattr(connections, "connect_targets", reach)
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({TWO!r})\n")
    done = CliRunner().invoke(main, words.format(box.inventory).split())
    assert (asked, done.exit_code) == (named, status), done.output
