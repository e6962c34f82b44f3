"""Capabilities of root's own units."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from checks import test_process
from tests.unit.test_process_checks import FIRST


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"CapEff": "0000000000003001"}, ["capabilities (CapEff 0000000000003001)"]),
        ({"CapAmb": "0000000000001000"}, ["capabilities (CapAmb 0000000000001000)"]),
        ({"Uid": "990\t990\t990\t990"}, ["the user ids 990, not 0"]),
        ({"Groups": "0 4"}, ["the groups 0, 4, not 0"]),
    ],
)
def test_a_unit_of_roots_has_the_capabilities_of_its_text_only(changes: dict[str, str], said: list[str]) -> None:
    accounts: Any = SimpleNamespace(groups=[], user=lambda name: None)
    granted = dict.fromkeys(test_process.GRANTED, "0000000000003000")
    status = {"Uid": "0\t0\t0\t0", "Gid": "0\t0\t0\t0", "Groups": "", "NoNewPrivs": "1", "Seccomp": "2"}
    status |= {"CapAmb": "0" * 16} | granted | changes
    made = {"CapabilityBoundingSet": "CAP_NET_ADMIN CAP_NET_RAW"}
    assert [*test_process._privileged(accounts, made, replace(FIRST, status=status))] == said
