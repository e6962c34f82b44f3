"""Looking at all hosts of an inventory at the same time, while what is to judge them is still being imported.

What is not needed to connect is imported where it is first used: importing all of it takes as long as connecting does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testinfra.host import Host

from checks.backend import UnknownHost, reach, testinfra_host
from checks.backend import load as load_inventory
from rigwright.inventory import foreign, load
from rigwright.model.rig import Rig
from roles import root
from roles.unreached import away

if TYPE_CHECKING:
    from checks.survey.taken import Survey
    from rigwright.model.facts import HostFacts
    from rigwright.plan.desired import Desired

MOST_HOSTS = 16
"""Hosts that are asked at the same time."""
MOMENT = 0.0005  # seconds; enough for whatever waits for a host to go on
PATIENCE = 1.5  # seconds of waiting for a host before the terminal shows what for
TURN = 0.005  # seconds for which it waits while another host is judged


class Seen:
    """One host: what it is to be, and what it has answered; each is found out once, when it is first asked for."""

    def __init__(self, target: Any, deep: bool) -> None:
        self.target, self.deep = target, deep
        self.why = away("")
        self.waits: list[str] = []
        """Sections of its survey that take long."""

    @cached_property
    def rig(self) -> Rig:
        """What it should be."""
        return load(self.target.data.get("rig"))

    @cached_property
    def host(self) -> Host:
        """What testinfra has of it."""
        return testinfra_host(self.target)

    @cached_property
    def facts(self) -> HostFacts:
        """What a probe finds on it now.

        Raises:
            ValueError, AssertionError: it tells something else than it was asked.
            roles.root.Gone: the connection is gone.
        """
        from rigwright.plan import facts as host_facts

        return host_facts.parse(self.host.check_output("sh -c %s", self.probe).splitlines())

    @property
    def probe(self) -> str:
        """The script that finds them."""
        from rigwright.plan import facts as host_facts
        from rigwright.render import render

        return render("probe/probe.sh.j2", **host_facts.questions(self.rig))

    def found(self, lines: list[str]) -> Desired:
        """What its rig comes to by what a probe has found; raises as `facts`."""
        from rigwright.plan import facts as host_facts

        self.facts = host_facts.parse(lines)
        return self.desired

    @cached_property
    def desired(self) -> Desired:
        """What its rig comes to on it; raises as `facts`."""
        from rigwright.plan.desired import desired

        return desired(self.rig, self.facts)

    def wait_for(self, sections: list[str]) -> None:
        """Note which sections take long."""
        self.waits = sections

    @cached_property
    def survey(self) -> Survey | None:
        """All that it has answered; None where the connection is gone, or root's is not to be had."""
        from checks.survey.take import take
        from checks.survey.taken import Survey

        try:
            return take(self.target, self.rig, self.probe, self.found, deep=self.deep, wait=self.wait_for)
        except root.NoRoot as error:
            self.why = str(error)
            return None
        except root.Gone:
            return None
        except (ValueError, OSError, AssertionError) as error:
            return Survey({}, str(error))


class Look:
    """All hosts that are asked for."""

    def __init__(self, inventory: str, limit: str | None, deep: bool) -> None:
        """Load the inventory, and begin to connect and to ask.

        Raises:
            checks.backend.UnknownHost, SystemExit: as `checks.backend.find`.
        """
        self.inventory, self.deep = inventory, deep
        self.began = time.time()
        self.state, targets = load_inventory(inventory, limit)
        for name, target in targets.items():
            if problem := foreign(target.data.get("rig")):
                raise UnknownHost(f"{name}: {problem}")
        self.hosts: Mapping[str, Seen] = {name: Seen(target, deep) for name, target in targets.items()}
        self.last = 0.0
        self.pool = ThreadPoolExecutor(max_workers=MOST_HOSTS + 1)
        self.asked: Future[dict[str, Future[bool]]] = self.pool.submit(self._ask)
        self.go_on()

    def _ask(self) -> dict[str, Future[bool]]:
        """Host -> whether it has answered, of those that are connected."""
        gone = reach(self.state, {name: seen.target for name, seen in self.hosts.items()})
        for name, why in gone.items():
            self.hosts[name].why = away(why)
        there = {name: seen for name, seen in self.hosts.items() if name not in gone}
        asked = {name: self.pool.submit(lambda seen: seen.survey is not None, seen) for name, seen in there.items()}
        self.pool.shutdown(wait=False)
        return asked

    @staticmethod
    def go_on() -> None:
        """Let what waits for hosts go on: between imports, nothing else does."""
        time.sleep(MOMENT)

    def prepare(self) -> None:
        """Make what judges answers, until one is there: it would come before a first verdict."""
        from checks.survey.sections import SECTIONS

        for section in SECTIONS:
            if self.asked.done() and any(one.done() for one in self.asked.result().values()):
                return
            _ = section.judge
            self.go_on()
        gateways = [seen.rig.gateway for seen in self.hosts.values() if seen.rig.gateway]
        if any(listener.tls for gateway in gateways for listener in gateway.listeners.values()):
            import cryptography.x509  # noqa: F401 (certificates are judged by it, and it takes its time)

    def gone(self, name: str) -> bool:
        """Wait until a host has answered; returns whether it is out of reach."""
        if time.monotonic() - self.last > TURN and not all(one.done() for one in self.asked.result().values()):
            self.go_on()
            self.last = time.monotonic()
        told = ""
        while not self._is_known(name, PATIENCE):
            waits = ", ".join(self.hosts[name].waits)
            what = f"{name}: waiting for {waits or 'its answer'}" if self.asked.done() else "waiting for connections"
            if what != told:
                print(what, file=sys.__stderr__, flush=True)
            told = what
        answered = self.asked.result().get(name)
        return answered is None or not answered.result()

    def _is_known(self, name: str, seconds: float) -> bool:
        """Wait, no longer than so many seconds, until a host has answered, or is out of reach."""
        end = time.monotonic() + seconds
        if not wait([self.asked], seconds).done:
            return False
        answered = self.asked.result().get(name)
        return answered is None or bool(wait([answered], max(0.0, end - time.monotonic())).done)
