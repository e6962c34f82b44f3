"""Debian packages on a host: apt's sources and its simulated transactions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from rigwright.host import script_output
from rigwright.host.script_output import one_of, text, word
from rigwright.model.deb_package_groups import PackageGroup, upstream_version

# a paragraph that is switched off does not count (sources.list(5))
OFF = re.compile(r"^enabled:[ \t]*(?:no|false|without|off|disable|0)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_URIS = re.compile(r"^uris:[ \t]*((?:.*)(?:\n[ \t].*)*)", re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?(\S+)")


@dataclass(frozen=True)
class SourceFile:
    """A file of apt's sources."""

    path: str
    text: str

    def addresses(self) -> list[str]:
        """The archives that it names, each as it is written."""
        return list(_addresses(self))

    def match_origins(self, origins: Iterable[str]) -> tuple[bool, bool]:
        """Whether it names an archive whose address begins with one of these, and whether it names others, too."""
        beginnings = tuple(one.lower().partition("://")[2] for one in origins)
        plain = [re.sub(r"^[a-z+]*://", "", one.lower()) for one in self.addresses()]
        ours = [one.startswith(beginnings) for one in plain]
        return any(ours), not all(ours)


def _addresses(file: SourceFile) -> Iterator[str]:
    text = "\n".join(line for line in file.text.split("\n") if not line.lstrip().startswith("#"))
    if not file.path.endswith(".sources"):
        yield from (found[1] for line in text.split("\n") if (found := _LINE.match(line)))
        return
    for part in re.split(r"\n[ \t]*\n", text):
        if not OFF.search(part):
            yield from (one for found in _URIS.finditer(part) for one in found[1].split())


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
    """The messages that apt prints in place of a transaction."""
    offered: tuple[tuple[str, str], ...] = ()
    """(name, version) of what archives have, where apt has complained."""


S = TypeVar("S", bound=AptSimulation)
SCHEMA: script_output.Schema = {
    "how": (one_of("archive", "kernel", "kept"),),
    "said": (text,),
    "offered": (word, word),
}
"""The output of a looking job (templates/debs/look.sh.j2, templates/nvidia_driver/look.sh.j2)."""


def read_simulation(output: Iterable[str], made: type[S]) -> tuple[str, S]:
    """Read what the looking job has written down.

    Args:
        output: Its lines.
        made: The transaction's target.

    Returns:
        Where the packages would come from: `archive`, `kernel` for that with a kernel's metapackage, or `kept` for kept
        files; and what apt would do then.

    Raises:
        ValueError: that is not what it was asked for.
    """
    told = script_output.parse_output(output, SCHEMA)
    return told.one("how"), parse_simulation(told.one("said").splitlines(), made, told.many("offered"))


def parse_simulation(lines: Iterable[str], made: type[S], offered: Iterable[tuple[str, str]] = ()) -> S:
    """Read what `apt-get --simulate` printed, standard error too.

    Args:
        lines: Its output.
        made: The transaction's target.
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
        seen: apt's plan.
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
