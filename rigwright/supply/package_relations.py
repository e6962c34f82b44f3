"""Relations of locked Debian packages: the text that a bundle has of them, and the list that an apt reads.

The lock has name, version, file and hash of each package. A bundle adds the relations, such as Depends; a list for apt
takes everything else from the lock, so a changed bundle cannot name another file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rigwright.supply.lock import Artefact

FILE = "Packages"
"""The file of a bundle with the relations of a group of the lock, in the folder of the group's packages."""
FIELDS = (
    *("Package", "Version", "Architecture", "Source", "Section", "Multi-Arch", "Installed-Size"),
    *("Pre-Depends", "Depends", "Provides", "Conflicts", "Breaks", "Replaces"),
)
"""The fields of a package's own control file that it has, in their order; the first three are required."""
REQUIRED = FIELDS[:3]
LARGEST = 4 << 20  # bytes; a driver's 50 packages have 30 KB
# Names, versions and relations, as deb-control(5) has them
_LINE = re.compile(r"([A-Z][A-Za-z-]*): ([A-Za-z0-9.+~:()<>=|, /_-]{1,20000})")

Relations = Mapping[str, Mapping[str, str]]
"""Package -> field -> value."""


def render_relations(controls: Iterable[str]) -> str:
    """The text of a group.

    Args:
        controls: A control file each, of the fields above alone.
    """
    return "\n".join(re.sub(r"\n\s+", " ", control.strip()) + "\n" for control in controls)


def parse_relations(text: str) -> Relations:
    """Read a group's text.

    Raises:
        ValueError: it is no such text.
    """
    found: dict[str, dict[str, str]] = {}
    for paragraph in filter(None, text.rstrip("\n").split("\n\n")):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            matched = _LINE.fullmatch(line)
            if not matched or matched[1] not in FIELDS or matched[1] in fields:
                raise ValueError("has a line that is no field of a package")
            fields[matched[1]] = matched[2]
        if not set(REQUIRED) <= fields.keys() or fields["Package"] in found:
            raise ValueError("has a package without a version, or twice")
        found[fields["Package"]] = fields
    return found


def render_apt_list(rows: Iterable[Artefact], relations: Relations) -> str:
    """The list of an archive with locked packages, for an apt that trusts it: hashes and files are the lock's.

    Raises:
        ValueError: a package's relations are missing, or of another version.
    """
    stanzas = []
    for row in rows:
        fields = relations.get(row.name)
        if fields is None or fields["Version"] != row.version or fields["Architecture"] not in ("amd64", "all"):
            raise ValueError(f"does not have {row.name} {row.version}")
        lines = [f"{name}: {fields[name]}" for name in FIELDS if name in fields]
        stanzas.append("\n".join([*lines, f"Filename: {row.file}", f"Size: {row.size}", f"SHA256: {row.sha256}", ""]))
    return "\n".join(stanzas)
