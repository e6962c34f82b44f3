"""Signed locks and bundles: each field of lock, bundle and signature that was changed is refused, and so are older ones
on a host that has accepted later ones."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import main, rollout_plan
from rigwright.inventory import make_group
from rigwright.plan.preflight import find_refusals
from rigwright.problems import Invalid
from rigwright.signing.ssh_signatures import sign_statement
from rigwright.signing.statements import Statement
from rigwright.signing.timestamps import current_time
from rigwright.supply.bundle import INDEX
from rigwright.supply.supply_signatures import (
    lock_signature_path,
    verify_supply,
)
from tests.lock_files import render_sealed_lock, reseal_text
from tests.unit import test_entry_bundle
from tests.unit.host_states import rig_target_state
from tests.unit.samples import NOW, OperatorFolder, sample_facts, sample_rig
from tests.unit.signed_folder import SignedFolder
from tests.unit.signing_keys import DAY, make_key, public_key


@pytest.fixture
def signed(box: OperatorFolder, tmp_path: Path) -> SignedFolder:
    folder = SignedFolder(box, make_key(tmp_path, "alice"))
    folder.sign()
    return folder


def test_lock_and_bundle_are_signed_together(signed: SignedFolder) -> None:
    assert signed.faults() == []
    lock, bundle = signed.rig().signatures
    assert (lock.kind, bundle.kind, lock.signer) == ("lock", "bundle", "alice")
    assert lock.serial == bundle.serial
    assert bundle.sha256 == hashlib.sha256((signed.bundle / INDEX).read_bytes()).hexdigest()
    assert 179 * DAY < lock.expires - current_time() <= 180 * DAY


def test_without_signers_nothing_is_required(box: OperatorFolder, tmp_path: Path) -> None:
    folder = SignedFolder(box, make_key(tmp_path, "alice"))
    folder.declare(signers=None)
    assert folder.faults() == []
    assert "no rig has signers: add signers=" in folder.sign(code=2)


def test_a_missing_signature_names_the_command(signed: SignedFolder) -> None:
    signed.lock_signature.unlink()
    signed.bundle_signature.unlink()
    assert signed.faults() == [
        f"{signed.lock_signature}: the lock is refused: its signature is missing: `rigwright sign "
        f"{signed.box.inventory}` writes it",
        f"{signed.bundle_signature}: the bundle is refused: its signature is missing: `rigwright sign "
        f"'{signed.bundle}'` writes it",
    ]


def test_a_deploy_is_refused_before_any_host_is_reached(signed: SignedFolder) -> None:
    signed.lock_signature.unlink()
    for arguments in ([], ["--dry"], ["--upgrade-driver"]):
        output = signed.deploy(*arguments)
        assert "the lock is refused: its signature is missing" in output
        assert "onnect" not in output
    assert [str(one) for one in signed.rig().supply_faults] == signed.faults()


def test_a_rollout_of_rollbacks_needs_no_signature(signed: SignedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def survey(*words: object) -> None:
        raise click.ClickException("the boxes are reached")

    monkeypatch.setattr(rollout_plan, "survey_boxes", survey)
    signed.lock_signature.unlink()
    for options, expected in (([], "the lock is refused: its signature is missing"), (["--rollback"], "are reached")):
        done = CliRunner().invoke(main, ["rollout", str(signed.box.inventory), "--dry", *options])
        assert (done.exit_code != 0, expected in done.output) == (True, True), done.output


OTHER_ROW = f"""[[artefact]]
kind = "weight"
name = "more"
version = "1.0"
file = "more.gguf"
sha256 = "{"e" * 64}"
size = 5
sources = ["store:x"]
"""
# each key of a row, and each key of a lock
LOCK_CHANGES = {
    "name": ('name = "small"', 'name = "large"'),
    "version": ('version = "1.0"', 'version = "1.1"'),
    "file": ('file = "small.gguf"', 'file = "other.gguf"'),
    "sha256": ('sha256 = "', 'sha256 = "0'),
    "size": ("size = 7", "size = 8"),
    "sources": ('sources = ["store:x"]', 'sources = ["store:y"]'),
    "kind": ('kind = "weight"', 'kind = "plugin"'),
    "group": ('group = "tools"', 'group = "tool"'),
}


@pytest.mark.parametrize("field", LOCK_CHANGES)
def test_each_changed_field_of_a_lock_is_refused(signed: SignedFolder, field: str) -> None:
    path = signed.box.folder / "locks/box.lock.toml"
    old, new = LOCK_CHANGES[field]
    text = path.read_text()
    assert old in text
    changed = re.sub(r'sha256 = "0([0-9a-f]{63})[0-9a-f]"', r'sha256 = "0\1"', text.replace(old, new))
    path.write_text(reseal_text(changed))
    (problem,) = signed.lock_problems()
    assert "the lock is refused: it is about lock with SHA-256" in problem


def test_a_removed_and_a_duplicated_row_are_refused(signed: SignedFolder) -> None:
    path = signed.box.folder / "locks/box.lock.toml"
    rows = path.read_text().split("\n[[artefact]]")
    path.write_text(reseal_text("\n[[artefact]]".join(rows[:-1]).replace("artefacts = 3", "artefacts = 2")))
    (problem,) = signed.lock_problems()
    assert "it is about lock with SHA-256" in problem
    path.write_text(reseal_text("\n[[artefact]]".join([*rows, rows[-1]]).replace("artefacts = 3", "artefacts = 4")))
    with pytest.raises(Invalid, match="is listed twice"):
        signed.lock_problems()


INDEX_CHANGES = {
    "made": lambda index: index | {"made": "later"},
    "systems": lambda index: index | {"systems": ["debian-13"]},
    "digest": lambda index: index | {"digest": "0" * 64},
    "files": lambda index: index | {"files": index["files"][:-1]},
    "files twice": lambda index: index | {"files": index["files"] + index["files"][:1]},
    "schema": lambda index: index | {"schema": 3},
    "path": lambda index: index | {"files": [index["files"][0] | {"path": "x"}, *index["files"][1:]]},
    "size": lambda index: index | {"files": [index["files"][0] | {"size": 9}, *index["files"][1:]]},
    "sha256": lambda index: index | {"files": [index["files"][0] | {"sha256": "0" * 64}, *index["files"][1:]]},
}


@pytest.mark.parametrize("field", INDEX_CHANGES)
def test_each_changed_field_of_a_bundle_is_refused(signed: SignedFolder, field: str) -> None:
    path = signed.bundle / INDEX
    changed = INDEX_CHANGES[field](json.loads(path.read_text()))
    path.write_text(json.dumps(changed, indent=1) + "\n")
    assert signed.rig().supply_faults


@pytest.mark.parametrize("respell", [lambda data: data + b"\n", lambda data: data.replace(b"\n", b"\r\n")])
def test_space_in_an_index_is_signed_too(signed: SignedFolder, respell: Callable[[bytes], bytes]) -> None:
    path = signed.bundle / INDEX
    path.write_bytes(respell(path.read_bytes()))
    (problem,) = signed.faults()
    assert "the bundle is refused: it is about bundle.json with SHA-256" in problem


def test_signatures_of_lock_and_bundle_are_not_exchangeable(signed: SignedFolder) -> None:
    lock, bundle = signed.lock_signature.read_bytes(), signed.bundle_signature.read_bytes()
    signed.lock_signature.write_bytes(bundle)
    signed.bundle_signature.write_bytes(lock)
    assert [one.partition("refused: ")[2] for one in signed.faults()] == [
        "the signature has the namespace bundle@rigwright, and not lock@rigwright",
        "the signature has the namespace lock@rigwright, and not bundle@rigwright",
    ]


def test_the_signature_of_another_lock_is_refused(signed: SignedFolder) -> None:
    before = signed.lock_signature.read_bytes()
    test_entry_bundle.write_bundle(signed.box, weights=b"others!")
    signed.sign()
    assert signed.faults() == []
    signed.lock_signature.write_bytes(before)
    (problem,) = signed.faults()
    assert "the lock is refused: it is about lock with SHA-256" in problem


def test_a_bundle_that_was_signed_for_another_lock_is_refused(signed: SignedFolder) -> None:
    before = signed.bundle_signature.read_bytes()
    path = signed.box.folder / "locks/more.lock.toml"
    path.write_text(render_sealed_lock(OTHER_ROW))
    signed.sign()
    assert signed.faults() == []
    signed.bundle_signature.write_bytes(before)
    (problem,) = signed.faults()
    assert "the bundle is refused: it is about lock with SHA-256" in problem


def test_a_further_lock_file_is_refused(signed: SignedFolder) -> None:
    (signed.box.folder / "locks/more.lock.toml").write_text(render_sealed_lock(OTHER_ROW))
    assert "the lock is refused: it is about lock with SHA-256" in signed.faults()[0]


def test_a_consistent_forgery_of_lock_and_bundle_is_refused(signed: SignedFolder) -> None:
    # lock, index and file agree on the other bytes
    test_entry_bundle.write_bundle(signed.box, weights=b"forged!")
    assert signed.rig().bundle_faults == ()
    assert [one.partition(" is refused")[0].rpartition("the ")[2] for one in signed.faults()] == ["lock", "bundle"]


def test_a_pipe_in_the_place_of_a_signature_is_not_read(signed: SignedFolder) -> None:
    signed.lock_signature.unlink()
    os.mkfifo(signed.lock_signature)
    assert signed.faults()[0].endswith("its signature is not a file: a pipe, a socket or a device")


INVENTORY = {"inventory": "rig"}


def alice(signed: SignedFolder, **changes: object) -> dict[str, object]:
    return {"alice": {"key": str(public_key(signed.key)), **changes}}


def resign(folder: SignedFolder, key: Path, **times: object) -> None:
    """Sign the lock with other times, or another key."""
    values = {"serial": 1, "signed": current_time(), "expires": current_time() + DAY, "details": INVENTORY} | times
    statement = Statement("lock", (("lock", folder.rig().lock.digest),), **values)  # type: ignore[arg-type]
    folder.lock_signature.write_bytes(sign_statement(statement, key).render())


def test_a_statement_with_an_unknown_key_is_refused(signed: SignedFolder) -> None:
    resign(signed, signed.key, details={**INVENTORY, "allow": "everything"})
    assert "the lock is refused: its statement has the unknown key allow" in signed.faults()[0]


def test_the_signature_of_another_inventory_is_refused(signed: SignedFolder) -> None:
    # the other inventory keeps the older lock and renews its signature
    for details, found in (({"inventory": "other"}, "'other'"), ({}, "none")):
        resign(signed, signed.key, details=details)
        expected = f"its statement is for the inventory {found}, and not for 'rig': sign it again"
        assert signed.faults() == [f"{signed.lock_signature}: the lock is refused: {expected}"]
    signed.sign()
    other = signed.box.write("other.py", signed.box.inventory.read_text())
    lock = signed.rig().lock
    _, problems = verify_supply(other, lock, signed.rig().bundle, signed.signers)
    assert "its signature is missing" in str(problems[0])
    assert "its statement is for the inventory 'rig', and not for 'other'" in str(problems[1])


def test_inventories_with_the_same_file_name_have_names_of_their_own(signed: SignedFolder) -> None:
    before = signed.lock_signature.read_bytes()
    signed.declare(signed_as="berlin")
    expected = "its statement is for the inventory 'rig', and not for 'berlin': sign it again"
    assert [expected in one for one in signed.faults()] == [True, True]
    signed.sign()
    assert signed.faults() == []
    signed.declare()
    assert all("is for the inventory 'berlin', and not for 'rig'" in one for one in signed.faults())
    signed.lock_signature.write_bytes(before)
    assert len(signed.faults()) == 1


def test_sign_prints_what_it_signs(signed: SignedFolder) -> None:
    lock, bundle = signed.sign().replace("\n ", "").splitlines()
    digest = f"lock SHA-256 {signed.rig().lock.digest}"
    assert lock.endswith(f", {digest}")
    index = hashlib.sha256((signed.bundle / INDEX).read_bytes()).hexdigest()
    assert bundle.endswith(f", bundle.json SHA-256 {index}, {digest}")


def test_a_lock_that_a_stranger_signs_is_refused(signed: SignedFolder, tmp_path: Path) -> None:
    stranger = make_key(tmp_path, "mallory")
    resign(signed, stranger)
    (problem,) = signed.faults()
    assert f"the key {public_key(stranger).fingerprint} is of no signer; known: alice" in problem
    signed.key = stranger
    assert "is of no signer" in signed.sign(code=2)


def test_an_expired_and_a_future_signature_are_refused(signed: SignedFolder) -> None:
    resign(signed, signed.key, signed=current_time() - 2 * DAY, expires=current_time() - DAY)
    assert "the lock is refused: it expired at" in signed.faults()[0]
    resign(signed, signed.key, signed=current_time() + DAY, expires=current_time() + 2 * DAY)
    assert "the lock is refused: it is signed at" in signed.faults()[0]


def test_all_rigs_of_an_inventory_have_the_same_signers(signed: SignedFolder, tmp_path: Path) -> None:
    own = {"bob": {"key": str(public_key(make_key(tmp_path, "bob")))}}
    entries = {
        name: {"ssh_hostname": host, "instances": {}, "allow": ["locks.tools"]}
        for name, host in (("a", "192.0.2.1"), ("b", "192.0.2.2"))
    }
    shared = signed.box.load_group(entries, signers=alice(signed))
    assert len(shared) == 2
    message = r"{}\.signers: differ from those of {}: give signers, revoked_keys and signed_as to"
    with pytest.raises(SystemExit, match=message.format("b", "a")):
        signed.box.load_group({**entries, "b": {**entries["b"], "signers": own}}, signers=alice(signed))
    with pytest.raises(SystemExit, match=message.format("b", "a")):
        signed.box.load_group({"a": {**entries["a"], "signers": own}, "b": entries["b"]})
    # in either order, and with a further call of hosts()
    file = str(signed.box.inventory)
    first, second = {"a": entries["a"]}, {"b": entries["b"]}
    for one, other, names in (
        (alice(signed), None, ("b", "a")),
        (None, alice(signed), ("a", "b")),
        (alice(signed), own, ("b", "a")),
    ):
        group = make_group(file, first, {"signers": one} if one else {})
        with pytest.raises(SystemExit, match=message.format(*names)):
            make_group(file, second, {"signers": other} if other else {}, group)
    same = {"signers": alice(signed)}
    assert len(make_group(file, second, same, make_group(file, first, same))) == 1


def test_signature_faults_are_refusals_of_plan_and_check(signed: SignedFolder) -> None:
    signed.lock_signature.unlink()
    rig = sample_rig(signature_faults=signed.rig().signature_faults)
    assert find_refusals(rig_target_state(rig, sample_facts()), NOW) == signed.faults()


def test_the_signature_is_next_to_the_locks() -> None:
    assert str(lock_signature_path(Path("/boxes/rig.py"))) == "/boxes/locks/rig.lock.sig"
