"""Each drift turns exactly its checks red, a deploy acts as its row declares, and the cure cures; harmless changes are
harmless.

Drifts of different things are there together. `rigwright test` has the fullest batches, `test all` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab.throwaway_lab import ThrowawayLab
from tests.hosts import drift_boxes
from tests.hosts.containers_box import ContainersBox
from tests.hosts.drift_host import DriftHost, HostDamaged
from tests.hosts.drift_tables import (
    CHANGED_ONLY,
    BoxName,
    load_drifts,
    load_harmless,
    load_undrifted_checks,
    make_batches,
)
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import check_verdicts

SAMPLE = 1
"""Batches of a box that serves which run each time."""
BATCHES = {
    box: make_batches({name: row for name, row in load_drifts().items() if row.box == box})
    for box in ("serving", "cards", "containers", "watching")
}
RED = {identifier for row in load_drifts().values() for identifier in row.red}


def numbers(box: str) -> list[object]:
    """The batches of a box, as parameters."""
    every = range(len(BATCHES[box]))
    return [pytest.param(number, marks=[pytest.mark.all_only] if number >= SAMPLE else []) for number in every]


class DriftHostPool:
    """A host for all batches of a box, and another one once that is spoilt."""

    def __init__(self, boot: Callable[[], DriftHost], others: list[DriftHostPool]) -> None:
        self.boot, self.others = boot, others
        others.append(self)
        self.made: DriftHost | None = None

    def ground(self) -> DriftHost:
        """The host as declared."""
        if self.made is None:
            for other in self.others:
                other.leave()
            self.made = self.boot()
        return self.made

    def leave(self) -> None:
        """Take it away."""
        if self.made:
            self.made.host.destroy()
        self.made = None

    def have(self, box: BoxName, number: int) -> None:
        """Have a batch's drifts, and assert that all is as they say."""
        try:
            failed = self.ground().run_batch(BATCHES[box][number])
        except HostDamaged as spoilt:
            self.leave()
            pytest.fail(f"the host is spoilt by one of {list(BATCHES[box][number])}: {spoilt}")
        assert not failed, "\n".join(f"{name}\n{reason}" for name, reason in failed.items())

    def unminded(self, box: BoxName) -> None:
        """Apply harmless changes, and assert that no check reports them, nor a check that has no drift runs."""
        failed = self.ground().run_harmless({name: row for name, row in load_harmless().items() if row.box == box})
        assert not failed, "\n".join(f"{name}\n{reason}" for name, reason in failed.items())
        ran = {identifier for identifier, word in check_verdicts(self.ground().inventory).items() if word != "skip"}
        assert ran - RED - CHANGED_ONLY - set(load_undrifted_checks()) == set(), (
            "checks without a drift that turns them red"
        )


@pytest.fixture(scope="module")
def with_cards() -> list[DriftHostPool]:
    """Hosts with cards: their names are the same, and with them the cards' numbers, so that one is there at a time."""
    return []


@pytest.fixture(scope="module")
def serving(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DriftHostPool]:
    """A host that serves on its processor."""

    def boot() -> DriftHost:
        return drift_boxes.boot_serving(lab, release, tmp_path_factory.mktemp("serving"), first_run.layer)

    grounds = DriftHostPool(boot, [])
    yield grounds
    grounds.leave()


@pytest.fixture(scope="module")
def cards(
    driven_box: Callable[[], drift_boxes.driver_box.DriverBox], with_cards: list[DriftHostPool]
) -> Iterator[DriftHostPool]:
    """A host with a driver and two cards."""
    grounds = DriftHostPool(lambda: drift_boxes.driver_host(driven_box()), with_cards)
    yield grounds
    grounds.leave()


@pytest.fixture(scope="module")
def containers(containers_box: Callable[[], ContainersBox], with_cards: list[DriftHostPool]) -> Iterator[DriftHostPool]:
    """A host with cards, and Docker and podman for them."""
    grounds = DriftHostPool(lambda: drift_boxes.container_host(containers_box()), with_cards)
    yield grounds
    grounds.leave()


@pytest.fixture(scope="module")
def monitored_host(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DriftHostPool]:
    """A host that is watched, and watches itself."""

    def boot() -> DriftHost:
        return drift_boxes.boot_monitored(lab, release, tmp_path_factory.mktemp("watching"), first_run.layer)

    grounds = DriftHostPool(boot, [])
    yield grounds
    grounds.leave()


one_release = pytest.mark.parametrize("release", ["debian-13"], indirect=True)


@one_release
@pytest.mark.parametrize("number", numbers("serving"))
def test_drifts_of_a_box_that_serves(serving: DriftHostPool, number: int) -> None:
    serving.have("serving", number)


@pytest.mark.all_only
@one_release
@pytest.mark.parametrize("number", numbers("cards"))
def test_drifts_of_a_box_with_cards(cards: DriftHostPool, number: int) -> None:
    cards.have("cards", number)


@pytest.mark.all_only
@one_release
@pytest.mark.parametrize("number", numbers("containers"))
def test_drifts_of_a_box_with_containers(containers: DriftHostPool, number: int) -> None:
    containers.have("containers", number)


@pytest.mark.all_only
@one_release
@pytest.mark.parametrize("number", range(len(BATCHES["watching"])))
def test_drifts_of_a_box_that_is_watched(monitored_host: DriftHostPool, number: int) -> None:
    monitored_host.have("watching", number)


@pytest.mark.all_only
@one_release
def test_harmless_changes_of_a_serving_box(serving: DriftHostPool) -> None:
    serving.unminded("serving")


@pytest.mark.all_only
@one_release
def test_harmless_changes_of_a_box_with_cards(cards: DriftHostPool) -> None:
    cards.unminded("cards")


@pytest.mark.all_only
@one_release
def test_harmless_changes_of_a_box_with_containers(containers: DriftHostPool) -> None:
    containers.unminded("containers")
