"""Docker's options: merged, taken out again, and by what a daemon takes them."""

import json
from typing import Any

import pytest

from rigwright.containers import daemon_json
from rigwright.containers.daemon_json import DaemonRecord, UnreadableDaemonConfig
from tests.unit.container_samples import container_rig

NVIDIA: dict[str, Any] = {
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
    "features": {"cdi": True},
}
THEIRS = {"data-root": "/srv/docker", "runtimes": {"crun": {"path": "/usr/bin/crun"}}, "features": {"cdi": False}}


def test_a_rig_with_cards_asks_for_specs_and_a_runtime_by_name() -> None:
    box_rig = container_rig(daemon={"debug": True})
    assert daemon_json.required_options(box_rig.cards, box_rig.containers) == NVIDIA | {"debug": True}
    box_rig = container_rig(cards=False, daemon={"debug": True})
    assert daemon_json.required_options(box_rig.cards, box_rig.containers) == {"debug": True}
    box_rig = container_rig(engines=("podman",))
    assert daemon_json.required_options(box_rig.cards, box_rig.containers) == {}


@pytest.mark.parametrize(
    ("there", "ours", "made"),
    [
        ({}, NVIDIA, NVIDIA),
        ({"debug": True}, NVIDIA, NVIDIA | {"debug": True}),
        (
            THEIRS,
            NVIDIA,
            {
                "data-root": "/srv/docker",
                "runtimes": {"crun": {"path": "/usr/bin/crun"}, "nvidia": NVIDIA["runtimes"]["nvidia"]},
                "features": {"cdi": True},
            },
        ),
        (
            {"log-opts": {"max-size": "1m"}},
            {"log-opts": {"max-file": "3"}},
            {"log-opts": {"max-size": "1m", "max-file": "3"}},
        ),
        ({"dns": ["10.0.0.1"]}, {"dns": ["10.0.0.2"]}, {"dns": ["10.0.0.2"]}),
    ],
)
def test_options_are_merged_and_what_was_there_comes_back(there, ours, made):
    found, record = daemon_json.merge_options(there, ours, DaemonRecord())
    assert found == made
    again, same = daemon_json.merge_options(found, ours, record)
    assert (again, same) == (found, record)
    known = daemon_json.parse_record(record.render())
    assert known == record
    back, left = daemon_json.merge_options(found, {}, known)
    assert (back, left.set) == (there, {})


def test_options_changed_by_others_stay_theirs() -> None:
    found, record = daemon_json.merge_options({"debug": False}, {"debug": True, "mtu": 1400}, DaemonRecord())
    found["mtu"] = 9000
    found["data-root"] = "/srv/docker"
    back, _ = daemon_json.merge_options(found, {}, record)
    assert back == {"debug": False, "mtu": 9000, "data-root": "/srv/docker"}


def test_an_option_that_is_declared_no_more_goes_back_while_others_stay() -> None:
    found, record = daemon_json.merge_options({"debug": False}, {"debug": True, "mtu": 1400}, DaemonRecord())
    found, record = daemon_json.merge_options(found, {"mtu": 1500}, record)
    assert (found, record.set) == ({"debug": False, "mtu": 1500}, {("mtu",): 1500})
    assert daemon_json.merge_options(found, {}, record)[0] == {"debug": False}


def test_an_undeclared_object_is_ours_until_it_is_gone() -> None:
    found, before = daemon_json.merge_options({"debug": False}, {"debug": True, "mtu": 1400}, DaemonRecord())
    _, after = daemon_json.merge_options(found, {"mtu": 1500}, before)
    between = after.merge_previous(before)
    # the run ends here: the next one finds the daemon.json of before
    made, record = daemon_json.merge_options(found, {"mtu": 1500}, between)
    assert (made, record) == ({"debug": False, "mtu": 1500}, after)
    assert daemon_json.merge_options(found, {}, before.merge_previous(before))[0] == {"debug": False}


@pytest.mark.parametrize("found", [{"runtimes": {}}, {"features": None}, {"log-opts": {}, "debug": True}, {}])
def test_unchanged_options_are_known(found: dict[str, Any]) -> None:
    made, record = daemon_json.merge_options(found, {**NVIDIA, "log-opts": {"tag": "x"}}, DaemonRecord())
    assert daemon_json.is_untouched(made, found, record)
    assert not daemon_json.is_untouched({**made, "mtu": 9000}, found, record)


def test_the_record_tells_whether_there_was_a_file() -> None:
    _, record = daemon_json.merge_options({}, NVIDIA, DaemonRecord(), absent=True)
    _, record = daemon_json.merge_options(NVIDIA, NVIDIA | {"debug": True}, record)
    assert record.absent
    assert daemon_json.merge_options(NVIDIA | {"debug": True}, {}, record) == ({}, DaemonRecord(absent=True))


@pytest.mark.parametrize(
    "text",
    [
        *("", "no json", "[]", '{"absent": true}', '{"options": [{}], "absent": true}', "[" * 99_999),
        '{"options": [{"path": [], "set": 1}], "absent": true}',
        '{"options": [{"path": "debug", "set": 1}], "absent": true}',
        '{"options": [{"path": ["debug", 5], "set": 1}], "absent": true}',
        json.dumps({"options": [{"path": ["a"] * 5000, "set": 1}], "absent": True}),
    ],
)
def test_a_record_that_cannot_be_read_does_not_count(text: str) -> None:
    assert daemon_json.parse_record(text) is None


@pytest.mark.parametrize(
    ("text", "options"),
    [(None, {}), ("", {}), (" \n", {}), ('{"a": 1}', {"a": 1}), ('\ufeff{"a": 1}', {"a": 1}), ("\ufeff", {})],
)
def test_no_file_has_no_options(text: str | None, options: dict[str, Any]) -> None:
    assert daemon_json.parse_options(text) == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a table of options"),
        ("[" * 99_999, "is not JSON"),
        ('{"a": ' * 99_999, "is not JSON"),
        ('{"a": ' + "[" * 400 + "]" * 400 + "}", "is nested more than 32 deep"),
        ('{"mtu": NaN}', "is not JSON: it has NaN"),
        ('{"mtu": 1e999}', "is not JSON: it has Infinity"),
        ('{"debug": true, "debug": false}', "has debug twice"),
        ('{"runtimes": {"a": {"path": "x", "path": "y"}}}', "has path twice"),
        ('// mine\n{"debug": true}', "is not JSON"),
    ],
)
def test_an_invalid_table_of_options_is_refused(text: str, said: str) -> None:
    with pytest.raises(UnreadableDaemonConfig, match=said):
        daemon_json.parse_options(text)


@pytest.mark.parametrize(
    ("in_force", "made", "step"),
    [
        ({"debug": True}, {"debug": True}, ""),
        # an operator's own text next to ours counts when he has the daemon take it
        ({"debug": True}, {"debug": True, "bip": "10.0.0.1/24"}, ""),
        ({"bip": "10.0.0.1/24"}, {"debug": True}, "reload"),
        ({}, {"debug": True}, "reload"),
        ({}, {"runtimes": NVIDIA["runtimes"]}, "reload"),
        # that of CDI counts from a daemon's start
        ({}, NVIDIA, "restart"),
        ({"data-root": "/a"}, {"data-root": "/b", "debug": True}, "restart"),
        (None, {}, "restart"),
    ],
)
def test_a_daemon_is_restarted_only_where_reading_its_options_again_will_not_do(in_force, made, step):
    ours = {name for table in (in_force or {}, made) for name in table} - {"bip"}
    assert daemon_json.choose_reload_action(in_force, made, ours) == step
