"""The plan of a deploy: the steps, their reasons, the size of downloads, and which instances are interrupted."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.fetch_job_spec import authority_path, host_tools
from rigwright.host.systemd import UnitState
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import TargetState, build_target_state, list_orphans
from rigwright.plan.stages import STAGES, DeployPlan, DeployStep, applicable_stages, plan_deploy
from rigwright.serving.serving_state import ObservedServing
from rigwright.supply.bundle import Bundle
from tests.unit import samples
from tests.unit.driver_samples import C3090, LOADED, SERVER, UBUNTU, driverless_host, installed_facts, make_driver_plan
from tests.unit.host_states import (
    CHAT,
    CODE,
    converged_state,
    host_generation,
    running_process,
    target_generation,
    two_instance_rig,
)
from tests.unit.rendered_scripts import TOOLS
from tests.unit.samples import (
    SOURCE,
    changed_rig,
    sample_artefact,
    sample_card,
    sample_facts,
    sample_instance,
    sample_rig,
)

RIG = two_instance_rig()
ACTIVATED = ("activate generation 2", "systemd must load it")
AIM = target_generation(RIG)
BUILD = samples.sample_build()
WEIGHT = RIG.roots.weight_path(sample_artefact())
FROM_UBUNTU = "with open modules from the distribution's archive"
KERNEL = "6.8.0-40-generic"
DRIVEN = driverless_host(
    **installed_facts("Ubuntu", UBUNTU, *SERVER),
    **LOADED,
    held=frozenset({*SERVER, "linux-image-generic"}),
    kernel_modules=((KERNEL, "580.159.03"),),
    recorded=tuple((name, UBUNTU) for name in SERVER),
    devices=True,
)


def ready(**changes: Any) -> HostFacts:
    """A host with everything but what is served."""
    there = {
        "built_engines": frozenset({BUILD.folder}),
        "weight_bytes": MappingProxyType({WEIGHT: sample_artefact().size}),
    }
    return sample_facts(**there | changes)


def target_state(host: HostFacts | None = None, one: Rig = RIG, **changes: Any) -> TargetState:
    """The target state of a rig on a host with the sample's engine and tools."""
    installations = {"plain": BUILD} if one.instances else {}
    return replace(TargetState(one, host or ready(), TOOLS, None, installations, target_generation(one)), **changes)


def plan_for(
    found: ObservedServing | None = None, host: HostFacts | None = None, one: Rig = RIG, **changes: Any
) -> DeployPlan:
    return plan_deploy(target_state(host, one, **changes), found or converged_state(AIM))


def test_on_a_converged_host_nothing_will_be_done() -> None:
    assert plan_for() == DeployPlan((), ())
    assert plan_for().fetched_bytes == 0


def test_on_a_blank_host_everything_will_be_done_in_the_order_of_the_deploy() -> None:
    done = plan_for(ObservedServing(), sample_facts(missing_packages=("curl", "cmake")))
    assert done.steps == (
        DeployStep("base", "packages curl, cmake", "not installed; versions chosen by apt"),
        DeployStep("tools", "host tools", f"{TOOLS.folder} is missing"),
        DeployStep(
            *("engines", "compile engine-source 1.0 for the CPU"),
            *("no build of these inputs (0123456789ab) exists", SOURCE.size),
        ),
        DeployStep("weights", "small-q4.gguf", "not there", sample_artefact().size),
        DeployStep("serving", "write generation 1", "the first one"),
        DeployStep("serving", "activate generation 1", f"listen on {PORTS}; start chat, code, {PORTS}"),
    )
    assert done.interrupted == ()
    assert done.fetched_bytes == SOURCE.size + sample_artefact().size


PORTS = "port 8020, port 8021"
LOADING = running_process(AIM.units[0].unit_state, state="activating", sub="start-post")
STRAY = running_process(AIM.units[0].unit_state)
RIGHT = {unit_state.unit: running_process(unit_state) for unit_state in AIM.unit_states}
BEFORE = target_generation(two_instance_rig(sample_instance("chat", context=8192), sample_instance("code", port=8021)))
OTHER_CHAT = [one for one in BEFORE.unit_states if one.unit == CHAT] + [
    one for one in AIM.unit_states if one.unit != CHAT
]
FOREIGN_STATE = UnitState("rigwright-old.service", "0" * 64, 0, frozenset())
SECOND = host_generation(2, AIM.digest, unit_states=AIM.unit_states)
OLD = "/opt/rigwright/engines/plain-0.9-ba9876543210"
HOSTS: dict[str, tuple[dict[str, Any], list[tuple[str, str]], tuple[str, ...]]] = {
    "another rig": (
        {"generations": (host_generation(1),), "loaded": "x"},
        [("write generation 2", "generation 1 differs"), ACTIVATED],
        (),
    ),
    "an instance with other settings, and one that is gone": (
        {"generations": (host_generation(1, unit_states=(*OTHER_CHAT, FOREIGN_STATE)),), "loaded": "x"},
        [("write generation 2", "generation 1 differs: removes old; changes chat"), ACTIVATED],
        (),
    ),
    "other scripts": (
        {"generations": (host_generation(1, unit_states=AIM.unit_states),), "loaded": "x"},
        [("write generation 2", "generation 1 differs: scripts or records around its services"), ACTIVATED],
        (),
    ),
    "changed by hand": (
        {"generations": (host_generation(1, AIM.digest, unit_states=AIM.unit_states, found="x"),)},
        [
            ("write generation 2", "the files of generation 1 were changed after it was written"),
            ACTIVATED,
            ("remove generation 1", "changed after it was written"),
        ],
        (),
    ),
    "started from another generation": (
        {
            "processes": {**RIGHT, CHAT: running_process(BEFORE.units[0].unit_state)},
            "generations": (host_generation(1, unit_states=BEFORE.unit_states), SECOND),
            "current": 2,
        },
        [("activate generation 2", "start chat")],
        (CHAT,),
    ),
    "started from what nobody knows": (
        {"processes": {**RIGHT, CHAT: running_process(AIM.units[0].unit_state, started_from="x")}},
        [("activate generation 1", "stop chat; start chat")],
        (CHAT,),
    ),
    "weights replaced on disk": (
        {"processes": {**RIGHT, CHAT: running_process(AIM.units[0].unit_state, weights_current=False)}},
        [("activate generation 1", "start chat")],
        (CHAT,),
    ),
    "stray": (
        {"processes": {**RIGHT, "rigwright-old.service": STRAY}},
        [("end old", "no longer declared"), ("activate generation 1", "without old")],
        ("rigwright-old.service",),
    ),
    "one that failed and is not declared": (
        {
            "links": converged_state(AIM).links | {"rigwright-old.service": "/etc/rigwright/current/units/x"},
            "processes": {**RIGHT, "rigwright-old.service": replace(STRAY, state="failed", running=False)},
        },
        [("end old", "no longer declared"), ("activate generation 1", "without old")],
        (),
    ),
    "a port that is not declared": (
        {
            "sockets": {
                **converged_state(AIM).sockets,
                "rigwright_listener-8099.socket": frozenset({"127.0.0.1:8099"}),
            },
            "links": converged_state(AIM).links
            | {f"rigwright_listener-8099.{kind}": "/etc/rigwright/current/units/x" for kind in ("service", "socket")},
        },
        [("end port 8099", "no longer declared"), ("activate generation 1", "without port 8099")],
        (),
    ),
    "loading": ({"processes": {**RIGHT, CHAT: LOADING}}, [("activate generation 1", "wait for chat")], ()),
    "down": (
        {
            "processes": RIGHT
            | {u.name: running_process(u.unit_state, state="failed", running=False) for u in AIM.units}
        },
        [("activate generation 1", "start chat, code")],
        (),
    ),
    "left over": (
        {
            "generations": (
                host_generation(1, "", OLD),
                *(host_generation(number) for number in range(2, 6)),
                host_generation(6, AIM.digest),
            ),
            "current": 6,
            "folders": converged_state(AIM).folders | {OLD},
        },
        [(f"remove generation 1, {OLD}", "5 generations are kept")],
        (),
    ),
}


@pytest.mark.parametrize("host", HOSTS)
def test_the_serving_state_decides_the_steps_and_their_effects(host: str) -> None:
    changes, steps, interrupted = HOSTS[host]
    done = plan_for(converged_state(AIM, **changes))
    assert [(step.what, step.why) for step in done.steps] == steps
    assert {step.role for step in done.steps} == {"serving"}
    assert done.interrupted == interrupted


@pytest.mark.parametrize(
    ("there", "why", "fetched"),
    [
        ({}, "not there", 2097152),
        ({WEIGHT: 1048576}, "1,048,576 of 2,097,152 bytes are present", 1048576),
        ({WEIGHT: 2097151}, "2,097,151 of 2,097,152 bytes are present", 1),
    ],
)
def test_of_a_weight_only_what_is_missing_is_fetched(there: dict[str, int], why: str, fetched: int) -> None:
    (step,) = plan_for(host=ready(weight_bytes=MappingProxyType(there))).steps
    assert (step.what, step.why, step.fetched_bytes) == ("small-q4.gguf", why, fetched)


def test_an_engine_for_cards_says_which() -> None:
    cards = (sample_card("7.5"), sample_card("8.6"))
    one = sample_rig(sample_instance("chat", cards=(0, 1)), cards=cards)
    (made_of,) = build_target_state(one, ready()).installations.values()
    steps = plan_deploy(build_target_state(one, ready()), converged_state(AIM)).steps
    (step,) = [step for step in steps if step.role == "engines"]
    assert step.what == "compile engine-source 1.0 for cards sm 75-real;86-real"
    assert step.why == f"no build of these inputs ({made_of.digest}) exists"


def test_an_engine_whose_modes_were_changed_is_not_compiled_again() -> None:
    (step,) = plan_for(host=ready(unfit_engines=frozenset({BUILD.folder, "another"}))).steps
    assert (step.role, step.what, step.fetched_bytes) == ("engines", f"owner and modes of {BUILD.folder}", 0)


def test_a_rig_without_instances_stops_what_runs_and_fetches_nothing() -> None:
    done = plan_for(one=sample_rig())
    assert DeployStep("serving", f"end chat, code, {PORTS}", "no longer declared") in done.steps
    assert f"without chat, code, {PORTS}" in (done.steps[-1].why, done.steps[-2].why)
    assert done.interrupted == (CHAT, CODE)
    assert done.fetched_bytes == 0


PACKAGE = "/srv/models/_packages/0123456789abcdef/numpy-1.26.4-cp310-linux_x86_64.whl"
LEFT: dict[str, tuple[Rig, HostFacts, DeployStep]] = {
    "certificates": (
        RIG,
        ready(undeclared=frozenset({"/etc/rigwright/ca.pem"})),
        DeployStep("network", "remove CA certificates", "no longer declared"),
    ),
    "a gateway's log": (
        RIG,
        ready(undeclared=frozenset({"/etc/logrotate.d/rigwright_gateway"})),
        DeployStep("serving", "remove the gateway's log rotation", "no longer declared"),
    ),
    "settings of cards": (
        RIG,
        ready(undeclared=frozenset({"/etc/sysctl.d/60-rigwright.conf"}), settings_ours=True),
        DeployStep("nvidia_cards", "remove settings of cards and kernel", "no longer declared"),
    ),
    "no weights": (
        sample_rig(),
        ready(undeclared=frozenset({"/etc/systemd/system/rigwright_rehash.timer"})),
        DeployStep("weights", "stop hashing weights again", "no model is declared any more"),
    ),
    "packages": (
        RIG,
        ready(weight_bytes=MappingProxyType({WEIGHT: sample_artefact().size, PACKAGE: 4096})),
        DeployStep(
            *("engines", "remove 1 downloaded package"), "all that is made of them is whole, or no longer declared"
        ),
    ),
    "a cut line": (
        RIG,
        ready(ledger_whole=False),
        DeployStep("base", "end the last line of /var/lib/rigwright/owned", "it was cut off"),
    ),
}


@pytest.mark.parametrize("left", LEFT)
def test_removals_of_undeclared_objects_have_a_row(left: str) -> None:
    one, host, step = LEFT[left]
    assert step in plan_for(converged_state(target_generation(one)), host, one).steps
    assert step not in plan_for(converged_state(target_generation(one)), ready(), one).steps


def test_nothing_that_is_declared_is_asked_for_as_left_over() -> None:
    whole = changed_rig(RIG, ca_certificates="x")
    asked_for = {path for one in list_orphans(whole) for path in one.paths}
    assert authority_path(whole.roots) not in asked_for
    assert not {path for path in asked_for if "rehash" in path}
    assert {"/etc/logrotate.d/rigwright_gateway", "/etc/sysctl.d/60-rigwright.conf"} < asked_for


def test_tools_of_another_lock_are_installed_anew() -> None:
    other = host_tools(RIG.roots, RIG.tools, sample_facts())
    assert other.folder != TOOLS.folder
    assert plan_for(tools=other).steps[0] == DeployStep("tools", "host tools", f"{other.folder} is missing")


def test_with_a_bundle_the_plan_says_where_things_come_from() -> None:
    bundle = Bundle(Path("/home/ops/bundle"), ("debian-12",), ())
    bundled = replace(RIG, bundle=bundle, bundle_folder="/home/ops/bundle")
    found = plan_for(host=ready(missing_packages=("curl",)), one=bundled)
    assert found.bundle_folder == "/home/ops/bundle"
    assert found.steps[0].why == "not installed; in the bundle"


DRIVERS: dict[str, tuple[Any, dict[str, Any], list[tuple[str, str]]]] = {
    "none": (
        driverless_host(kernel_modules=((KERNEL, ""),)),
        {},
        [(f"install driver 580 {FROM_UBUNTU}", "installed: none")],
    ),
    "an old one that runs": (
        driverless_host(**installed_facts("Debian", "535.1.1-1", "libcuda1"), module="535.1.1"),
        {"reboot": True},
        [
            (f"install driver 580 {FROM_UBUNTU}", "installed: 535.1.1 with proprietary modules from Debian"),
            ("reboot", "the proprietary module 535.1.1 stays loaded until then"),
        ],
    ),
    "one that is not held": (
        replace(DRIVEN, held=frozenset()),
        {},
        [
            (
                f"hold driver 580 {FROM_UBUNTU}",
                "libnvidia-compute-580-server is not held; linux-image-generic is not held; and 4 more",
            )
        ],
    ),
    "one that nobody has written down": (
        replace(DRIVEN, recorded=()),
        {},
        [(f"complete driver 580 {FROM_UBUNTU}", "the installed version is not recorded")],
    ),
    "one that does not run": (
        replace(DRIVEN, module="580.105.08"),
        {},
        [
            (
                "reboot",
                "the module 580.105.08 is loaded, 580.159.03 is installed; without --reboot the deploy stops there",
            )
        ],
    ),
    "one that was loaded with other options": (
        replace(DRIVEN, params=(("EnableResizableBar", "0"),)),
        {"module_options": {"NVreg_EnableResizableBar": 1}},
        [
            (
                "reboot",
                "the module is loaded with NVreg_EnableResizableBar=0, 1 is declared; without --reboot the deploy "
                "stops there",
            )
        ],
    ),
    "all that is wanted": (DRIVEN, {}, []),
}


@pytest.mark.parametrize("there", DRIVERS)
def test_missing_parts_of_a_managed_driver_are_a_step_and_a_reboot_interrupts_everything(there: str) -> None:
    facts, keys, steps = DRIVERS[there]
    one = replace(
        RIG, cards=(C3090,), driver=DriverEntry.model_construct(**DriverEntry().model_dump() | {"managed": True} | keys)
    )
    done = plan_for(one=one, generation=AIM, driver=(facts, make_driver_plan(one, facts)))
    assert [(step.what, step.why) for step in done.steps if step.role == "nvidia_driver"] == steps
    assert done.interrupted == ((CHAT, CODE) if "reboot" in dict(steps) else ())


def test_a_driver_that_is_not_managed_any_more_is_let_go() -> None:
    (step,) = plan_for(host=ready(driver_ours=True)).steps
    assert (step.role, step.what) == ("nvidia_driver", "stop managing the driver")


def test_a_plans_steps_come_in_the_order_of_the_deploys_roles() -> None:
    order = [stage.role for stage in STAGES]
    done = plan_for(ObservedServing(), sample_facts(missing_packages=("curl",), driver_ours=True))
    positions = [order.index(step.role) for step in done.steps]
    assert positions == sorted(positions)
    assert len(set(positions)) > 4


def test_every_step_is_of_a_stage_that_applies() -> None:
    applying = {stage.role for stage in applicable_stages(target_state())}
    assert {"nvidia_driver", "cuda_toolkit", "sharing"}.isdisjoint(applying)
    assert {stage.role for stage in applicable_stages(target_state(ready(driver_ours=True)))} == applying | {
        "nvidia_driver"
    }
