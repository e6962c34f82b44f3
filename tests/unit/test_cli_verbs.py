"""Which verbs there are, how former ones are refused, and how an inventory is chosen where none is named."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cli import COMMAND_SECTIONS, COMMANDS, main
from cli.default_inventory import VARIABLE, find_inventories
from cli.lazy_commands import LONGEST_SUMMARY, LazyGroup
from cli.renamed_verbs import RENAMED, replacement_command
from rigwright.project_root import ROOT
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

MOST_VERBS = 32
INVENTORY = "from rigwright.inventory import hosts\nrigs = hosts({{'box': {entry!r}}})\n"
BOX = sample_entry(cards=[], ssh_hostname="192.0.2.1", instances=chat_instances())


@pytest.fixture
def folder(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, without an inventory."""
    monkeypatch.chdir(box.folder)
    monkeypatch.delenv(VARIABLE, raising=False)
    box.inventory.unlink(missing_ok=True)
    return box.folder


def write_inventory(folder: Path, name: str) -> None:
    (folder / name).write_text(INVENTORY.format(entry=BOX))


def test_the_help_fits_a_terminal_of_80_columns_and_24_lines() -> None:
    lines = click.unstyle(CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output).splitlines()
    assert len(lines) <= 23, "a prompt takes the last line"
    assert max(map(len, lines)) <= 80
    assert len(COMMANDS) == sum(map(len, COMMAND_SECTIONS.values())) <= MOST_VERBS


TERMINAL = (23, 80)
# Lines, and columns where they are more: these become fewer.
LONGER = {
    **{"init": (39, 80), "bundle": (27, 80), "deploy": (30, 80), "switch": (27, 80), "check": (56, 80)},
    **{"doctor": (24, 80), "rollout": (50, 80), "ssh": (30, 80), "lab": (24, 80), "test": (57, 80)},
    **{"show variants": (27, 80), "show advisories": (24, 80), "bench speed": (28, 80)},
    **{"bench load": (40, 84), "bench serving": (30, 80), "bench throughput": (25, 80), "bench latency": (24, 80)},
    **{"new model": (23, 101), "new variant": (23, 94), "install": (23, 101), "show url": (23, 82)},
    **{"bench stress": (23, 83)},
}


@pytest.mark.parametrize("name", [*COMMANDS])
def test_the_help_of_each_command_fits_a_terminal(name: str) -> None:
    command = COMMANDS[name]
    for further in ("", *(command.commands if isinstance(command, click.Group) else ())):
        words = [name, further] if further else [name]
        output = CliRunner().invoke(main, [*words, "--help"], env={"COLUMNS": "80"}).output
        lines = click.unstyle(output).splitlines()
        most, widest = LONGER.get(" ".join(words), TERMINAL)
        assert len(lines) <= most, words
        assert max(map(len, lines)) <= widest, words


@pytest.mark.parametrize("name", [*COMMANDS])
def test_each_command_has_a_summary_of_one_line_and_an_example(name: str) -> None:
    command = COMMANDS[name]
    group = command if isinstance(command, click.Group) else None
    for one in [command, *(group.commands.values() if group else ())]:
        assert 8 < len(one.get_short_help_str(LONGEST_SUMMARY + 20).removesuffix(".")) <= LONGEST_SUMMARY, one.name
        if not isinstance(one, LazyGroup) and name not in ("lab", "test"):
            (example,) = re.findall(r"^Example: (.*)$", one.help or "", re.MULTILINE)
            assert example.startswith("rigwright "), one.name


@pytest.mark.parametrize(
    ("typed", "replacement"),
    [
        ("health rig.py --watch", "status rig.py --watch"),
        ("verify rig.py --gateway", "check --serving rig.py --gateway"),
        ("diagnose --logs a.log", "doctor --logs a.log"),
        ("stress rig.py", "bench stress rig.py"),
        ("load rig.py --streams 1,2", "bench load rig.py --streams 1,2"),
        ("generations rig.py", "show generations rig.py"),
        ("models rig.py", "show models rig.py"),
        ("patches rig.py", "show patches rig.py"),
        ("variants", "show variants"),
        ("advisories rig.py", "show advisories rig.py"),
        ("url rig.py --for curl", "show url rig.py --for curl"),
        ("report rig.py", "show report rig.py"),
        ("compose rig.py chat", "show compose rig.py chat"),
        ("render rig.py --compose chat", "show compose rig.py chat"),
        ("render --compose=chat rig.py", "show compose rig.py chat"),
        ("keys rig.py make alice --streams 4", "key make rig.py alice --streams 4"),
        ("keys --limit box rig.py bring", "key sync --limit box rig.py"),
        ("keys rig.py", "key list rig.py"),
        ("ca rig.py", "key ca rig.py"),
        ("host-key rig.py", "key host rig.py"),
        ("upgrade rig.py --reboot", "deploy --upgrade-driver rig.py --reboot"),
        ("run rig.py 'df -h /'", "ssh rig.py 'df -h /'"),
        ("shell --limit box rig.py vllm python", "ssh --in vllm --limit box rig.py python"),
        ("shell rig.py", "ssh --in NAME rig.py"),
        ("tunnel rig.py chat --port 80", "ssh --tunnel chat rig.py --port 80"),
        ("completion bash", "install --completion bash"),
        ("apply rig.py", "deploy rig.py"),
        ("up rig.py", "deploy rig.py"),
        ("down rig.py chat", "stop rig.py chat"),
        ("ps rig.py", "status rig.py"),
        ("list rig.py", "status rig.py"),
        ("update rig.py", "lock --refresh rig.py"),
    ],
)
def test_a_former_verb_is_refused_with_the_command_that_replaces_it(typed: str, replacement: str) -> None:
    verb, *words = shlex.split(typed)
    assert replacement_command(verb, words) == f"rigwright {replacement}"
    done = CliRunner().invoke(main, [verb, *words])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"Error: there is no verb {verb}: use `rigwright {replacement}`\n"


def test_former_verbs_are_no_verbs_and_lead_to_commands() -> None:
    assert not {*RENAMED} & {*COMMANDS}
    for verb in RENAMED:
        _, first, second, *_ = [*replacement_command(verb, ["rig.py", "list"]).split(), ""]
        command = COMMANDS[first]
        assert not isinstance(command, click.Group) or second in command.commands


@pytest.mark.parametrize(
    "words", [["validate"], ["show", "url"], ["show", "url", "chat"], ["show", "url", "--for", "curl", "chat"]]
)
def test_the_only_inventory_of_the_folder_is_used_and_named(folder: Path, words: list[str]) -> None:
    write_inventory(folder, "boxes.py")
    (folder / "other.py").write_text("boxes = []\nif True:\n    rigs = []\n")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[0] == "inventory: boxes.py"
    at = 1 if words[0] == "validate" else 2
    assert "inventory:" not in CliRunner().invoke(main, [*words[:at], "boxes.py", *words[at:]]).stderr


def test_one_of_several_inventories_has_to_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_inventory(folder, "a.py")
    write_inventory(folder, "b.py")
    assert find_inventories(folder) == ["a.py", "b.py"]
    for words in (["validate"], ["start", "chat"]):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 2
        assert f"This folder has several inventories: a.py, b.py. Name one, or set {VARIABLE}." in done.stderr
    monkeypatch.setenv(VARIABLE, "b.py")
    done = CliRunner().invoke(main, ["validate"])
    assert (done.exit_code, done.stderr) == (0, f"inventory: b.py ({VARIABLE})\n")
    assert CliRunner().invoke(main, ["validate", "a.py"]).stderr == ""
    monkeypatch.setenv(VARIABLE, "gone.py")
    done = CliRunner().invoke(main, ["validate"])
    assert (done.exit_code, "gone.py does not exist" in done.stderr) == (2, True)


def test_without_an_inventory_the_error_says_where_one_is_looked_for(folder: Path) -> None:
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 2
    assert (
        f"This folder has no inventory of yours (a *.py file that assigns `rigs`), and {VARIABLE} is not set."
        in done.stderr
    )
    write_inventory(folder, "a.py")
    done = CliRunner().invoke(main, ["validate", "b.py"])
    assert (done.exit_code, "b.py does not exist" in done.stderr) == (2, True)


def test_an_inventory_that_others_can_write_has_to_be_named(folder: Path) -> None:
    write_inventory(folder, "a.py")
    (folder / "a.py").chmod(0o666)
    assert CliRunner().invoke(main, ["validate"]).exit_code == 2
    assert CliRunner().invoke(main, ["validate", "a.py"]).exit_code == 0
    (folder / "a.py").chmod(0o644)
    if os.geteuid() == 0:
        os.chown(folder / "a.py", 65534, 65534)
        assert find_inventories(folder) == []


def test_verbs_that_need_no_inventory_use_the_only_one(folder: Path) -> None:
    write_inventory(folder, "a.py")
    assert CliRunner().invoke(main, ["show", "variants", "--json"]).stderr.startswith("inventory: a.py\n")
    assert "inventory:" not in CliRunner().invoke(main, ["show", "variants", "--cards", "0"]).stderr
    (folder / "log").write_text("")
    assert CliRunner().invoke(main, ["doctor", "--logs", "log"]).stderr == ""
    assert "inventory:" not in CliRunner().invoke(main, ["validate", "--help"]).output


@pytest.mark.parametrize(
    ("option", "value"), [("--instance", "chat"), ("--gateway", ""), ("--listener", "lan"), ("--key-file", "f")]
)
def test_options_of_a_serving_check_need_it(folder: Path, option: str, value: str) -> None:
    write_inventory(folder, "a.py")
    done = CliRunner().invoke(main, ["check", "a.py", option, *([value] if value else [])])
    assert (done.exit_code, f"{option} needs --serving" in done.stderr) == (2, True)
    done = CliRunner().invoke(main, ["check", "a.py", "--serving", "--deep"])
    assert (done.exit_code, "--serving allows only" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [
        (["start"], "ch", ["chat"]),
        (["start", "a.py"], "ch", ["chat"]),
        (["start", "chat"], "co", []),
        (["switch"], "ch", ["chat"]),
        (["switch", "chat"], "llamacpp/tw", ["llamacpp/two"]),
        (["logs", "--instance"], "ch", ["chat"]),
        (["status", "--limit"], "b", ["box"]),
        (["show", "url"], "ch", ["chat"]),
        (["show"], "pat", ["patches"]),
        (["ssh", "--tunnel"], "ch", ["chat"]),
        (["check", "--explain"], "S00", []),
        (["check", "--explain"], "S01", ["S01"]),
        (["check", "--ignore"], "logg", ["logging"]),
        (["doctor", "--instance"], "ch", ["chat"]),
    ],
)
def test_names_of_the_default_inventory_are_completed(
    folder: Path, words: list[str], incomplete: str, names: list[str]
) -> None:
    write_inventory(folder, "a.py")
    found = ShellComplete(main, {}, "rigwright", "_RIGWRIGHT_COMPLETE").get_completions(words, incomplete)
    assert [one.value for one in found if one.type == "plain"] == names


# each shell's own function, for the words of a line whose command is {program}, and the function that completes `rig`
COMPLETED = {
    "bash": "{script}\nCOMP_WORDS=({program} check --only S0) COMP_CWORD=3\n_rigwright_completion {program}\n"
    "printf '%s\\n' \"${{COMPREPLY[@]}}\"; complete -p rig",
    "zsh": "autoload -Uz compinit; compinit -u -d {folder}/dump\n{script}\n"
    "words=({program} check --only S0) CURRENT=4; compadd() {{ print -l $completions }}\n"
    "_rigwright_completion; print $_comps[rig]",
    "fish": '{script}\ncomplete -C "{program} check --only S0"; complete rig',
}
QUIET = {"bash": ["bash", "--norc", "-c"], "zsh": ["zsh", "-f", "-c"], "fish": ["fish", "--no-config", "-c"]}


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="`rig` would prepare its own environment")
@pytest.mark.parametrize("shell", ["bash", *(pytest.param(one, marks=pytest.mark.all_only) for one in ("zsh", "fish"))])
@pytest.mark.parametrize("program", ["./rig", "./noisy"])
def test_a_shell_completes_the_script_of_a_clone_and_shows_no_error(shell: str, program: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    noisy = tmp_path / "noisy"
    noisy.write_text("#!/bin/sh\necho KeyboardInterrupt >&2\nexit 130\n")
    noisy.chmod(0o755)
    script = CliRunner().invoke(main, ["install", "--completion", shell]).output
    folder = ROOT if program == "./rig" else tmp_path
    text = COMPLETED[shell].format(script=script, program=program, folder=tmp_path)
    done = subprocess.run([*QUIET[shell], text], capture_output=True, text=True, cwd=folder, check=False)
    assert "KeyboardInterrupt" not in done.stdout + done.stderr
    if program == "./rig":
        assert done.stdout.split()[0] == "S01", done.stderr
        assert "_rigwright_completion" in done.stdout.splitlines()[-1]


SCANNED = ("*.md", "*.py", "*.j2", "*.toml", "*.sh", "*.yml", "*.yaml", "rig")
HISTORY = ("CHANGELOG.md", "cli/renamed_verbs.py", "tests/unit/test_cli_verbs.py")
# words that are nothing but a former verb where they are quoted as a command
UNAMBIGUOUS = ("verify", "diagnose", "stress", "host-key", "tunnel", "health", "upgrade")
FORMER = re.compile(
    rf"(?:rigwright|\./rig) (?:{'|'.join(RENAMED)})(?![\w-])|`(?:{'|'.join(UNAMBIGUOUS)})(?: (?:--|INVENTORY)[^`]*)?`"
    r"|`keys? (?:INVENTORY )?bring\b|`keys (?:make|list|rotate|revoke)\b"
)
# file -> texts of it that only look like a former verb
NO_VERBS = {
    "docs/reference/check-list.md": {"`health`"},  # a section of the survey
    "roles/rig_lookup.py": {"`upgrade`"},  # an order of a run over hosts
}


def test_no_text_names_a_former_verb_as_a_command() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *SCANNED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    found = {
        (name, hit)
        for name in listed
        if name not in HISTORY
        for hit in FORMER.findall((ROOT / name).read_text(errors="replace"))
        if hit not in NO_VERBS.get(name, ())
    }
    assert found == set()
