"""The end of a deploy: the checks of what it owns, repairs where they fail, and what remains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checks.required_check_ids import declared_digest
from rigwright.model.rig import Rig
from rigwright.plan.repairs import Repair, RepairReport, parse_repair_report, render_repairs
from rigwright.plan.state_digests import OwnedStateFacts
from rigwright.problems import format_count, printable
from roles import owned_state, root_shell
from roles.host_pool import HostThreads
from roles.operations.generations import planned_activation
from roles.operations.owned_state import observed_generation, observed_state

if TYPE_CHECKING:
    from checks.automatic_repairs import DriftedCheck
    from checks.post_deploy_checks import HostAgreement

ROUNDS = 3
"""Repairs, each followed by the roles and the checks: files, then processes that were started from them."""
REPAIR_SECONDS = 120.0
LONGEST = 200  # characters of an odd answer
Say = Callable[[str], None]


@dataclass
class AgreementResult:
    """The result of one host."""

    repaired: list[str] = field(default_factory=list)
    """As lines; of a dry run what would be repaired."""
    remains: list[str] = field(default_factory=list)
    """The drift of Rigwright's own state that was not repaired, as lines with remedies."""
    checks_passed: int | None = None
    """None where they did not run."""


@dataclass
class DeployAgreement:
    """The checks at the end of a run over several hosts."""

    rigs: Mapping[str, Rig]
    dry: bool
    say: Say
    results: dict[str, AgreementResult] = field(default_factory=dict)
    done: dict[str, set[Repair]] = field(default_factory=dict)
    rounds: int = 0

    def settle(self, hosts: Collection[Any], changed: Collection[str]) -> list[str]:
        """Check hosts, and repair what fails; returns the names of those whose roles have to run again.

        Args:
            hosts: pyinfra's connected hosts on which all steps succeeded.
            changed: Names of those on which a step changed something, or would.
        """
        self.rounds += 1
        due = [
            one
            for one in hosts
            if (found := observed_state(one.name)) is not None
            and (self.rounds > 1 or one.name in changed or not found.is_agreed(self._declared(one)))
        ]
        if not due:
            return []
        seen = self._survey_all(due)
        return [one.name for one in due if self._settle_host(one, *seen[one.name], pending=one.name in changed)]

    def repair_failed(self, hosts: Collection[Any]) -> list[str]:
        """Remove what was added to units of ours on hosts on which a step failed, for a unit may not start with it.

        Args:
            hosts: pyinfra's connected hosts.

        Returns:
            The names of hosts from which something was removed: their roles have to run again.
        """
        if self.rounds > ROUNDS:
            return []
        deployed = [one for one in hosts if observed_state(one.name) is not None]
        surveyed = self._survey_all(deployed)
        return [one.name for one in deployed if self._remove_additions(one, surveyed[one.name][1])]

    def _remove_additions(self, target: Any, seen: Any) -> bool:
        from checks.post_deploy_checks import judge_host

        if seen.survey is None:
            return False
        done = self.done.setdefault(target.name, set())
        try:
            found = judge_host(seen).repairs
        except (ValueError, AssertionError, *root_shell.BROKEN):
            return False  # its failed step is reported
        repairs = {one for one in found if one.action == "remove"} - done
        if not repairs:
            return False
        done |= repairs
        self.results.setdefault(target.name, AgreementResult()).repaired += self._repair(target, repairs)
        return True

    def _declared(self, target: Any) -> str:
        return declared_digest(self.rigs[target.name].digest, observed_generation(target.name))

    def _survey_all(self, hosts: Collection[Any]) -> dict[str, tuple[OwnedStateFacts, Any]]:
        with HostThreads(len(hosts)) as pool:
            return dict(zip([one.name for one in hosts], pool.map(self._survey, hosts), strict=True))

    def _survey(self, target: Any) -> tuple[OwnedStateFacts, Any]:
        from checks.survey_run import SurveyedHost

        found = OwnedStateFacts()
        with suppress(ValueError, *root_shell.BROKEN):
            found = owned_state.read_owned_state(target, self.rigs[target.name])
        seen = SurveyedHost(target, deep=False, compares_entries=False)
        _ = seen.survey
        return found, seen

    def _settle_host(self, target: Any, found: OwnedStateFacts, seen: Any, *, pending: bool) -> bool:
        """Judge a host; whether its roles have to run again after repairs."""
        from checks.post_deploy_checks import judge_host

        result = self.results.setdefault(target.name, AgreementResult())
        if seen.survey is None:
            result.remains = [f"not checked: {seen.why}"]
            return False
        if self.dry and not is_deployed(seen.survey):
            return False
        try:
            agreement = judge_host(seen)
        except (ValueError, AssertionError, *root_shell.BROKEN) as error:
            # a host that answers otherwise by now fails, and others go on
            result.remains = [f"not checked: {printable(next(iter(str(error).splitlines()), ''))[:LONGEST]}"]
            return False
        result.checks_passed = agreement.passed
        done = self.done.setdefault(target.name, set())
        if self.dry:
            way = planned_activation(target.name)
            needed = [one for one in sorted(agreement.repairs) if not way.replaces(one.action, one.subject)]
            result.repaired = [one.description for one in needed]
            result.remains = [] if pending else _describe_remains(agreement)
            return False
        if repairs := agreement.repairs - done if self.rounds <= ROUNDS else frozenset():
            done |= repairs
            result.repaired += self._repair(target, repairs)
            return True
        result.remains = [_describe_failed(one) for one in agreement.owned]
        for one in agreement.foreign:
            self.say(f"{target.name}: not part of this deploy: {_describe_failed(one)}")
        if agreement.waived:
            self.say(f"{target.name}: waived by the inventory: {', '.join(agreement.waived)}")
        # a host with a waived failure is checked again by each deploy: the waiver ends, or the value changes
        elif not result.remains:
            with suppress(*root_shell.BROKEN):
                owned_state.seal_owned_state(target, self.rigs[target.name], found, self._declared(target))
        return False

    def _repair(self, target: Any, repairs: Collection[Repair]) -> list[str]:
        """Make repairs; returns a line for each that the host reports as complete."""
        script = render_repairs(self.rigs[target.name].roots, repairs)
        report = RepairReport()
        try:
            report = parse_repair_report(root_shell.run_command(target, script, limit=REPAIR_SECONDS).lines)
        except (ValueError, *root_shell.BROKEN) as error:
            self.say(f"{target.name}: repairs were interrupted: {error}")
        made = [one for one in sorted(repairs) if (one.action, one.subject) in report.completed]
        lines = [one.description for one in made if one.action != "remove"]
        lines += [f"remove {path} (copy: {copy})" for path, copy in sorted(report.copies)]
        for line in lines:
            self.say(f"{target.name}: repair: {line}")
        for one in sorted({*repairs} - {*made}):
            self.say(f"{target.name}: repair failed: {one.description}")
        return lines


def is_deployed(survey: Any) -> bool:
    """Whether a surveyed host has any part of Rigwright's; one whose answer is missing may."""
    from checks import Drift
    from checks.survey.base_system import ABOUT

    try:
        return survey.read(ABOUT).generation is not None
    except Drift:
        return True


def _describe_remains(agreement: HostAgreement) -> list[str]:
    """Failures of what a deploy owns that none of its repairs is about."""
    return [_describe_failed(one) for one in agreement.owned if one.id not in agreement.repaired]


def _describe_failed(one: DriftedCheck) -> str:
    about = f"{one.part}: " if one.part else ""
    return f"{one.id} {about}{one.title}: {one.drift}"


def describe_remains(remains: list[str]) -> str:
    """The remaining drift of a host, in the words of an error."""
    return f"{format_count(len(remains), 'check')} of what a deploy owns:\n" + "\n".join(
        f"    {one}" for one in remains
    )
