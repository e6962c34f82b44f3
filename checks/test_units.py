"""Units of ours as systemd has them in force, and what of systemd decides whether they come back after a boot."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from checks import DEPLOY, check
from checks.inforce import Difference, differences
from checks.listing import none
from checks.settings import settings, words
from checks.survey.section import Scene
from checks.survey.taken import Survey
from checks.survey.units import BOOT, UNITS, WORD, UnitFile, Units, declared
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.host.plan import Desired
from rigwright.serving.units import ANYBODYS
from rigwright.serving.units import UNITS as FOLDER

# Links that start ours: the unit that pulls them in, and what it is to pull.
PULLS = re.compile(r".*/([^/]+)\.(wants|requires|upholds)/([^/]+)")
# Units of the distribution's that ours wait for, or need, without saying so.
USUAL = re.compile(r"[^/]*\.(mount|slice|target|device)|systemd-[a-z-]+\.(service|socket)|nvidia-[a-z-]+\.service")
# Ours may have to do with those of the rig, and with the usual; nobody else's are to stop or hold them.
CLOSED = {
    **dict.fromkeys(("After", "Wants", "Requires"), USUAL),
    **dict.fromkeys(("Conflicts", "ConflictedBy"), re.compile(r"shutdown\.target")),
    **dict.fromkeys(
        ("BindsTo", "Requisite", "PartOf", "OnFailure", "OnSuccess", "Upholds", "JoinsNamespaceOf", "Triggers"),
        re.compile("(?!)"),
    ),
    **dict.fromkeys(
        ("TriggeredBy", "StopPropagatedFrom", "ReloadPropagatedFrom", "PropagatesStopTo"), re.compile("(?!)")
    ),
    "SliceOf": re.compile(r".*\.slice"),
}
# Declared relations -> the property by which the other side is told.
TOLD = {"After": "After", "Wants": "Wants", "Requires": "Requires", "PartOf": "PartOf", "Before": "Before"}
TOLD |= {"Sockets": "TriggeredBy", "Service": "Triggers"}
# Lines of others' units that stop ours, hold them back, or get into them.
ACTS = re.compile(
    "(Conflicts|Before|Requisite|PropagatesStopTo|PropagatesReloadTo|JoinsNamespaceOf|Slice|Sockets|Service|Unit|Alias|User"
    "|Group|SupplementaryGroups|DynamicUser|Also)"
)
ORDERS = re.compile(
    r"\b(stop|kill|mask|disable|restart|try-restart|reload|freeze|set-property|revert|edit|isolate|clean|pkill|killall)\b"
)
# What the manager comes with (systemd-system.conf(5)); of others a deploy and its units do not depend.
MANAGER = {
    **dict.fromkeys(("DefaultTimeoutStartUSec", "DefaultTimeoutStopUSec", "DefaultTimeoutAbortUSec"), "1min 30s"),
    "DefaultRestartUSec": "100ms",
    "DefaultStartLimitIntervalUSec": "10s",
    "DefaultStartLimitBurst": "5",
    "DefaultStandardOutput": "journal",
    "DefaultStandardError": "inherit",
    "DefaultOOMPolicy": "stop",
    "DefaultOOMScoreAdjust": "0",
    "ServiceWatchdogs": "yes",
    **dict.fromkeys(
        (
            f"DefaultLimit{name}{kind}"
            for name in ("CPU", "FSIZE", "DATA", "AS", "RSS", "LOCKS", "RTTIME")
            for kind in ("", "Soft")
        ),
        "infinity",
    ),
}
SET = re.compile(
    "(Default(?!.*Accounting|MemoryPressure|DeviceTimeout|TimerAccuracy)[A-Za-z]+|ManagerEnvironment|CPUAffinity|NUMA.*|"
    "CapabilityBoundingSet|NoNewPrivileges|SystemCallArchitectures|ProtectSystem)"
)
# Where programs of the distribution's are, and root alone puts more.
PATHS = frozenset({"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/snap/bin"})
RELOAD = f"`systemctl daemon-reload`, and {DEPLOY}"


@pytest.fixture(scope="session")
def ours(rig: Rig, desired: Desired) -> dict[str, UnitFile]:
    """Units of the rig, by name."""
    return declared(Scene(rig, desired))


@check(
    "U01",
    "systemd reads each unit of ours from the file that is declared",
    severity="critical",
    why="a unit that is masked, shadowed or changed starts something else, or nothing, after a boot",
)
def test_files(survey: Survey, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    wrong = [text for one in ours.values() if one.path for text in _misread(units, one)]
    none(wrong, "each unit file as it is declared, and read by systemd", DEPLOY)


def _misread(units: Units, one: UnitFile) -> Iterable[str]:
    lying, state = units.files[one.path], units.value(one.name, "LoadState")
    if lying.link != one.link:
        yield f"{one.path} {f'is a link to {lying.link}' if lying.link else 'is no link'}"
    elif lying.sha256 != one.sha256:
        yield f"{one.path} {'has another text' if lying.sha256 else 'is not there'}"
    if state != "loaded":
        yield f"{one.name} is {state}"
    elif units.value(one.name, "FragmentPath") != one.path:
        yield f"{one.name} is read from {units.value(one.name, 'FragmentPath') or 'nowhere'}"
    if units.value(one.name, "NeedDaemonReload") == "yes":
        yield f"systemd has yet to read {one.name}"


@check(
    "U02",
    "nothing is added to units of ours",
    severity="critical",
    why="a drop-in, of whatever folder, changes what is started, as whom and with which limits",
)
def test_additions(survey: Survey, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    found = {path for name in ours for path in units.value(name, "DropInPaths").split()}
    found |= {one.path for one in units.lying if ".d/" in one.path or one.path.endswith(".d")}
    none(sorted(found), "no drop-ins", f"remove them, and the folder if it is empty, then {RELOAD}")


@check(
    "U03",
    "what systemd has in force of each unit is what its file says",
    severity="critical",
    why="systemd starts and limits what it has in memory, whatever files say now",
)
def test_in_force(survey: Survey, ours: dict[str, UnitFile], facts: HostFacts) -> None:
    units = survey.read(UNITS)
    found = [one for unit in ours.values() for one in differences(units, unit, facts.memory_kib)]
    for unit in ours.values():
        found += _unrelated(units, unit)
    none(map(said, found), "all properties of our units as declared", RELOAD)


def said(one: Difference) -> str:
    """A difference, for people."""
    wanted, found = (set(text.replace("\n", " ").split()) for text in (one.wanted, one.found))
    if len(wanted | found) > 6 and wanted & found:
        return f"{one.unit} has {one.prop} {_signed(found - wanted, '+')}{_signed(wanted - found, '-')}".rstrip()
    return f"{one.unit} has {one.prop} {one.found or 'empty'}, not {one.wanted or 'empty'}"


def _signed(words: set[str], sign: str) -> str:
    return "".join(f"{sign}{word} " for word in sorted(words)[:4])


def _unrelated(units: Units, one: UnitFile) -> Iterable[Difference]:
    """Relations that a unit's text asks for and that systemd does not have."""
    for name, value in settings(one.text):
        if name in TOLD:
            has = units.value(one.name, TOLD[name]).split()
            for other in value.split():
                if other not in has:
                    yield Difference(one.name, TOLD[name], other, "none such")


@check(
    "U04",
    "a boot starts all that this rig has",
    severity="critical",
    why="what no target pulls in is not there after the next boot",
)
def test_comes_back(survey: Survey, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    none(
        _boot(units),
        "a boot into multi-user.target",
        "`systemctl unmask` and `systemctl set-default multi-user.target`",
    )
    links = {(found[1], found[3]): one for one in units.lying if (found := PULLS.fullmatch(one.path))}
    wrong = []
    for one in ours.values():
        for target in (value for name, value in settings(one.text) if name == "WantedBy"):
            pulled = units.value(target, "Wants").split() if target in units.shown else []
            if one.name not in pulled:
                wrong.append(f"{target} does not want {one.name}")
            elif target not in ours and (target, one.name) not in links:
                wrong.append(f"no link in {FOLDER}/{target}.wants leads to {one.name}")
            elif target not in ours and not links[target, one.name].path.startswith(f"{FOLDER}/"):
                wrong.append(f"{one.name} is wanted until the next boot alone")
    none(wrong, "every unit of ours wanted by its target", DEPLOY)


def _boot(units: Units) -> Iterable[str]:
    target = units.default
    reached = {
        target,
        *units.value("default.target", "Requires").split(),
        *units.value("default.target", "Wants").split(),
    }
    if "multi-user.target" not in reached:
        yield f"a boot into {target or 'nothing'}"
    if units.default and units.value("default.target", "Id") != units.default:
        yield f"a boot into {units.default}, of which systemd has not read yet"
    for name in BOOT:
        state = units.value(name, "LoadState")
        if state != "loaded":
            yield f"{name} is {state}"
        if name != "default.target" and units.value(name, "ConditionResult") == "no":
            yield f"{name} has a condition that does not hold"
    for word in units.command_line:
        setting, _, value = word.partition("=")
        if setting.endswith(("systemd.mask", "systemd.unit", "systemd.wants")) and value not in (
            "multi-user.target",
            "graphical.target",
        ):
            yield f"{word} on the kernel's command line"


@check(
    "U05",
    "systemd's own settings leave our services as they are declared",
    severity="high",
    why="a variable or limit that the manager gives to all services is in every process that starts next",
)
def test_manager(survey: Survey) -> None:
    units = survey.read(UNITS)
    given = [one.partition("=")[::2] for one in words(units.manager.get("Environment", ""))]
    strange = [f"the variable {name}" for name, _ in given if not ANYBODYS.fullmatch(name)]
    strange += [
        f"PATH with {place}"
        for name, value in given
        if name == "PATH"
        for place in value.split(":")
        if place not in PATHS
    ]
    lines = [f"{one.path}: {one.line}" for one in units.configured if SET.fullmatch(one.line.partition("=")[0].strip())]
    cure = "take it out of /etc/systemd/, `systemctl unset-environment` variables, and `systemctl daemon-reexec`"
    none([*strange, *lines, *_defaults(units)], "nothing beside what systemd comes with", cure)


def _defaults(units: Units) -> Iterable[str]:
    for name, usual in MANAGER.items():
        if (found := units.manager.get(name, usual)) != usual:
            yield f"{name} {found}"


@check(
    "U06",
    "no unit of others stops ours, holds them back or gets into them",
    severity="high",
    why="a unit that conflicts with ours, or that ours wait for, decides whether anybody is served",
)
def test_others(survey: Survey, rig: Rig, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    wrong = [f"{one.path}: {one.line}" for one in units.mentions if _acts(one.line)]
    wrong += [f"{one.path}: {one.line}" for one in units.presets]
    wrong += [text for one in ours.values() for text in _involved(units, one, ours)]
    none(
        wrong,
        "units of ours that no others act on",
        "take that out of the unit that says so, and `systemctl daemon-reload`",
    )


def _acts(line: str) -> bool:
    name, _, value = line.partition("=")
    if name.strip().startswith("Exec"):
        return bool(ORDERS.search(value))
    return ACTS.fullmatch(name.strip()) is not None


def _involved(units: Units, one: UnitFile, ours: dict[str, UnitFile]) -> Iterable[str]:
    asked = {word for name, value in settings(one.text) if name in TOLD for word in value.split()}
    for prop, usual in CLOSED.items():
        for other in units.value(one.name, prop).split():
            if other not in ours and other not in asked and not usual.fullmatch(other):
                yield f"{one.name} has {prop} {other}"


@check(
    "U07",
    "no unit lies where it wins over ours, and none has another name",
    severity="high",
    why="systemd reads folders in an order: a file in an earlier one is read in place of ours",
)
def test_shadows(survey: Survey, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    right = {one.path for one in ours.values()}
    pulled = {(value, one.name) for one in ours.values() for name, value in settings(one.text) if name == "WantedBy"}
    wrong = []
    for one in units.lying:
        name, pulls = one.path.rpartition("/")[2], PULLS.fullmatch(one.path)
        if one.path in right or ".d/" in one.path or one.path.endswith(".d"):
            continue
        if pulls:
            if (pulls[1], pulls[3]) not in pulled or pulls[2] != "wants":
                wrong.append(one.path)
        elif name in ours or one.link.rpartition("/")[2] in ours:
            wrong.append(f"{one.path}{f', a link to {one.link}' if one.link else ''}")
    wrong += [
        f"{name} is called {other}, too"
        for name in ours
        for other in units.value(name, "Names").split()
        if other != name
    ]
    none(wrong, f"units of ours in {FOLDER} alone", f"remove it, and {RELOAD}")


@check(
    "U08",
    "no program of somebody else's makes units at a boot",
    severity="high",
    why="a generator runs as root before everything else, and can mask or add any unit",
)
def test_generators(survey: Survey) -> None:
    none(
        survey.read(UNITS).generators,
        "generators that packages have brought",
        "remove it, and `systemctl daemon-reload`",
    )


@check(
    "U09",
    "sockets, slices and targets of ours are up",
    severity="critical",
    why="a socket that is down is a port that anybody may take, a frozen slice answers nobody",
)
def test_up(survey: Survey, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    wrong = []
    for one in ours.values():
        active, frozen = units.value(one.name, "ActiveState"), units.value(one.name, "FreezerState")
        if one.kind in ("socket", "target", "slice") and active != "active":
            wrong.append(f"{one.name} is {active or 'not there'}")
        elif one.kind == "service" and active == "failed":
            wrong.append(f"{one.name} has failed")
        if frozen not in ("", "running"):
            wrong.append(f"{one.name} is {frozen}")
        if units.value(one.name, "Job") not in ("", "0") and active in ("inactive", "deactivating"):
            wrong.append(f"{one.name} waits to be started or stopped")
    none(wrong, "all of them active", f"`systemctl thaw` what is frozen, and {DEPLOY}; see `systemctl --failed`")


@check(
    "U10",
    "no unit has our mark and is not declared",
    severity="high",
    why="what an earlier deploy has left holds memory, a port and a key",
)
def test_undeclared(survey: Survey, ours: dict[str, UnitFile]) -> None:
    units = survey.read(UNITS)
    left = [one.path for one in units.lying if _ours(one.first) and one.path.rpartition("/")[2] not in ours]
    none(left, "none", DEPLOY)


def _ours(first: str) -> bool:
    return first.startswith("# Written by rigwright") and WORD in first
