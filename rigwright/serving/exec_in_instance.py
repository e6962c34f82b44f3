"""Entering an instance: a command beside it that finds what its own process finds."""

from __future__ import annotations

from collections.abc import Iterator

from rigwright.host.systemd_syntax import escape_expansions
from rigwright.model.roots import Roots
from rigwright.serving.instance_units import InstanceUnit

# What of a unit is about its own process: how it is started and ended, where it is counted, and what systemd takes away
# when the unit ends, which the instance goes on using.
NOT_INHERITED = ("Exec", "Type", "Restart", "Timeout", "Slice", "RuntimeDirectory", "RemoveIPC", "EnvironmentFile")


def unit_properties(unit: InstanceUnit) -> Iterator[str]:
    """What of an instance's unit holds for a command beside it too: user, sandbox, limits, cards and key."""
    for line in unit.text.partition("[Service]\n")[2].partition("\n[")[0].splitlines():
        key, equals, value = line.partition("=")
        if not equals or line.startswith("#") or key.startswith(NOT_INHERITED):
            continue
        # the folder of its socket is there while it is up
        yield f"{key}=-{value}" if key == "BindPaths" and value.startswith("/run/") else line


def instance_command(
    roots: Roots, unit: InstanceUnit, words: tuple[str, ...], name: str, *, terminal: bool
) -> tuple[str, ...]:
    """The command that runs another one as an instance: its user, its variables and its sandbox.

    Args:
        roots: Directories on the host.
        unit: The instance's.
        words: The program and its arguments; a shell without any.
        name: The unit that it runs as.
        terminal: Whether it has one.
    """
    given = (*unit_properties(unit), f"EnvironmentFile={roots.config}/current/env/{unit.instance}")
    options = (f"--unit={name}", "--quiet", "--wait", "--collect", "--pty" if terminal else "--pipe")
    # systemd-run would look for the program by its own PATH
    within = (*unit.privately, "/bin/sh", "-c", 'exec "$@"', "sh", *(words or ("/bin/bash",)))
    return (
        *("systemd-run", *options, "--service-type=exec", "--setenv=HOME=/tmp", "--property=WorkingDirectory=/tmp"),
        *(f"--property={one}" for one in given),
        *("--", *escape_expansions(within)),
    )
