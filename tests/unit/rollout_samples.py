"""A rollout's marker as tests need it, and a stand-in for its boxes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from cli.rollout_run import BoxBefore, BoxUnreachable
from rigwright.rollout.box_marker import BoxMarker
from rigwright.rollout.state_file import BoxRecord

ADA, BOB = "ada@laptop:/x/fleet.py", "bob@desk:/y/it's a fleet.py"


def make_marker(**changes: Any) -> BoxMarker:
    """A marker of Bob's controller on a box that waits."""
    moment = "2026-11-29T07:00:00Z"
    values = {"rollout": "0123456789ab", "started": moment, "moment": moment, "controller": BOB, "record": BoxRecord()}
    return BoxMarker(**(values | changes))


BEGIN = datetime(2026, 11, 28, 1, 30, tzinfo=timezone.utc)  # a Saturday
ONE, OTHER = "ada@laptop:/x/fleet.py", "bob@desk:/y/fleet.py"


class ControllerKilled(BaseException):
    """The controller ends here, without a word."""


@dataclass
class StandInFleet:
    """Boxes in memory: a stand-in for hosts, which survives its controllers."""

    generations: dict[str, int | None]
    deployed: list[str] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)
    rolled_back: list[tuple[str, int]] = field(default_factory=list)
    reboots: list[str] = field(default_factory=list)
    boots: dict[str, int] = field(default_factory=dict)
    deploy_faults: dict[str, str] = field(default_factory=dict)
    gate_faults: dict[str, str] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    unreachable_looks: int = 0
    """At so many of the next looks no box answers."""
    markers: dict[str, BoxMarker] = field(default_factory=dict)
    deployed_out: dict[str, bool] = field(default_factory=dict)
    """Box -> whether it was out of rotation and drained when its deploy began."""
    drained: set[str] = field(default_factory=set)
    drivers: dict[str, str] = field(default_factory=dict)
    shared: list[tuple[str, ...]] = field(default_factory=list)
    awaited: list[tuple[str, ...]] = field(default_factory=list)
    """Boxes that gateways had to send requests to again before the next step."""
    standing_consent: bool = False
    """Whether the inventory allows reboots."""
    kill_at: int = -1
    """The number of the step before or after which the controller is killed; -1: never."""
    steps: int = 0

    def _count(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise ControllerKilled

    def observe(self, names: Collection[str]) -> Mapping[str, BoxBefore | BoxUnreachable]:
        self._count()
        if self.unreachable_looks:
            self.unreachable_looks -= 1
            return {name: BoxUnreachable("no route") for name in names}
        return {name: self._observe_box(name) for name in names}

    def _observe_box(self, name: str) -> BoxBefore | BoxUnreachable:
        if name in self.unreachable:
            return BoxUnreachable("no route")
        marker, served = self.markers.get(name), self.generations[name]
        boot, previous = f"{self.boots.get(name, 0):012x}", served - 1 if served and served > 1 else None
        return BoxBefore(served, boot, marker, digest_of(marker), previous)

    def mark(self, markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        self._count()
        written: dict[str, str | BoxUnreachable | None] = {}
        for name, (marker, expected) in markers.items():
            if name in self.unreachable:
                written[name] = BoxUnreachable("no route")
            elif digest_of(self.markers.get(name)) == expected:
                self.markers[name] = marker
                written[name] = digest_of(marker)
                self._count()
            else:
                written[name] = None
        return written

    def share_builds(self, names: Collection[str], builders: Mapping[str, Sequence[str]]) -> None:
        self._count()
        self.shared.append((*names,))

    def drain(self, names: Collection[str]) -> None:
        self._count()
        assert all(self.markers[name].record.is_out for name in names)
        self.drained |= {*names}

    def await_gateways(self, names: Collection[str]) -> None:
        self._count()
        assert not any(self.markers[name].record.is_out for name in names)
        self.awaited.append((*names,))

    def deploy(self, names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        self._count()
        if driver:
            return self._return_to_driver(names, driver, reboot)
        reboot = self.standing_consent if reboot is None else reboot
        for name in names:
            self.deployed.append(name)
            self.deployed_out[name] = self.markers[name].record.is_out and name in self.drained
            if name not in self.deploy_faults:
                self.generations[name] = 2
            self._reboot(name, reboot)
        return {name: self.deploy_faults[name] for name in names if name in self.deploy_faults}

    def _return_to_driver(self, names: Collection[str], driver: str, reboot: bool | None) -> Mapping[str, str]:
        for name in names:
            assert reboot or self.boots.get(name), "a driver needs consent to its first reboot"
            self.drivers[name] = driver
            self._count()
            self._reboot(name, reboot)
        return {}

    def _reboot(self, name: str, consent: bool | None) -> None:
        if consent:
            self.reboots.append(name)
            self.boots[name] = self.boots.get(name, 0) + 1
        self._count()

    def run_gate(self, name: str, *, speed: bool) -> str:
        self._count()
        self.gated.append(f"{name}{'' if speed else ' after soak'}")
        assert self.markers[name].record.is_out == speed
        return self.gate_faults.get(name, "")

    def roll_back(self, name: str, generation: int) -> str:
        self._count()
        self.rolled_back.append((name, generation))
        self.generations[name] = generation
        self._count()
        return ""


def digest_of(marker: BoxMarker | None) -> str:
    return marker.content if marker else ""
