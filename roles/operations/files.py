"""Files, folders and links: written beside and renamed, so that no reader ever sees half of one."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from pyinfra import host, logger, state
from pyinfra.api import QuoteString, StringCommand, operation
from pyinfra.facts.files import FileContents
from pyinfra.operations.util.files import generate_color_diff

from rigwright.host import script_output
from rigwright.problems import format_count
from roles.operations.facts import ChannelFact


@dataclass(frozen=True)
class PathEntry:
    """The object at a path: kind is `file`, `directory`, `link`, `other` or `absent`."""

    kind: str = "absent"
    mode: str = ""
    user: str = ""
    group: str = ""
    sha256: str = ""
    target: str = ""


USER = re.compile(r"(?<=://)[^/@\s\"]+(?=@)")
"""A user and his password in an address."""

_owner = script_output.matching(r"[^\s]{1,255}", "a user or a group")


def _parse_checksum_line(value: str) -> tuple[str, str]:
    """Path and SHA-256, as sha256sum writes them."""
    sha256, _, path = value.partition("  ")
    return script_output.path(path), script_output.sha256(sha256)


ENTRIES: script_output.Schema = {
    "link": (script_output.path, script_output.text),
    "there": (script_output.path, script_output.hexadecimal, _owner, _owner),
    "sum": (_parse_checksum_line,),
    "none": (script_output.path, script_output.one_of("other", "absent")),
}
"""The output of templates/look/entries.sh.j2."""


@dataclass(frozen=True)
class TextFile:
    """A text file as it should be, ending in a newline. Not for secrets: a diff shows it."""

    path: str
    text: str
    mode: str = "644"
    proof: str = ""
    """Shell words that succeed where they are given the path of a file with this text before it takes its place."""

    def __post_init__(self) -> None:
        if not self.text.endswith("\n"):
            raise ValueError(f"{self.path}: a text file ends in a newline")

    @property
    def expected_entry(self) -> PathEntry:
        """The state this asks for."""
        return PathEntry("file", self.mode, "root", "root", hashlib.sha256(self.text.encode()).hexdigest())


class PathEntriesFact(ChannelFact[dict[str, PathEntry]]):
    """The objects at some paths, in one command."""

    default = dict

    def command(self, paths: Sequence[str]) -> StringCommand:
        """templates/look/entries.sh.j2."""
        return self.render_command("look/entries.sh.j2", paths=paths)

    def read(self, output: list[str]) -> dict[str, PathEntry]:
        """Read what it tells."""
        told = script_output.parse_output(output, ENTRIES)
        links = {path: PathEntry("link", target=target) for path, target in told.many("link")}
        sums = dict(told.all("sum"))
        there = {}
        for path, mode, user, group in told.many("there"):
            kind = "directory" if stat.S_ISDIR(mode) else "file"
            if kind == "file" and path not in sums:
                raise ValueError(f"the host did not report the contents of {path}")
            there[path] = PathEntry(kind, f"{stat.S_IMODE(mode):o}", user, group, sums.get(path, ""))
        return {path: PathEntry(kind) for path, kind in told.many("none")} | links | there


@operation()
def write_text_files(files: Sequence[TextFile]) -> Generator[StringCommand, None, None]:
    """Bring text files to their content, mode and owner (root).

    Each is written beside its place with its final mode and renamed. Folders above must exist.

    + files: the files

    **Example:**

    .. code:: python

        texts(name="Write the target", files=[Text("/etc/systemd/system/rigwright.target", text)])
    """
    found = host.get_fact(PathEntriesFact, paths=[file.path for file in files])
    for file in files:
        if found.get(file.path) == file.expected_entry:
            continue
        if state.config.DIFF:
            show_diff(file.path, host.get_fact(FileContents, path=file.path) or [], file.text)
        new = QuoteString(f"{file.path}.rigwright-new")
        proven = ("&& {", file.proof, new, "|| { rm -f", new, "; false; }; }") if file.proof else ()
        yield StringCommand(
            *("umask 077 && cat >", new, "&& chown root:root", new, "&& chmod", QuoteString(file.mode), new, *proven),
            *("&& sync -d", new, "&& mv -fT", new, QuoteString(file.path)),
            _stdin=file.text.splitlines(keepends=True),
        )
    if all(found.get(file.path) == file.expected_entry for file in files):
        host.noop(f"up to date: {format_count(len(files), 'file')}")


def texts_differ(files: Sequence[TextFile]) -> bool:
    """Whether any of these is not on the host of the running deploy as it should be."""
    found = host.get_fact(PathEntriesFact, paths=[file.path for file in files])
    return any(found.get(file.path) != file.expected_entry for file in files)


def missing_paths(paths: Sequence[str]) -> list[str]:
    """Those that the host of the running deploy lacks: a folder of the system keeps the mode and owner that it has."""
    entries = host.get_fact(PathEntriesFact, paths=list(paths)) if paths else {}
    return [path for path in paths if entries.get(path, PathEntry()).kind == "absent"]


def show_diff(path: str, present: list[str], text: str) -> None:
    """Show the operator how a file changes, without the user and password of a proxy or another server."""
    old, new = (
        [USER.sub("...", line) for line in lines]
        for lines in ([f"{line}\n" for line in present], text.splitlines(keepends=True))
    )
    lines = list(generate_color_diff(old, new))
    if lines:
        logger.info(f"{host.print_prefix}{path}")
    for line in lines:
        logger.info(f"  {line}")


@operation()
def make_directories(paths: Mapping[str, tuple[str, str, str]], ledger: str) -> Generator[StringCommand, None, None]:
    """Make folders, each with (mode, user, group), and write down which were not there. Parents get mode 755.

    + paths: path -> (mode, user, group)
    + ledger: the file that knows what is ours

    **Example:**

    .. code:: python

        directories(name="Make the roots", paths={"/srv/models": ("755", "root", "root")}, ledger="/var/lib/x/owned")
    """
    found = host.get_fact(PathEntriesFact, paths=list(paths))
    missing = 'new=$(p=$1; while [ ! -e "$p" ]; do echo "dir $p"; p=$(dirname "$p"); done)'
    script = f'{missing}; mkdir -p "$1" "${{2%/*}}" && {{ [ -z "$new" ] || echo "$new" >> "$2"; }}'
    for path, (mode, user, group) in paths.items():
        if found.get(path) == PathEntry("directory", mode, user, group):
            continue
        quoted = QuoteString(path)
        yield StringCommand(
            *("sh -c", QuoteString(f'{script} && chown "$3" "$1" && chmod "$4" "$1"'), "directory", quoted),
            *(QuoteString(ledger), QuoteString(f"{user}:{group}"), QuoteString(mode)),
        )
    if all(found.get(path) == PathEntry("directory", *attributes) for path, attributes in paths.items()):
        host.noop(f"{len(paths)} directories are up to date")


@operation()
def repair_last_line(path: str, known: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Repair the last line of a file that lost its end: the next text would be part of that line.

    It stays where it is a whole one, and goes where it may be the beginning of another: a line that a full disk has cut
    off may name more than was meant.

    + path: the file
    + known: lines that are whole

    **Example:**

    .. code:: python

        repair_last_line(name="End the ledger's last line", path="/var/lib/x/owned", known=["user x"])
    """
    # asked again: a job that was cut off and goes on may have ended it
    script = (
        'file=$1; shift; [ -n "$(tail -c 1 "$file")" ] || exit 0; last=$(tail -n 1 "$file"); '
        'for whole; do [ "$last" != "$whole" ] || { echo >> "$file"; exit; }; done; '
        'sed -i \'$d\' "$file" && sync "$file"'
    )
    yield StringCommand("sh -c", QuoteString(script), "ended", QuoteString(path), *map(QuoteString, known))


@operation()
def remove_files(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Remove files that are no longer asked for.

    + paths: the files

    **Example:**

    .. code:: python

        absent(name="Remove the CA certificates", paths=["/etc/rigwright/ca.pem"])
    """
    found = host.get_fact(PathEntriesFact, paths=list(paths))
    there = [path for path in paths if found.get(path, PathEntry()).kind != "absent"]
    if not there:
        host.noop(f"{', '.join(paths)} is not there")
    for path in there:
        yield StringCommand("rm -f", QuoteString(path))
