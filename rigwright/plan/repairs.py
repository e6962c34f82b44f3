"""Repairs: changes of a deploy to its own state on a host, beyond its roles' comparisons, before these run again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rigwright.host import script_output
from rigwright.host.systemd import STARTED_FROM_FOLDER
from rigwright.model.roots import Roots
from rigwright.render import render

Action = Literal["remove", "restart", "reload", "thaw", "open"]
OWN_NAME = r"rigwright(?:[-_.][A-Za-z0-9:_.\\@-]*)?"
KIND = "(?:service|socket|slice|target|timer|path)"
FOLDER = r"(?:/etc|/run|/usr/local/lib|/usr/lib|/lib)/systemd/(?:system|system\.control|transient|system\.attached)"
ENTRY = r"[^/\x00-\x1f\x7f]{1,200}"
ADDED = re.compile(rf"{FOLDER}/(?:{OWN_NAME}\.{KIND}\.(?:d|wants|requires|upholds)(?:/{ENTRY})?|{OWN_NAME}\.{KIND})")
"""Paths below which a file alters a unit of ours alone: drop-ins, relations, and unit files of our names."""
UNIT = re.compile(rf"{OWN_NAME}\.{KIND}")
PATH = re.compile(r"(?:/[^/\x00-\x1f\x7f]{1,255})+")
MODE = re.compile("[0-7]{3,4}")
OWNER = re.compile(r"[a-z0-9_][a-z0-9_-]*:[a-z0-9_][a-z0-9_-]*")

SET_ACCESS = """
import grp, os, pwd, stat, sys
path, mode, (user, group) = sys.argv[1], int(sys.argv[2], 8), sys.argv[3].split(":")
seen = os.fstat(opened := os.open(path, os.O_PATH | os.O_NOFOLLOW))
if stat.S_ISLNK(seen.st_mode) or (seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode)):
    sys.exit(f"{path} is a link: left as it is")
at = f"/proc/self/fd/{opened}"
for name in ("system.posix_acl_access", "system.posix_acl_default"):
    if name in os.listxattr(at):
        os.removexattr(at, name)
uid = int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
os.chown(at, uid, int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid)
os.chmod(at, mode)
""".strip()
"""The program that gives a path its access. A service may put a link in its socket's place at any moment: the path is
opened once, without following one.
"""


@dataclass(frozen=True, order=True)
class Repair:
    """One change. Its subject comes from a host's answer, so it is matched whole against what may be changed."""

    action: Action
    subject: str
    """A path, or a unit."""
    mode: str = ""
    """Of `open`: octal."""
    owner: str = ""
    """Of `open`: USER:GROUP."""

    def __post_init__(self) -> None:
        subject = {"remove": ADDED, "open": PATH}.get(self.action, UNIT)
        fits = [subject.fullmatch(self.subject), not {"..", "."} & {*self.subject.split("/")}]
        if self.action == "open":
            fits += [MODE.fullmatch(self.mode), OWNER.fullmatch(self.owner)]
        if not all(fits):
            raise ValueError(f"{self.action} {self.subject!r} is no repair")

    @property
    def description(self) -> str:
        """For people, after a verb's word for what will be, or was, done."""
        return {
            "remove": f"remove {self.subject}, with a copy kept",
            "restart": f"restart {self.subject}",
            "reload": f"reload {self.subject}",
            "thaw": f"thaw {self.subject}",
            "open": f"give {self.subject} mode {self.mode} of {self.owner}, without access lists",
        }[self.action]


def is_added_path(path: str) -> bool:
    """Whether a path is below a unit name of ours in a folder of systemd's: a drop-in, a relation or a unit file."""
    return ADDED.fullmatch(path) is not None and not {"..", "."} & {*path.split("/")}


def copies_folder(roots: Roots) -> str:
    """Where copies of removed files are kept, a folder for each deploy."""
    return f"{roots.state}/removed"


def render_repairs(roots: Roots, repairs: Iterable[Repair]) -> str:
    """The shell script that makes repairs; it reports a line for each complete repair and each copy."""
    by_action: dict[str, list[Repair]] = {}
    for one in sorted(set(repairs)):
        by_action.setdefault(one.action, []).append(one)
    return render(
        "repairs/repair.sh.j2",
        ledger=roots.ledger,
        copies=copies_folder(roots),
        records=STARTED_FROM_FOLDER,
        **{f"{action}_subjects": [one.subject for one in by_action.get(action, [])] for action in _ACTIONS},
        opened=by_action.get("open", []),
        set_access=SET_ACCESS,
    )


_ACTIONS: tuple[Action, ...] = ("remove", "restart", "reload", "thaw")
SCHEMA: script_output.Schema = {
    "kept": (script_output.path, script_output.path),
    "made": (script_output.one_of("open", *_ACTIONS), script_output.text),
}
"""The output of templates/repairs/repair.sh.j2: a removed path and its copy; a complete repair."""


@dataclass(frozen=True)
class RepairReport:
    """A host's report of its repairs."""

    copies: tuple[tuple[str, str], ...] = ()
    """Removed path and its copy."""
    completed: frozenset[tuple[str, str]] = frozenset()
    """Action and subject of each complete repair."""


def parse_repair_report(output: Sequence[str]) -> RepairReport:
    """Read the script's report.

    Raises:
        ValueError: the host reported something else.
    """
    found = script_output.parse_output(output, SCHEMA)
    return RepairReport(tuple(found.many("kept")), frozenset(found.many("made")))
