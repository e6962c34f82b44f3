"""Other influences of systemd on units of ours: its own settings, units of others, folders that win over ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from checks import DEPLOY, check
from checks.drift_text import expect_none
from checks.effective_units import PULLS, TOLD, describe_difference, find_property_differences
from checks.remedy import Remedy, host_command, instruction, remove_drop_ins
from checks.survey.answers import SurveyAnswers
from checks.survey.section import SurveyScope
from checks.survey.units import PARENTS, UNITS, ExpectedUnit, UnitSurvey, expected_units
from checks.unit_settings import parse_unit_settings, split_quoted_words
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.fact_types import HostFacts
from rigwright.serving.instance_units import INHERITED_VARIABLES

# Units of the distribution's that ours wait for, or need, without saying so.
USUAL = re.compile(r"[^/]*\.(mount|slice|target|device)|systemd-[a-z-]+\.(service|socket)|nvidia-[a-z-]+\.service")
# Rigwright's may have to do with those of the rig, and with the usual; no foreign unit is to stop or hold them.
CLOSED = {
    **dict.fromkeys(("After", "Requires"), USUAL),
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
# The manager's defaults (systemd-system.conf(5)); a deploy and its units do not depend on others.
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


@check(
    "U05",
    "systemd's own settings leave the rig's services as declared",
    severity="high",
    why="the manager's variables and limits for all services apply to every process that starts next",
)
def test_manager(survey: SurveyAnswers, facts: HostFacts) -> None:
    units = survey.read(UNITS)
    given = [one.partition("=")[::2] for one in split_quoted_words(units.manager.get("Environment", ""))]
    strange = [f"the variable {name}" for name, _ in given if not INHERITED_VARIABLES.fullmatch(name)]
    strange += [
        f"PATH with {place}"
        for name, value in given
        if name == "PATH"
        for place in value.split(":")
        if place not in PATHS
    ]
    lines = [f"{one.path}: {one.line}" for one in units.configured if SET.fullmatch(one.line.partition("=")[0].strip())]
    limits = [
        describe_difference(one)
        for name in PARENTS
        for one in find_property_differences(units, ExpectedUnit(name, "", "", ""), facts.memory_kib)
    ]
    dropped = [path for name in PARENTS for path in units.property_names(name, "DropInPaths")]
    named = [
        name for name, _ in given if any(one.startswith((f"the variable {name}", f"{name} with ")) for one in strange)
    ]
    cure = host_command("systemctl unset-environment {}", named) if named else Remedy(())
    cure += remove_drop_ins(dropped) if dropped else Remedy(())
    if lines:
        cure += instruction("remove those lines")
    if lines or not (named or dropped):
        cure += host_command("systemctl daemon-reexec")
    expect_none([*strange, *lines, *_defaults(units), *limits, *dropped], "only systemd's defaults", cure)


def _defaults(units: UnitSurvey) -> Iterable[str]:
    for name, usual in MANAGER.items():
        if (found := units.manager.get(name, usual)) != usual:
            yield f"{name} {found}"


@check(
    "U06",
    "no other unit stops, delays or alters the rig's",
    severity="high",
    why="a unit that conflicts with the rig's units, or that they wait for, can stop the service",
)
def test_others(survey: SurveyAnswers, scope: SurveyScope) -> None:
    units, ours = survey.read(UNITS), expected_units(scope)
    wrong = [text for one in ours.values() for text in _involved(units, one, ours)]
    expect_none(
        wrong,
        "no other units that act on the rig's",
        instruction("remove that setting from the unit that contains it") + host_command("systemctl daemon-reload"),
    )


def _involved(units: UnitSurvey, one: ExpectedUnit, ours: Mapping[str, ExpectedUnit]) -> Iterable[str]:
    asked = {word for name, value in parse_unit_settings(one.text) if name in TOLD for word in value.split()}
    for prop, usual in CLOSED.items():
        # a target waits for all that it pulls in, and nothing waits for Rigwright's
        for other in units.property_names(one.name, prop) if (one.kind, prop) != ("target", "After") else ():
            if other not in ours and other not in asked and not usual.fullmatch(other):
                yield f"{one.name} has {prop} {other}"


@check(
    "U07",
    "no other unit file shadows the rig's, and none has an alias",
    severity="high",
    why="systemd reads directories in order: a file in an earlier one replaces the rig's",
)
def test_shadows(survey: SurveyAnswers, scope: SurveyScope) -> None:
    units, ours = survey.read(UNITS), expected_units(scope)
    right = {one.path for one in ours.values()}
    pulled = {
        (value, one.name)
        for one in ours.values()
        for name, value in parse_unit_settings(one.text)
        if name == "WantedBy"
    }
    wrong, paths = [], []
    for one in units.lying:
        name, pulls = one.path.rpartition("/")[2], PULLS.fullmatch(one.path)
        if one.path in right or ".d/" in one.path or one.path.endswith(".d"):
            continue
        if pulls:
            if (pulls[1], pulls[3]) not in pulled or pulls[2] != "wants":
                wrong.append(one.path)
                paths.append(one.path)
        elif name in ours or one.link.rpartition("/")[2] in ours:
            wrong.append(f"{one.path}{f', a link to {one.link}' if one.link else ''}")
            paths.append(one.path)
    wrong += [
        f"{name} has the alias {other}"
        for name in ours
        for other in units.property_names(name, "Names")
        if other != name
    ]
    expect_none(wrong, f"the rig's units only in {UNIT_FOLDER}", remove_drop_ins(paths) + DEPLOY)
