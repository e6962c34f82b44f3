"""Looking at all hosts of an inventory at the same time, while what is to judge them is still being imported.

A module that connecting does not need is imported where it is first used: importing all of it takes as long as
connecting does.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from testinfra.host import Host

from checks.change_review.accepted_entries import HostAcceptance, accepted_path, load_accepted
from checks.testinfra_backend import UnknownHost, connect_targets, load_hosts, testinfra_host
from rigwright.declaration.host_data import find_foreign_data
from rigwright.declaration.shared_resolution import share_resolutions
from rigwright.gateway.gateway_units import certificate_owners
from rigwright.host_selection import format_hosts
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.model.secret_sources import run_secret_commands
from rigwright.problems import Invalid, Problem
from roles import root_shell
from roles.connection_failures import describe_unreachable_host
from roles.host_pool import HostThreads, TimedPlaces

if TYPE_CHECKING:
    from checks.change_review.accepted_comparison import HostReview
    from checks.survey.answers import SurveyAnswers
    from rigwright.model.fact_types import HostFacts
    from rigwright.plan.plan_inputs import TargetState

MOMENT = 0.0005  # seconds; enough for whatever waits for a host to go on
PATIENCE = 1.5  # seconds of waiting for a host before the terminal shows what for
TURN = 0.005  # seconds for which it waits while another host is judged
BACKLOG = 32  # hosts with answers and without verdicts; with so many, no further host is asked
ASKED = 4 * BACKLOG  # asked hosts without verdicts; each counts for SLOW seconds at most
SLOW = 60.0  # seconds after which an asked host delays no further one
PER_HOST = 0.3  # seconds that a busy controller takes for each host, and in which it does not read answers of others


ShowReading = Callable[[str], AbstractContextManager[Callable[[int, list[str]], None]]]
"""Host -> shows its reading while a block runs, by bytes until now and the sections that have not answered yet."""


@contextmanager
def hide_reading(_host: str) -> Iterator[Callable[[int, list[str]], None]]:
    """Show nothing of what a host reads."""
    yield lambda number, sections: None


class SurveyedHost:
    """One host: its target state, and its answers; each is found out once, when it is first asked for."""

    def __init__(
        self,
        target: Any,
        deep: bool,
        *,
        compares_entries: bool = True,
        hosts: int = 1,
        show_reading: ShowReading | None = None,
    ) -> None:
        """Keep what to ask.

        Args:
            target: pyinfra's host.
            deep: Whether all bytes are read.
            compares_entries: Whether entries of the host are compared with accepted ones.
            hosts: The number of hosts that this process surveys.
            show_reading: Shows the bytes that the host reads.
        """
        self.show_reading = show_reading or hide_reading
        self.target, self.deep, self.compares_entries, self.hosts = target, deep, compares_entries, hosts
        self.why = describe_unreachable_host("")
        self.waits: list[str] = []
        """Sections of its survey that take long."""
        self.accepted_file = PurePath()
        self.accepted: HostAcceptance | None = None
        """Its accepted entries; None without that file."""

    @cached_property
    def rig(self) -> Rig:
        """Its target."""
        return load_rig(self.target.data.get("rig"))

    @cached_property
    def host(self) -> Host:
        """testinfra's view of it."""
        return testinfra_host(self.target)

    @cached_property
    def facts(self) -> HostFacts:
        """The findings of a probe on it now.

        Raises:
            ValueError, AssertionError: it tells something else than it was asked.
            roles.root_shell.ConnectionGone: the connection is gone.
        """
        from rigwright.plan import host_probe as host_probe

        return host_probe.parse(self.host.check_output("sh -c %s", self.probe).splitlines())

    @property
    def probe(self) -> str:
        """The script that finds them."""
        from rigwright.plan import host_probe as host_probe
        from rigwright.render import render

        return render("probe/probe.sh.j2", **host_probe.probe_values(self.rig))

    def resolve_from_probe(self, lines: list[str]) -> TargetState:
        """The target state of its rig by a probe's findings; raises as `facts`."""
        from rigwright.plan import host_probe as host_probe

        self.facts = host_probe.parse(lines)
        return self.desired

    @cached_property
    def desired(self) -> TargetState:
        """The target state of its rig on it; raises as `facts`."""
        from rigwright.plan.plan_inputs import build_target_state

        return build_target_state(self.rig, self.facts)

    def note_slow_sections(self, sections: list[str]) -> None:
        """Note which sections take long."""
        self.waits = sections

    @cached_property
    def survey(self) -> SurveyAnswers | None:
        """All that it has answered; None where the connection is gone, or root's is not to be had."""
        from checks.survey.answers import SurveyAnswers
        from checks.survey.collection import SURVEY_PATIENCE, take_survey

        try:
            with self.show_reading(self.target.name) as report:
                return take_survey(
                    self.target,
                    self.rig,
                    self.probe,
                    self.resolve_from_probe,
                    deep=self.deep,
                    compares_entries=self.compares_entries,
                    patience=SURVEY_PATIENCE + PER_HOST * self.hosts,
                    wait=self.note_slow_sections,
                    read=lambda number: report(number, self.waits),
                )
        except root_shell.RootDenied as error:
            self.why = str(error)
            return None
        except root_shell.ConnectionGone:
            return None
        except (ValueError, OSError, AssertionError) as error:
            return SurveyAnswers({}, str(error))

    @cached_property
    def review(self) -> HostReview:
        """Its accepted entries against its answer.

        Raises:
            Drift: it has not answered.
        """
        from checks.change_review.accepted_comparison import review_host
        from checks.survey.answers import SurveyAnswers
        from checks.survey.fingerprint import FINGERPRINT

        survey = self.survey or SurveyAnswers({}, "the connection was lost")
        return review_host(self.accepted, survey.read(FINGERPRINT), self.accepted_file)

    def release(self) -> None:
        """Forget its answers, and end the connection: many hosts would fill the memory."""
        from checks.survey.answers import SurveyAnswers

        for name in ("survey", "facts", "desired", "review", "host"):
            self.__dict__.pop(name, None)
        self.__dict__["survey"] = SurveyAnswers({}, "its checks are decided")
        self.target.disconnect()


class SurveyRun:
    """All hosts that are asked for."""

    def __init__(self, inventory: str, limit: str | None, deep: bool, show_reading: ShowReading | None = None) -> None:
        """Load the inventory, and begin to connect and to ask.

        Raises:
            checks.testinfra_backend.UnknownHost, SystemExit: as `checks.testinfra_backend.load_selected_hosts`.
        """
        self.inventory, self.deep = inventory, deep
        self.began = time.time()
        self.keeps_answers = False
        """Whether answers of hosts are needed once their checks are decided."""
        # keys and certificates on hosts are compared with the declared ones
        with run_secret_commands():
            self.state, targets = load_hosts(inventory, limit)
        self.several = len(self.state.inventory) > 1
        """Whether the inventory has other hosts, asked for or not."""
        for name, target in targets.items():
            if problem := find_foreign_data(target.data.get("rig")):
                raise UnknownHost(f"{name}: {problem}")
        self.hosts: Mapping[str, SurveyedHost] = {
            name: SurveyedHost(target, deep, hosts=len(targets), show_reading=show_reading if deep else None)
            for name, target in targets.items()
        }
        with share_resolutions():
            for seen in self.hosts.values():
                with suppress(Invalid):  # raised again by its first use
                    _ = seen.rig
        self._load_accepted()
        self.last = 0.0
        self.order_patience = PATIENCE
        """Seconds that are left of waiting for hosts in the order of their names."""
        self.pool = HostThreads(len(self.hosts) + 2)
        self.answers: dict[str, Future[bool]] = {name: Future() for name in self.hosts}
        """Host -> whether it has answered."""
        self.unanswered = len(self.hosts)
        self.undecided: set[str] = set()
        """Hosts that have answered, or are out of reach, and whose checks are not decided."""
        self.decided: set[str] = set()
        for name, one in self.answers.items():
            one.add_done_callback(partial(self._count_answer, name))
        self.connected: set[str] = set()
        self.begun: set[str] = set()
        """Hosts that are asked."""
        self.waiting = queue.SimpleQueue[str]()
        """Connected hosts in the order in which they are asked; an empty name ends the queue."""
        self.room = threading.Event()
        """Set while a further host may be asked, because the memory has room for its answer."""
        self.room.set()
        self.some_answer = threading.Event()
        """Set with each answer; a wait for the futures of all hosts would take longer with each host."""
        self.places = TimedPlaces(ASKED, SLOW)
        """Places of asked hosts without verdicts."""
        self.pool.submit(self._connect_hosts)
        self.pool.submit(self._survey_hosts)
        self.yield_to_hosts()

    def _load_accepted(self) -> None:
        """Load the accepted entries of all hosts.

        Raises:
            checks.testinfra_backend.UnknownHost: a file of them is refused; the text has all that are.
        """
        problems: list[Problem] = []
        for name, seen in self.hosts.items():
            seen.accepted_file = file = accepted_path(self.inventory, name)
            try:
                seen.accepted = load_accepted(file, name)
            except Invalid as error:
                problems += error.problems
        if problems:
            raise UnknownHost(str(Invalid(problems)))

    def _connect_hosts(self) -> None:
        targets = {name: seen.target for name, seen in self.hosts.items()}
        try:
            gone = connect_targets(self.state, targets, self._note_connection)
            for name, why in gone.items():
                self.hosts[name].why = describe_unreachable_host(why)
                self.answers[name].set_result(False)
            for name in targets:
                if name not in gone:
                    self._note_connection(name)
        except BaseException as error:  # raised where the answers are waited for
            for name in {*targets} - self.connected:
                if not self.answers[name].done():
                    self.answers[name].set_exception(error)
        self.waiting.put("")

    def _note_connection(self, name: str) -> None:
        if name not in self.connected:
            self.connected.add(name)
            self.waiting.put(name)

    def _survey_hosts(self) -> None:
        """Ask each host as soon as it is connected and there is room for its answer. One that hangs takes no room."""
        for name in iter(self.waiting.get, ""):
            self.places.take(name)
            self.room.wait()
            if name in self.decided:
                self.places.give_back(name)
            self._begin_survey(name)
        self.pool.shutdown(wait=False)

    def _begin_survey(self, name: str) -> None:
        if name not in self.begun:
            self.begun.add(name)
            self.pool.submit(self._survey_host, name)

    def _survey_host(self, name: str) -> None:
        try:
            self.answers[name].set_result(self.hosts[name].survey is not None)
        except BaseException as error:  # as above
            self.answers[name].set_exception(error)

    def _count_answer(self, name: str, _answer: Future[bool]) -> None:
        self.unanswered -= 1
        if name not in self.decided:
            self.undecided.add(name)
        self.some_answer.set()
        if len(self.undecided) >= BACKLOG:
            self.room.clear()

    def end_host(self, name: str) -> None:
        """Count a host as decided: there is room for the answer of another one."""
        self.decided.add(name)
        self.undecided.discard(name)
        self.places.give_back(name)
        if len(self.undecided) < BACKLOG:
            self.room.set()

    def end(self) -> None:
        """Let no host wait for its turn: the run is over."""
        self.begun |= self.hosts.keys()
        self.room.set()
        self.places.open()

    @staticmethod
    def yield_to_hosts() -> None:
        """Let what waits for hosts go on: between imports, nothing else does."""
        time.sleep(MOMENT)

    def prepare_validators(self) -> None:
        """Make the validator of answers while hosts answer."""
        from checks.survey.sections import survey_validator

        survey_validator()
        self.yield_to_hosts()
        gateways = [seen.rig.gateway for seen in self.hosts.values() if seen.rig.gateway]
        if any(certificate_owners(gateway) for gateway in gateways):
            import cryptography.x509  # noqa: F401 (certificates are judged by it, and it takes its time)

    def choose_next_host(self, names: Collection[str]) -> str:
        """Wait until one of these hosts has answered; returns the first of those that have.

        The first of all is waited for a little, once for all calls: a few hosts keep their order.
        """
        first = next(iter(names))
        if self.order_patience > 0:
            began = time.monotonic()
            wait([self.answers[first]], self.order_patience)
            self.order_patience -= time.monotonic() - began
        place = {name: number for number, name in enumerate(names)}
        while True:
            self.some_answer.clear()
            if answered := self.undecided & place.keys():
                return min(answered, key=place.__getitem__)
            self.room.set()  # answers of hosts without checks fill it
            for name in self.undecided:
                self.places.give_back(name)
            if len(names) == 1:
                return first  # a single waiting host is reported with its sections
            if not self.some_answer.wait(PATIENCE) and not self.deep:
                print(f"waiting for {format_hosts(names)}", file=sys.__stderr__, flush=True)

    def is_out_of_reach(self, name: str) -> bool:
        """Wait until a host has answered; returns whether it is out of reach."""
        self.give_turn()
        self._begin_if_connected(name)
        told = ""
        while not self._is_known(name, PATIENCE):
            self._begin_if_connected(name)
            waits = ", ".join(self.hosts[name].waits)
            what = f"{name}: waiting for {waits or 'its answer'}" if name in self.begun else "waiting for connections"
            if what != told and not self.deep:  # its display shows it
                print(what, file=sys.__stderr__, flush=True)
            told = what
        return not self.answers[name].result()

    def _begin_if_connected(self, name: str) -> None:
        """Ask a host without a wait for room: its answer is needed now."""
        if name in self.connected:
            self._begin_survey(name)

    def give_turn(self) -> None:
        """Let hosts go on that have not answered, if they have waited for their turn."""
        if self.unanswered and time.monotonic() - self.last > TURN:
            self.yield_to_hosts()
            self.last = time.monotonic()

    def _is_known(self, name: str, seconds: float) -> bool:
        """Wait, no longer than so many seconds, until a host has answered, or is out of reach."""
        return bool(wait([self.answers[name]], seconds).done)
