"""The state script's output becomes values; a text that is not of its type is refused, from every author."""

import json
from typing import Any

import pytest

from rigwright.host.script_output import END
from rigwright.host.systemd import UnitState
from rigwright.serving.activation import ActivationGoal, goal_of
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, ObservedUnit, parse
from tests.unit.test_channel import encode_records

Record = tuple[str, ...]
A, B, C, D = (letter * 64 for letter in "abcd")
ENGINE = "/opt/rigwright/engines/plain-1.0-0123456789ab"
WEIGHT = "/srv/models/small/1/small.gguf"
CHAT, CODE = "rigwright-chat.service", "rigwright-code.service"
HOLDER = "rigwright_listener-8020.socket"
MANIFEST = json.dumps(
    {
        "instances": {
            "chat": {"port": 8020, "cards": [0, 1], "units": {CHAT: A}},
            "code": {"port": 8021, "cards": [], "units": {CODE: B}},
        }
    }
)
UNIT_STATES = (UnitState(CHAT, A, 8020, frozenset({0, 1})), UnitState(CODE, B, 8021, frozenset()))
RECORDS: list[Record] = [
    ("generation", "10", C, C, "2026-11-03T12:00:00Z", "yes"),
    ("manifest", "10", MANIFEST),
    ("mark", "10", "0123456789ab"),
    ("file", "10", "rigwright.target"),
    ("file", "10", CODE),
    ("file", "10", CHAT),
    ("reference", "10", ENGINE),
    ("reference", "10", WEIGHT),
    ("generation", "2", A, B, "2026-11-02T12:00:00Z", "no"),
    ("current", "generations/10"),
    ("activating", "no"),
    ("job", "inactive"),
    ("loaded", "All instances of this rig, generation 0123456789ab"),
    ("enabled", "yes"),
    ("elsewhere", ""),
    ("reload", "0"),
    ("link", "rigwright.target", "/etc/rigwright/current/units/rigwright.target"),
    ("link", "rigwright-old.service", ""),
    ("link", CODE, f"/etc/rigwright/current/units/{CODE}"),
    ("link", HOLDER, f"/etc/rigwright/current/units/{HOLDER}"),
    ("process", CHAT, "active", "running", "1", "yes", A, "yes", "yes"),
    ("process", CODE, "failed", "failed", "5", "no", "", "no", "no"),
    ("holding", HOLDER, "127.0.0.1:8020"),
    ("folder", ENGINE),
    ("folder", "/etc/rigwright/credentials/chat.api-key"),
]
OUTPUT = encode_records(*RECORDS, (END,))
ONCE = ("current", "activating", "job", "loaded", "enabled", "elsewhere", "reload")


def changed(key: str, *records: Record) -> list[str]:
    """The output with the records of one key replaced."""
    return encode_records(*(record for record in RECORDS if record[0] != key), *records, (END,))


def other_manifest_generation(*, manifest: str, started: tuple[Record, ...] = ()) -> ObservedGeneration:
    """The generation of a host whose manifest is another one."""
    rest = [record for record in RECORDS if record[0] not in ("manifest", "generation")]
    told = encode_records(RECORDS[0], ("manifest", "10", manifest), *started, *rest, (END,))
    (only,) = parse(told).generations
    return only


def test_output_of_the_script_becomes_the_serving_state() -> None:
    assert parse(OUTPUT) == ObservedServing(
        generations=(
            ObservedGeneration(2, A, B, "2026-11-02T12:00:00Z", False),
            ObservedGeneration(
                number=10,
                sealed=C,
                found=C,
                created="2026-11-03T12:00:00Z",
                proven=True,
                references=frozenset({ENGINE, WEIGHT}),
                mark="0123456789ab",
                unit_files=(CHAT, CODE, "rigwright.target"),
                unit_states=UNIT_STATES,
            ),
        ),
        current=10,
        loaded="All instances of this rig, generation 0123456789ab",
        enabled=True,
        links={
            "rigwright.target": "/etc/rigwright/current/units/rigwright.target",
            "rigwright-old.service": "",
            CODE: f"/etc/rigwright/current/units/{CODE}",
            HOLDER: f"/etc/rigwright/current/units/{HOLDER}",
        },
        processes={
            CHAT: ObservedUnit("active", "running", 1, True, A, True, True),
            CODE: ObservedUnit("failed", "failed", 5, False, "", False, False),
        },
        sockets={HOLDER: frozenset({"127.0.0.1:8020"})},
        folders=frozenset({ENGINE, "/etc/rigwright/credentials/chat.api-key"}),
    )


def test_a_generation_is_intact_while_it_is_what_was_written() -> None:
    assert [kept.is_intact for kept in parse(OUTPUT).generations] == [False, True]


def test_a_generation_that_lies_there_is_a_goal_by_its_manifest_and_its_files() -> None:
    kept = parse(OUTPUT).generations[-1]
    assert goal_of(kept) == ActivationGoal(10, "0123456789ab", (CHAT, CODE, "rigwright.target"), UNIT_STATES)


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        (("current", ""), "current", None),
        (("current", "generations/7"), "current", 7),
        (("current", "/elsewhere/generations/7"), "current", None),
        (("current", "generations/7/../8"), "current", None),
        (("current", "generations/12345678901"), "current", None),
        (("activating", "yes"), "activating", True),
        (("job", "active"), "job", True),
        (("job", "activating"), "job", True),
        (("job", "failed"), "job", False),
        (("job", ""), "job", False),
        (("loaded", ""), "loaded", ""),
        (("loaded", "a\nreload 1\x1b[0m"), "loaded", "a\N{REPLACEMENT CHARACTER}reload 1\N{REPLACEMENT CHARACTER}[0m"),
        (("enabled", "no"), "enabled", False),
        (("elsewhere", "/etc/other"), "elsewhere", "/etc/other"),
        (("reload", "2"), "reload_needed", True),
    ],
)
def test_each_fact_stands_in_its_own_record(record: Record, name: str, value: object) -> None:
    assert getattr(parse(changed(record[0], record)), name) == value


def test_a_generation_without_its_record_is_damaged() -> None:
    (only,) = parse(changed("generation", ("generation", "3", "", C, "", "no"))).generations
    assert not only.is_intact


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "{}", '{"instances": []}', '{"instances": {"chat": {}}}'),
        '{"instances": {"chat": {"port": 0, "cards": []}}}',
        '{"instances": {"chat": {"port": 8020, "cards": ["GPU-4af2"]}}}',
        '{"instances": {"chat": {"port": 8020, "cards": [-1]}}}',
        *(
            json.dumps({"instances": {"chat": {"port": 8020, "cards": [], "units": {unit: digest}}}})
            for unit, digest in [("sshd.service", A), ("rigwright-../x.service", A), (CHAT, "x"), (CHAT, f"{A}\n")]
        ),
    ],
)
def test_a_forged_manifest_gives_no_slots_and_leaves_the_rest_readable(text: str) -> None:
    kept = other_manifest_generation(manifest=text)
    assert (kept.unit_states, kept.number, kept.mark) == ((), 10, "0123456789ab")


def test_a_manifest_that_says_other_things_is_believed_for_its_generation_alone() -> None:
    moved = MANIFEST.replace("8020", "8030").replace("[0, 1]", "[2]")
    assert other_manifest_generation(manifest=moved).unit_states == (
        UnitState(CHAT, A, 8030, frozenset({2})),
        UNIT_STATES[1],
    )
    assert parse(OUTPUT).generations[-1].unit_states == UNIT_STATES


BEFORE_UNITS = json.dumps(
    {
        "instances": {
            "chat": {"variant": "llamacpp/two", "port": 8020, "cards": [0, 1], "digest": "0" * 16},
            "code": {"variant": "llamacpp/cpu", "port": 8021, "cards": [], "digest": "1" * 16},
        }
    }
)


def test_a_manifest_of_before_units_were_in_it_gives_the_same_slots_by_what_lies_beside_it() -> None:
    started = (("started", "10", CHAT, A), ("started", "10", CODE, B), ("started", "10", "rigwright-other.service", C))
    assert other_manifest_generation(manifest=BEFORE_UNITS, started=started).unit_states == UNIT_STATES


def test_of_an_old_manifest_what_was_started_from_in_another_generation_says_nothing() -> None:
    assert other_manifest_generation(manifest=BEFORE_UNITS, started=(("started", "9", CHAT, A),)).unit_states == ()


def test_where_a_manifest_has_units_nothing_beside_it_is_believed() -> None:
    assert (
        other_manifest_generation(manifest=MANIFEST, started=(("started", "10", CHAT, D),)).unit_states == UNIT_STATES
    )


@pytest.mark.parametrize(
    ("name", "started", "ours"),
    [
        (CODE, "", True),  # its file is
        ("rigwright-gone.service", A, True),  # its process is
        ("rigwright-backup.service", "", False),
    ],
)
def test_a_unit_of_such_a_name_is_ours_by_its_file_or_its_process(name: str, started: str, ours: bool) -> None:
    record = ("process", name, "active", "running", "0", "yes", started, "no", "no")
    assert (name in parse(changed("process", record)).processes) == ours


@pytest.mark.parametrize("key", ONCE)
def test_a_fact_that_is_missing_or_told_twice_is_named(key: str) -> None:
    (record,) = (one for one in RECORDS if one[0] == key)
    for records in ((), (record, record)):
        with pytest.raises(ValueError, match=f"'{key}'"):
            parse(changed(key, *records))


def test_no_output_and_another_programs_output_are_refused() -> None:
    for lines in ([], ["sudo: a password is required"]):
        with pytest.raises(ValueError, match=r"the host reported|the host's report"):
            parse(lines)


EDITED: list[tuple[Record, int, list[str], str]] = [
    (RECORDS[0], 2, ["", "by", f"{C}\n", C.upper()], "sealed"),
    (RECORDS[0], 4, ["", "2026-11-02 12:00:00", "\x1b[31m"], "created"),
    (("mark", "10", "0123456789ab"), 2, ["", "two words", "a\n"], "mark"),
]


@pytest.mark.parametrize(("record", "at", "values", "name"), EDITED)
def test_edits_in_a_generation_stop_no_look(record: Record, at: int, values: list[str], name: str) -> None:
    for value in values:
        told = parse(changed(record[0], (*record[:at], value, *record[at + 1 :])))
        assert [getattr(kept, name) for kept in told.generations if kept.number == 10] == [""]


def test_an_invalid_reference_and_an_invalid_file_are_left_out() -> None:
    references = [("reference", "10", path) for path in (ENGINE, "", "opt", "/opt\n/etc")]
    (_, kept) = parse(changed("reference", *references)).generations
    assert kept.references == {ENGINE}
    files = [("file", "10", name) for name in (CHAT, "../x", "a\nb")]
    assert parse(changed("file", *files)).generations[-1].unit_files == (CHAT,)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "-rf", "x.service", "rigwright-x.service\n", "rigwright-$(id).service"]
)
def test_units_with_unknown_names_are_foreign(name: str) -> None:
    found = parse(encode_records(*RECORDS, ("link", name, ""), (PROCESS[0], name, *PROCESS[2:]), (END,)))
    assert found == parse(encode_records(*RECORDS, (END,)))


GENERATION = ("generation", "1", A, A, "2026-11-02T12:00:00Z", "no")
PROCESS = ("process", "rigwright-x.service", "active", "running", "0", "yes", "", "no", "no")
BAD: list[tuple[Record, int, Any]] = [
    *((GENERATION, 1, number) for number in ("", "one", "-1", "1 2")),
    *((GENERATION, 3, digest) for digest in ("", "aaaa", f"{A}\n", A.upper())),
    (GENERATION, 5, "-"),
    (("reference", "1", "/opt"), 1, "x"),
    (("started", "1", CHAT, A), 3, "x"),
    (("folder", "/opt"), 1, "opt"),
    (PROCESS, 2, "two words"),
    (PROCESS, 4, "-"),
    (PROCESS, 5, "4711"),
    (PROCESS, 6, "-"),
    (PROCESS, 7, "current"),
    (PROCESS, 8, ""),
    *(
        (("holding", HOLDER, ""), 1, name)
        for name in ("", "ssh.socket", f"{HOLDER}\n", HOLDER.replace("8020", "802000"))
    ),
]


@pytest.mark.parametrize(("record", "at", "value"), BAD)
def test_a_value_of_another_type_is_refused(record: Record, at: int, value: str) -> None:
    assert parse(encode_records(*RECORDS, record, (END,)))
    with pytest.raises(ValueError, match=f"for '{record[0]}'"):
        parse(encode_records(*RECORDS, (*record[:at], value, *record[at + 1 :]), (END,)))


@pytest.mark.parametrize("record", [GENERATION, PROCESS, ("current", "generations/1")])
def test_too_few_and_too_many_values_are_refused(record: Record) -> None:
    for other in (record[:-1], (*record, "more")):
        with pytest.raises(ValueError, match=f"values of '{record[0]}'"):
            parse(encode_records(*RECORDS, other, (END,)))


def test_a_listener_under_a_mask_is_the_earlier_one() -> None:
    """Else a port that is held as it should be would be waited for, in vain."""
    links = [record for record in RECORDS if record[0] == "link" and record[1] != HOLDER]
    unlinked = changed("link", *links)
    assert HOLDER not in parse(unlinked).sockets
    records = [record for record in RECORDS if record[:2] != ("link", HOLDER)]
    assert parse(encode_records(*records, ("masked", HOLDER), (END,))).sockets[HOLDER] == {"127.0.0.1:8020"}
