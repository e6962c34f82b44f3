"""Files, folders and links: written beside and renamed, so that no reader ever sees half of one."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from pyinfra import host, logger, state
from pyinfra.api import FactBase, QuoteString, StringCommand, operation
from pyinfra.facts.files import FileContents
from pyinfra.operations.util.files import generate_color_diff


@dataclass(frozen=True)
class Entry:
    """What lies at a path: kind is `file`, `directory`, `link`, `other` or `absent`."""

    kind: str = "absent"
    mode: str = ""
    user: str = ""
    group: str = ""
    sha256: str = ""
    target: str = ""


@dataclass(frozen=True)
class Text:
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
    def entry(self) -> Entry:
        """The state this asks for."""
        return Entry("file", self.mode, "root", "root", hashlib.sha256(self.text.encode()).hexdigest())


class Entries(FactBase[dict[str, Entry]]):
    """What lies at each of some paths, in one command."""

    default = dict

    def command(self, paths: Sequence[str]) -> StringCommand:
        """One line a path: kind, mode, user, group, SHA-256 or link target, path."""
        script = (
            'for p in "$@"; do '
            'if [ -L "$p" ]; then echo "link - - - $(readlink "$p") $p"; '
            'elif [ -f "$p" ]; then echo "file $(stat -c "%a %U %G" "$p") $(sha256sum < "$p" | cut -c1-64) $p"; '
            'elif [ -d "$p" ]; then echo "directory $(stat -c "%a %U %G" "$p") - $p"; '
            'elif [ -e "$p" ]; then echo "other - - - - $p"; '
            'else echo "absent - - - - $p"; fi; done'
        )
        return StringCommand("sh", "-c", QuoteString(script), "entries", *(QuoteString(path) for path in paths))

    def process(self, output: list[str]) -> dict[str, Entry]:
        """Read the command's lines."""
        found = {}
        for line in output:
            kind, mode, user, group, value, path = line.split(" ", 5)
            if kind in ("absent", "other"):
                found[path] = Entry(kind)
            elif kind == "link":
                found[path] = Entry("link", target=value)
            else:
                found[path] = Entry(kind, mode, user, group, value if kind == "file" else "")
        return found


@operation()
def texts(files: Sequence[Text]) -> Generator[StringCommand, None, None]:
    """Bring text files to their content, mode and owner (root).

    Each is written beside its place with its final mode and renamed. Folders above must exist.

    + files: the files

    **Example:**

    .. code:: python

        texts(name="Write the target", files=[Text("/etc/systemd/system/rigwright.target", text)])
    """
    found = host.get_fact(Entries, paths=[file.path for file in files])
    for file in files:
        if found.get(file.path) == file.entry:
            continue
        if state.config.DIFF:
            show_diff(file.path, host.get_fact(FileContents, path=file.path) or [], file.text)
        new = QuoteString(f"{file.path}.rigwright-new")
        proven = ("&& {", file.proof, new, "|| { rm -f", new, "; false; }; }") if file.proof else ()
        yield StringCommand(
            *("umask 077 && cat >", new, "&& chown root:root", new, "&& chmod", file.mode, new, *proven),
            *("&& sync -d", new, "&& mv -fT", new, QuoteString(file.path)),
            _stdin=file.text.splitlines(keepends=True),
        )
    if all(found.get(file.path) == file.entry for file in files):
        host.noop(f"{len(files)} files are as they should be")


def differ(files: Sequence[Text]) -> bool:
    """Whether any of these is not on the host of the running deploy as it should be."""
    found = host.get_fact(Entries, paths=[file.path for file in files])
    return any(found.get(file.path) != file.entry for file in files)


def show_diff(path: str, present: list[str], text: str) -> None:
    """Show the operator how a file changes."""
    lines = list(generate_color_diff([f"{line}\n" for line in present], text.splitlines(keepends=True)))
    if lines:
        logger.info(f"{host.print_prefix}{path}")
    for line in lines:
        logger.info(f"  {line}")


@operation()
def directories(paths: Mapping[str, tuple[str, str, str]], ledger: str) -> Generator[StringCommand, None, None]:
    """Make folders, each with (mode, user, group), and write down which were not there. Parents get mode 755.

    + paths: path -> (mode, user, group)
    + ledger: the file that knows what is ours

    **Example:**

    .. code:: python

        directories(name="Make the roots", paths={"/srv/models": ("755", "root", "root")}, ledger="/var/lib/x/owned")
    """
    found = host.get_fact(Entries, paths=list(paths))
    missing = 'new=$(p=$1; while [ ! -e "$p" ]; do echo "dir $p"; p=$(dirname "$p"); done)'
    script = f'{missing}; mkdir -p "$1" "${{2%/*}}" && {{ [ -z "$new" ] || echo "$new" >> "$2"; }}'
    for path, (mode, user, group) in paths.items():
        if found.get(path) == Entry("directory", mode, user, group):
            continue
        quoted = QuoteString(path)
        yield StringCommand(
            *("sh -c", QuoteString(f'{script} && chown "$3" "$1" && chmod "$4" "$1"'), "directory", quoted),
            *(QuoteString(ledger), f"{user}:{group}", mode),
        )
    if all(found.get(path) == Entry("directory", *attributes) for path, attributes in paths.items()):
        host.noop(f"{len(paths)} folders are as they should be")


@operation()
def absent(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Remove files that are no longer asked for.

    + paths: the files

    **Example:**

    .. code:: python

        absent(name="Remove the authorities", paths=["/etc/rigwright/ca.pem"])
    """
    found = host.get_fact(Entries, paths=list(paths))
    there = [path for path in paths if found.get(path, Entry()).kind != "absent"]
    if not there:
        host.noop(f"{', '.join(paths)} is not there")
    for path in there:
        yield StringCommand("rm -f", QuoteString(path))
