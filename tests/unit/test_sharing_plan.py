"""Sharing weights: its obstacles, and its words in a plan."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.host.basic_facts import ListeningSocket
from rigwright.host.service_states import ServiceState
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.rig import Rig
from rigwright.plan.preflight import find_refusals
from rigwright.plan.stages import DeployPlan, plan_deploy
from rigwright.weights.weight_server import share_digest
from tests.unit import samples
from tests.unit.host_states import converged_state, rig_target_state, target_generation, two_instance_rig
from tests.unit.samples import NOW, sample_artefact, sample_facts, sample_instance, sample_rig

RIG = two_instance_rig()
BUILD = samples.sample_build()
WEIGHT = RIG.roots.weight_path(sample_artefact())


def ready(**changes: Any) -> HostFacts:
    """A host with everything but what is shared."""
    there = {
        "built_engines": frozenset({BUILD.folder}),
        "weight_bytes": MappingProxyType({WEIGHT: sample_artefact().size}),
    }
    return sample_facts(**there | changes)


def plan_sharing(host: HostFacts, one: Rig) -> DeployPlan:
    return plan_deploy(rig_target_state(one, host, BUILD), converged_state(target_generation(RIG)))


SHARE = ShareEntry(address="10.0.0.5", allow=("10.0.0.0/24",))
HAS = frozenset({"127.0.0.1", "10.0.0.5", "fe80::1"})


@pytest.mark.parametrize(
    ("changes", "essence"),
    [
        ({}, []),
        ({"listeners": (ListeningSocket(8090, "nginx", "rigwright_share.service"),)}, []),
        ({"listeners": (ListeningSocket(8090, "llama-server", "rigwright-old.service"),)}, []),
        ({"listeners": (ListeningSocket(80, "nginx", "nginx.service"),)}, []),
        (
            {"listeners": (ListeningSocket(8090, "nginx", "nginx.service"),) * 2},
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
    reasons = find_refusals(
        rig_target_state(sample_rig(share=SHARE), sample_facts(**{"addresses": HAS} | changes)), NOW
    )
    assert len(reasons) == bool(essence), reasons
    assert all(part in reasons[0] for part in essence), reasons
    assert find_refusals(rig_target_state(sample_rig(), sample_facts(**changes)), NOW) == []


def test_the_port_that_weights_were_shared_on_may_become_an_instances() -> None:
    host = sample_facts(listeners=(ListeningSocket(8020, "nginx", "rigwright_share.service"),))
    assert find_refusals(rig_target_state(sample_rig(sample_instance()), host), NOW) == []


@pytest.mark.parametrize(("address", "has"), [("fd00::5", True), ("fd00::6", False)])
def test_an_address_of_the_sixth_version_is_found_too(address: str, has: bool) -> None:
    made = sample_rig(share=ShareEntry(address=address, allow=("fd00::/64",)))
    assert (find_refusals(rig_target_state(made, sample_facts(addresses=HAS | {"fd00::5"})), NOW) == []) == has


SHARED = ServiceState("active", "enabled", share_digest(sample_rig().roots, SHARE))


@pytest.mark.parametrize(
    ("share", "now", "step"),
    [
        (SHARE, SHARED, None),
        (SHARE, None, ("share weights on 10.0.0.5:8090", "not shared yet")),
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
        (None, None, None),
        (None, SHARED, ("stop sharing weights", "no longer declared")),
    ],
    ids=["shared", "blank", "failed", "other settings", "upgraded", "disabled", "unread", "never", "no more"],
)
def test_weights_are_shared_where_they_are_not_yet(
    share: ShareEntry | None, now: ServiceState | None, step: tuple[str, str]
) -> None:
    steps = plan_sharing(ready(sharing=now), replace(RIG, share=share)).steps
    assert [(one.role, one.what) for one in steps] == ([("sharing", step[0])] if step else [])
    assert not step or step[1] in steps[0].why


def test_a_box_that_fetches_shares_before_it_does() -> None:
    done = plan_sharing(ready(weight_bytes=MappingProxyType({})), replace(RIG, share=SHARE))
    assert [step.role for step in done.steps] == ["sharing", "weights"]
