"""systemd's reading of a unit's text: its settings as the properties that `systemctl show` prints.

Written from systemd's own manuals and from what versions 252 and 257 show of units; no code that writes or reads units
of ours is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from signal import Signals

SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
SPAN = re.compile(r"([0-9.]+) ?(us|ms|s|min|h|d|w|)(?![a-z])")
BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PART = re.compile(r"""\"(?:[^"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|(?:[^\s"'\\]|\\.)+""")
WORD = re.compile(f"(?:{PART.pattern})+")
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'"}
COMMAND = re.compile(r"\{ path=(.*?) ; argv\[\]=(.*) ; flags=([a-z -]*) ; start_time=.*", re.DOTALL)
FLAGS = {"-": "ignore-failure", "+": "privileged", ":": "no-env-expand", "!": "no-setuid"}
# Settings that systemd reports under another name.
RENAMED = {
    "EnvironmentFile": "EnvironmentFiles",
    "ListenStream": "Listen",
    "OnCalendar": "TimersCalendar",
    "OnBootSec": "TimersMonotonic",
    "PathChanged": "Paths",
    "CPUQuota": "CPUQuotaPerSecUSec",
}
# Relations between units: further ones come from systemd itself, and from others.
RELATIONS = frozenset({"After", "Before", "Requires", "Wants", "PartOf", "RequiresMountsFor", "Sockets", "Service"})
# Told by no property, or as something that cannot be printed, or only for people.
UNTOLD = re.compile("Condition.*|Assert.*|LoadCredential|Description|WantedBy|Documentation")
WORDS = frozenset(
    {
        *("CapabilityBoundingSet", "AmbientCapabilities", "SupplementaryGroups", "RestrictAddressFamilies"),
        *(
            "InaccessiblePaths",
            "ReadWritePaths",
            "ReadOnlyPaths",
            "RuntimeDirectory",
            "CacheDirectory",
            "LogsDirectory",
        ),
        *("IPAddressDeny", "IPAddressAllow", "TemporaryFileSystem", "SystemCallFilter", "SystemCallArchitectures"),
        *("BindPaths", "BindReadOnlyPaths", "SocketBindAllow", "SocketBindDeny", "StateDirectory"),
    }
)
"""Those whose order does not matter, and of which several add up."""
CAPABILITIES = re.compile("CapabilityBoundingSet|AmbientCapabilities")
LINES = re.compile("Exec.*|Listen|DeviceAllow|EnvironmentFiles|TimersCalendar|TimersMonotonic|Paths")
"""Those of which each stands for itself."""
AMOUNTS = re.compile("(Memory|Limit|Tasks).*|.*Size")
NUMBERS: Mapping[str, Mapping[str, int]] = {
    "KillSignal": {one.name: int(one) for one in Signals},
    # sched(7), ioprio_set(2)
    "CPUSchedulingPolicy": {"other": 0, "fifo": 1, "rr": 2, "batch": 3, "idle": 5},
    "IOSchedulingClass": {"none": 0, "realtime": 1, "best-effort": 2, "idle": 3},
    # errno(3)
    "SystemCallErrorNumber": {"EPERM": 1, "EACCES": 13},
}
"""Settings with a name in texts, and a number in what systemd tells."""
MONOTONIC = re.compile(r"\{ (On[A-Za-z]+)=(.*?) ; next_elapse=[^}]*\}")
CALENDAR = {"hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "weekly": "Mon *-*-* 00:00:00"}


@cache
def parse_unit_settings(text: str) -> tuple[tuple[str, str], ...]:
    """The settings of a unit's text, in their order. Several checks ask for those of a unit, and for each process."""
    found = (line.partition("=") for line in re.sub(r"\\\n\s*", " ", text).splitlines())
    return tuple(
        (name.strip(), value.strip()) for name, sign, value in found if sign and name[:1] not in ("#", ";", "[")
    )


def split_quoted_words(value: str) -> list[str]:
    """A value's words, without their quotes (systemd.syntax(7), "Quoting")."""
    return ["".join(_unquote(part) for part in PART.findall(word)) for word in WORD.findall(value)]


def _unquote(part: str) -> str:
    inner = part[1:-1] if part[0] in "\"'" else part
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), inner)


def canonical_timespan(value: str) -> str:
    """A span of time; unchanged where it has no end."""
    parts = SPAN.findall(value)
    return str(round(sum(float(number) * SECONDS[unit] for number, unit in parts) * 1e6)) if parts else value


def canonical_amount(value: str) -> str:
    """A number of bytes or the like; unchanged where it is invalid."""
    found = re.fullmatch("([0-9]+)([KMGT]?)", value)
    return str(int(found[1]) * BYTES[found[2]]) if found else value


def _canonical_network(word: str) -> list[str]:
    named = {"any": ["0.0.0.0/0", "::/0"], "localhost": ["127.0.0.0/8", "::1/128"]}
    return named.get(word) or [str(ip_network(word, strict=False))]


def _canonical_networks(value: str) -> str:
    """Networks of which none is in another one, as systemd has them."""
    found = [ip_network(one, strict=False) for one in value.split()]
    four = collapse_addresses([one for one in found if isinstance(one, IPv4Network)])
    six = collapse_addresses([one for one in found if isinstance(one, IPv6Network)])
    return " ".join([*map(str, four), *map(str, six)])


def _canonical_bind(word: str) -> str:
    """`SOURCE:PLACE:OPTIONS`, where each after the first is optional."""
    parts = word.split(":")
    place = parts[1] if len(parts) > 1 and parts[1] else parts[0].removeprefix("-")
    return ":".join([parts[0], place, parts[2] if len(parts) > 2 else "rbind"])


def _canonical_command(value: str) -> str:
    flags = []
    while value[:1] in FLAGS:
        flags.append(FLAGS[value[0]])
        value = value[1:]
    argv = [word.replace("%%", "%") for word in split_quoted_words(value)]
    return format_command(argv[0], " ".join(argv), " ".join(flags)) if argv else ""


def format_command(path: str, argv: str, flags: str) -> str:
    """The started program, as one text."""
    marks = "".join(sorted(mark for mark, flag in FLAGS.items() if flag in flags.split()))
    return f"{marks}{argv}" if argv.split(" ", 1)[0] == path else f"{marks}{path} as {argv}"


def canonical_shown_command(value: str) -> str:
    """The same, of what systemd tells of it; as it stands where it tells another thing."""
    found = COMMAND.fullmatch(value)
    return format_command(found[1], found[2], found[3]) if found else value


def property_of_setting(name: str) -> str:
    """The property that tells a setting."""
    if name in RENAMED:
        return RENAMED[name]
    return f"{name.removesuffix('Sec')}USec" if name.endswith("Sec") else name


@dataclass(frozen=True, eq=False)
class SystemCallGroups:
    """The groups of system calls of a host; hosts with equal ones have the same object."""

    calls: Mapping[str, frozenset[str]]
    """Group, with its `@` -> the system calls in it, and in its groups."""


@lru_cache(1 << 9)
def declared_properties(text: str, groups: SystemCallGroups) -> Mapping[str, str]:
    """Property -> its value, of all that a text sets, in the form that `canonical_value` gives what is found.

    Args:
        text: The unit's.
        groups: The host's groups of system calls.
    """
    return {
        prop: _canonical_filter(list(values), groups.calls)
        if prop == "SystemCallFilter"
        else canonical_value(prop, "\n".join(values))
        for prop, values in _property_lines(text).items()
    }


@lru_cache(1 << 9)
def _property_lines(text: str) -> Mapping[str, Sequence[str]]:
    """Property -> the values that a unit's text gives it."""
    found: dict[str, list[str]] = {}
    for name, value in parse_unit_settings(text):
        if UNTOLD.fullmatch(name) or name in RELATIONS:
            continue
        prop = property_of_setting(name)
        if not value:
            found[prop] = []
        elif prop in WORDS or LINES.fullmatch(prop) or prop == "Environment":
            found.setdefault(prop, []).extend(_split_property(prop, value))
        else:
            # a share of one processor, of which systemd tells the time in each second
            found[prop] = [f"{int(value.rstrip('%')) * 10}ms" if name == "CPUQuota" else value]
    return found


def _split_property(prop: str, value: str) -> list[str]:
    makers: dict[str, Callable[[str], list[str]]] = {
        "IPAddressAllow": lambda value: [one for word in value.split() for one in _canonical_network(word)],
        "IPAddressDeny": lambda value: [one for word in value.split() for one in _canonical_network(word)],
        "BindPaths": lambda value: [_canonical_bind(word) for word in value.split()],
        "BindReadOnlyPaths": lambda value: [_canonical_bind(word) for word in value.split()],
        "RestrictAddressFamilies": lambda value: [word for word in value.split() if word != "none"],
        "Listen": lambda value: [f"{value} (Stream)"],
        "EnvironmentFiles": lambda value: [
            f"{value[1:]} (ignore_errors=yes)" if value[0] == "-" else f"{value} (ignore_errors=no)"
        ],
        "TimersCalendar": lambda value: [CALENDAR.get(value, value)],
        "TimersMonotonic": lambda value: [f"OnBootUSec={canonical_timespan(value)}"],
        "Paths": lambda value: [f"{value} (PathChanged)"],
        "Environment": lambda value: [value],
    }
    if prop in makers:
        return makers[prop](value)
    if prop == "SystemCallFilter":
        return [value]
    if prop.startswith("Exec"):
        return [_canonical_command(value)]
    return [value] if LINES.fullmatch(prop) else value.split()


def _canonical_filter(lines: list[str], calls: Mapping[str, frozenset[str]]) -> str:
    """The allowed set: a line allows its names, one that begins with `~` takes them back.

    Of a filter whose first line begins with `~`, which forbids and allows all else: the forbidden set, after a `~`.
    """
    forbids = bool(lines) and lines[0].startswith("~")
    listed: set[str] = set()
    for line in lines:
        named = {call for name in line.removeprefix("~").split() for call in calls.get(name, {name})}
        listed = listed | named if line.startswith("~") is forbids else listed - named
    first, *rest = sorted(listed) or [""]
    return canonical_value("SystemCallFilter", " ".join([f"~{first}" if forbids else first, *rest]))


@lru_cache(1 << 13)
def canonical_value(prop: str, value: str) -> str:
    """A property's value, as systemd tells it, in a form in which equal settings are equal."""
    if prop.endswith("USec"):
        return canonical_timespan(value)
    if AMOUNTS.fullmatch(prop):
        return canonical_amount(value)
    if prop in ("SocketBindAllow", "SocketBindDeny"):
        value = value.replace(":", "")
    if prop in ("IPAddressAllow", "IPAddressDeny"):
        return _canonical_networks(value)
    if prop in WORDS:
        # names of capabilities have capitals in texts, and none in what systemd tells
        return " ".join(sorted((value.lower() if CAPABILITIES.fullmatch(prop) else value).split()))
    if prop in NUMBERS:
        return str(NUMBERS[prop].get(value, value))
    if prop == "Environment":
        return " ".join(sorted(repr(one) for one in split_quoted_words(value)))
    if prop == "TimersCalendar":
        return re.sub(r"\{ OnCalendar=(.*?) ; next_elapse=[^}]*\}", r"\1", value)
    if prop == "TimersMonotonic":
        return MONOTONIC.sub(lambda found: f"{found[1]}={canonical_timespan(found[2])}", value)
    if LINES.fullmatch(prop):
        return "\n".join(sorted(value.split("\n"))) if prop in ("Listen", "DeviceAllow", "Paths") else value
    return {"true": "yes", "on": "yes", "false": "no", "off": "no"}.get(value, value)
