"""An instance's state: one table of facts, and the word, exit status and command that every verb has for them."""

from dataclasses import replace

import pytest

from cli.observed_box import next_command
from rigwright.operate.instance_state import (
    WEDGED,
    DeclaredProcess,
    EngineObservation,
    GenerationObservation,
    InstanceState,
    StateFacts,
    UnitObservation,
    assess_state,
)

UNIT = UnitObservation("loaded", "active", "running", "success", 0, True, 60.0, 1 << 30, "5" * 64)
ENGINE = EngineObservation(200, "", 0.05, (), (), 0.3, 0.0, True)
MUTE = replace(ENGINE, status=0, error="no answer in time", silent_s=0.6)
GENERATION = GenerationObservation(3, "d" * 64, "d" * 64)
NONE = GenerationObservation(None, "", "")
READY = StateFacts(UNIT, ENGINE, None, "", GENERATION, DeclaredProcess("d" * 64, "5" * 64))
DOWN = replace(READY, engine=None, unit=replace(UNIT, active="inactive", sub="dead", running=False))


def unit(**changes: object) -> StateFacts:
    return replace(READY, engine=None, unit=replace(UNIT, **changes))  # type: ignore[arg-type]


STATES: list[tuple[StateFacts, InstanceState, str, str]] = [
    (READY, "ready", "", ""),
    (replace(READY, engine=replace(MUTE, silent_s=0.0)), "ready", "busy", ""),
    (replace(READY, declared=None), "ready", "", ""),
    (replace(READY, generation=None), "ready", "", ""),
    (replace(READY, engine=replace(MUTE, asleep=True)), "asleep", "the next request", ""),
    (replace(READY, engine=None), "running", "", ""),
    (unit(active="activating", sub="start-post"), "starting", "", "status rig.py --watch"),
    (unit(active="activating", sub="auto-restart"), "failed", "its process ends", "logs rig.py --instance chat"),
    (unit(active="activating", sub="start", restarts=1), "failed", "restarted 1 time", "logs rig.py --instance chat"),
    (unit(active="failed", result="oom-kill"), "failed", "systemd gave up: oom-kill", "logs rig.py --instance chat"),
    (unit(active="deactivating"), "stopping", "", "status rig.py"),
    (DOWN, "stopped", "no record", "start rig.py chat"),
    (replace(DOWN, unit=replace(UNIT, load="masked", active="inactive")), "stopped", "masked", "start rig.py chat"),
    (replace(DOWN, stopped_at=1795890120.0), "stopped by hand", "since 2026-11-28 18:22 UTC", "start rig.py chat"),
    # a stop that ends with another exit status than 0
    (replace(unit(active="failed"), stopped_at=1e300), "stopped by hand", "since 9999-12-31", "start rig.py chat"),
    (replace(DOWN, stopped_at=1.0, generation=NONE), "not deployed", "no generation", "deploy rig.py"),
    (StateFacts(generation=NONE), "not deployed", "the host has no generation", "deploy rig.py"),
    (StateFacts(generation=GENERATION), "not deployed", "generation 3 has no such", "deploy rig.py"),
    (StateFacts(), "not deployed", "", "deploy rig.py"),
    (replace(READY, unit=replace(UNIT, load="not-found", active="inactive")), "not deployed", "", "deploy rig.py"),
    (replace(READY, engine=MUTE), "silent", "no step was seen; look again", "doctor rig.py --instance chat"),
    (replace(READY, engine=replace(MUTE, counts=False, silent_s=WEDGED)), "silent", "does not count", "doctor"),
    (replace(READY, engine=replace(MUTE, silent_s=WEDGED)), "wedged", "no step for 120 s", "restart rig.py chat"),
    (replace(READY, engine=MUTE, gateway_out="late"), "wedged", "taken it out: late", "restart rig.py chat"),
    (replace(READY, engine=replace(MUTE, error="Connection refused")), "failing", "refused", "logs"),
    (replace(READY, engine=replace(ENGINE, status=503)), "failing", "it answers 503", "logs rig.py --instance chat"),
    (replace(READY, engine=replace(ENGINE, status=401)), "failing", "it answers 401", "logs"),
    # the gateway has not asked again yet
    (replace(READY, gateway_out="late"), "ready", "", ""),
    (replace(READY, out_of_rotation="Xid 79"), "out of rotation", "Xid 79", "doctor rig.py --instance chat"),
    (replace(READY, engine=MUTE, gateway_out="late", out_of_rotation="Xid 79"), "wedged", "late", "restart"),
    (replace(READY, generation=NONE), "other generation", "it runs, and the host has no", "deploy rig.py"),
    (replace(READY, declared=DeclaredProcess("e" * 64, "5" * 64)), "other generation", "runs generation 3", "deploy"),
    (replace(READY, declared=DeclaredProcess("d" * 64, "6" * 64)), "other generation", "other settings", "deploy"),
    (replace(READY, generation=replace(GENERATION, found="")), "other generation", "were changed after", "deploy"),
    (replace(READY, unit=replace(UNIT, inputs_current=False)), "other generation", "another key", "deploy rig.py"),
    # an instance that is down or ill reports more than its generation
    (replace(DOWN, declared=DeclaredProcess("e" * 64, "")), "stopped", "", "start rig.py chat"),
    (replace(READY, unreachable="no route", engine=None), "unreachable", "no route", "doctor rig.py"),
]


@pytest.mark.parametrize(("facts", "state", "note", "command"), STATES)
def test_facts_name_one_state_with_the_next_command(
    facts: StateFacts, state: InstanceState, note: str, command: str
) -> None:
    found = assess_state("chat", facts)
    assert found.state == state
    assert note in found.note
    assert state in found.describe()
    line = next_command(found, "rig.py", "box")
    assert (
        (line.startswith(f"rigwright {command}"), line.endswith(" --limit box")) == (True, True)
        if command
        else not line
    )


def test_a_sentence_names_instance_state_and_reason() -> None:
    said = [
        assess_state("chat", facts).describe()
        for facts in (READY, replace(DOWN, stopped_at=0.0), unit(active="failed"), replace(READY, generation=NONE))
    ]
    assert said == [
        "chat is ready",
        "chat is stopped by hand since 1970-01-01 00:00 UTC",
        "chat has failed: systemd gave up: success",
        "chat runs another generation: it runs, and the host has no generation",
    ]
