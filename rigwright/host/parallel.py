"""Many scripts run on a host in one command, all at the same time, with what each of them prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rigwright.host import channel
from rigwright.render import render

SCHEMA: channel.Schema = {"answer": (channel.number, channel.text)}
"""What templates/look/together.sh.j2 tells: which script, and what it has printed."""


def render_parallel(scripts: Sequence[str]) -> str:
    """The script that runs scripts. For a shell's standard input: an argument has an end, and a rig may have many
    files.
    """
    return render("look/together.sh.j2", scripts=scripts)


def parse_outputs(output: Iterable[str], scripts: Sequence[str]) -> dict[str, list[str]]:
    """Script -> the lines that it has printed; one that has failed is left out.

    Raises:
        ValueError: the host told something else.
    """
    found = {}
    for index, printed in channel.parse_output(output, SCHEMA).many("answer"):
        if index >= len(scripts):
            raise ValueError(f"the host answered question {index} of {len(scripts)}")
        found[scripts[index]] = printed.splitlines()
    return found
