"""The end of a deploy: when checks run, what is repaired, and what fails the deploy."""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, conftest, post_deploy_checks, survey_run
from checks.automatic_repairs import DriftedCheck
from checks.post_deploy_checks import HostAgreement
from checks.required_check_ids import OWNED
from checks.survey.fingerprint import FINGERPRINT
from checks.survey.section import SurveyScope
from cli import deploy_agreement
from cli.deploy_agreement import ROUNDS, DeployAgreement
from rigwright.plan.repairs import Repair
from rigwright.serving.activation import Activation
from roles.operations import generations
from roles.owned_state import OwnedStateFacts
from tests.unit.channel_records import channel_lines
from tests.unit.rendered_scripts import PLAIN

HOST = SimpleNamespace(name="box")
SEEN = SimpleNamespace(survey=SimpleNamespace(read=lambda section: SimpleNamespace(generation=1)), why="")
RESTART = Repair("restart", "rigwright-chat.service")
NOTHING: Any = None
DIGESTS = OwnedStateFacts({"units": "a" * 64})


def failed(identifier: str) -> DriftedCheck:
    return DriftedCheck(identifier, "its title", "chat", "", Drift("this", "that", "do so"))


def agreement(*ids: str, repairs: tuple[Repair, ...] = ()) -> HostAgreement:
    owned = tuple(failed(one) for one in ids if one in OWNED)
    foreign = tuple(failed(one) for one in ids if one not in OWNED)
    return HostAgreement(owned, foreign, frozenset(repairs), frozenset(ids if repairs else ()), 91)


class Run:
    """A run over a host whose checks say these one after another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *verdicts: HostAgreement, dry: bool = False) -> None:
        self.lines: list[str] = []
        self.sealed: list[str] = []
        self.repaired: list[set[Repair]] = []
        rigs: Any = {"box": SimpleNamespace(digest="r", roots=None)}
        self.agreement = DeployAgreement(rigs, dry, self.lines.append)
        left = list(verdicts)
        monkeypatch.setattr(DeployAgreement, "_survey", lambda self, target: (DIGESTS, SEEN))
        monkeypatch.setattr(post_deploy_checks, "judge_host", lambda seen: left.pop(0) if left[1:] else left[0])
        monkeypatch.setattr(deploy_agreement, "observed_state", lambda name: DIGESTS)
        seal: Callable[..., None] = lambda target, *rest: self.sealed.append(target.name)  # noqa: E731
        monkeypatch.setattr(deploy_agreement.owned_state, "seal_owned_state", seal)
        monkeypatch.setattr(DeployAgreement, "_repair", lambda _, target, repairs: self._repair(set(repairs)))

    def _repair(self, repairs: set[Repair]) -> list[str]:
        self.repaired.append(repairs)
        return [one.description for one in repairs]

    def settle(self, changed: bool = True) -> int:
        """How often the roles run again."""
        hosts: Any = [HOST]
        rounds = 0
        while self.agreement.settle(hosts, {"box"} if changed else ()):
            rounds += 1
        return rounds


def test_checks_that_pass_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, agreement())
    assert run.settle() == 0
    assert run.sealed == ["box"]
    assert run.agreement.results["box"].remains == []
    assert run.agreement.results["box"].checks_passed == 91


def test_checks_are_left_out_where_nothing_changed_since_they_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, agreement("S17"))
    declared = run.agreement._declared(HOST)
    agreed = OwnedStateFacts(DIGESTS.digests, {**DIGESTS.digests, "declared": declared})
    monkeypatch.setattr(deploy_agreement, "observed_state", lambda name: agreed)
    assert run.settle(changed=False) == 0
    assert run.agreement.results == {}


def test_roles_run_again_after_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, agreement("S17", repairs=(RESTART,)), agreement())
    assert run.settle(changed=False) == 1
    assert run.repaired == [{RESTART}]
    assert run.agreement.results["box"].repaired == ["restart rigwright-chat.service"]
    assert run.sealed == ["box"]


def test_a_repair_that_does_not_help_is_made_once_and_the_check_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, agreement("S17", repairs=(RESTART,)))
    assert run.settle() == 1
    assert run.agreement.results["box"].remains == ["S17 chat: its title: expected this, found that; do so"]
    assert run.sealed == []


def test_new_repairs_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [
        agreement("S17", repairs=(Repair("restart", f"rigwright-chat{number}.service"),)) for number in range(9)
    ]
    run = Run(monkeypatch, *verdicts)
    assert run.settle() == ROUNDS
    assert run.agreement.results["box"].remains


def test_surrounding_entries_are_listed_and_fail_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, agreement("M01"))
    assert run.settle() == 0
    assert run.lines == ["box: not part of this deploy: M01 chat: its title: expected this, found that; do so"]
    assert run.agreement.results["box"].remains == []
    assert run.sealed == ["box"]


@pytest.mark.parametrize("pending", [False, True])
def test_a_dry_run_lists_repairs_and_what_would_remain_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, pending: bool
) -> None:
    verdict = HostAgreement((failed("S17"), failed("F08")), (), frozenset((RESTART,)), frozenset(("S17",)))
    run = Run(monkeypatch, verdict, dry=True)
    assert run.settle(changed=pending) == 0
    assert (run.repaired, run.sealed) == ([], [])
    result = run.agreement.results["box"]
    assert result.repaired == ["restart rigwright-chat.service"]
    # the results of later steps are unknown
    assert [one[:3] for one in result.remains] == ([] if pending else ["F08"])


CODE, GATEWAY = "rigwright-code.service", "rigwright_gateway.service"
REMOVAL = Repair("remove", "/etc/systemd/system/rigwright-chat.service.d")


@pytest.mark.parametrize(
    ("way", "left"),
    [
        (Activation(restart=(RESTART.subject,)), {"restart code", "restart gateway", "reload gateway"}),
        (Activation(prove=(CODE,)), {"restart chat", "restart gateway", "reload gateway"}),
        (Activation(stop=(CODE,)), {"restart chat", "restart gateway", "reload gateway"}),
        (Activation(restart=(GATEWAY,)), {"restart chat", "restart code"}),
        # a process that only reads its settings again keeps its code
        (Activation(reload=(GATEWAY,)), {"restart chat", "restart code", "restart gateway"}),
        (None, {"restart chat", "restart code", "restart gateway", "reload gateway"}),
    ],
)
def test_a_dry_run_leaves_out_only_the_repairs_that_the_activation_makes_needless(
    monkeypatch: pytest.MonkeyPatch, way: Activation | None, left: set[str]
) -> None:
    repairs = {
        "restart chat": RESTART,
        "restart code": Repair("restart", CODE),
        "restart gateway": Repair("restart", GATEWAY),
        "reload gateway": Repair("reload", GATEWAY),
    }
    verdict = HostAgreement((failed("S17"),), (), frozenset((*repairs.values(), REMOVAL)), frozenset(("S17",)))
    run = Run(monkeypatch, verdict, dry=True)
    # the operation itself plans it, as pyinfra prepares it
    for name, value in {
        "host": SimpleNamespace(name="box", noop=lambda why: None),
        "state": SimpleNamespace(is_executing=False),
        "plan_activation": lambda *words: way,
        "render_activation": lambda *words: "true",
    }.items():
        monkeypatch.setattr(generations, name, value)
    found: Any = SimpleNamespace(job=False, links={}, next_number=2)
    aim: Any = SimpleNamespace(number=2)
    list(generations._switch_generation(PLAIN, found, lambda _: aim, 5))
    assert run.settle() == 0
    assert run.agreement.results["box"].repaired == [
        one.description for one in sorted([REMOVAL, *(repairs[name] for name in left)])
    ]


def test_a_host_that_could_not_be_surveyed_is_not_said_to_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, agreement())
    monkeypatch.setattr(
        DeployAgreement, "_survey", lambda self, target: (DIGESTS, SimpleNamespace(survey=None, why="gone"))
    )
    assert run.settle() == 0
    assert run.agreement.results["box"].remains == ["not checked: gone"]


@pytest.mark.parametrize(
    ("identifier", "managed", "owned"),
    [("U02", False, True), ("N29", True, True), ("N05", False, False), ("M01", True, False)],
)
def test_a_driver_is_a_deploys_where_it_is_managed(identifier: str, managed: bool, owned: bool) -> None:
    assert post_deploy_checks.is_owned(identifier, managed) is owned


def test_a_deploy_supplies_each_value_that_its_checks_ask_for() -> None:
    supplied = {*post_deploy_checks._OneRun(SimpleNamespace(), SimpleNamespace(), None).values, *conftest.PARTS}  # type: ignore[arg-type]
    for path in sorted(Path(conftest.__file__).parent.glob("test_*.py")):
        if path.stem[5:] in post_deploy_checks.UNRUN:
            continue
        module = importlib.import_module(f"checks.{path.stem}")
        checks = [one for one in vars(module).values() if hasattr(one, "pytestmark")]
        left = [(path.name, name) for one in checks for name in inspect.signature(one).parameters]
        left = [(asker, name) for asker, name in left if name != post_deploy_checks.PARTNER]
        while left:
            asker, name = left.pop()
            if name not in supplied:
                made = getattr(module, name, None) or getattr(conftest, name, None)
                assert hasattr(made, "_fixture_function"), f"{asker}: {name}"
                # of a run of pytest, which a deploy has none of
                assert "stash" not in inspect.getsource(made._fixture_function), f"{asker}: {name}"
                left += [(name, one) for one in inspect.signature(made._fixture_function).parameters]


def test_additions_to_units_of_a_host_on_which_a_step_failed_are_removed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    removal = Repair("remove", "/etc/systemd/system/rigwright-chat.service.d/x.conf")
    run = Run(monkeypatch, agreement("U02", repairs=(removal, RESTART)))
    assert run.agreement.repair_failed([HOST]) == ["box"]
    assert run.repaired == [{removal}]
    assert run.agreement.repair_failed([HOST]) == []


def test_a_repair_that_did_not_finish_is_not_listed_as_made(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Repair("restart", "rigwright-code.service")
    lines: list[str] = []
    rigs: Any = {"box": SimpleNamespace(digest="r", roots=PLAIN.roots)}
    made = DeployAgreement(rigs, dry=False, say=lines.append)
    answer = SimpleNamespace(lines=channel_lines(("made", "restart", RESTART.subject)))
    monkeypatch.setattr(deploy_agreement.root_shell, "run_command", lambda *words, **limits: answer)
    assert made._repair(HOST, {RESTART, other}) == [RESTART.description]
    assert lines == [f"box: repair: {RESTART.description}", f"box: repair failed: {other.description}"]


def test_the_end_of_a_deploy_compares_no_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[bool]()
    monkeypatch.setattr(survey_run.SurveyedHost, "survey", property(lambda seen: asked.append(seen.compares_entries)))
    monkeypatch.setattr(deploy_agreement.owned_state, "read_owned_state", lambda target, rig: DIGESTS)
    rigs: Any = {"box": SimpleNamespace(digest="r", roots=None)}
    DeployAgreement(rigs, False, print)._survey(HOST)
    assert asked == [False]
    assert FINGERPRINT.asks(SurveyScope(PLAIN, NOTHING, compares_entries=False)) is None
