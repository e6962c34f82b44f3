"""`rigwright install` and `completion`: the command on the PATH, and what shells complete of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cli.inventory_loading import SuggestingChoice
from cli.prog_name import NAME
from cli.tables import print_prose
from rigwright.project_root import IS_CLONE, ROOT

SHELLS = ("bash", "zsh", "fish")
# where each shell looks for the completions of a user (bash-completion's README, zsh's fpath, fish's `complete`)
COMPLETION_FILES = {
    "bash": "~/.local/share/bash-completion/completions/rigwright",
    "fish": "~/.config/fish/completions/rigwright.fish",
}
SYSTEM_BIN_FOLDER = Path("/usr/local/bin")


@click.command()
@click.option(
    "--to", "folder", type=click.Path(file_okay=False, path_type=Path), help="The folder; without it one on your PATH."
)
def install(folder: Path | None) -> None:
    """Put the command on your PATH, as `rigwright`: a link to this folder's `rig`.

    Root gets it in /usr/local/bin, others in ~/.local/bin. Running it again changes nothing; removing the link undoes
    it.
    """
    if not IS_CLONE:
        print_prose(f"{NAME} is installed: {Path(sys.argv[0]).absolute()}")
        _print_completion_steps()
        return
    wanted = folder or (SYSTEM_BIN_FOLDER if os.geteuid() == 0 else Path.home() / ".local/bin")
    link, program = wanted.expanduser().absolute() / NAME, ROOT / "rig"
    try:
        wanted.expanduser().mkdir(parents=True, exist_ok=True)
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
    for shell in ("bash", "fish"):
        print_prose(f"{shell} completes it after: {NAME} completion {shell} > {COMPLETION_FILES[shell]}")
    print_prose(f"zsh completes it after:  {NAME} completion zsh > a file _{NAME} in a folder of your fpath")


@click.command()
@click.argument("shell", type=SuggestingChoice(SHELLS))
def completion(shell: str) -> None:
    """Print what SHELL needs to complete verbs, options and files.

    Example: rigwright completion bash > ~/.local/share/bash-completion/completions/rigwright
    """
    from cli import main

    made = get_completion_class(shell)
    if made is None:  # click has all of SHELLS
        raise click.ClickException(f"no completion for {shell}")
    maker = made(main, {}, NAME, f"_{NAME.upper()}_COMPLETE")
    # its own `source` would start bash to ask for its version
    click.echo(maker.source_template % maker.source_vars())
