"""Every parser of what a host tells takes any bytes: they become a typed value or a ValueError, and nothing else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigwright.host import channel, deploy_lock, ledger
from rigwright.host.basics import unit_of
from rigwright.host.channel import Schema
from rigwright.monitoring import found as watching
from rigwright.plan import facts
from rigwright.serving import differences, stored, use
from rigwright.survey import findings
from rigwright.weights import removed, sharing
from roles.operations import files, jobs, units, users
from roles.operations.jobs import Done
from tests.unit.examples import some_of
from tests.unit.samples import rig
from tests.unit.telling import told

Parser = Callable[[list[str]], Any]
RIG = rig()
PARSERS: dict[str, tuple[Parser, Schema]] = {
    "probe": (facts.parse, facts.SCHEMA),
    "survey": (findings.parse, findings.SCHEMA),
    "weights": (lambda output: stored.parse(RIG, output), stored.SCHEMA),
    "sharing": (sharing.parse, sharing.SCHEMA),
    "watching": (watching.parse, watching.SCHEMA),
    "removal": (removed.parse, removed.SCHEMA),
    "deploy lock": (deploy_lock.refusal, deploy_lock.SCHEMA),
    "holder": (deploy_lock.parse, deploy_lock.SCHEMA),
    "use": (use.parse, use.SCHEMA),
    "ledger": (ledger.packages, ledger.SCHEMA),
    "written": (differences.parse, differences.SCHEMA),
    "entries": (files.Entries().read, files.ENTRIES),
    "unit": (units.UnitState().read, units.SCHEMA),
    "passwd": (users.Passwd().read, users.SCHEMA),
    "condition": (Done().read, jobs.HOLDS),
    "job": (lambda output: channel.read(output, jobs.STATE), jobs.STATE),
    "sent": (lambda output: channel.read(output, jobs.LISTED), jobs.LISTED),
}
# what some type takes, beside anything at all
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
@settings(max_examples=some_of(150), deadline=None)
@given(data=st.data())
def test_any_records_become_a_value_or_are_refused(name: str, data: st.DataObject) -> None:
    parser, schema = PARSERS[name]
    keys = data.draw(st.lists(st.sampled_from(sorted(schema)), max_size=8))
    once = [key for key in sorted(schema) if data.draw(st.booleans())]
    judge(parser, told([(key, *(data.draw(VALUES) for _ in schema[key])) for key in [*keys, *once]]))


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=some_of(50), deadline=None)
@given(raw=st.binary(max_size=200), shape=st.sampled_from(["bytes", "channel"]))
def test_any_bytes_become_a_value_or_are_refused(name: str, raw: bytes, shape: str) -> None:
    text = base64.b64encode(raw).decode() if shape == "channel" else raw.decode(errors="replace")
    judge(PARSERS[name][0], text.splitlines())


@given(st.text())
def test_any_control_group_has_a_unit_or_none(text: str) -> None:
    assert unit_of(text) == "" or unit_of(text).endswith((".service", ".scope"))
