"""Keys that sign: validity, loss, rotation, agents, and mistakes in `signers`."""

# ruff: noqa: F811 (fixtures of another file)

import json
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.inventory import load_for, load_rig
from rigwright.signing.timestamps import current_time
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.signed_folder import SignedFolder
from tests.unit.signing_keys import DAY, make_key, public_key
from tests.unit.test_supply_signatures import alice, resign, signed  # noqa: F401 (fixtures)


def day(distance: timedelta) -> str:
    return (current_time() + distance).date().isoformat()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"valid_before": day(-DAY)}, "the key of alice is valid before"),
        ({"valid_after": day(2 * DAY)}, "the key of alice is valid after"),
    ],
)
def test_a_key_outside_of_its_validity_is_refused(signed: SignedFolder, changes, expected) -> None:
    signed.declare(signers=alice(signed, **changes))
    assert len(signed.faults()) == 2
    assert all(expected in one for one in signed.faults())
    before = signed.lock_signature.read_bytes()
    assert expected in signed.sign(code=2)
    assert signed.lock_signature.read_bytes() == before


def test_a_lost_key_is_revoked_and_another_signs_again(signed: SignedFolder, tmp_path: Path) -> None:
    lost, fresh = signed.key, make_key(tmp_path, "bob")
    both = {**alice(signed), "bob": {"key": str(public_key(fresh))}}
    for revoked in (public_key(lost).fingerprint, str(public_key(lost))):
        signed.declare(signers=both, revoked_keys=[revoked])
        assert all(f"the key {public_key(lost).fingerprint} is revoked" in one for one in signed.faults())
        assert len(signed.faults()) == 2
    assert "is revoked" in signed.sign(code=2)
    signed.key = fresh
    signed.sign()
    assert signed.faults() == []
    assert {one.signer for one in signed.rig().signatures} == {"bob"}


def test_a_rotated_key_is_accepted_next_to_its_successor(signed: SignedFolder, tmp_path: Path) -> None:
    fresh = make_key(tmp_path, "alice2")
    both = {**alice(signed, valid_before=day(30 * DAY)), "alice2": {"key": str(public_key(fresh))}}
    signed.declare(signers=both)
    assert signed.faults() == []
    signed.key = fresh
    signed.sign()
    signed.declare(signers={"alice2": both["alice2"]})
    assert signed.faults() == []


def test_a_bundle_is_signed_without_its_inventory(signed: SignedFolder) -> None:
    signed.bundle_signature.unlink()
    signed.sign("--expires", "3", target=str(signed.bundle))
    assert signed.faults() == []
    done = CliRunner().invoke(main, ["sign", str(signed.bundle)])
    assert (done.exit_code, "name the key with --key" in done.output) == (2, True)


def test_bundles_are_made_from_signed_locks_only(signed: SignedFolder) -> None:
    resign(signed, signed.key, signed=current_time() - 2 * DAY, expires=current_time() - DAY)
    done = CliRunner().invoke(main, ["bundle", str(signed.box.inventory), "--system", "debian-12"])
    assert (done.exit_code, "the lock is refused: it expired at" in done.output) == (2, True)


def test_a_lock_is_signed_before_there_is_a_bundle(signed: SignedFolder) -> None:
    for path in (signed.lock_signature, signed.bundle_signature):
        path.unlink(missing_ok=True)
    index = signed.bundle / "bundle.json"
    index.rename(signed.bundle / "away")
    said = signed.sign()
    assert "make it, and sign again:" in said
    assert "No such file or directory" in said
    assert (signed.lock_signature.exists(), signed.bundle_signature.exists()) == (True, False)
    assert signed.lock_problems() == []
    (signed.bundle / "away").rename(index)
    assert ["bundle" in line for line in signed.faults()] == [True]
    assert "make it" not in signed.sign()
    assert signed.faults() == []


def test_a_lock_is_made_whatever_its_signature_is(signed: SignedFolder) -> None:
    signed.lock_signature.unlink()
    with load_for("lock"):
        ((_, data),) = signed.box.load_group({"box": sample_entry(instances=chat_instances(), **signed.changes)})
        assert load_rig(data["rig"]).signature_faults == ()


def test_the_key_of_an_agent_is_found(signed: SignedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "none"))
    done = CliRunner().invoke(main, ["sign", str(signed.box.inventory)])
    assert (done.exit_code, "ssh-agent has no key of a signer: name the key with --key" in done.output) == (2, True)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        for key in (signed.key, make_key(tmp_path, "other")):
            while subprocess.run(["ssh-add", "-q", str(key)], check=False, capture_output=True).returncode:
                assert agent.poll() is None
        signed.lock_signature.unlink()
        done = CliRunner().invoke(main, ["sign", str(signed.box.inventory)])
        assert done.exit_code == 0, done.output
        assert signed.faults() == []
    finally:
        agent.terminate()
        agent.wait()


def test_a_private_key_that_others_read_is_refused(signed: SignedFolder) -> None:
    signed.key.chmod(0o644)
    assert "is readable by others (mode 0644): chmod 600" in signed.sign(code=2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"signers": {"alice": {"key": "ssh-ed25519 nothing"}}}, "box.signers.alice.key: "),
        ({"signers": {"a b": {"key": "{key}"}}}, "a name of 1 to 64 letters, digits and ._@-"),
        ({"signers": {"alice": {"key": "{key}", "signs": ["everything"]}}}, "box.signers.alice.signs[0]: "),
        ({"signers": {"alice": {"key": "{key}", "signs": ["verdict"]}}}, "no signer may sign the lock"),
        ({"signers": {"alice": {"key": "{key}"}, "bob": {"key": "{key}"}}}, "alice, bob have the same key SHA256:"),
        (
            {"signers": {"alice": {"key": "{key}", "valid_after": "2027-01-01", "valid_before": "2026-01-01"}}},
            "a valid_after before its valid_before",
        ),
        ({"signers": {"alice": {"key": "{key}", "until": "2027-01-01"}}}, 'did you mean "valid_before"?'),
        ({"revoked_keys": ["SHA256:short"], "signers": {"alice": {"key": "{key}"}}}, "box.revoked_keys[0]: "),
        ({"revoked_keys": ["SHA256:" + "A" * 43]}, "box.revoked_keys: needs signers"),
        ({"signed_as": "berlin"}, "box.signed_as: needs signers"),
        ({"signed_as": "a b", "signers": {"alice": {"key": "{key}"}}}, "box.signed_as: "),
        ({"signers": {}}, "box.signers: {} is refused: must be a non-empty table"),
    ],
)
def test_mistakes_in_signers_are_refused(box: OperatorFolder, tmp_path: Path, changes, expected) -> None:
    key = str(public_key(make_key(tmp_path, "alice")))
    filled = json.loads(json.dumps(changes).replace("{key}", key))
    lines = box.refusal_lines(**filled)
    assert any(expected in line for line in lines), lines
