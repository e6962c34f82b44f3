"""The generation that a box serves: its folder, its units, and what its own check says of it."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import sys
import time

from rigwright.host.generation_layout import ACTIVATING, META, PROVEN, digest_entries, file_mode

from .root_jobs import JobLimits, run_program
from .settings import write_whole

TYPE_CHECKING = False  # as in settings.py
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rigwright.pull.publication import PullPayload

    from .settings import PullSettings

NUMBER = re.compile("generations/([1-9][0-9]{0,8})")
FILE_BYTES = 8 << 20  # of a file that is read
SERIOUS = ("critical", "high")
UNIT_TIMEOUT = re.compile("^Timeout(Start|Stop)Sec=([0-9]{1,6})$", re.MULTILINE)
DEFAULT_TIMEOUT_S = 90  # systemd's own, for a unit without these lines
DRAIN_S = 4500.0  # seconds of an activation for all that is no unit: an hour for requests in progress, and programs
LOADING = "activating"
ASLEEP = ("inactive", LOADING, "deactivating")  # of an instance on demand: no start, or one under way
GATE_TRIES, GATE_PAUSE_S = 4, 5.0  # a unit that has just started may not have all of its state


class GenerationFolders:
    """The generations that lie on the box."""

    def __init__(self, settings: PullSettings) -> None:
        self.settings = settings
        self.folder = f"{settings.config}/generations"

    def read_current(self) -> int:
        """The number of the current one; 0 for none."""
        try:
            found = NUMBER.fullmatch(os.readlink(f"{self.settings.config}/current"))
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def is_activating(self) -> bool:
        """Whether an activation has begun, and has not ended."""
        return os.path.lexists(f"{self.settings.config}/{ACTIVATING}")

    def is_proven(self, number: int) -> bool:
        """Whether a generation has answered."""
        return os.path.exists(f"{self.folder}/{number}/{PROVEN}")

    def read_proof(self, number: int) -> int:
        """The time of a generation's last proof in nanoseconds, for comparisons; 0 for none."""
        try:
            return os.stat(f"{self.folder}/{number}/{PROVEN}").st_mtime_ns
        except OSError:
            return 0

    def read_digest(self, number: int) -> str:
        """The digest of a generation as it lies there; empty for a changed one."""
        folder = f"{self.folder}/{number}"
        try:
            with open(f"{folder}/{META}", encoding="ascii") as file:
                sealed = (file.read(200).split() or [""])[0]
            found = digest_folder(folder, (META, PROVEN))
        except (OSError, ValueError):
            return ""
        return found if found == sealed else ""

    def list_numbers(self) -> list[int]:
        """The numbers of all generations."""
        return sorted(int(name) for name in os.listdir(self.folder) if re.fullmatch("[1-9][0-9]{0,8}", name))

    def write(self, payload: PullPayload) -> int:
        """Write a generation, complete before it gets its number; returns the number."""
        for number in reversed(self.list_numbers()):
            if self.read_digest(number) == payload.digest:
                return number
        new = f"{self.folder}/.new"
        shutil.rmtree(new, ignore_errors=True)
        os.mkdir(new, 0o755)
        for path, text in payload.files.items():
            os.makedirs(os.path.dirname(f"{new}/{path}"), 0o755, exist_ok=True)
            write_whole(f"{new}/{path}", text, int(file_mode(text), 8))
        for path, target in payload.links.items():
            os.makedirs(os.path.dirname(f"{new}/{path}"), 0o755, exist_ok=True)
            os.symlink(target, f"{new}/{path}")
        written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        write_whole(f"{new}/{META}", f"{payload.digest} {written}\n")
        number = max(self.list_numbers(), default=0) + 1
        os.rename(new, f"{self.folder}/{number}")
        return number

    def activation_limits(self, *numbers: int) -> JobLimits:
        """The limits of an activation: starts and stops of all units of these generations, as those declare them."""
        seconds = [
            _read_timeouts(f"{place}/{name}")
            for number in numbers
            for place, _, names in os.walk(f"{self.folder}/{number}/units")
            for name in names
            if name.endswith(".service")
        ]
        return JobLimits(DRAIN_S + max(seconds, default=0), DRAIN_S + sum(seconds))


def _read_timeouts(path: str) -> int:
    with open(path, encoding="utf-8", errors="replace") as file:
        found = dict(UNIT_TIMEOUT.findall(file.read(FILE_BYTES)))
    return sum(int(found.get(name, DEFAULT_TIMEOUT_S)) for name in ("Start", "Stop"))


def digest_folder(folder: str, without: Sequence[str]) -> str:
    """The digest of a generation's folder.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is no file, or too large.
    """
    entries, links = {}, {}
    for place, folders, names in os.walk(folder):
        for name in [*names, *(one for one in folders if os.path.islink(f"{place}/{one}"))]:
            path = f"{place}/{name}"
            inner = os.path.relpath(path, folder)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                links[inner] = os.readlink(path)
            elif not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES:
                raise ValueError(path)
            elif inner not in without:
                with open(path, "rb") as file:
                    sha256 = hashlib.sha256(file.read()).hexdigest()
                entries[inner] = (sha256, f"{stat.S_IMODE(found.st_mode):o}")
    return digest_entries(entries, links)


def describe_missing(payload: PullPayload, declaration: str, settings: PullSettings) -> str:
    """The first thing that the box lacks for a generation, and that only a deploy brings; empty for none."""
    try:
        with open(settings.declaration, "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
    except OSError:
        found = ""
    if found != declaration:
        return "the inventory changes settings or programs outside of the generation"
    for path in payload.paths:
        if not os.path.lexists(settings.root + path):
            return f"{path} is not there"
    for user in payload.users:
        try:
            pwd.getpwnam(user)
        except KeyError:
            return f"the user {user} is not there"
    return ""


def describe_unsettled(settings: PullSettings, folder: str) -> str:
    """Why the box does not serve its current generation as that was activated; empty where it does.

    It ends with LOADING where a unit's start is all that is missing.
    """
    with open(f"{folder}/manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    wanted: dict[str, tuple[str, str]] = {}
    loading = ""
    on_demand = set[str]()
    for instance in manifest["instances"].values():
        wanted |= {unit: (started, "") for unit, started in instance["units"].items()}
        on_demand |= set(instance["units"] if instance.get("on_demand") else ())
    for listener in manifest["listeners"]:
        wanted[listener["units"][0]] = (listener["started_from"], "")
    for unit in manifest["gateway"]:
        wanted[unit["unit"]] = (unit["started_from"], unit["configured_from"])
    for unit, (started, configured) in wanted.items():
        state = run_program("systemctl", "show", "--property=ActiveState", "--value", "--", unit)[1].strip()
        if unit in on_demand and state in ASLEEP:
            continue
        if state == LOADING:
            loading = f"{unit} is {LOADING}"
            continue
        if state != "active":
            return f"{unit} is {state[:20] or 'not known to systemd'}"
        record = f"{settings.started_from}/{unit}"
        if _read_word(record) != started or (configured and _read_word(f"{record}.configured") != configured):
            return f"{unit} does not run from the current generation"
    return loading


def _read_word(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return (file.readline(200).split() or [""])[0]
    except OSError:
        return ""


def list_findings(settings: PullSettings) -> list[list[str]]:
    """The serious findings of the box's own check, by the code of that check."""
    if settings.self_check not in sys.path:
        sys.path.append(settings.self_check)
    from rigwright_self_check import judgements  # type: ignore[import-not-found]
    from rigwright_self_check.observed_host import Host  # type: ignore[import-not-found]

    with open(settings.declaration, encoding="utf-8") as file:
        host = Host(json.load(file), settings.root)
    try:
        host.load_generation()
    except Exception as error:
        return [["Y01", "", f"not readable: {error}"]]
    for judge, check in judgements.JUDGEMENTS:
        try:
            judge(host)
        except Exception as error:
            # fail closed, as the check itself does
            host.fail(check, "high", "", f"not readable: {type(error).__name__}: {error}")
    return [[one["check"], one["part"], one["text"]] for one in host.findings if one["severity"] in SERIOUS]


def find_new_faults(settings: PullSettings, before: Sequence[Sequence[str]]) -> list[str]:
    """Findings that an activation has brought, after some time for units to settle."""
    known = {(check, part) for check, part, _ in before}
    for left in reversed(range(GATE_TRIES)):
        found = [f"{check} {text}" for check, part, text in list_findings(settings) if (check, part) not in known]
        if not found or not left:
            return found
        time.sleep(GATE_PAUSE_S)
    return []
