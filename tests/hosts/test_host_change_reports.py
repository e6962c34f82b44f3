"""Changes of an accepted box: harmless ones never fail, and new ones are reported at first sight, with an author.

Of the 300 new changes a sample of each file runs; `--all-changes` runs all of them: 40 minutes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.throwaway_lab import ThrowawayLab
from tests.hosts import drift_boxes
from tests.hosts.host_changes.change_results import ChangeResult, render_row, render_totals
from tests.hosts.host_changes.change_runs import run_changes
from tests.hosts.host_changes.change_tables import harmless_path, load_changes, new_change_paths
from tests.hosts.host_changes.changed_host import ChangedHost
from tests.hosts.host_layers import ConvergedLayers

SAMPLE = 15
"""Every so many changes one runs each time."""
DETECTED = 0.95
"""The least share of new changes that is reported."""
ATTRIBUTED = 0.8
"""The least share of reported changes whose author is named."""

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]


@pytest.fixture(scope="module")
def accepted_host(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChangedHost]:
    """A host that serves, and that its operator has accepted."""
    booted = drift_boxes.boot_serving(lab, release, tmp_path_factory.mktemp("accepted"), first_run.layer)
    host = ChangedHost(**vars(booted))
    host.begin(accepts=True)
    assert host.at_rest == []
    yield host
    host.host.destroy()


def describe_results(results: list[ChangeResult]) -> str:
    """Results that are not as they should be, and totals."""
    wrong = [one for one in results if one.verdict not in ("detected", "as expected") or one.leftover]
    return "\n".join(["", *map(render_row, wrong), "", *render_totals(results)])


def test_harmless_changes_are_explained_or_need_one_review(accepted_host: ChangedHost) -> None:
    results = [*run_changes(accepted_host, load_changes(harmless_path()), accepts=True)]
    wrong = [one for one in results if one.verdict != "as expected" or one.leftover]
    assert not wrong, describe_results(results)


def test_new_changes_are_reported_with_an_author(accepted_host: ChangedHost, pytestconfig: pytest.Config) -> None:
    every = 1 if pytestconfig.getoption("--all-changes") else SAMPLE
    cases = dict([*load_changes(*new_change_paths()).items()][::every])
    results = [*run_changes(accepted_host, cases, accepts=True)]
    reported = [one for one in results if one.verdict == "detected"]
    assert not [one for one in results if one.verdict == "invalid"], describe_results(results)
    assert len(reported) >= DETECTED * len(results), describe_results(results)
    assert sum(one.is_attributed for one in reported) >= ATTRIBUTED * len(reported), describe_results(results)
