"""Sharing weights: what stands in its way, and what a plan says of it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.host.basics import Listener
from rigwright.model.entry import Share
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.model.sharing import NOTHING, Found
from rigwright.plan.plan import Plan, plan
from rigwright.plan.preflight import refusals
from rigwright.weights.sharing import digest
from tests.unit import samples
from tests.unit.samples import NOW, artefact, facts, instance, rig
from tests.unit.states import comes_to, converged, two, wanted

RIG = two()
BUILD = samples.plan()
WEIGHT = RIG.weight_path(artefact())


def ready(**changes: Any) -> HostFacts:
    """A host with everything but what is shared."""
    there = {"built_engines": frozenset({BUILD.folder}), "weight_bytes": MappingProxyType({WEIGHT: artefact().size})}
    return facts(**there | changes)


def made(host: HostFacts, one: Rig) -> Plan:
    return plan(comes_to(one, host, BUILD), converged(wanted(RIG)))


SHARE = Share(address="10.0.0.5", allow=("10.0.0.0/24",))
HAS = frozenset({"127.0.0.1", "10.0.0.5", "fe80::1"})


@pytest.mark.parametrize(
    ("changes", "essence"),
    [
        ({}, []),
        ({"listeners": (Listener(8090, "nginx", "rigwright_share.service"),)}, []),
        ({"listeners": (Listener(8090, "llama-server", "rigwright-old.service"),)}, []),
        ({"listeners": (Listener(80, "nginx", "nginx.service"),)}, []),
        (
            {"listeners": (Listener(8090, "nginx", "nginx.service"),) * 2},
            ["port 8090, for sharing weights,", "by nginx (nginx.service): stop it", "share.port"],
        ),
        ({"addresses": frozenset({"127.0.0.1", "10.0.0.6"})}, ["no address 10.0.0.5", "only 10.0.0.6, 127.0.0.1:"]),
        ({"addresses": frozenset()}, ["no address 10.0.0.5"]),
    ],
    ids=["good", "shared already", "an instance that goes", "another port", "taken", "no such address", "no address"],
)
def test_weights_are_shared_on_an_address_that_is_there_and_a_port_that_is_free(
    changes: dict[str, Any], essence: list[str]
) -> None:
    reasons = refusals(comes_to(rig(share=SHARE), facts(**{"addresses": HAS} | changes)), NOW)
    assert len(reasons) == bool(essence), reasons
    assert all(part in reasons[0] for part in essence), reasons
    assert refusals(comes_to(rig(), facts(**changes)), NOW) == []


def test_the_port_that_weights_were_shared_on_may_become_an_instances() -> None:
    host = facts(listeners=(Listener(8020, "nginx", "rigwright_share.service"),))
    assert refusals(comes_to(rig(instance()), host), NOW) == []


@pytest.mark.parametrize(("address", "has"), [("fd00::5", True), ("fd00::6", False)])
def test_an_address_of_the_sixth_version_is_found_too(address: str, has: bool) -> None:
    made = rig(share=Share(address=address, allow=("fd00::/64",)))
    assert (refusals(comes_to(made, facts(addresses=HAS | {"fd00::5"})), NOW) == []) == has


SHARED = Found(there=True, active="active", enabled="enabled", started_from=digest(rig(), SHARE))


@pytest.mark.parametrize(
    ("share", "now", "step"),
    [
        (SHARE, SHARED, None),
        (SHARE, NOTHING, ("share weights on 10.0.0.5:8090", "not shared yet")),
        (SHARE, replace(SHARED, active="failed"), ("share weights on 10.0.0.5:8090", "its unit is failed")),
        (
            SHARE,
            replace(SHARED, started_from="x"),
            ("share weights on 10.0.0.5:8090", "started with different settings"),
        ),
        (
            SHARE,
            replace(SHARED, replaced=True),
            ("share weights on 10.0.0.5:8090", "the running nginx is not the installed one"),
        ),
        (SHARE, replace(SHARED, enabled="disabled"), ("share weights on 10.0.0.5:8090", "does not start at boot")),
        (SHARE, replace(SHARED, reload_needed=True), ("share weights on 10.0.0.5:8090", "systemd must reload")),
        (None, NOTHING, None),
        (None, SHARED, ("stop sharing weights", "no longer declared")),
    ],
    ids=["shared", "blank", "failed", "other settings", "upgraded", "disabled", "unread", "never", "no more"],
)
def test_weights_are_shared_where_they_are_not_yet(share: Share | None, now: Found, step: tuple[str, str]) -> None:
    steps = made(ready(sharing=now), replace(RIG, share=share)).steps
    assert [(one.role, one.what) for one in steps] == ([("sharing", step[0])] if step else [])
    assert not step or step[1] in steps[0].why


def test_a_box_that_fetches_shares_before_it_does() -> None:
    done = made(ready(weight_bytes=MappingProxyType({})), replace(RIG, share=SHARE))
    assert [step.role for step in done.steps] == ["sharing", "weights"]
