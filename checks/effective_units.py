"""systemd's effective properties of a unit, compared with those of its declared text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from checks import ItemText, unit_settings
from checks.survey.units import PARENTS, ExpectedUnit, UnitSurvey

# The activity of a unit, which is not its target.
STATE = re.compile(
    r".*Timestamp(Monotonic)?|(Exec)?Main(PID|Code|Status|ExitStatus)|ExecMain.*|(Control)?PID|(Sub|Active|Freezer)State"
    r"|.*(Current|Peak|Available|Packets|Bytes|Operations|NSec|Elapsed?)|[UG]ID|Effective.*|N[A-Z][A-Za-z]*|Job.*|Status.*"
    r"|Result|ReloadResult|CleanResult|InvocationID|ControlGroup(Id)?|Can[A-Z].*|.*(Condition|Assert)Result|Next.*USec.*"
    r"|LastTrigger.*|RestartUSecNext|FileDescriptorStore|MemoryKSM|FragmentPath|DropInPaths|SourcePath|UnitFile.*|Id|Names"
    r"|Description|Load(State|Error)|NeedDaemonReload|Transient|Perpetual|DebugInvocation|ActivationDetails|Followed|OOMKills"
    r"|ManagedOOMKills|AccessSELinuxContext|BPFProgram|IOReadBytes|MemoryZSwap.*|Documentation|WatchdogUSec"
    r"|.*DirectorySymlink|ExecContext|TimeoutAbortUSec|StopWhenUnneeded_|.*TriggerLimitHit|TasksMaxScale|CPUUsage.*"
)
# Units that systemd has it wait for, be wanted by, and so on: judged by their identity, below.
RELATION = re.compile(
    "(Requires|Wants|After|Before|Conflicts|ConflictedBy|RequiredBy|WantedBy|BoundBy|BindsTo|PartOf|ConsistsOf|Triggers"
    "|TriggeredBy|Requisite|RequisiteOf|OnFailure|OnFailureOf|OnSuccess|OnSuccessOf|Upholds|UpheldBy|PropagatesReloadTo"
    "|ReloadPropagatedFrom|PropagatesStopTo|StopPropagatedFrom|JoinsNamespaceOf|Slice|SliceOf|RequiresMountsFor"
    "|WantsMountsFor|Following|Refs)"
)
# Told again with more words by the property of the same name with this at its end; judged where a value says more.
AGAIN = re.compile("(Exec.*)Ex|(PrivateUsers|PrivateTmp|ProtectControlGroups|ProtectHostname|PrivatePIDs)Ex")
MORE = {"PrivateUsersEx": {"yes": "self"}, "PrivateTmpEx": {"yes": "connected"}}
# Of a unit that is not there systemd tells its own limits; of one that is, what it gives to services.
LIMIT = re.compile("Limit[A-Z]+(Soft)?")
# Settings from which systemd makes others (systemd.exec(5), systemd.service(5), systemd.resource-control(5)).
PHYSICAL = re.compile("([0-9]+)%")
CALL_FILTER = "SystemCallFilter"
TOLERANCE = 0.02
"""Of an amount that is a part of the host's memory: systemd counts pages, the kernel's own among them."""


# Declared relations -> the property that shows the other side.
TOLD = {"After": "After", "Wants": "Wants", "Requires": "Requires", "PartOf": "PartOf", "Before": "Before"}
TOLD |= {"Sockets": "TriggeredBy", "Service": "Triggers"}
# Links that start ours: the unit that pulls them in, and what it is to pull.
PULLS = re.compile(r".*/([^/]+)\.(wants|requires|upholds)/([^/]+)")


@dataclass(frozen=True)
class PropertyDifference:
    """A property that is not what it is to be."""

    unit: str
    prop: str
    wanted: str
    found: str


def _implied_by_service(name: str, made: Mapping[str, str], bare: Mapping[str, str]) -> dict[str, str]:
    """The properties of a service beyond its text."""
    dynamic = made.get("DynamicUser") == "yes"
    user = made.get("User") or (name.rpartition(".")[0] if dynamic else "")
    oneshot = made.get("Type") == "oneshot"
    found = {
        "OOMPolicy": "stop",
        "StandardOutput": "journal",
        "Slice": "system.slice",
        "User": user,
        "Group": made.get("Group") or (user if dynamic else ""),
        "SetLoginEnvironment": "yes" if user else "no",
        # a start that does its work and ends may take its time
        **({"TimeoutStartUSec": "infinity"} if oneshot else {}),
    }
    if dynamic:
        found |= {"RestrictSUIDSGID": "yes", "PrivateTmp": "yes", "RemoveIPC": "yes", "NoNewPrivileges": "yes"}
        found |= {"ProtectSystem": "strict", "ProtectHome": "read-only"}
    if made.get("ProtectClock") == "yes":
        found["DeviceAllow"] = "\n".join(sorted(["char-rtc r", *filter(None, made.get("DeviceAllow", "").split("\n"))]))
    if made.get("PrivateDevices") == "yes" or made.get("DevicePolicy") == "closed":
        found["DevicePolicy"] = "closed"
    if made.get("Delegate") == "yes":
        found["OOMPolicy"] = "continue"
    if made.get("Type") == "notify":
        found["NotifyAccess"] = "main"
    dropped = {cap for setting, caps in DROPPED.items() if made.get(setting) == "yes" for cap in caps}
    if dropped and "CapabilityBoundingSet" not in made:
        found["CapabilityBoundingSet"] = " ".join(sorted({*bare.get("CapabilityBoundingSet", "").split()} - dropped))
    for limit, value in made.items():
        if LIMIT.fullmatch(limit):
            found[f"{limit}Soft"] = value
    if made.get("CPUAffinity") == "numa":
        found |= {"CPUAffinityFromNUMA": "yes"}
    return found


def _implied_by_socket(name: str, made: Mapping[str, str], bare: Mapping[str, str]) -> dict[str, str]:
    return {"Slice": "system.slice", "FileDescriptorName": name}


def _implied_by_timer(name: str, made: Mapping[str, str], bare: Mapping[str, str]) -> dict[str, str]:
    return {"Unit": f"{name.rpartition('.')[0]}.service"}


def _implied_by_path(name: str, made: Mapping[str, str], bare: Mapping[str, str]) -> dict[str, str]:
    # systemd.path(5), TriggerLimitIntervalSec=, since version 250
    limit = {"TriggerLimitIntervalUSec": unit_settings.canonical_timespan("2s")}
    return {**_implied_by_timer(name, made, bare), **limit}


def _implied_by_slice(name: str, made: Mapping[str, str], bare: Mapping[str, str]) -> dict[str, str]:
    parent = name.removesuffix(".slice").rpartition("-")[0]
    made_by_systemd = {"DefaultDependencies": "no"} if name in PARENTS else {}
    return {"Slice": "" if name == "-.slice" else f"{parent or '-'}.slice", **made_by_systemd}


# Capabilities that systemd takes from a unit without the right to use them.
DROPPED = {
    "ProtectClock": ("cap_sys_time", "cap_wake_alarm"),
    "ProtectKernelModules": ("cap_sys_module",),
    "ProtectKernelLogs": ("cap_syslog",),
    "PrivateDevices": ("cap_mknod", "cap_sys_rawio"),
}
IMPLIED: dict[str, Callable[[str, Mapping[str, str], Mapping[str, str]], dict[str, str]]] = {
    "service": _implied_by_service,
    "socket": _implied_by_socket,
    "timer": _implied_by_timer,
    "path": _implied_by_path,
    "slice": _implied_by_slice,
}
# Of these the text's own value is read again by what is implied.
OVERRIDES = frozenset({"DeviceAllow"})
LATER = frozenset(
    {
        "CPUAffinity",
        "IOSchedulingPriority",
        "TriggerLimitBurst",
        "PollLimitBurst",
        "PollLimitIntervalUSec",
        "CPUAccounting",
        "DelegateControllers",
    }
)
"""The properties that systemd computes itself while a unit is loaded, from the host or from other properties of it."""


@lru_cache(1 << 12)
def _is_judged(prop: str) -> bool:
    """Whether a property is compared: not a unit's activity, and not what systemd computes itself."""
    return not (STATE.fullmatch(prop) or (RELATION.fullmatch(prop) and prop != "Slice") or prop in LATER)


@lru_cache(1 << 12)
def _find_repetition(prop: str) -> re.Match[str] | None:
    """The property that another one tells again."""
    return AGAIN.fullmatch(prop)


@lru_cache(64)
def _find_own_rules(props: frozenset[str]) -> frozenset[str]:
    """The properties with other rules than equality with systemd's own value."""
    return frozenset(one for one in props if one == CALL_FILTER or LIMIT.fullmatch(one) or AGAIN.fullmatch(one))


def find_property_differences(units: UnitSurvey, one: ExpectedUnit, memory_kib: int) -> list[PropertyDifference]:
    """Properties of a unit that are not as its text says, and not as systemd has them by itself.

    Args:
        units: The observed units.
        one: The unit as it is to be.
        memory_kib: The host's, KiB.
    """
    if units.property_value(one.name, "LoadState") != "loaded":
        # it has no properties, which another check says
        return []
    wanted = ExpectedProperties(units, one)
    bare, shown = units.bare[one.kind], units.shown[one.name]
    # an unshown property has systemd's own value, which is right unless a rule or the unit requires another one
    own = bare.keys() & (_find_own_rules(frozenset(bare)) | wanted.declared.keys())
    found = []
    for prop in sorted({*own, *shown, *wanted.made}):
        if not _is_judged(prop):
            continue
        again = _find_repetition(prop)
        said = units.property_value(one.name, prop)
        if again and again[1]:
            # with its flags it is judged; the other one has what became of it
            prop = again[1]
        elif again:
            base = units.property_value(one.name, again[2])
            if said not in (base, MORE.get(prop, {}).get(base)):
                found.append(PropertyDifference(one.name, prop, base, said))
            continue
        elif prop.startswith("Exec"):
            continue
        if prop.startswith("Exec"):
            said = "\n".join(unit_settings.canonical_shown_command(line) for line in re.split(r"\n(?=\{ )", said))
        said = unit_settings.canonical_value(prop, said)
        right = wanted.expected_value(prop)
        if prop == CALL_FILTER:
            right = _known_system_calls(units, right)
        if said != right and not _is_share_of_memory(right, said, memory_kib):
            found.append(PropertyDifference(one.name, prop, right, said))
    return found


def _known_system_calls(units: UnitSurvey, calls: str) -> str:
    """Of system calls those that the host has: its library may be older than its systemd, and leaves out what it does
    not know, of every unit.
    """
    return " ".join(call for call in calls.split() if call in units.filtered_calls)


class ExpectedProperties:
    """The expected properties of a unit, each as `settings.canonical_value` has it."""

    def __init__(self, units: UnitSurvey, one: ExpectedUnit) -> None:
        made = unit_settings.declared_properties(one.text, units.groups)
        self.bare, self.manager = units.bare[one.kind], units.manager
        implied = IMPLIED[one.kind](one.name, made, self.bare) if one.kind in IMPLIED else {}
        overrides = {name: value for name, value in implied.items() if name in OVERRIDES}
        self.made = frozenset(made)
        """The properties that its text sets itself; of the rest a host's systemd may know nothing yet."""
        self.declared = {**implied, **made, **overrides}
        """The properties of its text, and those that follow from it."""

    def expected_value(self, prop: str) -> str:
        """By the text, or what systemd gives to a unit that says nothing of it."""
        if prop in self.declared:
            return self.declared[prop]
        usual = self.manager.get(f"Default{prop}") if LIMIT.fullmatch(prop) else None
        return unit_settings.canonical_value(prop, self.bare.get(prop, "") if usual is None else usual)


def _is_share_of_memory(wanted: str, said: str, memory_kib: int) -> bool:
    """Whether an amount is the wanted part of the host's memory."""
    part = PHYSICAL.fullmatch(wanted)
    if not part or not said.isdecimal():
        return False
    right = memory_kib * 1024 * int(part[1]) // 100
    return abs(int(said) - right) <= right * TOLERANCE


def describe_difference(one: PropertyDifference) -> str:
    """A difference, for people."""
    wanted, found = (set(text.replace("\n", " ").split()) for text in (one.wanted, one.found))
    if len(wanted | found) > 6 and wanted & found:
        signed = f"{_format_signed(found - wanted, '+')}{_format_signed(wanted - found, '-')}"
        whole = f"{one.unit} has {one.prop} {one.found}, not {one.wanted}"
        return ItemText(f"{one.unit} has {one.prop} {signed}".rstrip(), whole)
    found_, wanted_ = (", ".join(text.split("\n")) or "empty" for text in (one.found, one.wanted))
    return f"{one.unit} has {one.prop} {found_}, not {wanted_}"


def _format_signed(words: set[str], sign: str) -> str:
    return "".join(f"{sign}{word} " for word in sorted(words)[:4])


def find_missing_relations(units: UnitSurvey, one: ExpectedUnit) -> Iterable[PropertyDifference]:
    """Relations that a unit's text asks for and that systemd does not have."""
    loaded = units.property_value(one.name, "LoadState") == "loaded"
    for name, value in unit_settings.parse_unit_settings(one.text):
        if loaded and name in TOLD:
            has = units.property_names(one.name, TOLD[name])
            for other in value.split():
                if other not in has:
                    yield PropertyDifference(one.name, TOLD[name], other, "none such")
