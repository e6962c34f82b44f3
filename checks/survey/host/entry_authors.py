"""Times and authors of entries, as far as the host's logs tell. A log that shows only what ran or which users were
logged in at that time says "while" or "at about the same time": it proves no author.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from checks.survey.host import common, dpkg
from checks.survey.host.host_entry import HostEntry

BUDGET = 1.0  # s for all; a host where nothing has changed needs none
TAIL = 4 << 20  # bytes of a log's end
SLACK = 2.0  # s between a change and the line of it
MOST = 400  # entries that are described
NEAR = 60.0  # s between a command or the end of a session, and a change at about the same time
DAY = 86400.0
PAIRS = {"/etc/passwd": "/etc/shadow", "/etc/group": "/etc/gshadow"}
"""Files of which another one has the passwords."""
JOURNAL_SPAN = 45 * 86400.0  # s: earlier times are not asked of the journal
UTMP = struct.Struct("<hi32s4s32s256shhiii16s20s")  # struct utmp (utmp(5)) of 64-bit Linux
USER_PROCESS, DEAD_PROCESS = 7, 8
IDENTIFIERS = (
    *("sudo", "su", "sshd", "sshd-session", "login", "useradd", "usermod", "groupadd", "passwd", "chpasswd"),
    *("CRON", "cron"),
)
ACCEPTED = re.compile(r"Accepted \S+ for (\S+) from (\S+)")
OPENED = re.compile(r"pam_unix\((su|su-l|login|sshd):session\): session opened for user ([^\s(]+)")
CLOSED = re.compile(r"pam_unix\((?:su|su-l|login|sshd):session\): session closed for user \S+")
SUDO = re.compile(r"\s*(\S+) : .*?COMMAND=(.*)")
CRON = re.compile(r"\((\S+)\) CMD \((.*)\)")


class Span(NamedTuple):
    """Something that ran, or a session, for some time."""

    begin: float
    end: float
    words: str
    process: str = ""
    """Number of the process that began it, of a session of the journal."""


class LogLine(NamedTuple):
    """A line of the journal."""

    moment: float
    program: str
    text: str
    process: str = ""
    """Number of the process that wrote it."""


def describe(
    entries: list[HostEntry], state: str = "/var/lib/rigwright", begin: float = 0.0
) -> dict[int, tuple[float, str]]:
    """Place of an entry in the list -> since when it is as it is, in seconds since 1970, and its author in words.

    Args:
        entries: Those that nothing explains.
        state: Rigwright's folder of state.
        begin: When the operator accepted entries last, in seconds since 1970: an entry without a time has changed
            since; 0 where that is not known.
    """
    if not entries:
        return {}
    until = time.monotonic() + BUDGET
    places = {number: find_moment(entry) for number, entry in enumerate(entries[:MOST])}
    known = [moment for _, moment in places.values() if moment]
    if begin and len(known) < len(places):
        known += [begin, time.time()]
    if not known:
        return {}
    logs = HostLogs(state, min(known), max(known), until)
    found: dict[int, tuple[float, str]] = {}
    for number, (path, moment) in places.items():
        is_own = path == entries[number].key
        words = ""
        if time.monotonic() < until:
            words = logs.author(entries[number], moment) if moment else logs.describe_span(begin)
        if moment and not is_own:
            # of several rows of a file, the file tells the latest change
            words = f"{path} changed last at {clock(moment)}, {words}" if words else ""
        found[number] = (moment if is_own else 0.0, words)
    return found


def find_moment(entry: HostEntry) -> tuple[str, float]:
    """The path of which a change of an entry has its time, and that time: the entry's own, that of the file that it is
    a row of, or of the folder that it is gone from; 0 where no file has it.
    """
    if moment := since(entry):
        return entry.key, moment
    times = {path: _changed(path) for path in filter(None, (entry.path, PAIRS.get(entry.path, "")))}
    if not any(times.values()) and entry.path.startswith("/"):
        times = {folder: _changed(folder) for folder in [os.path.dirname(entry.path)]}
    path = max(times, key=lambda one: times[one], default="")
    return path, times.get(path, 0.0)


def _changed(path: str) -> float:
    with suppress(OSError):
        return os.lstat(f"{dpkg.ROOT}{path}").st_ctime
    return 0.0


def since(entry: HostEntry) -> float:
    """When a file last changed; 0 where the host does not know. Rows of a file have no time of their own."""
    if entry.ctime:
        return entry.ctime
    if entry.path and entry.key == entry.path:
        return _changed(entry.path)
    return 0.0


class HostLogs:
    """Logs of a host for a span of time."""

    def __init__(self, state: str, first: float, last: float, until: float) -> None:
        self.jobs = list(deploy_jobs(f"{state}/jobs"))
        self.transactions = parse_apt_history(_tail("/var/log/apt/history.log"))
        self.packages = parse_dpkg_log(_tail("/var/log/dpkg.log"))
        self.sessions = parse_wtmp(_tail_bytes("/var/log/wtmp"))
        self.audit = _tail_bytes("/var/log/audit/audit.log")
        self.journal: list[LogLine] = []
        left = until - time.monotonic()
        if left > 0.03:
            self.journal = read_journal(max(first, last - JOURNAL_SPAN) - DAY, last + SLACK, left)
        self.logins = [*parse_logins(self.journal)]

    def author(self, entry: HostEntry, moment: float) -> str:
        """The author of an entry's change then, with the strongest evidence there is; empty for none."""
        return self._audited(entry) or self._commanded(entry, moment) or self._ran(entry, moment)

    def _audited(self, entry: HostEntry) -> str:
        """The audit log's own record of the path."""
        if not self.audit or not entry.path:
            return ""
        at = self.audit.rfind(f'name="{entry.path}"'.encode(errors="surrogateescape"))
        if at < 0:
            return ""
        line = self.audit[self.audit.rfind(b"\n", 0, at) + 1 : at]
        stamp = re.search(rb"msg=audit\(([0-9.]+:[0-9]+)\)", line)
        if not stamp:
            return ""
        pattern = (
            rb"type=SYSCALL msg=audit\(" + re.escape(stamp[1]) + rb"\):[^\n]*? auid=(\d+)[^\n]*? exe=\"([^\"\n]*)\""
        )
        if matched := re.search(pattern, self.audit):
            login = matched[1].decode()
            name = "no login" if login == "4294967295" else f"the login of {user_name(login)}"
            return f"audit log: {common.text(matched[2])} in {name}"
        return ""

    def _commanded(self, entry: HostEntry, moment: float) -> str:
        """A command of sudo, or a tool's own line, that names the entry."""
        name = entry.key.rpartition(" ")[2] if entry.kind in ("accounts", "groups") else ""
        for line in self.journal:
            if entry.path and line.program == "sudo" and abs(line.moment - moment) < 60:
                matched = SUDO.match(line.text)
                if matched and re.search(rf"(?<![\w/]){re.escape(entry.path)}(?![\w/.-])", matched[2]):
                    return f"sudo of {matched[1]} at {clock(line.moment)}: {common.masked(matched[2])[:160]}"
            if (
                name
                and line.program in ("useradd", "usermod", "groupadd")
                and re.search(rf"(?:name=|'){re.escape(name)}[',]", line.text)
            ):
                return f"{line.program} at {clock(line.moment)}"
        return ""

    def _ran(self, entry: HostEntry, moment: float) -> str:
        """The programs and logins at that time."""
        words = []
        package = re.match(r"package (\S+?)(?::\S+)? ", f"{entry.expected_from} ")
        if package and (row := self.packages.get(package[1])) and row[0] - SLACK <= moment <= row[0] + 60:
            words.append(f"while dpkg made the {row[1]} of {package[1]}")
        words += [f"while {one.words}" for one in (*self.jobs, *self.transactions) if covers(one, moment)][:2]
        words += [f"while {one}" for one in sorted({one.words for one in self.sessions if covers(one, moment)})][:2]
        if not words:
            # the sessions of users are in the journal, where wtmp has none
            words = [*dict.fromkeys(f"while {one.words}" for one in self.logins if covers(one, moment))][-2:]
        words = [*self._commands_near(moment), *words] or self._ended_near(moment)
        return "; ".join(words)

    def _commands_near(self, moment: float) -> list[str]:
        """The last command of sudo and the last job of cron shortly before."""
        found: dict[str, str] = {}
        for line in self.journal:
            if moment - NEAR <= line.moment <= moment + SLACK:
                if line.program == "sudo" and (matched := SUDO.match(line.text)):
                    found["sudo of"] = f"{matched[1]} at {clock(line.moment)}: {common.masked(matched[2])[:160]}"
                elif line.program in ("CRON", "cron") and (matched := CRON.match(line.text)):
                    found["cron job of"] = f"{matched[1]} at {clock(line.moment)}: {common.masked(matched[2])[:160]}"
        return [f"at about the same time: {kind} {words}" for kind, words in found.items()]

    def _ended_near(self, moment: float) -> list[str]:
        """The session that ended last, shortly before."""
        near = [one for one in self.logins if moment - NEAR <= one.end < moment]
        return [f"at about the same time: {one.words}, until {clock(one.end)}" for one in near[-1:]]

    def describe_span(self, begin: float) -> str:
        """Everything that may have made a change of an unknown time since then: the latest of each kind."""
        if not begin:
            return ""
        ours = ancestors()
        sessions = [one for one in (*self.sessions, *self.logins) if one.end >= begin and one.process not in ours]
        ran = [one for one in (*self.jobs, *self.transactions) if one.end >= begin]
        words = [*dict.fromkeys(one.words for one in reversed([*ran[-1:], *sessions[-2:]]))]
        return f"between {clock(begin)} and now; meanwhile {'; '.join(words)}" if words else ""


def parse_logins(lines: Iterable[LogLine]) -> Iterator[Span]:
    """Sessions by the journal: each has the process that began it, and ends with that."""
    opened: dict[str, tuple[float, str]] = {}
    for line in lines:
        name = f"{line.program} {line.process}"
        if matched := ACCEPTED.search(line.text):
            words = f"{matched[1]} was logged in by ssh from {matched[2]} since {clock(line.moment)}"
            opened[name] = (line.moment, words)
        elif (matched := OPENED.search(line.text)) and name not in opened:
            opened[name] = (line.moment, f"{matched[2]} was logged in by {matched[1]} since {clock(line.moment)}")
        elif CLOSED.search(line.text) and name in opened:
            begin, words = opened.pop(name)
            yield Span(begin, line.moment, words, line.process)
    for name, (begin, words) in opened.items():
        yield Span(begin, time.time(), words, name.rpartition(" ")[2])


def ancestors() -> set[str]:
    """Numbers of the processes that this one descends from: a session of which it is part has made no change before."""
    found: set[str] = set()
    process = str(os.getpid())
    while process not in ("0", "", *found):
        found.add(process)
        fields = (common.read(f"/proc/{process}/stat") or "").rpartition(")")[2].split()
        process = fields[1] if len(fields) > 1 else ""
    return found


def covers(span: Span, moment: float) -> bool:
    """Whether a moment lies in a span, up to the clock's grain."""
    return span.begin - SLACK <= moment <= span.end + SLACK


def clock(moment: float) -> str:
    """A time of day, in UTC, with its date."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment))


def user_name(number: str) -> str:
    """A user's name by the host's own file."""
    return next((row[0] for row in common.rows(f"{dpkg.ROOT}/etc/passwd", 7) if row[2] == number), f"user {number}")


def _tail_bytes(path: str) -> bytes:
    return common.tail(f"{dpkg.ROOT}{path}", TAIL, UTMP.size)


def _tail(path: str) -> str:
    return common.text(_tail_bytes(path))


def _local(words: str) -> float:
    """Seconds since 1970 of a local time, as dpkg and apt write it; 0 for none."""
    with suppress(ValueError, OverflowError):
        return time.mktime(time.strptime(" ".join(words.split()), "%Y-%m-%d %H:%M:%S"))
    return 0.0


def parse_apt_history(text: str) -> list[Span]:
    """Runs of apt: command, and the user that requested it (apt's history.log)."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(line.partition(": ")[::2] for line in common.lines(paragraph) if ": " in line)
        begin, end = _local(fields.get("Start-Date", "")), _local(fields.get("End-Date", ""))
        if not begin:
            continue
        command = fields.get("Commandline", "a command without a name")
        words = f"apt ran at {clock(begin)}: {common.masked(command)[:120]}"
        if "unattended-upgrade" in command:
            words = f"apt ran at {clock(begin)} (unattended)"
        if by := fields.get("Requested-By"):
            words += f", requested by {by}"
        found.append(Span(begin, end or begin + 600, words))
    return found


def parse_dpkg_log(text: str) -> dict[str, tuple[float, str]]:
    """Package -> when dpkg last installed or upgraded it, and which of the two (dpkg.log)."""
    found: dict[str, tuple[float, str]] = {}
    for line in common.lines(text):
        if matched := re.match(r"(\S+ \S+) (install|upgrade|configure) ([^\s:]+)", line):
            word = {"install": "installation", "upgrade": "upgrade"}.get(matched[2], "configuration")
            before = found.get(matched[3])
            found[matched[3]] = (_local(matched[1]), before[1] if before and matched[2] == "configure" else word)
    return found


def parse_wtmp(content: bytes) -> list[Span]:
    """Sessions of users (wtmp(5))."""
    opened: dict[bytes, tuple[float, str]] = {}
    found = []
    for at in range(0, len(content) - UTMP.size + 1, UTMP.size):
        kind, _, line, _, user, place, _, _, _, seconds, *_ = UTMP.unpack_from(content, at)
        if line in opened and kind in (USER_PROCESS, DEAD_PROCESS):
            begin, words = opened.pop(line)
            found.append(Span(begin, float(seconds), words))
        if kind == USER_PROCESS:
            name, host = (common.text(one.partition(b"\0")[0]) for one in (user, place))
            opened[line] = (float(seconds), f"{name} was logged in" + (f" by ssh from {host}" if host else ""))
    return [*found, *(Span(begin, time.time(), words) for begin, words in opened.values())]


def deploy_jobs(folder: str) -> Iterable[Span]:
    """Jobs of our deploys: from the script's writing to the log's last line."""
    with suppress(OSError):
        for name in sorted(os.listdir(f"{dpkg.ROOT}{folder}")):
            with suppress(OSError):
                begin = os.stat(f"{dpkg.ROOT}{folder}/{name}/script").st_mtime
                end = os.stat(f"{dpkg.ROOT}{folder}/{name}/log").st_mtime
                yield Span(begin, max(begin, end), f"a deploy of Rigwright ran its job {name.removeprefix('rw-job-')}")


def read_journal(first: float, last: float, limit: float) -> list[LogLine]:
    """Lines of logins, sudo and tools for accounts; none where the journal does not answer in time.

    Args:
        first: Seconds since 1970.
        last: The same.
        limit: Seconds that it may take.
    """
    if dpkg.ROOT:
        return []
    words = ["journalctl", "--quiet", "--no-pager", "--output=short-unix", "--lines=4000"]
    words += [f"--since=@{first:.0f}", f"--until=@{last + 1:.0f}", *(f"--identifier={one}" for one in IDENTIFIERS)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=limit, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_journal(done.stdout.decode(errors="replace"))


def parse_journal(text: str) -> list[LogLine]:
    """Lines of `journalctl --output=short-unix`."""
    rows = (re.match(r"([0-9.]+) \S+ ([^\s\[:]+)(?:\[([0-9]+)\])?: (.*)", line) for line in common.lines(text))
    return [LogLine(float(row[1]), row[2], row[4], row[3] or "") for row in rows if row]
