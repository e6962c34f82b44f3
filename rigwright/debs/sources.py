"""What a host's apt reads packages from: files of sources, and whose archives they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# a paragraph that is switched off is none (sources.list(5))
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
