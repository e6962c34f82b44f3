"""A check for each thing of driver and cards that drifts: red when it is broken, green after a deploy or its cure."""

import pytest

from tests.hosts.driver_box import DriverBox
from tests.hosts.nvidia_drifts import DECLARED, ONE, OTHER, ROUNDS, SOURCE, publish_archive, run_action
from tests.hosts.support import deploy
from tests.stand_ins import card_faults

# Of the drifts, those whose signs depend on what the release has: apt's way to verify, and DKMS
DIFFER = {"an archive that another key signs", "a module that DKMS never built", "a next kernel without the module"}
WHOLE = "debian-13"


@pytest.fixture
def drifting(driven: DriverBox) -> DriverBox:
    """A host on which no check is left out for want of something declared, and an archive with another branch."""
    for card, partner in ((ONE, OTHER), (OTHER, ONE)):
        card_faults.change_card(driven.host, card, bridge=partner, nvlinks=4, nvlinks_max=4)
    driven.declare(**DECLARED)
    publish_archive(driven)
    assert "loaded with NVreg_EnableResizableBar=0, 1 is declared" in driven.run_rig("deploy", status=1)
    driven.run_rig("deploy", "--reboot")
    driven.host.run(f"apt-get -q update -o Dir::Etc::SourceList={SOURCE} -o Dir::Etc::SourceParts=-")
    return driven


@pytest.mark.all_only
def test_each_drift_turns_its_checks_red_and_its_cure_turns_them_green(
    drifting: DriverBox, subtests: pytest.Subtests
) -> None:
    assert drifting.red_checks() == set()
    for name, drifts in ROUNDS.items():
        here = {what: row for what, row in drifts.items() if drifting.system == WHOLE or what in DIFFER}
        if not here:
            continue
        with subtests.test(name):
            expected = [red for _, red, _ in here.values()]
            assert len(set().union(*expected)) == sum(map(len, expected)), "two drifts of one round have one check"
            for break_it, _, _ in here.values():
                run_action(drifting, break_it)
            found = drifting.red_checks()
            for _, _, cure in here.values():
                run_action(drifting, cure)
            deploy(drifting.inventory, "--yes", "--data", "reboot=true")
            # after the cure, so that one round that fails does not spoil the next
            wanted = set().union(*expected)
            assert (found - wanted, wanted - found) == (set(), set())
    assert drifting.red_checks() == set()
