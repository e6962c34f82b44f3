"""Units of ours as systemd has them in force, and what of systemd decides whether they come back after a boot."""

from __future__ import annotations

from collections.abc import Iterable

from checks import DEPLOY, ItemText, check
from checks.drift_text import expect_none
from checks.effective_units import PULLS, describe_difference, find_missing_relations, find_property_differences
from checks.remedy import Remedy, host_command, instruction, remove_drop_ins, restart_units, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.section import SurveyScope
from checks.survey.units import BOOT, UNITS, ExpectedUnit, UnitSurvey, expected_units
from checks.unit_settings import parse_unit_settings
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.instance import Instance
from rigwright.plan.plan_inputs import TargetState


@check(
    "U01",
    "systemd loads each of the rig's units from its declared file",
    severity="critical",
    why="a masked, shadowed or changed unit starts another program, or none, after a boot",
)
def test_files(survey: SurveyAnswers, scope: SurveyScope) -> None:
    units, ours = survey.read(UNITS), expected_units(scope)
    wrong = [text for one in ours.values() if one.path for text in _misread(units, one)]
    expect_none(wrong, "each unit file as declared, and loaded by systemd", DEPLOY)


def _misread(units: UnitSurvey, one: ExpectedUnit) -> Iterable[str]:
    lying, state = units.files[one.path], units.property_value(one.name, "LoadState")
    if lying.link != one.link:
        shown = f"{one.path} {f'is a link to {lying.link}' if lying.link else 'is not a link'}"
        yield ItemText(shown, f"{shown}: {lying.sha256}" if lying.sha256 else shown)
    elif lying.sha256 != one.sha256:
        shown = f"{one.path} {'has different contents' if lying.sha256 else 'is not there'}"
        yield ItemText(shown, f"{shown}: {lying.sha256}" if lying.sha256 else shown)
    if lying.loose:
        yield f"{one.path} is {lying.loose}"
    if state != "loaded":
        yield f"{one.name} is {state}"
    elif units.property_value(one.name, "FragmentPath") != one.path:
        yield f"{one.name} is loaded from {units.property_value(one.name, 'FragmentPath') or 'nowhere'}"


@check(
    "U02",
    "the rig's units have no drop-ins",
    severity="critical",
    why="a drop-in in any directory changes the program, its user and its limits",
)
def test_additions(survey: SurveyAnswers, scope: SurveyScope) -> None:
    units, ours = survey.read(UNITS), expected_units(scope)
    found = {path for name in ours for path in units.property_names(name, "DropInPaths")}
    found |= {one.path for one in units.lying if ".d/" in one.path or one.path.endswith(".d")}
    changed = [name for name, one in ours.items() if units.property_names(name, "DropInPaths") if one.kind != "target"]
    restart = [name for name in changed if name.endswith((".service", ".timer"))]
    cure = remove_drop_ins(sorted(found))
    cure += host_command("systemctl try-restart {}", restart) if restart else Remedy(())
    expect_none(sorted(found), "no drop-ins", cure)


@check(
    "U03",
    "systemd's settings in effect for each unit are those of its file",
    severity="critical",
    why="systemd uses the settings that it has in memory, regardless of changed files",
    blind="conditions and credentials, which systemd does not report",
)
def test_in_force(survey: SurveyAnswers, scope: SurveyScope, desired: TargetState) -> None:
    units, ours, facts = survey.read(UNITS), expected_units(scope), desired.facts
    found = [one for unit in ours.values() for one in find_property_differences(units, unit, facts.memory_kib)]
    for unit in ours.values():
        found += find_missing_relations(units, unit)
    # drop-ins are U02's; all else is in the manager's memory alone, or in a unit file, which is a deploy's
    paths = [path for name in {one.unit for one in found} for path in units.property_names(name, "DropInPaths")]
    expect_none(
        map(describe_difference, found), "all unit properties as declared", remove_drop_ins(sorted({*paths})) + DEPLOY
    )


@check(
    "U04",
    "all of the rig's units start at boot",
    severity="critical",
    why="a unit that no target pulls in is not started at the next boot",
)
def test_comes_back(survey: SurveyAnswers, scope: SurveyScope) -> None:
    units, ours = survey.read(UNITS), expected_units(scope)
    faults = [*_boot(units)]
    cure = host_command("systemctl unmask {}; systemctl set-default multi-user.target", BOOT)
    if added := [path for name in BOOT for path in units.property_names(name, "DropInPaths")]:
        cure = remove_drop_ins(added) + cure
    if any("kernel command line" in one for one in faults):
        cure += instruction("remove that from the kernel command line")
    expect_none(faults, "a boot into multi-user.target", cure)
    lasting = {one.path for one in units.lying if PULLS.fullmatch(one.path)}
    wrong = []
    for one in ours.values():
        for target in (value for name, value in parse_unit_settings(one.text) if name == "WantedBy"):
            pulled = units.property_names(target, "Wants") if target in units.shown else []
            if one.name not in pulled:
                wrong.append(f"{target} does not want {one.name}")
            elif target not in ours and f"{UNIT_FOLDER}/{target}.wants/{one.name}" not in lasting:
                wrong.append(f"no link in {UNIT_FOLDER}/{target}.wants points to {one.name}")
    expect_none(wrong, "every unit wanted by its target", DEPLOY)


def _boot(units: UnitSurvey) -> Iterable[str]:
    target = units.default
    reached = {
        target,
        *units.property_names("default.target", "Requires"),
        *units.property_names("default.target", "Wants"),
    }
    if "multi-user.target" not in reached:
        yield f"a boot into {target or 'nothing'}"
    if units.default and units.property_value("default.target", "Id") != units.default:
        yield f"a boot into {units.default}, which systemd has not loaded yet"
    for name in BOOT:
        state = units.property_value(name, "LoadState")
        if state != "loaded":
            yield f"{name} is {state}"
        if name != "default.target" and units.property_value(name, "ConditionResult") == "no":
            yield f"{name} has a condition that is false"
        for action in ("JobTimeoutAction", "FailureAction", "SuccessAction"):
            if (does := units.property_value(name, action)) not in ("", "none"):
                yield f"{name} with {action}={does}"
        for needed in (*units.property_names(name, "Requires"), *units.property_names(name, "BindsTo")):
            if not needed.endswith((".target", ".mount", ".slice", ".swap")):
                yield f"{name}, which does not start without {needed}"
    for word in units.command_line:
        setting, _, value = word.partition("=")
        if setting.endswith(("systemd.mask", "systemd.unit", "systemd.wants")) and value not in (
            "multi-user.target",
            "graphical.target",
        ):
            yield f"{word} on the kernel command line"


@check(
    "U09",
    "the rig's sockets, slices and targets are active",
    severity="critical",
    why="any other program can take the port of an inactive socket, and a frozen slice gives no answer",
)
def test_up(survey: SurveyAnswers, declared_instances: tuple[Instance, ...], scope: SurveyScope) -> None:
    units, ours = survey.read(UNITS), expected_units(scope)
    wrong, cure = [], Remedy(())
    # systemd has a slice while something is in it: after a boot, none of an instance that has been asleep since
    slices = {one.slice for one in declared_instances if not one.is_on_demand}
    required = {*slices, *(["rigwright.slice"] if slices else [])}
    # the residency service stops and starts them for clients, and systemd limits how long either takes
    moving = {one.unit for one in declared_instances if one.is_on_demand}
    for one in ours.values():
        active, frozen = units.property_value(one.name, "ActiveState"), units.property_value(one.name, "FreezerState")
        if active != "active" and (one.kind in ("socket", "target") or one.name in required):
            wrong.append(f"{one.name} is {active or 'not there'}")
        elif one.kind == "service" and active == "failed":
            wrong.append(f"{one.name} has failed")
            cure += restart_units(one.name) + show_log(one.name)
        if frozen not in ("", "running"):
            wrong.append(f"{one.name} is {frozen}")
            cure += host_command("systemctl thaw {}", one.name)
        # the survey has a job that has waited for a while
        is_queued = one.name not in moving and units.property_value(one.name, "Job") not in ("", "0")
        if is_queued and active in ("inactive", "deactivating"):
            wrong.append(f"{one.name} is queued to start or stop")
    expect_none(wrong, "all active", cure + DEPLOY)
