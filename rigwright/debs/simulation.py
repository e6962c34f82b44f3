"""What apt says that it would do, and what speaks against it: names of packages are no promise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rigwright.host import channel
from rigwright.host.channel import one_of, text, word
from rigwright.model.debs.group import PackageGroup
from rigwright.model.debs.versions import upstream_version

# apt-get(8), --simulate: a line a package, the version that is there in square brackets, the new one in round ones
INSTALL = re.compile(r"Inst (\S+)(?: \[([^\]]*)\])? \((\S+) .*")
# with APT::Get::Purge, settings go too
REMOVE = re.compile(r"(?:Remv|Purg) (\S+) \[.*")
# How many of each, before them; `downgraded` and `reinstalled` where there are some
COUNTED = re.compile(
    r"([0-9]+) upgraded, ([0-9]+) newly installed, ((?:[0-9]+ \S+, )*)([0-9]+) to remove and [0-9]+ not upgraded\."
)
INCOMPLETE = "apt-get did not list all that it would do"
ALSO = re.compile(r"([0-9]+) (?:re-installed|reinstalled|downgraded), ")


@dataclass(frozen=True)
class AptSimulation:
    """A transaction of apt's."""

    installed: tuple[tuple[str, str, str], ...]
    """(name, version that is there or nothing, new version)."""
    removed: tuple[str, ...]
    complaints: tuple[str, ...]
    """What apt says in place of a transaction."""
    offered: tuple[tuple[str, str], ...] = ()
    """(name, version) of what archives have, where apt has complained."""


S = TypeVar("S", bound=AptSimulation)
SCHEMA: channel.Schema = {
    "how": (one_of("archive", "kernel", "kept"),),
    "said": (text,),
    "offered": (word, word),
}
"""What a looking job tells (templates/debs/look.sh.j2, templates/nvidia_driver/look.sh.j2)."""


def read_simulation(output: Iterable[str], made: type[S]) -> tuple[str, S]:
    """Read what the looking job has written down.

    Args:
        output: Its lines.
        made: What a transaction is to be.

    Returns:
        Where the packages would come from: `archive`, `kernel` for that with a kernel's metapackage, or `kept` for kept
        files; and what apt would do then.

    Raises:
        ValueError: that is not what it was asked for.
    """
    told = channel.parse_output(output, SCHEMA)
    return told.one("how"), parse_simulation(told.one("said").splitlines(), made, told.many("offered"))


def parse_simulation(lines: Iterable[str], made: type[S], offered: Iterable[tuple[str, str]] = ()) -> S:
    """Read what `apt-get --simulate` printed, standard error too.

    Args:
        lines: What it printed.
        made: What a transaction is to be.
        offered: (name, version) of what archives have.

    Returns:
        The transaction; INCOMPLETE is among its complaints where apt counts more than it lists, or does not count.
    """
    installed, removed, complaints = [], [], []
    counted: tuple[int, int] | None = None
    for line in lines:
        if matched := INSTALL.fullmatch(line):
            installed.append((_plain(matched[1]), matched[2] or "", matched[3]))
        elif matched := REMOVE.fullmatch(line):
            removed.append(_plain(matched[1]))
        elif matched := COUNTED.fullmatch(line):
            counted = sum(map(int, (matched[1], matched[2], *ALSO.findall(matched[3])))), int(matched[4])
        elif line.startswith("E: "):
            complaints.append(line.removeprefix("E: "))
        elif complaints and line.startswith("   "):
            # the solver of apt 3.0 says why, in lines of its own
            complaints[-1] += f" {line.strip()}"
    if not complaints and (counted is None or len(installed) < counted[0] or len(removed) < counted[1]):
        complaints.append(INCOMPLETE)
    return made(tuple(installed), tuple(removed), tuple(complaints), tuple(offered))


def find_transaction_problems(seen: AptSimulation, one: PackageGroup, removed: Collection[str]) -> list[str]:
    """Why a transaction must not happen, each with what to do; nothing where it may.

    Args:
        seen: What apt would do.
        one: The packages that are to come.
        removed: Those that may go.
    """
    if seen.complaints:
        if gone := _describe_other_versions(seen, one):
            return [
                f"{one.name} {one.version} is not available: the archive has {', '.join(gone)}; set one of those in "
                "catalog/ next to the inventory and run `rigwright lock`, or name a mirror that still has it"
            ]
        return [f"apt cannot install {one.name}: {'; '.join(seen.complaints)}"]
    found = []
    if surplus := [name for name in seen.removed if name not in removed]:
        found.append(
            f"apt would remove {', '.join(surplus)}: remove or update them yourself if you do not need them, then "
            "re-run deploy"
        )
    return found + [
        f"{name} would be installed as {new}, but {one.packages[name].version} is locked: see `apt-cache policy {name}`"
        for name, _, new in seen.installed
        if name in one.packages and new != one.packages[name].version
    ]


def _describe_other_versions(seen: AptSimulation, one: PackageGroup) -> list[str]:
    """The versions that archives have where they lack a locked one; nothing where that is not the trouble."""
    lacking = [name for name, row in one.packages.items() if (name, row.version) not in seen.offered]
    return sorted({f"{name} {upstream_version(version)}" for name, version in seen.offered if name in lacking[:1]})


def _plain(name: str) -> str:
    return name.partition(":")[0]
