"""How instances are doing: one look as it runs on a host, and what it comes to."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from rigwright.engines import kinds
from rigwright.host.generation_layout import META, PROVEN, file_mode
from rigwright.nvidia.cards.smi import TIMED_OUT
from rigwright.operate import instance_health
from rigwright.operate.instance_health import (
    CardUse,
    CommandResult,
    HealthFacts,
    InstanceHealth,
    describe_errors,
)
from rigwright.operate.instance_state import (
    PATIENCE,
    WEDGED,
    EngineObservation,
    GenerationObservation,
    UnitObservation,
)
from rigwright.project_root import ROOT
from rigwright.serving.generation import Generation
from rigwright.serving.instance_units import STOPPED
from tests.unit.model_server import KEY, Fault, ScriptedModel, run_model_server
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_instance, sample_rig
from tests.unit.serving_samples import capable_instance

CHAT = "rigwright-chat.service"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the look gives root away before it connects")
UNIT = UnitObservation("loaded", "active", "running", "success", 0, True, 60.0, 1 << 30)
ENGINE = EngineObservation(200, "", 0.05, (), (), 0.3, 0.0, True)
SILENT = replace(ENGINE, status=0, error="no answer in time")
NOTHING = CommandResult(127, "", "")
PROGRAM = """
import json, sys
from checks.survey.host import health
health.ROOT = sys.argv[1]
print(json.dumps(health.look(json.load(sys.stdin))))
"""


def health_with_answers(
    unit: UnitObservation | None = UNIT, engine: EngineObservation | None = ENGINE, out: str = "", *said: str
) -> InstanceHealth:
    one = capable_instance()
    units = {one.unit: unit} if unit else {}
    engines = {one.name: engine} if engine else {}
    look = HealthFacts(units, engines, {one.name: said}, {one.name: out} if out else {}, NOTHING, (), "", False)
    return instance_health.assess_health(look, one)


def test_a_partial_search_of_a_journal_is_reported() -> None:
    one = capable_instance()
    look = HealthFacts({one.unit: UNIT}, {one.name: ENGINE}, {}, {}, NOTHING, (), "", False, (one.name,))
    assert instance_health.assess_health(look, one).errors == (instance_health.PARTIAL,)
    assert not health_with_answers().errors


@pytest.mark.parametrize(
    ("found", "state", "note"),
    [
        (health_with_answers(), "ready", ""),
        (health_with_answers(None, None), "not deployed", ""),
        (health_with_answers(replace(UNIT, load="not-found", active="inactive"), None), "not deployed", ""),
        (health_with_answers(replace(UNIT, active="inactive"), None), "stopped", "no record"),
        (
            health_with_answers(replace(UNIT, active="failed", result="exit-code"), None),
            "failed",
            "systemd gave up: exit-code",
        ),
        (health_with_answers(replace(UNIT, active="activating", sub="start-post"), None), "starting", ""),
        (
            health_with_answers(replace(UNIT, active="activating", sub="auto-restart", restarts=3), None),
            "failed",
            "3 times",
        ),
        (health_with_answers(replace(UNIT, active="activating", sub="start", restarts=1), None), "failed", "1 time"),
        (health_with_answers(replace(UNIT, active="deactivating"), None), "stopping", ""),
        (health_with_answers(UNIT, SILENT), "ready", "busy: one token took more than 0.55 s, and it computes"),
        (health_with_answers(UNIT, replace(SILENT, silent_s=0.5)), "silent", "look again"),
        (health_with_answers(UNIT, replace(SILENT, silent_s=WEDGED)), "wedged", "no answer and no step for 120 s"),
        (health_with_answers(UNIT, replace(SILENT, silent_s=WEDGED, counts=False)), "silent", "does not count steps"),
        (
            health_with_answers(UNIT, replace(SILENT, silent_s=0.5), "no answer within 120 s"),
            "wedged",
            "the gateway has taken it out",
        ),
        (
            health_with_answers(UNIT, replace(SILENT, silent_s=0.5, error="Connection refused")),
            "failing",
            "Connection refused",
        ),
        (health_with_answers(UNIT, replace(SILENT, asleep=True)), "asleep", "the next request loads"),
        (health_with_answers(UNIT, None), "running", ""),
        (health_with_answers(UNIT, replace(ENGINE, status=500)), "failing", "it answers 500"),
        (health_with_answers(UNIT, replace(ENGINE, status=401)), "failing", "it answers 401"),
        # a gateway that has not asked again yet
        (health_with_answers(UNIT, ENGINE, "no answer within 120 s"), "ready", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_states_are_distinguished(found: InstanceHealth, state: str, note: str) -> None:
    assert found.state == state
    assert note in found.note
    assert found.assessed.is_ready == (state in ("ready", "asleep"))


def test_an_error_in_a_log_comes_with_its_remedy() -> None:
    lines = ("an illegal memory access was encountered at x", "Cannot use FA version 2", "all is well")
    (error,) = health_with_answers(UNIT, ENGINE, "", *lines).errors
    assert error.startswith("an illegal memory access was encountered: a kernel of vLLM")


def test_the_specific_error_of_a_log_hides_the_general_one_and_names_its_file() -> None:
    lines = (
        "0.00.1 E stat: cannot statx '/srv/models/a/1/a.gguf': No such file or directory",
        "0.00.2 E srv init: exiting due to model loading error",
    )
    causes = kinds()["llama.cpp"].causes
    (error,) = describe_errors(lines, causes)
    assert error.startswith("'/srv/models/a/1/a.gguf': No such file: the model's file is missing")
    (error,) = describe_errors(lines[1:], causes)
    assert error.startswith("exiting due to model loading error: the model could not be loaded")
    secret = "api_key=abcdefghijklmnop1234.gguf': No such file"
    assert "abcdefghijklmnop1234" not in str(describe_errors((secret,), causes))


def test_tokens_a_second_are_those_of_the_look() -> None:
    def lines(tokens: int, running: int) -> tuple[str, ...]:
        return (f"vllm:generation_tokens_total{{}} {tokens}.0", f"vllm:num_requests_running{{}} {running}.0")

    busy = replace(ENGINE, before=lines(100, 1), after=lines(130, 1), apart_s=0.5)
    assert health_with_answers(UNIT, busy).tokens_a_second == 60
    assert health_with_answers(UNIT, replace(busy, after=lines(100, 0))).tokens_a_second is None


@pytest.mark.parametrize(
    ("answer", "found", "failed"),
    [
        (
            CommandResult(0, "0, 1000, 24576, 120.5, 250.0, 61, 99\n1, 0, 24576, [N/A], [N/A], 30, 0\n", ""),
            (CardUse(0, 1000, 24576, 120.5, 250, 61, 99), CardUse(1, 0, 24576, None, None, 30, 0)),
            "",
        ),
        (CommandResult(127, "", ""), (), ""),
        (CommandResult(TIMED_OUT[0], "", ""), (), "nvidia-smi did not answer"),
        (CommandResult(15, "Unable to determine the device handle", ""), (), "Unable to determine"),
        (CommandResult(0, "0, 1\n", ""), (), "nvidia-smi reports: 0, 1"),
    ],
)
def test_cards_say_what_they_take(answer: CommandResult, found: tuple[CardUse, ...], failed: str) -> None:
    there, why = instance_health.parse_card_uses(answer)
    assert there == found
    assert failed in why
    assert bool(failed) == bool(why)


ObserveHost = Callable[..., HealthFacts]
SHOW = "Id=$unit\\nNames=$unit\\nLoadState=loaded\\nActiveState={active}\\nSubState=running\\n"
SHOW += "Result=success\\nNRestarts=0\\nMainPID=1\\nMemoryCurrent=5\\nInvocationID=aa\\n"
SHOW += "ActiveEnterTimestampMonotonic=1\\nStateChangeTimestampMonotonic=1\\n"
SYSTEMCTL = """
[ "$1" = show ] || exit 0
for unit; do case $unit in *'*'* | -*) ;; *.*) printf "{show}\\n" ;; esac; done
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A host's root, where others than root come to."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def health_of(folder: Path) -> ObserveHost:
    """Looks at a host with one instance, whose engine is a scripted model."""
    wanted = instance_health.health_request(sample_rig(replace(capable_instance(), name="chat")))
    (ask,) = wanted["asks"]  # type: ignore[misc]
    ask["at"] = str(folder / "api.sock")
    key = folder / str(ask["key"]).lstrip("/")
    key.parent.mkdir(parents=True)
    key.write_text(f"{KEY}\n")
    write_stand_in(folder / "bin", "systemctl", SYSTEMCTL.format(show=SHOW.format(active="active")))
    write_stand_in(folder / "bin", "journalctl", "echo fine; echo 'CUDA out of memory. token=abc'")

    def look(**changes: Any) -> HealthFacts:
        environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(folder)],
            input=json.dumps({**wanted, "patience": 0.4, **changes}),
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=30,
        )
        return TypeAdapter(HealthFacts).validate_json(done.stdout, strict=True)

    return look


def serving(folder: Path, fault: Fault = "", **more: Any) -> Any:
    return run_model_server(ScriptedModel(fault, **more), folder / "api.sock")


@as_root
def test_a_look_asks_for_a_token_and_for_what_is_counted(health_of: ObserveHost, folder: Path) -> None:
    with serving(folder) as model:
        (folder / "api.sock").chmod(0o777)
        found = health_of()
    one = instance_health.assess_health(found, capable_instance())
    assert (one.state, one.note, one.memory_bytes, one.metrics.kv_used) == ("ready", "", 5, 0.25)
    assert [asked["max_tokens"] for asked in model.asked] == [1]
    (error,) = one.errors
    assert error.startswith("CUDA out of memory: the card's memory is full: lower max_model_len")
    assert "abc" not in str(found.said)
    assert not (folder / "run/rigwright/silent/chat").exists()


@as_root
@pytest.mark.parametrize(("running", "looked"), [(0, 1), (1, 2)])
def test_one_that_works_is_looked_at_twice_and_one_that_is_idle_is_not_waited_for(health_of, folder, running, looked):
    with serving(folder, running=running) as model:
        (folder / "api.sock").chmod(0o777)
        found = health_of()
    assert instance_health.assess_health(found, capable_instance()).assessed.is_ready
    assert model.looked == looked


@as_root
def test_a_starved_engine_has_more_time_before_its_silence_is_recorded(health_of, folder):
    with serving(folder, starved_s=0.8):
        (folder / "api.sock").chmod(0o777)
        found = health_of(patience=PATIENCE)
        assert instance_health.assess_health(found, capable_instance()).assessed.is_ready
        assert 0.8 <= found.engines["chat"].took_s < 3, "the look ends with the answer"
        # silence of the same run is known: no look waits again
        assert instance_health.assess_health(health_of(patience=0), capable_instance()).state == "silent"
        again = health_of(patience=PATIENCE)
    assert instance_health.assess_health(again, capable_instance()).state == "silent"
    assert again.engines["chat"].apart_s < 1


@as_root
@pytest.mark.parametrize("asleep", [True, False])
def test_a_look_does_not_wake_a_sleeping_engine(health_of, folder, asleep):
    rig = sample_rig(replace(sample_instance(flags={"sleep-idle-seconds": 60}), name="chat"))
    (ask,) = instance_health.health_request(rig)["asks"]
    ask["at"] = str(folder / "api.sock")
    with serving(folder, asleep=asleep) as model:
        (folder / "api.sock").chmod(0o777)
        found = health_of(asks=[ask])
    one = instance_health.assess_health(found, capable_instance())
    assert (one.state, len(model.asked)) == (("asleep", 0) if asleep else ("ready", 1))


@as_root
def test_a_refused_connection_is_not_waited_for(health_of: ObserveHost) -> None:
    found = health_of(patience=PATIENCE)
    assert instance_health.assess_health(found, capable_instance()).state == "failing"
    assert found.engines["chat"].apart_s < 1


@as_root
def test_one_that_hangs_is_silent_and_then_wedged(health_of, folder):
    with serving(folder, "wedged"):
        (folder / "api.sock").chmod(0o777)
        first = health_of()
        assert instance_health.assess_health(first, capable_instance()).state == "silent"
        assert 0.8 < first.engines["chat"].silent_s < 2
        kept = folder / "run/rigwright/silent/chat"
        written = json.loads(kept.read_text())
        kept.write_text(json.dumps(written | {"began": written["began"] - WEDGED}))
        later = health_of()
    assert instance_health.assess_health(later, capable_instance()).state == "wedged"


@as_root
@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "[" * 9999, '{"began": 1e400}', '{"run": "other", "now": "", "began": 0}'),
        # it has computed meanwhile
        '{"run": "aa", "now": "another", "began": 0}',
    ],
)
def test_records_of_another_run_do_not_count(health_of, folder, text):
    kept = folder / "run/rigwright/silent/chat"
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    with serving(folder, "wedged"):
        (folder / "api.sock").chmod(0o777)
        assert instance_health.assess_health(health_of(), capable_instance()).state == "silent"


@as_root
def test_one_that_answers_again_is_forgotten(health_of: ObserveHost, folder: Path) -> None:
    kept = folder / "run/rigwright/silent/chat"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    with serving(folder):
        (folder / "api.sock").chmod(0o777)
        assert instance_health.assess_health(health_of(), capable_instance()).assessed.is_ready
    assert not kept.exists()


@as_root
def test_a_look_reads_the_generation_and_instances_stopped_by_hand(health_of: ObserveHost, folder: Path) -> None:
    assert health_of().generation == GenerationObservation(None, "", "")
    config = folder / "etc/rigwright"
    made = Generation({"env/chat": "A=1\n", "ready": "#!/bin/sh\n"}, {"engines/x": "/opt/x"}, (), (), (), "")
    lying = config / "generations/7"
    for path, text in made.files.items():
        (lying / path).parent.mkdir(parents=True, exist_ok=True)
        (lying / path).write_text(text)
        (lying / path).chmod(int(file_mode(text), 8))
    (lying / "engines").mkdir()
    (lying / "engines/x").symlink_to("/opt/x")
    (lying / META).write_text(f"{made.digest} 2026-11-28T18:02:00Z\n")
    (lying / PROVEN).touch()
    (config / "current").symlink_to("generations/7")
    (config / STOPPED).mkdir()
    (config / STOPPED / "chat").touch()
    os.utime(config / STOPPED / "chat", (5, 5))
    found = health_of()
    assert (found.generation, found.stopped) == (GenerationObservation(7, made.digest, made.digest), {"chat": 5.0})
    (lying / "env/chat").chmod(0o600)
    changed = health_of().generation
    assert changed is not None
    assert changed.found not in ("", made.digest)


@as_root
def test_a_look_reads_what_a_process_was_started_from(health_of: ObserveHost, folder: Path) -> None:
    weights = folder / "srv/w.gguf"
    weights.parent.mkdir()
    weights.touch()
    at = weights.stat()
    key, record = folder / f"run/credentials/{CHAT}/api-key", folder / f"run/rigwright/{CHAT}"
    for path, text in ((key, f"{KEY}\n"), (record, f"{'5' * 64}\n{at.st_dev}:{at.st_ino} /srv/w.gguf\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert (health_of().units[CHAT].started_from, health_of().units[CHAT].inputs_current) == ("5" * 64, True)
    weights.rename(f"{weights}.away")
    weights.touch()
    assert not health_of().units[CHAT].inputs_current
    Path(f"{weights}.away").rename(weights)
    key.write_text("another\n")
    assert not health_of().units[CHAT].inputs_current


@as_root
def test_answers_of_the_gateway_and_the_host_are_reported(health_of: ObserveHost, folder: Path) -> None:
    (folder / "run/rigwright_router/out").mkdir(parents=True)
    (folder / "run/rigwright_router/out/chat").write_text("no answer within 120 s\n")
    (folder / "run/reboot-required").touch()
    found = health_of()
    assert (found.out, found.reboot, found.holder) == ({"chat": "no answer within 120 s"}, True, "")
    # nothing listens
    assert instance_health.assess_health(found, capable_instance()).state == "failing"


@as_root
def test_reasons_of_root_are_reported(health_of: ObserveHost, folder: Path) -> None:
    rotation = folder / "run/rigwright/rotation"
    rotation.mkdir(parents=True)
    row = {"reason": "disk", "text": "less than 256 MiB are free in /opt", "since": 0.0, "ended": None, "slot": ""}
    (rotation / "chat.last").write_text(json.dumps({"schema": 1, "reasons": [row]}))
    text = "less than 256 MiB are free in /opt (since 1970-01-01 00:00 UTC); "
    assert health_of().rotation["chat"].describe() == f"{text}requests reach it only if no other instance can answer"
    (rotation / "chat").write_text(json.dumps({"schema": 1, "reasons": [row | {"ended": 5.0}]}))
    assert health_of().rotation["chat"].describe().startswith(f"{text}this has ended")
    for broken in ("", "{", "[]", '{"reasons": [{"text": 1}]}', "[" * 100_000):
        (rotation / "chat").write_text(broken)
        assert health_of().rotation["chat"].describe() == "its reasons are not readable"


def test_of_an_engine_that_does_not_count_its_slots_are_looked_at() -> None:
    def path(**flags: Any) -> object:
        (ask,) = instance_health.health_request(sample_rig(sample_instance(flags=flags)))["asks"]  # type: ignore[misc]
        return ask["counts"]

    assert (path(metrics=True), path(), path(**{"no-slots": True})) == ("/metrics", "/slots", "")
