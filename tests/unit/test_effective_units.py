"""systemd's properties of units of ours, compared with their texts; and the checks' verdicts about them."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest

from checks import Drift, test_systemd, test_units, unit_settings
from checks.effective_units import ExpectedProperties, describe_difference, find_property_differences
from checks.survey.answers import SurveyAnswers
from checks.survey.host import units as host_units
from checks.survey.section import SurveyScope
from checks.survey.units import (
    BOOT,
    PARENTS,
    WORD,
    ExpectedUnit,
    ObservedUnitFile,
    SystemdEntry,
    UnitFileLine,
    UnitSurvey,
    expected_units,
)
from rigwright.model.gateway_schema import Gateway
from rigwright.plan.plan_inputs import TargetState, build_target_state
from tests.unit.samples import sample_facts, sample_instance, sample_rig

MEMORY = 1 << 20  # KiB
TEXT = """[Unit]
Description=x
After=first.service
StartLimitIntervalSec=0
[Service]
Type=exec
User=svc
ExecStart=/bin/x --port 1
MemoryMax=50%
SystemCallFilter=@some
CapabilityBoundingSet=
[Install]
WantedBy=rigwright.target
"""
NAME = "rigwright-x.service"
BARE = {
    "Type": "simple",
    "MemoryMax": "infinity",
    "CapabilityBoundingSet": "cap_chown cap_kill",
    "Nice": "0",
    "CPUQuotaPerSecUSec": "infinity",
    "LimitNOFILE": "20000",
    "StartLimitIntervalUSec": "10s",
    "OOMPolicy": "stop",
    "StandardOutput": "inherit",
    "MainPID": "0",
    "ProtectHome": "no",
}
COMMAND = "{ path=/bin/x ; argv[]=/bin/x --port 1 ; flags= ; start_time=[n/a] ; stop_time=[n/a] ; pid=7 }"
SHOWN: dict[str, str | None] = {
    "Id": NAME,
    "LoadState": "loaded",
    "Type": "exec",
    "User": "svc",
    "Slice": "system.slice",
    "StandardOutput": "journal",
    "ExecStart": COMMAND.replace("flags= ;", "ignore_errors=no ;"),
    "ExecStartEx": COMMAND,
    "MemoryMax": str(MEMORY * 512),
    "SystemCallFilter": "read write",
    "CapabilityBoundingSet": None,
    "LimitNOFILE": "524288",
    "StartLimitIntervalUSec": "0",
    "MainPID": "7",
    "After": "first.service basic.target",
}
ONE = ExpectedUnit(NAME, f"/etc/systemd/system/{NAME}", "", TEXT)


def units(**changed: str | None) -> UnitSurvey:
    """The facts of one unit, with some of them changed."""
    return UnitSurvey(
        files={},
        lying=[],
        default="multi-user.target",
        command_line=[],
        configured=[],
        bare={"service": BARE},
        shown={NAME: {**SHOWN, **changed}},
        manager={"DefaultLimitNOFILE": "524288"},
        calls={"@some": ["read", "@other"], "@other": ["write", "nobody_knows"]},
        loaded=[],
    )


def test_names_that_systemctl_quotes_are_reported_as_they_are() -> None:
    said = r'basic.target "rigwright-a\\x2db.slice" "odd\"one.mount" -.mount'
    expected = ["basic.target", r"rigwright-a\x2db.slice", 'odd"one.mount', "-.mount"]
    assert units(After=said).property_names(NAME, "After") == expected
    assert units(After=None).property_names(NAME, "After") == []


def test_a_unit_as_its_text_says_has_no_difference() -> None:
    assert find_property_differences(units(), ONE, MEMORY) == []


@pytest.mark.parametrize(
    ("prop", "found", "told"),
    [
        ("MemoryMax", "1048576", "MemoryMax 1048576, not 50%"),
        ("MemoryMax", None, "MemoryMax empty, not 50%"),
        ("Nice", "10", "Nice 10, not 0"),
        ("CPUQuotaPerSecUSec", "50ms", "CPUQuotaPerSecUSec 50000, not infinity"),
        ("CapabilityBoundingSet", "cap_kill", "CapabilityBoundingSet cap_kill, not empty"),
        ("LimitNOFILE", "64", "LimitNOFILE 64, not 524288"),
        ("SystemCallFilter", "mount read write", "SystemCallFilter mount read write, not read write"),
        ("Environment", "A=1", "Environment 'A=1', not empty"),
        ("ExecStartEx", COMMAND.replace("port 1", "port 2"), "ExecStart /bin/x --port 2, not /bin/x --port 1"),
        (
            "ExecStartEx",
            COMMAND.replace("path=/bin/x", "path=/y"),
            "ExecStart /y as /bin/x --port 1, not /bin/x --port 1",
        ),
        (
            "ExecStartEx",
            COMMAND.replace("flags=", "flags=privileged"),
            "ExecStart +/bin/x --port 1, not /bin/x --port 1",
        ),
        ("ExecStartPreEx", COMMAND, "ExecStartPre /bin/x --port 1, not empty"),
        ("User", None, "User empty, not svc"),
        ("Slice", "other.slice", "Slice other.slice, not system.slice"),
        ("SomethingNew", "yes", "SomethingNew yes, not empty"),
    ],
)
def test_another_property_is_a_difference(prop: str, found: str | None, told: str) -> None:
    made = find_property_differences(units(**{prop: found}), ONE, MEMORY)
    assert [describe_difference(one) for one in made] == [f"{NAME} has {told}"]


@pytest.mark.parametrize(
    ("prop", "found"), [("MainPID", "9"), ("ActiveEnterTimestamp", "now"), ("NRestarts", "3"), ("StatusText", "busy")]
)
def test_activity_of_a_unit_is_no_property(prop: str, found: str) -> None:
    assert find_property_differences(units(**{prop: found}), ONE, MEMORY) == []


def test_a_unit_with_a_group_of_its_own_to_share_out_is_not_ended_for_one_process_of_it() -> None:
    delegated = replace(ONE, text=TEXT.replace("MemoryMax", "Delegate=yes\nMemoryMax"))
    more = {"Delegate": "yes", "OOMPolicy": "continue", "DelegateControllers": "cpu memory pids"}
    assert find_property_differences(units(**more), delegated, MEMORY) == []
    (one,) = find_property_differences(units(**more, DelegateSubgroup="x"), delegated, MEMORY)
    assert one.prop == "DelegateSubgroup"


def test_a_path_unit_has_the_limit_that_systemd_gives_to_each() -> None:
    one = ExpectedUnit("x.path", "/etc/systemd/system/x.path", "", "[Path]\nPathChanged=/a\nUnit=y.service\n")
    shown: dict[str, str | None] = {
        "LoadState": "loaded",
        "Paths": "/a (PathChanged)",
        "Unit": "y.service",
        "TriggerLimitIntervalUSec": "2s",
    }
    bare = {"path": {"TriggerLimitIntervalUSec": "infinity"}}
    found = replace(units(), bare=bare, shown={"x.path": shown})
    assert find_property_differences(found, one, MEMORY) == []
    changed = replace(found, shown={"x.path": {**shown, "Paths": "/b (PathChanged)"}})
    assert [one.prop for one in find_property_differences(changed, one, MEMORY)] == ["Paths"]


def test_a_unit_that_is_not_loaded_is_another_checks() -> None:
    assert find_property_differences(units(LoadState="masked"), ONE, MEMORY) == []


def test_the_target_of_a_unit_does_not_contain_its_state() -> None:
    right = ExpectedProperties(units(Nice="10", LimitNOFILE="64"), ONE)
    assert (right.expected_value("Nice"), right.expected_value("LimitNOFILE"), right.expected_value("Type")) == (
        "0",
        "524288",
        "exec",
    )


RIG, FACTS = sample_rig(sample_instance()), sample_facts()
WANTED: TargetState = build_target_state(RIG, FACTS)
OURS = expected_units(SurveyScope(RIG, WANTED))
FOLDER = "/etc/systemd/system"


def sound() -> UnitSurvey:
    """A host on which all is as declared, as far as the checks below look."""
    shown: dict[str, dict[str, str | None]] = {
        name: {"Id": name, "Names": name, "LoadState": "loaded", "FragmentPath": one.path, "ActiveState": "active"}
        for name, one in OURS.items()
    }
    shown |= {name: {"Id": name, "LoadState": "loaded", "ConditionResult": "yes"} for name in (*BOOT, *PARENTS)}
    shown["default.target"] |= {"Id": "multi-user.target"}
    shown["multi-user.target"] |= {"Wants": "rigwright.target rigwright_self_check.path"}
    shown["timers.target"] |= {"Wants": "rigwright_rehash.timer rigwright_self_check.timer"}
    shown["rigwright.target"] |= {"Wants": " ".join(OURS)}
    links = [("multi-user.target", "rigwright.target"), ("timers.target", "rigwright_rehash.timer")]
    links += [("multi-user.target", "rigwright_self_check.path"), ("timers.target", "rigwright_self_check.timer")]
    return replace(
        units(),
        files={one.path: ObservedUnitFile(one.link, one.sha256, "") for one in OURS.values() if one.path},
        lying=[SystemdEntry(f"{FOLDER}/{target}.wants/{name}", f"../{name}", "") for target, name in links],
        shown=shown,
        bare={one.kind: {} for one in OURS.values()},
        manager={"Environment": "LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin"},
    )


def red(found: UnitSurvey) -> dict[str, str]:
    """Check -> what it says, of those that are red."""
    survey = SurveyAnswers({}, _read={"units": found})
    checks: dict[str, Callable[[], None]] = {
        "U01": lambda: test_units.test_files(survey, SurveyScope(RIG, WANTED)),
        "U02": lambda: test_units.test_additions(survey, SurveyScope(RIG, WANTED)),
        "U04": lambda: test_units.test_comes_back(survey, SurveyScope(RIG, WANTED)),
        "U05": lambda: test_systemd.test_manager(survey, FACTS),
        "U06": lambda: test_systemd.test_others(survey, SurveyScope(RIG, WANTED)),
        "U07": lambda: test_systemd.test_shadows(survey, SurveyScope(RIG, WANTED)),
        "U09": lambda: test_units.test_up(survey, RIG.instances, SurveyScope(RIG, WANTED)),
    }
    told = {}
    for name, check in checks.items():
        try:
            check()
        except Drift as drift:
            told[name] = str(drift)
    return told


def with_(found: UnitSurvey, unit: str, **changed: str) -> UnitSurvey:
    """The same, with some of a unit changed."""
    return replace(found, shown={**found.shown, unit: {**found.shown[unit], **changed}})


def test_a_sound_host_is_green() -> None:
    assert red(sound()) == {}


def lying(path: str, link: str = "") -> UnitSurvey:
    made = sound()
    return replace(made, lying=[*made.lying, SystemdEntry(path, link, "")])


CHAT = "rigwright-chat.service"
SICK: dict[str, tuple[UnitSurvey, str]] = {
    "another text": (
        replace(sound(), files=sound().files | {OURS[CHAT].path: ObservedUnitFile(OURS[CHAT].link, "0" * 64, "")}),
        "U01",
    ),
    "a mask": (replace(sound(), files=sound().files | {OURS[CHAT].path: ObservedUnitFile("/dev/null", "", "")}), "U01"),
    "a file that others can write": (
        replace(
            sound(),
            files=sound().files | {OURS[CHAT].path: ObservedUnitFile(OURS[CHAT].link, OURS[CHAT].sha256, "of user 7")},
        ),
        "U01",
    ),
    "another folder": (with_(sound(), CHAT, FragmentPath="/run/systemd/system/x"), "U01"),
    "a drop-in": (with_(sound(), CHAT, DropInPaths="/run/x.conf"), "U02"),
    "a drop-in that nobody has read": (lying(f"{FOLDER}/rigwright-.service.d/x.conf"), "U02"),
    "a boot that starts nothing of ours": (with_(sound(), "multi-user.target", Wants=""), "U04"),
    "a boot into rescue": (replace(sound(), default="rescue.target"), "U04"),
    "a timer that no boot starts": (with_(sound(), "timers.target", Wants=""), "U04"),
    "a mask on the kernel's command line": (replace(sound(), command_line=[f"systemd.mask={CHAT}"]), "U04"),
    "a variable for all": (replace(sound(), manager={"Environment": "LD_PRELOAD=/x.so"}), "U05"),
    "somebody's folder in the path": (replace(sound(), manager={"Environment": "PATH=/tmp:/usr/bin"}), "U05"),
    "a setting of the manager's": (
        replace(sound(), configured=[UnitFileLine("/etc/x.conf", "DefaultLimitCORE=0")]),
        "U05",
    ),
    "another default in force": (replace(sound(), manager={"DefaultTimeoutStopUSec": "1s"}), "U05"),
    "who is in the way": (with_(sound(), CHAT, ConflictedBy="other.service"), "U06"),
    "who has to be there first": (with_(sound(), CHAT, After="other.service"), "U06"),
    "a shadow": (lying(f"/run/systemd/system/{CHAT}"), "U07"),
    "another name": (lying(f"{FOLDER}/chat.service", f"{FOLDER}/{CHAT}"), "U07"),
    "a frozen unit": (with_(sound(), CHAT, FreezerState="frozen"), "U09"),
    "a socket that is down": (with_(sound(), "rigwright_listener-8020.socket", ActiveState="failed"), "U09"),
    "a service that is about to start": (with_(sound(), CHAT, ActiveState="inactive", Job="17"), "U09"),
}


@pytest.mark.parametrize("what", SICK)
def test_each_sick_host_turns_its_check_red_and_no_other(what: str) -> None:
    found, check = SICK[what]
    assert list(red(found)) == [check]


def test_settings_of_the_manager_that_touch_no_service_are_the_operators() -> None:
    lines = [UnitFileLine("/etc/systemd/system.conf", line) for line in ("LogLevel=debug", "RuntimeWatchdogSec=30")]
    assert red(replace(sound(), configured=lines)) == {}


@pytest.mark.parametrize("state", ["inactive", "deactivating"])
@pytest.mark.parametrize("unit", ["rigwright_self_check.service", "rigwright_rehash.timer"])
@pytest.mark.parametrize(
    ("later", "found"),
    [
        ("Job=17\nActiveState={state}", ["U09"]),
        ("Job=18\nActiveState={state}", []),
        ("ActiveState=active\nJob=", []),
        ("ActiveState=inactive", []),
    ],
)
def test_a_job_counts_once_it_waits_for_a_while(
    monkeypatch: pytest.MonkeyPatch, state: str, unit: str, later: str, found: list[str]
) -> None:
    looks: list[tuple[str, ...]] = []
    monkeypatch.setattr(host_units, "QUEUED_S", 0.0)
    monkeypatch.setattr(host_units, "_start", lambda *words: looks.append(words))
    monkeypatch.setattr(host_units, "_end", lambda program: f"Id={unit}\n{later.format(state=state)}\n")
    first = {"Id": unit, "ActiveState": state, "Job": "17"}
    seen = host_units._without_young_jobs({unit: first, "x.service": {"ActiveState": "active", "Job": "3"}})
    assert looks == [("systemctl", "show", "--", unit)]
    assert seen["x.service"] == {"ActiveState": "active", "Job": "3"}
    assert list(red(with_(sound(), unit, **seen[unit]))) == found


def test_a_host_without_queued_jobs_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_units, "_start", lambda *words: pytest.fail("another look"))
    quiet = {"a.service": {"ActiveState": "inactive", "Job": ""}, "b.service": {"ActiveState": "inactive"}}
    assert host_units._without_young_jobs(quiet) == quiet


def test_all_units_of_a_rig_begin_with_its_word() -> None:
    assert all(name.startswith(WORD) for name in OURS)


def test_a_slice_that_nothing_is_in_is_down() -> None:
    bare = sample_rig()
    wanted = build_target_state(bare, FACTS)
    found = with_(sound(), "rigwright.slice", ActiveState="inactive")
    test_units.test_up(SurveyAnswers({}, _read={"units": found}), bare.instances, SurveyScope(bare, wanted))
    assert list(red(found)) == ["U09"]


@pytest.mark.parametrize("start", ["boot", "on-demand"])
def test_a_job_of_an_instance_on_demand_may_wait(start: str) -> None:
    found = with_(sound(), CHAT, ActiveState="deactivating", Job="17")
    rig = replace(RIG, instances=tuple(replace(one, start=start) for one in RIG.instances))
    survey = SurveyAnswers({}, _read={"units": found})
    with pytest.raises(Drift, match="queued") if start == "boot" else nullcontext():
        test_units.test_up(survey, rig.instances, SurveyScope(rig, WANTED))


def test_capabilities_are_compared_whatever_their_case() -> None:
    text = "[Service]\nCapabilityBoundingSet=\nCapabilityBoundingSet=CAP_NET_RAW CAP_KILL\n"
    wanted = unit_settings.declared_properties(text, unit_settings.SystemCallGroups({}))["CapabilityBoundingSet"]
    assert wanted == unit_settings.canonical_value("CapabilityBoundingSet", "cap_kill cap_net_raw")


@pytest.mark.parametrize(
    ("at_boot", "down", "text"),
    [
        ((), ("rigwright.slice", "rigwright-chat.slice", "rigwright-code.slice"), ""),
        (("chat",), ("rigwright-code.slice",), ""),
        (("chat",), ("rigwright-chat.slice", "rigwright-code.slice"), "found rigwright-chat.slice is inactive;"),
    ],
)
def test_a_slice_of_an_instance_that_is_asleep_since_the_boot_may_be_down(
    at_boot: tuple[str, ...], down: tuple[str, ...], text: str
) -> None:
    gateway = Gateway.model_validate({"listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}})
    starts = {name: "boot" if name in at_boot else "on-demand" for name in ("chat", "code")}
    ports = {"chat": 8020, "code": 8021}
    rig = sample_rig(
        *(sample_instance(name, port=ports[name], start=start) for name, start in starts.items()), gateway=gateway
    )
    scope = SurveyScope(rig, build_target_state(rig, FACTS))
    shown: dict[str, dict[str, str | None]] = {
        name: {"ActiveState": "inactive" if name in down else "active"} for name in expected_units(scope)
    }
    survey = SurveyAnswers({}, _read={"units": replace(sound(), shown=shown)})
    with pytest.raises(Drift, match=text) if text else nullcontext():
        test_units.test_up(survey, rig.instances, scope)
