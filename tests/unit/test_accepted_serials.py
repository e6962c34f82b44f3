"""Serials of signed locks and bundles that a host has accepted: their record, and refusals of older ones."""

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType

import pytest

from rigwright.plan.host_probe import probe_values
from rigwright.plan.preflight import find_refusals, find_warnings
from rigwright.signing.timestamps import current_time
from rigwright.signing.trusted_signers import TrustedSigners
from rigwright.supply.supply_signatures import (
    AcceptedSerial,
    SupplySignature,
    find_older_signatures,
    render_accepted_serials,
)
from tests.unit.host_states import rig_target_state
from tests.unit.samples import NOW, sample_facts, sample_rig
from tests.unit.signing_keys import DAY
from tests.unit.test_facts import probe


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, {}),
        (f"bundle 7 {'b' * 64}\nlock 9 {'a' * 64}\n", {"bundle": (7, "b" * 64), "lock": (9, "a" * 64)}),
        # the last line counts without its end, too
        (f"lock 9 {'a' * 64}", {"lock": (9, "a" * 64)}),
    ],
)
def test_the_probe_reads_accepted_serials(tmp_path: Path, text: str | None, expected: dict[str, object]) -> None:
    record = tmp_path / "accepted-serials"
    if text is not None:
        record.write_text(text)
    found = probe(accepted_serials=str(record)).accepted_serials
    assert {kind: (one.serial, one.sha256) for kind, one in found.items()} == expected


@pytest.mark.parametrize(
    "text", ["lock 9\n", "lock nine a\n", f"key 9 {'a' * 64}\n", f"lock 9 {'a' * 64} more\n", "lock\n"]
)
def test_a_damaged_record_of_serials_is_refused(tmp_path: Path, text: str) -> None:
    record = tmp_path / "accepted-serials"
    record.write_text(text)
    with pytest.raises(ValueError, match="accepted_serial"):
        probe(accepted_serials=str(record))


def signature(serial: int, sha256: str = "a" * 64) -> SupplySignature:
    return SupplySignature("lock", serial, sha256, "alice", current_time() + DAY)


SEEN = MappingProxyType({"lock": AcceptedSerial(7, "a" * 64), "bundle": AcceptedSerial(9, "b" * 64)})


@pytest.mark.parametrize(
    ("one", "consent", "expected"),
    [
        (signature(7), 0, ""),
        (signature(8, "c" * 64), 0, ""),
        (
            signature(6),
            0,
            "the lock is signed with serial 6, and this host has accepted 7: an older",
        ),
        (signature(6), 6, ""),
        (signature(6), 5, "the lock is signed with serial 6"),
        (
            signature(7, "c" * 64),
            0,
            "the lock is another than the one that this host has accepted with",
        ),
        (
            signature(7, "c" * 64),
            7,
            "the lock is another than the one that this host has accepted with",
        ),
    ],
)
def test_an_older_lock_needs_consent_by_its_serial(one: SupplySignature, consent: int, expected: str) -> None:
    found = find_older_signatures([one], SEEN, consent)
    assert len(found) == bool(expected)
    assert all(line.startswith(expected) for line in found)
    rig = sample_rig(signatures=(one,))
    refusals = find_refusals(rig_target_state(rig, sample_facts(accepted_serials=SEEN)), NOW, consent)
    assert refusals == found


@pytest.mark.parametrize(("days", "warned"), [(13, True), (15, False)])
def test_a_signature_that_expires_soon_is_announced(days: int, warned: bool) -> None:
    expires = datetime.fromtimestamp(NOW, timezone.utc) + days * DAY
    rig = sample_rig(signatures=(replace(signature(7), expires=expires),))
    expected = f"the signature of the lock expires on {expires.date()}: sign it again before"
    assert find_warnings(rig, sample_facts()) == [expected] * warned


def test_a_host_keeps_the_serials_of_kinds_that_a_run_lacks() -> None:
    assert render_accepted_serials([signature(8)], SEEN) == f"bundle 9 {'b' * 64}\nlock 8 {'a' * 64}\n"


def test_an_inventory_that_has_lost_its_signers_is_announced() -> None:
    for signers in (None, TrustedSigners(())):
        rig = sample_rig(signers=signers)
        assert probe_values(rig)["accepted_serials"] == "/var/lib/rigwright/accepted-serials"
        assert find_warnings(rig, sample_facts()) == []
        expected = "the inventory has no signers, and this host has accepted signed locks: a deploy takes any lock"
        found = find_warnings(rig, sample_facts(accepted_serials=SEEN))
        assert [one.partition(";")[0] for one in found] == [expected] * (signers is None)
