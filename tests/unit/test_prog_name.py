"""The name of the command, its place, and the completions of shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import COMMANDS, main
from cli.prog_name import PROG_NAME_VARIABLE, prog_name, with_prog_name
from rigwright.project_root import ROOT
from tests.unit.pseudo_terminal import run_on_terminal
from tests.unit.samples import OperatorFolder, sample_entry


@pytest.mark.parametrize(
    ("given", "name"),
    [(None, "rigwright"), ("./rig", "./rig"), ("/opt/r/rig", "/opt/r/rig"), ("$(id)", "rigwright"), ("", "rigwright")],
)
def test_the_command_is_called_as_it_was_typed(monkeypatch: pytest.MonkeyPatch, given: str | None, name: str) -> None:
    if given is not None:
        monkeypatch.setenv(PROG_NAME_VARIABLE, given)
    assert prog_name() == name
    said = with_prog_name(
        "run `rigwright lock x`, see rigwright.service and `rigwright-chat`\nExample: rigwright deploy"
    )
    assert said == f"run `{name} lock x`, see rigwright.service and `rigwright-chat`\nExample: {name} deploy"


def test_helps_and_refusals_name_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def help_of(*words: str) -> str:
        program, environment = (
            f"from cli import main; main({[*words, '--help']})",
            {**os.environ, PROG_NAME_VARIABLE: "./rig"},
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT
        )
        return done.stdout

    assert help_of("ssh").startswith("Usage: ./rig ssh ")
    assert "Example: ./rig ssh" in help_of("ssh")
    assert help_of().startswith("Usage: ./rig ")
    assert "Begin with `./rig demo`" in help_of()
    monkeypatch.setenv(PROG_NAME_VARIABLE, "./rig")

    @click.command()
    def refuse() -> None:
        raise click.ClickException("first `rigwright lock`")

    monkeypatch.setattr(type(COMMANDS), "__getitem__", lambda *_: refuse)
    assert "Error: first `./rig lock`" in CliRunner().invoke(main, ["deploy"]).output


def test_refusals_of_checks_use_the_same_name() -> None:
    command = [sys.executable, "-c", "from cli import main; main(['check', 'inventory/rig3090.py'])"]
    environment = {**os.environ, PROG_NAME_VARIABLE: "./rig"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert "`./rig lock " in done.stderr


def test_refused_options_of_checks_are_reported_like_any_refusal(box: OperatorFolder) -> None:
    one = sample_entry(ssh_hostname="127.0.0.1", ssh_port=1)
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {one!r}}})\n")
    command = [sys.executable, "-m", "cli", "check", str(box.inventory), "--only", "S999"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('Error: --only: there is no check "S999"; did you mean ')


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="`rig` would prepare its own environment")
@pytest.mark.parametrize("verb", ["validate", "check"])
def test_refusals_have_an_inventorys_path_as_it_was_typed(tmp_path: Path, verb: str) -> None:
    # the locked version is another one than the catalogue asks for
    asked = f'[inputs.small]\nkind = "weight"\nversion = "{"9" * 40}"\nsources = ["store:small-q4.gguf"]\n'
    box = OperatorFolder(tmp_path / "in")
    box.write("catalog/asked.toml", asked)
    box.write("my rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {sample_entry()!r}}})\n")
    command = [sys.executable, "-m", "cli", verb, "in/my rig.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "1000"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    first = done.stderr.removeprefix("Error: ").splitlines()[0]
    assert first.startswith("in/my rig.py: ")
    assert first.endswith("run `rigwright lock 'in/my rig.py'`")
    assert str(box.folder) not in first


@pytest.mark.parametrize("words", [["test", "--help"], ["check", "--explain", "S01"], ["show", "variants"]])
def test_a_terminal_of_eighty_columns_has_room_for_it(words: list[str]) -> None:
    status, said = run_on_terminal([sys.executable, "-m", "cli", *words], os.environ)
    lines = click.unstyle(said).splitlines()
    assert (status, [line for line in lines if len(line) > 80]) == (0, [])
    assert len(lines) < 100


@pytest.mark.parametrize("words", [[], ["key"], ["show"], ["bench"], ["new"], ["lab"]])
def test_a_list_of_verbs_has_whole_sentences(words: list[str]) -> None:
    usage, *lines = CliRunner().invoke(main, [*words, "--help"]).output.splitlines()
    assert usage.startswith("Usage: ")
    assert [line for line in lines if line.endswith("...")] == []


def test_the_script_says_how_it_was_called(tmp_path: Path) -> None:
    def help_of(*command: str, path: str = "") -> str:
        environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
        done = subprocess.run([*command, "ssh", "--help"], capture_output=True, text=True, env=environment, cwd=ROOT)
        return done.stdout

    assert "Example: ./rig ssh" in help_of("./rig")
    (tmp_path / "rigwright").symlink_to(ROOT / "rig")
    assert "Example: rigwright ssh" in help_of("sh", "-c", 'rigwright "$@"', "sh", path=str(tmp_path))


def test_it_is_put_on_the_path_once_and_over_nothing_else(tmp_path: Path) -> None:
    def install() -> tuple[int, str]:
        done = CliRunner().invoke(main, ["install", "--to", str(tmp_path / "bin")])
        return done.exit_code, done.output

    link = tmp_path / "bin/rigwright"
    status, said = install()
    assert (status, link.resolve()) == (0, (ROOT / "rig").resolve())
    assert "is not on your PATH" in said
    assert "already" in install()[1]
    link.unlink()
    link.write_text("")
    status, said = install()
    assert (status, link.read_text()) == (2, "")
    assert "is not this one: remove it" in said


def test_its_version_is_reported() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert (done.exit_code, done.output.split()[0]) == (0, "rigwright")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_of_a_shell_are_in_its_language(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["install", "--completion", shell])
    assert done.exit_code == 0
    assert "_RIGWRIGHT_COMPLETE" in done.output
    if program := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.output)
        assert subprocess.run([program, "-n", str(script)], capture_output=True).returncode == 0


def complete(*words: str) -> list[str]:
    line = ["rigwright", *words]
    environment = {**os.environ, "_RIGWRIGHT_COMPLETE": "bash_complete"}
    environment |= {"COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    program = "import sys; sys.argv[0] = 'rigwright'; from cli import main; main(prog_name='rigwright')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT)
    return done.stdout.split()


def test_verbs_options_and_files_are_completed() -> None:
    assert complete("re") == ["plain,remove", "plain,restart"]
    assert "plain,--limit" in complete("status", "--l")
    assert complete("validate", "inv") == ["file,inv"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["status", "{}", "--limit", "b"], ["box"]),
        (["status", "{}", "--limit", "other,b"], ["other,box"]),
        (["restart", "{}", "c"], ["chat", "code"]),
        (["logs", "{}", "--instance", "ch"], ["chat"]),
        (["switch", "{}", "chat", "llamacpp/tw"], ["llamacpp/two"]),
        (["check", "--only", "S01,P0"], ["S01,P01"]),
    ],
)
def test_names_of_an_inventory_are_completed(box: OperatorFolder, words: list[str], names: list[str]) -> None:
    text = f"from rigwright.inventory import hosts\nprint('noise')\nrigs = hosts({{'box': {sample_entry()!r}}})\n"
    box.write("rig.py", text)
    assert complete(*(word.format(box.inventory) for word in words)) == [f"plain,{name}" for name in names]


def test_nothing_is_completed_of_an_inventory_that_is_no_program(box: OperatorFolder) -> None:
    box.write("rig.py", "rigs = hosts(")
    assert complete("status", str(box.inventory), "--limit", "b") == []
