"""Instances on demand outside the residency service: their keys, their part of a generation, and the way to it."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, test_serving
from checks.asleep_instances import is_asleep_for
from checks.survey.answers import SurveyAnswers
from checks.survey.host.residency import read_residency
from cli.failed_serving import describe_observed_serving
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.gateway.secrets_distribution import RESIDENCY_SOCKET, RESIDENCY_UNIT, ROUTER
from rigwright.host.systemd import LINKS, STARTED_FROM_FOLDER
from rigwright.inventory import load_rig
from rigwright.model.gateway_schema import Gateway
from rigwright.model.rig import Rig
from rigwright.operate.instance_health import CommandResult, HealthFacts, ResidencyObservation
from rigwright.operate.instance_state import GenerationObservation, StateFacts, UnitObservation, assess_state
from rigwright.plan.stages import _describe_proofs
from rigwright.serving.activation import Activation, goal_for, goal_of, plan_activation
from rigwright.serving.generation import parse_manifest
from rigwright.serving.residency import estimate_floor
from rigwright.serving.serving_state import ObservedServing, ObservedUnit
from rigwright.serving.start_stop_by_hand import render_lifecycle_script
from roles.residency.host.ledger import decide
from roles.residency.host.state import (
    Entry,
    InstanceSpec,
    LedgerState,
    MemoryDevice,
    Observation,
    UnitObserved,
    Waiter,
)
from roles.self_check.host.judgements import judge_services
from tests.unit.host_states import CHAT, CODE, CONFIG, converged_state, running_process, target_generation
from tests.unit.samples import OperatorFolder, chat_instances, sample_card, sample_entry, sample_instance, sample_rig

LISTENERS = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
GATEWAY: Gateway = Gateway.model_validate({"listeners": LISTENERS})
ASLEEP = ObservedUnit("inactive", "dead", running=False)
MIB = 1 << 20


def on_demand_rig(**changes: Any) -> Rig:
    """One instance at boot, and one on demand."""
    return sample_rig(
        sample_instance("chat"), sample_instance("code", port=8021, start="on-demand", **changes), gateway=GATEWAY
    )


AIM = target_generation(on_demand_rig())
BEFORE = target_generation(on_demand_rig(context=8192))
STATES = {one.unit: one for one in AIM.unit_states}
RIGHT = {unit: running_process(one) for unit, one in STATES.items()}


def way(found: ObservedServing) -> Activation | None:
    return plan_activation(found, CONFIG, goal_for(found, AIM))


@pytest.mark.parametrize(
    "process",
    [
        ASLEEP,
        running_process(STATES[CODE]),
        ObservedUnit("deactivating", "stop-sigterm", running=False),
        ObservedUnit("failed", "failed", running=False),
        running_process(STATES[CODE], state="activating", sub="start-post"),
    ],
)
def test_one_that_is_proven_is_right_in_each_state(process: ObservedUnit) -> None:
    assert way(converged_state(AIM, processes={**RIGHT, CODE: process})) is None
    without = {unit: one for unit, one in RIGHT.items() if unit != CODE}
    assert way(converged_state(AIM, processes=without)) is None


@pytest.mark.parametrize("process", [ASLEEP, RIGHT[CODE]])
def test_one_that_changes_is_stopped_and_proven(process: ObservedUnit) -> None:
    old = {one.unit: one for one in BEFORE.unit_states}
    if process is not ASLEEP:
        process = running_process(old[CODE])
    found = converged_state(
        BEFORE, processes={**{unit: running_process(one) for unit, one in old.items()}, CODE: process}
    )
    made = way(found)
    assert made is not None
    assert (made.prove, CODE in made.stop, CODE in made.restart, made.awaited_units) == (
        (CODE,),
        True,
        False,
        tuple(made.restart),
    )
    assert RESIDENCY_UNIT in made.restart, "it reads its declaration when it starts"
    assert made.draining_instances == (("code",) if process.running else ())
    assert made.service_changes(found.processes)["code"] == "proven"
    assert not made.slices


def test_one_of_a_generation_that_never_served_is_proven() -> None:
    found = converged_state(AIM, processes={**RIGHT, CODE: ASLEEP})
    found = replace(found, generations=tuple(replace(one, proven=False) for one in found.generations))
    assert (made := way(found)) is not None
    assert made.prove == (CODE,)


@pytest.mark.parametrize(
    ("warm", "parts"),
    [
        ((), ["wake code once, then let it sleep", "stop near if the proof needs memory"]),
        (("code",), ["wake code, kept warm", "stop near if the proof needs memory"]),
        (("near",), ["wake code once, then let it sleep"]),
        (("near", "code"), ["wake code, kept warm"]),
    ],
)
def test_a_plan_says_what_proofs_leave_loaded_and_what_they_may_stop(warm: tuple[str, ...], parts: list[str]) -> None:
    first, *names = ("chat", "code", "near", "asleep")
    made = sample_rig(
        sample_instance(first),
        *(sample_instance(one, port=8021, start="on-demand", keep_warm=one in warm) for one in names),
        gateway=GATEWAY,
    )
    aim = target_generation(made)
    states = {one.unit: one for one in aim.unit_states}
    processes = {unit: running_process(one) for unit, one in states.items()}
    processes[CODE] = replace(processes[CODE], started_from="0" * 64)
    processes["rigwright-asleep.service"] = ASLEEP
    wanted: Any = SimpleNamespace(rig=made, generation=aim)
    assert _describe_proofs(wanted, ObservedServing(processes=processes), Activation(prove=(CODE,))) == parts


def test_a_rollback_proves_it_by_the_manifest() -> None:
    states = parse_manifest(BEFORE.files["manifest.json"], {}).unit_states
    assert [one.on_demand for one in states if one.unit in (CHAT, CODE)] == [False, True]
    found = converged_state(AIM, processes={**RIGHT, CODE: ASLEEP})
    earlier = replace(found.generations[0], number=2, sealed=BEFORE.digest, found=BEFORE.digest, unit_states=states)
    made = plan_activation(found, CONFIG, goal_of(earlier))
    assert made is not None
    assert made.prove == (CODE,)


def test_no_target_wants_its_unit_and_the_residency_service_knows_it() -> None:
    assert "WantedBy=" not in AIM.files[f"units/{CODE}"]
    assert "WantedBy=rigwright.target" in AIM.files[f"units/{CHAT}"]
    wants = next(line for line in AIM.files["units/rigwright.target"].splitlines() if line.startswith("Wants="))
    assert CODE not in wants
    assert {CHAT, RESIDENCY_UNIT, RESIDENCY_SOCKET} <= {*wants.removeprefix("Wants=").split()}
    declared = json.loads(AIM.files["residency.json"])
    assert declared["instances"].keys() == {"code"}
    assert declared["instances"]["code"]["fingerprint"] == STATES[CODE].started_from
    assert declared["instances"]["code"]["floor"].keys() == {"host"}


def test_only_an_instance_on_demand_has_a_lesser_request_for_later_starts() -> None:
    paths = sorted(path for path in AIM.files if path.startswith("requests/"))
    assert paths == ["requests/chat", "requests/code", "requests/code.again"]
    assert 'url = "http://localhost/health"' in AIM.files["requests/code.again"]


@pytest.mark.parametrize(
    ("result", "is_out", "is_kept"),
    [("success", False, True), ("success", True, False), ("exit-code", False, False), ("timeout", False, False)],
)
def test_a_failure_takes_the_lesser_request_from_the_next_start(
    tmp_path: Path, result: str, is_out: bool, is_kept: bool
) -> None:
    link, answered, out = (tmp_path / name for name in ("link", "answered", "out"))
    link.symlink_to("socket")
    answered.touch()
    if is_out:
        out.touch()
    folder, unmount = tmp_path / "folder", tmp_path / "umount"
    unmount.write_text(f'#!/bin/sh\necho "$@" > {folder}\n')
    unmount.chmod(0o755)
    lines = re.findall("^ExecStop(?:Post)?=.* sh -c '(.*)'$", AIM.files[f"units/{CODE}"], re.MULTILINE)
    assert len(lines) == 2 and all(lines)
    for line in lines:
        script = (
            line.replace("$$", "$").replace(f"{LINKS}/code", str(link)).replace(f"/run/{ROUTER}/out/code", str(out))
        )
        script = script.replace(f"{STARTED_FROM_FOLDER}/{CODE}.answered", str(answered))
        script = script.replace("/run/rigwright/instances/code", str(folder))
        assert "/run/" not in script
        path = f"{tmp_path}:/usr/bin:/bin"
        subprocess.run(["sh", "-c", script], env={"SERVICE_RESULT": result, "PATH": path}, check=True)
    assert folder.read_text() == f"--lazy {folder}\n"
    assert not link.is_symlink()
    assert answered.exists() == is_kept
    assert ".answered" not in AIM.files[f"units/{CHAT}"]


def test_a_box_without_one_has_no_residency_service() -> None:
    made = target_generation(sample_rig(sample_instance("chat"), gateway=GATEWAY))
    assert not [path for path in made.files if "residency" in path]
    assert "on_demand" not in made.files["manifest.json"]


def test_a_card_of_unknown_need_is_needed_as_a_whole_and_others_by_weights_and_more() -> None:
    card = sample_card("8.6")
    made = sample_rig(sample_instance("code", cards=(0,), start="on-demand"), cards=(card,), gateway=GATEWAY)
    (found,) = estimate_floor(made, made.instances[0]).values()
    assert 1536 * MIB < found <= card.vram_mib * MIB


@pytest.mark.parametrize(
    "share", [pytest.param(None, id="unknown"), pytest.param(0.999, id="nearly all"), pytest.param(0.92, id="usual")]
)
def test_a_need_of_a_whole_card_fits_an_empty_one_without_the_drivers_part(
    monkeypatch: pytest.MonkeyPatch, share: float | None
) -> None:
    card = sample_card("8.6").model_copy(update={"vram_mib": 143771})
    need = MemoryNeed(20 << 30, "context", share=share) if share else None
    monkeypatch.setattr("rigwright.serving.residency.kind_of", lambda _: SimpleNamespace(memory=lambda _: need))
    made = sample_rig(sample_instance("code", cards=(0,), start="on-demand"), cards=(card,), gateway=GATEWAY)
    floor = estimate_floor(made, made.instances[0])
    assert floor["0"] >= 0.9 * card.vram_mib * MIB, "no engine fits beside it"
    # as nvidia-smi tells of an H200: the driver's 616 MiB are neither used nor free
    empty = {"0": MemoryDevice((143771 - 616) * MIB, 4 * MIB)}
    seen = Observation(100.0, {"code": UnitObserved()}, empty)
    state = LedgerState({"code": Entry()}, [Waiter("1", "code", 100.0, proof=True)])
    _, actions = decide({"code": InstanceSpec(floor)}, state, seen)
    assert [one.kind for one in actions] == ["start", "stay"]


def test_after_a_failed_deploy_instances_that_are_asleep_are_named() -> None:
    found = converged_state(AIM, processes={**RIGHT, CODE: ASLEEP})
    assert describe_observed_serving(found) == (
        "generation 1 is served (chat); requests load code, unless stopped by hand"
    )
    assert describe_observed_serving(replace(found, processes={**RIGHT, CHAT: ASLEEP, CODE: ASLEEP})) == (
        "no instance runs there; requests load code, unless stopped by hand"
    )
    without = {**RIGHT, CHAT: ASLEEP, CODE: ASLEEP, RESIDENCY_UNIT: ASLEEP}
    assert describe_observed_serving(replace(found, processes=without)) == "no instance runs there"


def test_an_instance_that_has_no_unit_yet_is_not_stopped_before_its_proof() -> None:
    for found, stop in ((ObservedServing(), ()), (converged_state(BEFORE), (CODE,))):
        made = way(found)
        assert made is not None
        assert (made.prove, tuple(one for one in made.stop if one == CODE)) == ((CODE,), stop)


def test_a_start_by_hand_goes_through_the_ledger() -> None:
    rig = on_demand_rig()
    text = render_lifecycle_script(rig.roots, rig.instances, "start", ["chat", "code"], "holder")
    (line,) = [line for line in text.splitlines() if "residency.json start code" in line]
    assert line.startswith(f"if text=$(timeout {rig.instances[-1].variant.ready_timeout + 30} /usr/bin/python3 ")
    assert f"systemctl start {CHAT} " in text
    assert f"systemctl start {CODE}" not in text


def unit(active: str) -> UnitObservation:
    return UnitObservation("loaded", active, "dead", "success", 0, running=False, since_s=5.0, memory=None)


def test_asleep_is_a_state_that_is_ready() -> None:
    facts = StateFacts(unit("inactive"), generation=GenerationObservation(1, "a", "a"), on_demand=True)
    assert (found := assess_state("code", facts)).state == "asleep"
    assert found.is_ready
    assert assess_state("code", replace(facts, on_demand=False)).state == "stopped"
    assert assess_state("code", replace(facts, stopped_at=5.0)).state == "stopped by hand"
    assert assess_state("code", replace(facts, unit=unit("failed"))).state == "failed"
    # the ledger stops a unit whose start has failed, and then it is inactive
    failed = assess_state("code", replace(facts, failed_start="its engine ended with status 3"))
    assert (failed.state, failed.note, failed.is_ready) == ("failed", "its engine ended with status 3", False)
    assert assess_state("code", replace(facts, unit=replace(unit("inactive"), result="exit-code"))).state == "failed"
    assert assess_state("code", replace(facts, failed_start="no", stopped_at=5.0)).state == "stopped by hand"


def test_a_look_reads_why_the_last_start_failed_and_s01_reports_it(tmp_path: Path) -> None:
    """S01: the ledger stops a unit whose start has failed."""
    ledger = tmp_path / "ledger.json"
    state = LedgerState({"code": Entry(failures=2, reason="its engine ended with status 3"), "well": Entry(failures=1)})
    ledger.write_text(json.dumps({"schema": 1, "instances": state.to_json()}))
    counters = str(tmp_path / "admin.sock")
    found = read_residency(str(ledger), counters)
    assert found == {
        "code": {"phase": "asleep", "failed": "its engine ended with status 3", "load_s": 0.0, "waiting": 0},
        "well": {"phase": "asleep", "failed": "", "load_s": 0.0, "waiting": 0},
    }
    assert read_residency(str(tmp_path / "none"), counters) == {}
    facts = HealthFacts(
        *({CODE: unit("inactive")}, {}, {}, {}, CommandResult(127, "", ""), (), ""),
        reboot=False,
        residency={name: ResidencyObservation(**row) for name, row in found.items()},  # type: ignore[arg-type]
    )
    survey = SurveyAnswers({"health": {"told": json.loads(json.dumps(asdict(facts)))}})
    with pytest.raises(Drift, match="code has failed: its engine ended with status 3"):
        test_serving.test_active_and_wanted(survey, AIM, sample_instance("code", start="on-demand"))


@pytest.mark.parametrize("generation", [None, GenerationObservation(1, "another", "another")])
def test_s01_holds_for_one_that_is_asleep_after_a_rollback(generation: GenerationObservation | None) -> None:
    asleep = replace(unit("inactive"), since_s=500.0)
    facts = HealthFacts(
        *({CODE: asleep}, {}, {}, {}, CommandResult(127, "", ""), (), ""), reboot=False, generation=generation
    )
    units = SimpleNamespace(property_value=lambda name, prop: "inactive")
    survey = SurveyAnswers({}, _read={"health": facts, "units": units})
    test_serving.test_active_and_wanted(survey, AIM, sample_instance("code", start="on-demand"))


@pytest.mark.parametrize(
    ("phase", "active", "since", "agrees"),
    [
        ("asleep", "inactive", 100.0, True),
        ("awake", "active", 100.0, True),
        ("starting", "activating", 100.0, True),
        ("asleep", "active", 100.0, False),
        ("awake", "inactive", 100.0, False),
        ("awake", "inactive", 5.0, True),
        ("", "inactive", 100.0, False),
    ],
)
def test_s26_compares_the_ledger_with_systemd(phase: str, active: str, since: float, agrees: bool) -> None:
    """S26: the ledger follows systemd within seconds."""
    instance = sample_instance("code", start="on-demand")
    seen = replace(unit(active), since_s=since)
    facts = HealthFacts(
        *({CODE: seen}, {}, {}, {}, CommandResult(127, "", ""), (), ""),
        reboot=False,
        residency={"code": ResidencyObservation(phase)} if phase else {},
    )
    survey = SurveyAnswers({"health": {"told": json.loads(json.dumps(asdict(facts)))}})
    if agrees:
        test_serving.test_ledger_agrees(survey, instance)
        return
    with pytest.raises(Drift, match="expected one state"):
        test_serving.test_ledger_agrees(survey, instance)


@pytest.mark.parametrize("active", ["activating", "deactivating"])
def test_s01_holds_for_one_that_starts_for_a_client_or_stops_for_another_instance(active: str) -> None:
    facts = HealthFacts(*({CODE: unit(active)}, {}, {}, {}, CommandResult(127, "", ""), (), ""), reboot=False)
    units = SimpleNamespace(property_value=lambda name, prop: active)
    survey = SurveyAnswers({}, _read={"health": facts, "units": units})
    test_serving.test_active_and_wanted(survey, AIM, sample_instance("code", start="on-demand"))
    with pytest.raises(Drift):
        test_serving.test_active_and_wanted(survey, AIM, sample_instance("code"))


@pytest.mark.parametrize("active", ["inactive", "activating", "deactivating"])
def test_a_process_that_is_not_loaded_is_not_checked(active: str) -> None:
    instance = sample_instance("code", start="on-demand")
    facts = HealthFacts(
        *({CODE: unit(active)}, {}, {}, {}, CommandResult(127, "", ""), (), ""), reboot=False, residency={}
    )
    survey = SurveyAnswers({"health": {"told": json.loads(json.dumps(asdict(facts)))}})
    assert is_asleep_for("S02", instance, survey)
    assert not is_asleep_for("S01", instance, survey)
    assert not is_asleep_for("S15", instance, survey), "it is about files"
    assert not is_asleep_for("S02", replace(instance, start="boot"), survey)


@pytest.mark.parametrize(
    ("active", "result", "on_demand", "found"),
    [
        ("inactive", "success", True, []),
        ("inactive", "success", False, ["S01"]),
        ("failed", "exit-code", True, ["S01"]),
        ("inactive", "exit-code", True, ["S01"]),
    ],
)
def test_a_box_that_checks_itself_lets_it_sleep(active: str, result: str, on_demand: bool, found: list[str]) -> None:
    failed: list[str] = []
    host: Any = SimpleNamespace(
        manifest={"instances": {"code": {"units": {CODE: "0" * 64}, **({"on_demand": True} if on_demand else {})}}},
        declared={"stopped": "/etc/rigwright/stopped", "units": []},
        unit_files=[],
        units={CODE: {"Result": result}},
        lstat=lambda path: None,
        active=lambda name: active,
        previous_text=lambda *words: "",
        fail=lambda check, *rest: failed.append(check),
    )
    judge_services(host)
    assert failed == found


def refusal(box: OperatorFolder, **entry: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        load_rig(box.load_group({"one": sample_entry(**entry)})[0][1]["rig"])
    return str(caught.value)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"start": "on-demand"}, {}, 'instances.chat.start: "on-demand" needs a "gateway"'),
    ({"start": "ondemand"}, {"gateway": {"listeners": LISTENERS}}, "instances.chat.start"),
    ({"idle": 60}, {}, 'instances.chat.idle: needs "start": "on-demand"'),
    ({"priority": 1}, {}, 'instances.chat.priority: needs "start": "on-demand"'),
    ({"keep_warm": True}, {}, 'instances.chat.keep_warm: needs "start": "on-demand"'),
    (
        {"start": "on-demand", "keep_warm": True, "idle": 5},
        {"gateway": {"listeners": LISTENERS}},
        "instances.chat.idle: 0 or no idle with keep_warm = True",
    ),
    ({"ttl": 60}, {}, "idle"),
]


@pytest.mark.parametrize(("keys", "entry", "expected"), REFUSED)
def test_keys_that_cannot_work_are_refused(
    box: OperatorFolder, keys: dict[str, Any], entry: dict[str, Any], expected: str
) -> None:
    assert expected in refusal(box, instances=chat_instances(**keys), **entry)
