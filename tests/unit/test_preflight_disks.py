"""Preflight of a box with a bundle: room for what was sent, on the disk where it lies and where it goes."""

from types import MappingProxyType

import pytest

from rigwright.plan.preflight import find_refusals
from tests.unit.host_states import rig_target_state
from tests.unit.samples import GIB, NOW, sample_artefact, sample_facts, sample_instance, sample_parts, sample_rig
from tests.unit.test_preflight import bundled_rig, space

APART = {"/srv/models": "/srv", "/var/lib/rigwright": "/"}
TOGETHER = dict.fromkeys(APART, "/")


@pytest.mark.parametrize(
    ("mounts", "sent_gib", "models_gib", "state_gib", "short"),
    [
        (APART, 0, 11, 11, []),
        (APART, 0, 10.9, 10.9, ["/srv/models", "/var/lib/rigwright"]),
        # sent files lie below the state's root, and are copied from there
        (APART, 6, 11, 5, []),
        (APART, 6, 10.9, 4.9, ["/srv/models", "/var/lib/rigwright"]),
        # on one disk it is moved
        (TOGETHER, 6, 5, 5, []),
        (TOGETHER, 6, 4.9, 4.9, ["/srv/models", "/var/lib/rigwright"]),
        (TOGETHER, 10, 0, 0, []),
        (TOGETHER, 99, 0, 0, []),
    ],
)
def test_sent_files_need_no_space_again(
    mounts: dict[str, str], sent_gib: int, models_gib: float, state_gib: float, short: list[str]
) -> None:
    host = sample_facts(
        disk_free_kib=space(models=models_gib, state=state_gib),
        sent_kib=sent_gib * GIB,
        file_systems=MappingProxyType(mounts),
    )
    reasons = find_refusals(rig_target_state(bundled_rig("debian-12"), host), NOW)
    assert [reason.partition(" ")[0] for reason in reasons] == short, reasons


def test_without_a_bundle_nothing_lies_below_the_state_first() -> None:
    large = sample_artefact(size=10 * GIB * 1024)
    host = sample_facts(disk_free_kib=space(models=11, state=0), file_systems=MappingProxyType(TOGETHER), sent_kib=GIB)
    assert find_refusals(rig_target_state(sample_rig(sample_instance(parts=sample_parts(large))), host), NOW) == []
