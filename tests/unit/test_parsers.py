"""Every parser of what a host tells takes any bytes: they become a typed value or a ValueError, and nothing else."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli import removal_preview
from rigwright.host import deploy_lock_state, script_output
from rigwright.host.basic_facts import unit_of
from rigwright.host.script_output import Schema
from rigwright.host.service_states import UNIT_SCHEMA
from rigwright.monitoring import monitoring_facts
from rigwright.plan import host_probe
from rigwright.serving import serving_state, unit_diff, weight_inventory
from rigwright.survey import box_survey
from rigwright.weights import weight_server
from roles.operations import files, jobs, units, users
from roles.operations.jobs import JobDoneFact
from tests.unit.channel_records import channel_lines_of
from tests.unit.example_counts import example_count
from tests.unit.samples import sample_rig

Parser = Callable[[list[str]], Any]
RIG = sample_rig()
PARSERS: dict[str, tuple[Parser, Schema]] = {
    "probe": (host_probe.parse, host_probe.SCHEMA),
    "survey": (box_survey.parse_survey, box_survey.SCHEMA),
    "weights": (lambda output: weight_inventory.parse_weight_inventory(RIG.roots, output), weight_inventory.SCHEMA),
    "sharing": (weight_server.parse_sharing_state, UNIT_SCHEMA),
    "watching": (monitoring_facts.parse, {**UNIT_SCHEMA, **monitoring_facts.SCHEMA}),
    "removal": (weight_inventory.parse_removal, weight_inventory.REMOVAL_SCHEMA),
    "deploy lock": (deploy_lock_state.describe_lock_refusal, deploy_lock_state.SCHEMA),
    "holder": (deploy_lock_state.parse_lock_holder, deploy_lock_state.SCHEMA),
    "use": (serving_state.parse_unit_usage, serving_state.USAGE_SCHEMA),
    "ledger": (removal_preview.parse_ledger_packages, removal_preview.SCHEMA),
    "written": (unit_diff.parse_written_units, unit_diff.SCHEMA),
    "entries": (files.PathEntriesFact().read, files.ENTRIES),
    "unit": (units.UnitStatusFact().read, units.SCHEMA),
    "passwd": (users.PasswdFact().read, users.SCHEMA),
    "condition": (JobDoneFact().read, jobs.HOLDS),
    "job": (lambda output: script_output.parse_output(output, jobs.STATE), jobs.STATE),
    "sent": (lambda output: script_output.parse_output(output, jobs.LISTED), jobs.LISTED),
}
# texts that some type takes, in addition to anything at all
VALUES = st.one_of(
    st.sampled_from(
        [
            *("", "0", "7", "1" * 30, "-1", "1.5", "yes", "no", "a", "/", "/a b", "/a\nb", "..", "\x1b[2J", "\ufffd"),
            *("0000:01:00.0", "10de:2204", "10.0.0.5", "fe80::1%x", "x.service", "rigwright-a.service", "a" * 64),
            *(
                f"{'a' * 64}-{'b' * 12}",
                "5 1.5 1.5 9",
                "755 root root",
                ":" * 6,
                "{}",
                "[]",
                "[" * 5000,
                '{"files": 5}',
            ),
            *("0, 0000:01:00.0, 5, 8.6, X", "0000:01:00.0, 7, 5", "GPU0\tX\tNV4", '{"rig": {}}', '{"who": []}'),
        ]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
)


def judge(parser: Parser, output: list[str]) -> None:
    try:
        parser(output)
    except ValueError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=example_count(150), deadline=None)
@given(data=st.data())
def test_any_records_become_a_value_or_are_refused(name: str, data: st.DataObject) -> None:
    parser, schema = PARSERS[name]
    keys = data.draw(st.lists(st.sampled_from(sorted(schema)), max_size=8))
    once = [key for key in sorted(schema) if data.draw(st.booleans())]
    judge(parser, channel_lines_of([(key, *(data.draw(VALUES) for _ in schema[key])) for key in [*keys, *once]]))


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=example_count(50), deadline=None)
@given(raw=st.binary(max_size=200), shape=st.sampled_from(["bytes", "channel"]))
def test_any_bytes_become_a_value_or_are_refused(name: str, raw: bytes, shape: str) -> None:
    text = base64.b64encode(raw).decode() if shape == "channel" else raw.decode(errors="replace")
    judge(PARSERS[name][0], text.splitlines())


@given(st.text())
def test_any_control_group_has_a_unit_or_none(text: str) -> None:
    assert unit_of(text) == "" or unit_of(text).endswith((".service", ".scope"))
