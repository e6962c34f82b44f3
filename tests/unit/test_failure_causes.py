"""Causes of failures: each morning on which many checks fail has one line first, and hides nothing else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.cause_facts import CauseFacts
from checks.cause_rules import CAUSE_RULES
from checks.failure_causes import CauseRule, CheckFailure, Consequence, Occurrence, group_failures
from checks.survey.answers import SurveyAnswers
from checks.survey.processes import Processes, ServiceProcesses, executed_command
from checks.survey.serving import InstanceKeyFile, StartRecord
from checks.survey.units import UNITS
from checks.undeployed_edit import find_edit
from tests.unit.host_states import rig_target_state, target_generation, two_instance_rig
from tests.unit.mornings import BOOT, CHAT, CODE, FOREIGN, MORNINGS, UNIT, down, edited, failure, stored
from tests.unit.samples import sample_artefact, sample_build, sample_facts, sample_instance
from tests.unit.survey_samples import empty_answer
from tests.unit.test_process_checks import FIRST


@pytest.mark.parametrize("name", MORNINGS)
def test_a_morning_has_its_cause_first_and_hides_nothing_else(name: str, tmp_path: Path) -> None:
    morning = MORNINGS[name]
    facts, failures = morning.make(tmp_path.resolve())
    own = FOREIGN if facts.is_deployed else failure("M01", "/usr/bin/x has another content")
    causes = group_failures(facts, [own, *failures], CAUSE_RULES)
    assert causes[0].headline == morning.headline
    assert morning.cure in causes[0].cure
    explained = {label for cause in causes for label in cause.results}
    assert own.label not in explained
    assert len(causes[0].results) >= 0.8 * len(failures), {one.label for one in failures} - set(causes[0].results)
    assert len(causes) == 1


@pytest.mark.parametrize("name", MORNINGS)
def test_failures_of_another_subject_stay(name: str, tmp_path: Path) -> None:
    """The same checks fail of another instance, unit, package, card, mount or section, and for another reason."""
    facts, failures = MORNINGS[name].make(tmp_path.resolve())
    if not facts.is_deployed:
        pytest.skip("all that a deploy makes is missing")
    others = [
        failure("S01", "inactive", "active", "other"),
        failure("S05", "200 for no key", "401 for both", "chat"),
        failure("S06", "200", "one token from its socket", "chat"),
        failure("S12", "--n-gpu-layers 99 for 0", "the arguments of its unit", "chat"),
        failure("S02", "5f5f5f5f5f5f", "9f64006e5cac", "chat"),
        failure("S21", f"{UNIT}'s process 7 runs /tmp/evil.so, which was deleted", "the declared programs"),
        failure("S21", f"{UNIT}'s process 8283 runs code without a file", "the declared programs"),
        failure("U01", "/etc/systemd/system/rigwright-chat.service has different contents"),
        failure("U03", "rigwright-other.service has MemoryMax 1, not 2"),
        failure("U09", "rigwright-other.service has failed"),
        failure("N06", "1: it fell off the bus", "no Xid 79 of card 1 since boot"),
        failure("N21", "300", "a limit of 250 W of card 1 at 0000:00:07.0"),
        failure("O08", "/srv/other with 0 MiB free"),
        failure("W01", "6 bytes", "773728 bytes", "other"),
        failure("D08", "/run/other", "/run/rigwright/instances/chat/api.sock", "chat"),
        failure("B04", "curl"),
        failure("B04", "libc6"),
        failure("S04", "0.0.0.0:8020", "127.0.0.1:8020, and [::1]", "code"),
        failure("S25", "rigwright-code.service's process 7 has the variable LD_PRELOAD"),
        failure("S13", "another-model", "the model small", "code"),
        failure("M01", "/usr/bin/x has another content"),
        CheckFailure(
            "U09", "", (("all active", f"{UNIT} has failed"), ("all active", "rigwright-x.socket is inactive"))
        ),
    ]
    assert [one for one in others if group_failures(facts, [one], CAUSE_RULES)] == []
    labels = {one.label for one in others} - {one.label for one in failures}
    causes = group_failures(facts, [*failures, *others], CAUSE_RULES)
    assert labels.isdisjoint(label for cause in causes for label in cause.results)


def test_a_failure_of_two_causes_is_attributed_once() -> None:
    facts = CauseFacts(
        instances=(replace(CHAT, state="failed"), replace(CODE, state="stopped by hand", stopped_at=BOOT)),
    )
    both = CheckFailure(
        "U09", "", (("all active", f"{UNIT} has failed"), ("all active", "rigwright-code.service is inactive"))
    )
    causes = group_failures(facts, [*down("failed"), *down(name="code"), both], CAUSE_RULES)
    assert [cause.id for cause in causes] == ["failed-instance:chat", "stopped-by-hand:code"]
    assert sum("U09" in cause.results for cause in causes) == 1


def test_own_checks_of_the_operator_are_never_attributed() -> None:
    facts = CauseFacts(is_deployed=False, own_checks=frozenset({"X01"}))
    assert group_failures(facts, [failure("X01", "it died")], CAUSE_RULES) == []


def test_an_edit_comes_first_though_others_explain_more() -> None:
    facts, failures = edited()
    facts = replace(facts, instances=(replace(CHAT, state="stopped by hand", stopped_at=BOOT), CODE))
    causes = group_failures(facts, [*failures, *down()], CAUSE_RULES)
    assert [(cause.id, len(cause.results)) for cause in causes] == [
        ("undeployed-edit", 6),
        ("stopped-by-hand:chat", 13),
    ]
    assert causes[0].evidence == "code: MemoryMax 90% -> 2G"


def test_a_changed_generation_is_no_undeployed_edit() -> None:
    made, new = target_generation(), two_instance_rig()
    desired = rig_target_state(new, sample_facts(), sample_build())
    found = stored(made)
    found.kept[0].files["env/chat"] = f"{'0' * 64} 644"
    assert find_edit(found, None, {}, new, desired) is None
    # with an edit beside it, the check of its files stays a failure
    other = two_instance_rig(sample_instance("chat"))
    edit = find_edit(found, None, {}, other, rig_target_state(other, sample_facts(), sample_build()))
    assert edit
    assert (edit.intact, edit.changes) == (False, ("code is no longer declared",))
    changed = failure("G01", "env/chat changed", "the declared files in generation 3")
    assert group_failures(CauseFacts(edit=edit), [changed], CAUSE_RULES) == []


def test_a_property_that_the_hosts_own_generation_has_not_is_no_undeployed_edit() -> None:
    facts, _ = edited()
    assert facts.edit
    foreign = "rigwright-code.service has CPUWeight 1, not [not set]"
    facts = replace(facts, edit=replace(facts.edit, foreign=(foreign,)))
    memory = ("all unit properties", "rigwright-code.service has MemoryMax 22748848128, not 2147483648")
    both = CheckFailure("U03", "", (memory, ("all unit properties", foreign)))
    assert group_failures(facts, [both], CAUSE_RULES) == []
    (cause,) = group_failures(facts, [CheckFailure("U03", "", (memory,))], CAUSE_RULES)
    assert cause.results == ["U03"]


def test_new_instances_and_weights_are_parts_of_an_edit() -> None:
    old = target_generation(two_instance_rig(sample_instance("chat")))
    weight = sample_artefact(name="other", sha256="d" * 64)
    added = sample_instance("code", port=8021, parts=(replace(sample_instance().parts[0], files=(weight,)),))
    new = two_instance_rig(sample_instance("chat"), added)
    edit = find_edit(stored(old), None, {}, new, rig_target_state(new, sample_facts(), sample_build()))
    assert edit
    assert edit.changes[0] == "code is new"
    assert {"code", "other"} <= edit.added
    assert "rigwright-code.service" in edit.added_units
    failures = [
        *down("inactive", "code"),
        failure("W01", "no file", "a file", "other"),
        failure("B01", "no user rigwright-code"),
    ]
    (cause,) = group_failures(CauseFacts(edit=edit), failures, CAUSE_RULES)
    assert len(cause.results) == len(failures)


def test_a_text_that_no_release_understands_explains_nothing() -> None:
    made = two_instance_rig(sample_instance("chat"))
    found = stored(target_generation(two_instance_rig(sample_instance("chat", memory_max="1G"))))
    found.texts["units/rigwright-chat.service"] = "[Service]\nExecStart='\\\nMemoryMax=%\n=\nEnvironment=\"A=\n"
    units = SurveyAnswers(
        {
            "units": {
                "told": empty_answer(UNITS.shape) | {"bare": {"service": {}}, "shown": {"rigwright-chat.service": {}}}
            }
        }
    ).read(UNITS)
    edit = find_edit(found, units, {}, made, rig_target_state(made, sample_facts(), sample_build()))
    assert edit
    assert edit.number == 3


@pytest.mark.parametrize(
    "text", ["", "[]", "nothing", '{"instances": []}', '{"instances": {"chat": 1}, "gateway": 7}', "[" * 100_000]
)
def test_a_manifest_of_another_form_names_no_difference_and_breaks_nothing(text: str) -> None:
    made = two_instance_rig(sample_instance("chat"))
    found = replace(stored(target_generation()), texts={"manifest.json": text})
    edit = find_edit(found, None, {}, made, rig_target_state(made, sample_facts(), sample_build()))
    assert edit
    assert edit.number == 3


def test_terms_are_texts_and_never_patterns() -> None:
    occurrence = Occurrence("x", "y", terms={"unit": ["a.*b", ""]})
    assert occurrence.expand("<unit>").fullmatch("a.*b")
    assert not occurrence.expand("<unit>").fullmatch("aXXb")
    assert not occurrence.expand("<unit>").fullmatch("")
    assert not occurrence.expand("<none>").fullmatch("")


def test_hostile_texts_are_shown_without_control_characters() -> None:
    rule = CauseRule("x", lambda *_: [Occurrence("a\x1b[2J", "b\n", "c\r")], (Consequence("S01"),))
    (cause,) = group_failures(CauseFacts(), [failure("S01", "inactive")], [rule])
    assert cause.headline.isprintable()
    assert (cause.cure + cause.evidence).isprintable()


def test_each_rule_has_a_morning(tmp_path: Path) -> None:
    seen = set()
    for number, morning in enumerate(MORNINGS.values()):
        facts, failures = morning.make(tmp_path / str(number))
        seen |= {cause.id.partition(":")[0] for cause in group_failures(facts, failures, CAUSE_RULES)}
    others = {"damaged-weights", "stopping-instance", "stopped-instance"}
    assert seen | others == {rule.id for rule in CAUSE_RULES}


@pytest.mark.parametrize(
    ("change", "explained"),
    [
        ({}, True),
        ({"exe": "/tmp/llama-server"}, False),
        ({"words": ["/tmp/llama-server"]}, False),
        ({"variables": ["CUDA_VISIBLE_DEVICES=7"]}, False),
        (None, False),
    ],
    ids=["as the host's generation has it", "program", "arguments", "variables", "unknown"],
)
def test_a_process_follows_from_an_edit_only_where_the_hosts_generation_starts_it(
    change: dict[str, Any] | None, explained: bool
) -> None:
    old, unit = target_generation(), "rigwright-code.service"
    new = two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021, memory_max="2G"))
    (digest,) = (one.started_from for one in old.unit_states if one.unit == unit)
    started = {unit: StartRecord([digest], [], [], [], InstanceKeyFile("600", 0, True, []))}
    words = executed_command(old.files[f"units/{unit}"])
    variables = [line for line in old.files["env/code"].splitlines() if "=" in line]
    main = replace(FIRST, pid=100, exe=words[0], words=words, variables=variables)
    processes = None
    if change is not None:
        service = ServiceProcesses(100, "", words[0], [replace(main, **change)], [], [])
        processes = Processes({unit: service}, {}, FIRST, {}, [], [])
    desired = rig_target_state(new, sample_facts(), sample_build())
    edit = find_edit(stored(old), None, started, new, desired, processes)
    assert edit
    assert edit.changed == {"code"}
    failures = [
        failure("S12", "x", expected, "code")
        for expected in (
            "a program in /opt/rigwright/engines/x",
            "the arguments of its unit",
            "the variables of its unit",
        )
    ]
    causes = group_failures(CauseFacts(edit=edit), failures, CAUSE_RULES)
    assert [label for cause in causes for label in cause.results] == (["S12 code"] * 3 if explained else [])


def test_a_service_that_was_started_from_the_hosts_own_generation_follows_from_the_edit() -> None:
    facts, _ = edited()
    assert facts.edit
    (digest, *_) = facts.edit.digests
    started = failure(
        "D02", f"rigwright_gateway.service started from {digest}", "rigwright_gateway.service started from"
    )
    (cause,) = group_failures(facts, [started], CAUSE_RULES)
    assert (cause.id, cause.results) == ("undeployed-edit", ["D02"])
    other = failure("D02", "rigwright_gateway.service started from nothing", "rigwright_gateway.service started from")
    assert group_failures(facts, [other], CAUSE_RULES) == []
