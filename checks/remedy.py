"""The remedy of a drift: commands that run exactly as printed, and instructions for a person."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class RemedyStep:
    """One step of a remedy."""

    where: Literal["here", "host", "person"]
    """`here`: a command of this machine. `host`: a shell command of the host's root. `person`: no command can do it."""
    text: str

    def describe(self, host: str) -> str:
        """The step in a line, with the place to run it."""
        return f"as root on {host}: {self.text}" if self.where == "host" else self.text


@dataclass(frozen=True)
class Remedy:
    """The steps that put a drift right, in their order."""

    steps: tuple[RemedyStep, ...]

    def __add__(self, other: Remedy) -> Remedy:
        """Both, each step once."""
        return Remedy(tuple(dict.fromkeys((*self.steps, *other.steps))))

    def locate(self, inventory: str, host: str) -> tuple[RemedyStep, ...]:
        """The steps with the inventory, and the host unless it is empty, in each command of this machine."""
        place, program = render_place(inventory, host), program_name()
        return tuple(
            replace(one, text=f"{program} {one.text.replace(INVENTORY, place, 1)}") if one.where == "here" else one
            for one in self.steps
        )


def render_place(inventory: str, host: str) -> str:
    """The words of a command of this machine that name an inventory, and one of its hosts unless it is empty."""
    return shlex.join([*(["--limit", host] if host else []), inventory])


def program_name() -> str:
    """The name by which this program was called, quoted for a command; as cli/prog_name.py."""
    return shlex.quote(os.environ.get("RIGWRIGHT_CALLED") or "rigwright")


INVENTORY = "INVENTORY"
"""Stands for the inventory's path and the host in a command of this machine until `Remedy.locate`."""


def describe_steps(steps: Iterable[RemedyStep], host: str) -> str:
    """The steps of a remedy in one line."""
    return "; then ".join(one.describe(host) for one in steps)


def rig_command(verb: str, *words: str) -> Remedy:
    """A verb of rigwright over the inventory, for this host alone."""
    return Remedy((RemedyStep("here", " ".join([verb, INVENTORY, *map(shlex.quote, words)])),))


def host_command(template: str, *values: str | Sequence[str]) -> Remedy:
    """A shell command for the host's root.

    Args:
        template: The command; `{}`, or `{0}` and so on, stand for the values.
        values: A word each, or several words; all are quoted. A name with characters that do not print makes the
            command an instruction, for its printed form is not the name.
    """
    words = [[one] if isinstance(one, str) else list(one) for one in values]
    command = template.format(*map(shlex.join, words))
    return Remedy((RemedyStep("host" if command.isprintable() else "person", command),))


def instruction(text: str) -> Remedy:
    """A step for a person: a decision about things of the operator's, or work at the machine."""
    return Remedy((RemedyStep("person", text),))


def as_remedy(given: Remedy | str) -> Remedy:
    """A remedy; the text of a user's own check is an instruction."""
    return given if isinstance(given, Remedy) else instruction(given)


def restart_units(*units: str) -> Remedy:
    """Restart units, also those that systemd has given up to restart."""
    return host_command("systemctl reset-failed {0}; systemctl restart {0}", units)


def show_log(*units: str) -> Remedy:
    """Show the last log lines of units, where the steps before do not help."""
    return host_command("journalctl --no-pager --lines=50 {}", [f"--unit={unit}" for unit in units])


DEPLOY = rig_command("deploy")


def remove_paths(*paths: str) -> Remedy:
    """Remove files and folders."""
    return host_command("rm -rf -- {}", paths)


def reinstall_packages(*names: str) -> Remedy:
    """Bring the files of packages again, also settings that were changed or removed."""
    return host_command(
        "apt-get install --reinstall --yes --allow-change-held-packages "
        "-o Dpkg::Options::=--force-confnew -o Dpkg::Options::=--force-confmiss {}",
        names,
    )


def remove_diversion(path: str) -> Remedy:
    """Give a package's file its place again, without which a reinstallation brings it elsewhere."""
    return host_command("rm -f -- {0}; dpkg-divert --rename --remove {0}", path)


def remove_override(path: str) -> Remedy:
    """Give a package's file its own mode at the next installation."""
    return host_command("dpkg-statoverride --remove {}", path)


def remove_drop_ins(paths: Sequence[str]) -> Remedy:
    """Remove files of units, if any, with folders that are empty then, and have systemd read its units again."""
    if not paths:
        return host_command("systemctl daemon-reload")
    return host_command(
        "rm -rf -- {0}; rmdir --ignore-fail-on-non-empty -- {1}; systemctl daemon-reload",
        [*dict.fromkeys(paths)],
        [*dict.fromkeys(path.rpartition("/")[0] for path in paths)],
    )


def remove_access_lists(path: str) -> Remedy:
    """Remove the access lists of a folder; not every host has the program."""
    return host_command(
        "command -v setfacl > /dev/null || apt-get install --yes acl; setfacl --remove-all --remove-default -- {}", path
    )


def kill_processes(pids: Iterable[int]) -> Remedy:
    """End processes."""
    return host_command("kill {}", [*map(str, pids)])


STOP_LISTENER = instruction("stop that listener, and disable the unit or program that starts it")
