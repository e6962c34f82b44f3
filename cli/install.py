"""`rigwright install`: the command on PATH, and scripts that complete its words in shells."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cli.inventory_loading import SuggestingChoice
from cli.option_types import OutputFolder
from cli.prog_name import NAME
from cli.tables import print_prose
from rigwright.project_root import IS_CLONE, ROOT

SHELLS = ("bash", "zsh", "fish")
# where each shell looks for the completions of a user (bash-completion's README, zsh's fpath, fish's `complete`)
COMPLETION_FILES = {
    "bash": "~/.local/share/bash-completion/completions/rigwright",
    "zsh": '"${fpath[1]}/_rigwright"',
    "fish": "~/.config/fish/completions/rigwright.fish",
}
# click's scripts complete one name. These also complete `rig`, by any path, and print no traceback on Ctrl-C.
SCRIPT_EDITS = {
    "bash": (
        ("bash_complete $1)", "bash_complete $1 2>/dev/null)"),
        ("_completion rigwright\n", "_completion rigwright rig\n"),
    ),
    "zsh": (
        ("#compdef rigwright", "#compdef rigwright rig"),
        ("    (( ! $+commands[rigwright] )) && return 1\n", ""),
        ("zsh_complete rigwright)", "zsh_complete ${~words[1]} 2>/dev/null)"),
        ("_completion rigwright\n", "_completion rigwright rig\n"),
    ),
    "fish": (
        ("    set -l response (", "    set -l words (commandline -po);\n    set -l response ("),
        ("COMP_CWORD=(commandline -t) rigwright)", "COMP_CWORD=(commandline -t) $words[1] 2>/dev/null)"),
        ("--command rigwright", "--command rigwright --command rig"),
    ),
}
SYSTEM_BIN_FOLDER = Path("/usr/local/bin")


@click.command()
@click.option("--to", "folder", type=OutputFolder(), help="The folder; default: on PATH.")
@click.option("--completion", "shell", type=SuggestingChoice(SHELLS), help="Print the completion script for a shell.")
def install(folder: Path | None, shell: str | None) -> None:
    """Add the command to PATH.

    Links `rigwright` to this folder's `rig`: in /usr/local/bin for root, else in ~/.local/bin. Remove the link to undo.
    Example: rigwright install --completion bash > ~/.local/share/bash-completion/completions/rigwright
    """
    if shell:
        click.echo(render_completion(shell))
        return
    if not IS_CLONE:
        print_prose(f"{NAME} is installed: {Path(sys.argv[0]).absolute()}")
        _print_completion_steps()
        return
    target = folder or (SYSTEM_BIN_FOLDER if os.geteuid() == 0 else Path.home() / ".local/bin")
    link, program = target.expanduser().absolute() / NAME, ROOT / "rig"
    try:
        target.expanduser().mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and link.resolve() == program.resolve():
            print_prose(f"{link} leads to {program} already")
        elif link.is_symlink() or link.exists():
            raise click.ClickException(
                f"{link} exists, and is not this one: remove it, or name another folder with --to"
            )
        else:
            link.symlink_to(program)
            print_prose(f"{link} leads to {program}")
    except OSError as error:
        raise click.ClickException(f"{link}: {error.strerror}") from None
    if str(link.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        print_prose(f"{link.parent} is not on your PATH: add `export PATH={link.parent}:$PATH` to your shell's profile")
    _print_completion_steps()


def _print_completion_steps() -> None:
    for name, file in COMPLETION_FILES.items():
        # a command to copy is one line
        click.echo(f"to complete it in {name}: {NAME} install --completion {name} > {file}")


def render_completion(shell: str) -> str:
    """The script that completes the command's words in a shell.

    Raises:
        KeyError: the shell is not in SHELLS.
    """
    from cli import main

    made = get_completion_class(shell)
    if made is None:
        raise KeyError(shell)
    maker = made(main, {}, NAME, f"_{NAME.upper()}_COMPLETE")
    # its own `source` would start bash to ask for its version
    script = maker.source_template % maker.source_vars()
    for old, new in SCRIPT_EDITS[shell]:
        script = script.replace(old, new)
    return script
