"""Pruning: the oldest generations, damaged ones, and nothing that one that stays refers to."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigwright.serving.activation import Surplus, find_surplus
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing
from tests.unit.env_samples import declared_env
from tests.unit.example_counts import example_count
from tests.unit.host_states import host_generation, target_generation
from tests.unit.rendered_scripts import TOOLS
from tests.unit.samples import sample_instance, sample_rig

RIG = sample_rig(sample_instance())
AIM = target_generation(RIG)
DIGEST = AIM.digest
OWN = [path for path in AIM.files["references"].splitlines() if not path.startswith("/srv/models")]
OLD_ENGINE, OLD_TOOLS, OLD_KEY = (
    "/opt/rigwright/engines/plain-0.9-ba9876543210",
    "/opt/rigwright/tools-ba9876543210",
    "/etc/rigwright/credentials/old.api-key",
)


def pruned_generations(
    generations: list[ObservedGeneration], keep: int = 2, folders: list[str] | None = None, users: Iterable[str] = ()
) -> Surplus:
    host = ObservedServing(generations=tuple(generations), folders=frozenset([*OWN, *(folders or [])]))
    return find_surplus(host, sample_rig(sample_instance(), keep_generations=keep), AIM, users)


UNPROVEN = replace(host_generation(1), proven=False)
CASES: dict[str, tuple[list[ObservedGeneration], int, tuple[int, ...]]] = {
    "fewer than are kept": ([host_generation(1), host_generation(2, DIGEST)], 2, ()),
    "as many as are kept": ([host_generation(1), host_generation(2), host_generation(3, DIGEST)], 3, ()),
    "one too many": ([host_generation(1), host_generation(2), host_generation(3, DIGEST)], 2, (1,)),
    "only the wanted one": ([host_generation(1), host_generation(2), host_generation(3, DIGEST)], 1, (1, 2)),
    "the wanted one is the oldest": ([host_generation(1, DIGEST), host_generation(2), host_generation(3)], 2, (2,)),
    "the wanted one is the oldest and the only one": (
        [host_generation(1, DIGEST), host_generation(2), host_generation(3)],
        1,
        (2, 3),
    ),
    "the wanted one is not written yet": ([host_generation(1), host_generation(2), host_generation(3)], 2, (1, 2)),
    "a damaged one": ([host_generation(1), host_generation(2, found="other"), host_generation(3, DIGEST)], 3, (2,)),
    "a damaged one does not count": (
        [host_generation(1), host_generation(2, found="other"), host_generation(3, DIGEST)],
        2,
        (2,),
    ),
    "a damaged one with the content": (
        [host_generation(1, DIGEST), host_generation(2, DIGEST, found="other")],
        2,
        (2,),
    ),
    "one that never served": ([UNPROVEN, host_generation(2), host_generation(3, DIGEST)], 3, (1,)),
    "one that never served does not count": ([host_generation(0), UNPROVEN, host_generation(3, DIGEST)], 2, (1,)),
    "twice the content": ([host_generation(1, DIGEST), host_generation(2, DIGEST)], 1, (1,)),
    "ten and more": ([host_generation(9), host_generation(10), host_generation(11, DIGEST)], 2, (9,)),
    "none": ([], 1, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_newest_stay_and_the_wanted_one_always(case: str) -> None:
    generations, keep, numbers = CASES[case]
    assert pruned_generations(generations, keep).generations == numbers


def test_an_engine_tools_and_a_key_of_a_generation_that_stays_stay() -> None:
    old = [OLD_ENGINE, OLD_TOOLS, OLD_KEY]
    assert pruned_generations([host_generation(1, "", *old), host_generation(2, DIGEST)], 2, old) == Surplus((), (), ())


def test_objects_of_only_pruned_or_damaged_generations_go_with_them() -> None:
    generations = [
        host_generation(1, "", OLD_ENGINE),
        host_generation(2, "", OLD_KEY, found="other"),
        host_generation(3),
        host_generation(4, DIGEST),
    ]
    assert pruned_generations(generations, 2, [OLD_ENGINE, OLD_KEY, OLD_TOOLS]) == Surplus(
        (1, 2), (OLD_KEY, OLD_ENGINE, OLD_TOOLS), ()
    )


def test_needs_of_the_target_stay_also_before_it_is_written() -> None:
    assert pruned_generations([], 1) == Surplus((), (), ())
    assert TOOLS.folder in OWN


def test_weights_are_never_pruned() -> None:
    assert [
        path
        for path in pruned_generations([host_generation(1, "", "/srv/models/x/1/x.gguf")], 1).paths
        if "models" in path
    ] == []


CHAT, CODE, MORE = (f"rigwright-{name}" for name in ("chat", "code", "more"))
SHARED = "rigwright"
MADE = [MORE, CODE, CHAT, SHARED]
"""Users that we have made, in no order."""


@pytest.mark.parametrize(
    ("generations", "keep", "users"),
    [
        ([], 2, (SHARED, CODE, MORE)),
        (
            [host_generation(1, users=frozenset({CODE})), host_generation(2, DIGEST, users=frozenset({CHAT}))],
            2,
            (SHARED, MORE),
        ),
        (
            [host_generation(1, users=frozenset({CODE, CHAT})), host_generation(2, users=frozenset({MORE}))],
            3,
            (SHARED,),
        ),
        # with the last generation that says so
        (
            [
                host_generation(1, users=frozenset({CODE})),
                host_generation(2, users=frozenset({MORE})),
                host_generation(3, DIGEST),
            ],
            2,
            (SHARED, CODE),
        ),
        ([host_generation(1, users=frozenset({CODE})), host_generation(2, DIGEST)], 1, (SHARED, CODE, MORE)),
        (
            [host_generation(1, users=frozenset({CODE}), found="other"), host_generation(2, DIGEST)],
            2,
            (SHARED, CODE, MORE),
        ),
        # one of before they were written down: its user is unknown
        ([host_generation(1), host_generation(2, DIGEST, users=frozenset({CHAT}))], 2, ()),
        # one without an instance runs as user `nobody`
        ([host_generation(1, users=frozenset()), host_generation(2, DIGEST)], 2, (SHARED, CODE, MORE)),
    ],
)
def test_a_user_goes_with_the_last_generation_that_runs_as_it(
    generations: list[ObservedGeneration], keep: int, users: tuple[str, ...]
) -> None:
    assert pruned_generations(generations, keep, users=MADE).users == users


def test_a_user_that_we_have_not_made_stays_whatever_its_name_is() -> None:
    assert pruned_generations([host_generation(1, users=frozenset({CODE}))], 1, users=[]).users == ()


paths = st.sampled_from([OLD_ENGINE, OLD_TOOLS, OLD_KEY, "/opt/rigwright/engines/x", "/opt/rigwright/tools-y", *OWN])


@st.composite
def generations(draw: Any, number: int) -> ObservedGeneration:
    found = draw(st.sampled_from([None, None, "other"]))
    if draw(st.booleans()):  # one content has one list of references
        return host_generation(number, DIGEST, *OWN, found=found)
    return host_generation(number, "", *draw(st.lists(paths, max_size=3)), found=found)


histories = st.sets(st.integers(1, 30), max_size=8).flatmap(
    lambda numbers: st.tuples(*(generations(number) for number in sorted(numbers))).map(list)
)


@settings(max_examples=example_count(300), deadline=None, derandomize=True, database=None)
@given(history=histories, keep=st.integers(1, 5), folders=st.lists(paths, max_size=8))
def test_nothing_that_is_referred_to_by_what_stays_is_pruned(
    history: list[ObservedGeneration], keep: int, folders: list[str]
) -> None:
    pruned = pruned_generations(history, keep, folders)
    stay = [one for one in history if one.number not in pruned.generations]
    referred = set(OWN).union(*(one.references for one in stay))
    assert set(pruned.paths) == set(folders) - referred


@settings(max_examples=example_count(300), deadline=None, derandomize=True, database=None)
@given(history=histories, keep=st.integers(1, 5))
def test_the_newest_of_any_history_stay_and_none_that_is_damaged(history: list[ObservedGeneration], keep: int) -> None:
    pruned = pruned_generations(history, keep).generations
    intact = {one.number for one in history if one.is_intact}
    asked_for = max((one.number for one in history if one.is_intact and one.sealed == DIGEST), default=None)
    others = sorted(intact - {asked_for}, reverse=True)
    stay = {*others[: keep - 1], *({asked_for} if asked_for else ())}
    assert {one.number for one in history} - set(pruned) == stay


def test_unfinished_work_of_a_job_goes_unless_it_is_needed() -> None:
    wanted_name = next(path for path in OWN if "/engines/" in path).rpartition("/")[2]
    cut = [
        "/opt/rigwright/engines/.making-small-1.0-ba9876543210",
        "/opt/rigwright/engines/small-1.0-ba9876543210",
        "/var/lib/rigwright/build/small-1.0-ba9876543210",
    ]
    ahead = [f"/opt/rigwright/engines/.making-{wanted_name}", f"/var/lib/rigwright/build/{wanted_name}"]
    odd = ["/opt/rigwright/engines/.other", "/var/lib/rigwright/build/../jobs", "/var/lib/rigwright/jobs/x"]
    assert pruned_generations([], folders=[*cut, *ahead, *odd]).paths == tuple(sorted(cut))


def test_environment_tools_go_with_the_last_environment() -> None:
    installers = "/opt/rigwright/installers-0123456789ab"
    assert pruned_generations([], folders=[installers]).paths == (installers,)
    host = ObservedServing(folders=frozenset([*OWN, installers]))
    assert find_surplus(host, sample_rig(sample_instance(), envs=(declared_env(),)), AIM, ()).paths == ()


def test_secrets_of_a_gateway_go_with_the_last_generation_that_has_one() -> None:
    secrets = [f"/etc/rigwright/credentials/gateway-{name}" for name in ("keys.json", "lan.pem")]
    not_ours = "/etc/rigwright/credentials/gateway-LAN.pem"
    assert pruned_generations([host_generation(1), host_generation(2, DIGEST)], 2, [*secrets, not_ours]).paths == tuple(
        secrets
    )
    assert pruned_generations([host_generation(1, "", *secrets), host_generation(2, DIGEST)], 2, secrets).paths == ()
    one = sample_rig(sample_instance(), gateway=object())
    assert find_surplus(ObservedServing(folders=frozenset([*OWN, *secrets])), one, AIM, ()).paths == ()
