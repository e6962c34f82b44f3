"""Keys of security tokens sign and verify all kinds. The token is a stand-in behind a stand-in ssh-agent; ssh-keygen is
the real one, which makes each signature and verifies it."""

# ruff: noqa: F811 (fixtures of another file)

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.signing import ssh_signatures
from rigwright.signing.dsse import IN_TOTO, Envelope, parse_envelope
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_statement, verify_envelope
from rigwright.signing.statements import KINDS, SignedKind
from rigwright.signing.trusted_signers import Signer, TrustedSigners
from roles.pull.host import root_jobs
from tests.stand_ins.security_token import KEY_TYPE, PRESENT, VERIFIED, SoftwareToken, encode_field, token_agent
from tests.unit.published_boxes import PublishedWorld, PublisherKeys
from tests.unit.samples import OperatorFolder
from tests.unit.signed_folder import SignedFolder
from tests.unit.signing_keys import NOW, lock_statement, public_key, trust
from tests.unit.test_signed_verdict import NONCE, Verdicts, digest, keys, verdicts  # noqa: F401 (fixtures)

SERIAL = 20261129100000
FLAGS = [0, PRESENT, VERIFIED, PRESENT | VERIFIED]


def write_token_key(folder: Path, token: SoftwareToken) -> Path:
    """The public key, by which ssh-keygen asks the agent; its .pub file is next to it."""
    path = folder / token.name
    for one in (path, path.with_name(f"{path.name}.pub")):
        one.write_text(f"{token.line}\n")
    return path


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Iterator[SoftwareToken]:
    """A token that the agent has."""
    made = SoftwareToken("alice")
    with token_agent(made) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        yield made


@pytest.fixture
def key(token: SoftwareToken, tmp_path: Path) -> Path:
    return write_token_key(tmp_path, token)


def test_a_token_signs_locks_and_bundles(box: OperatorFolder, key: Path, token: SoftwareToken) -> None:
    folder = SignedFolder(box, key)
    folder.sign()
    assert folder.faults() == []
    assert token.counter == 2
    folder.bundle_signature.write_bytes(folder.bundle_signature.read_bytes().replace(b"A", b"B", 1))
    assert folder.faults() != []


def test_the_token_of_the_agent_is_the_default_key(box: OperatorFolder, key: Path, token: SoftwareToken) -> None:
    folder = SignedFolder(box, key)
    done = CliRunner().invoke(main, ["sign", str(box.inventory)])
    assert (done.exit_code, token.counter, folder.faults()) == (0, 2, []), done.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_signs_each_kind(key: Path, kind: SignedKind) -> None:
    signed = sign_statement(lock_statement(kind=kind), key).render()
    assert verify_envelope(signed, kind, trust(key), NOW).signer.key.key_type == KEY_TYPE


def test_the_program_without_rigwright_verifies_a_verdict_of_a_token(verdicts: Verdicts, key: Path) -> None:
    verdicts.keys = {**verdicts.keys, "ana": key}
    verdicts.trust("ana", 'namespaces="verdict@rigwright"')
    first = verdicts.write("1", verdicts.details(nonce=NONCE))
    second = verdicts.write("2", verdicts.details(2, digest(first)))
    status, output = verdicts.verify(first, second, options=("--complete",))
    assert status == 0, output
    assert "number 2, signed " in output
    forged = verdicts.write("3", verdicts.details(3, digest(second)), "eve")
    assert verdicts.refusal(first, second, forged) == "unknown_signer"


def token_world(tmp_path: Path, key: Path) -> PublishedWorld:
    """A published generation, all of whose metadata a token has signed."""
    others = tmp_path / "keys"
    others.mkdir()
    publisher = PublisherKeys(others)
    publisher.alice = key
    publisher.signers = TrustedSigners((Signer("alice", public_key(key), ("generation", "timestamp")),))
    world = PublishedWorld(tmp_path, publisher)
    world.publish(SERIAL)
    world.place()
    return world


def test_a_box_pulls_a_generation_that_a_token_has_signed(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_jobs, "run_program", lambda *words: (3, "inactive"))
    world = token_world(tmp_path, key)
    # verified: this box has no way from the generation that it serves
    assert world.verify() == "needs_deploy"
    assert world.record["seen"] == [SERIAL, world.record["seen"][1], SERIAL]  # type: ignore[index]
    world.entry = world.add_generation(SERIAL + 1)
    world.write_timestamp(SERIAL + 1, key=world.keys.mallory)
    world.place()
    assert world.verify() == "unknown_signer"


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Sign as a client that accepts signatures without a touch, until the returned function is called."""
    judge = ssh_signatures.require_touch
    monkeypatch.setattr(ssh_signatures, "require_touch", lambda signature: None)
    return lambda: monkeypatch.setattr(ssh_signatures, "require_touch", judge)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signature_without_a_touch_counts_for_no_kind(
    token: SoftwareToken, key: Path, careless: Callable[[], None], flags: int, kind: SignedKind
) -> None:
    token.flags = flags
    signed = sign_statement(lock_statement(kind=kind), key).render()
    # ssh-keygen itself judges neither a touch nor a PIN
    assert verify_envelope(signed, kind, trust(key), NOW)
    careless()
    if flags & PRESENT:
        assert verify_envelope(signed, kind, trust(key), NOW)
    else:
        with pytest.raises(SignatureRefused, match="was not touched") as caught:
            verify_envelope(signed, kind, trust(key), NOW)
        assert caught.value.reason == "no_touch"


def test_sign_writes_no_signature_without_a_touch(box: OperatorFolder, key: Path, token: SoftwareToken) -> None:
    folder = SignedFolder(box, key)
    token.flags = VERIFIED
    done = CliRunner().invoke(main, ["sign", str(box.inventory), "--key", str(key)])
    assert done.exit_code != 0
    assert "which was not touched for this signature (flag 1)" in done.output
    assert not folder.bundle_signature.exists()
    assert list(box.inventory.parent.rglob("*.sig")) == []


def test_a_verdict_without_a_touch_is_refused_without_rigwright(
    verdicts: Verdicts, key: Path, token: SoftwareToken, careless: Callable[[], None]
) -> None:
    verdicts.keys = {**verdicts.keys, "ana": key}
    verdicts.trust("ana", 'namespaces="verdict@rigwright"')
    token.flags = VERIFIED
    assert verdicts.refusal(verdicts.write("1", verdicts.details(nonce=NONCE))) == "no_touch"
    token.flags = PRESENT | VERIFIED
    assert verdicts.verify(verdicts.write("1", verdicts.details(nonce=NONCE)))[0] == 0


def test_a_box_pulls_nothing_that_was_signed_without_a_touch(
    tmp_path: Path, key: Path, token: SoftwareToken, careless: Callable[[], None]
) -> None:
    token.flags = 0
    world = token_world(tmp_path, key)
    careless()
    assert world.verify() == "no_touch"
    assert "seen" not in world.record


@pytest.mark.parametrize("option", ["no-touch-required", "verify-required"])
def test_ssh_keygen_knows_these_options_of_keys_in_no_list_of_signers(
    key: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"alice {option} {public_key(key)}\n"
    monkeypatch.setattr("rigwright.signing.ssh_signatures.render_allowed_signers", lambda signers: line)
    with pytest.raises(SignatureRefused, match="allowed:1: bad options: unknown key option"):
        verify_envelope(sign_statement(lock_statement(), key).render(), "lock", trust(key), NOW)


def change_end(data: bytes, at: int) -> bytes:
    """A signature with another byte, counted from its end: four of the counter, one of flags, 64 of Ed25519."""
    place = len(data) - at
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        lambda blob: change_end(blob, 1),
        lambda blob: change_end(blob, 4),
        lambda blob: change_end(blob, 5),
        lambda blob: change_end(blob, 6),
        lambda blob: blob[:-5],
        lambda blob: blob.replace(encode_field(b"ssh:"), encode_field(b"ssx:")),
        lambda blob: blob.replace(encode_field(KEY_TYPE.encode()), encode_field(b"ssh-ed25519")),
    ],
    ids=["counter", "counter's first byte", "flags", "signature", "cut", "application", "type"],
)
def test_each_part_of_a_tokens_signature_counts(key: Path, change: Callable[[bytes], bytes]) -> None:
    envelope = parse_envelope(sign_statement(lock_statement(), key).render())
    forged = Envelope(IN_TOTO, envelope.payload, envelope.key_id, change(envelope.signature)).render()
    with pytest.raises(SignatureRefused) as caught:
        verify_envelope(forged, "lock", trust(key), NOW)
    assert caught.value.reason in ("changed", "malformed")


def test_the_key_of_another_token_is_of_no_signer(key: Path, token: SoftwareToken, tmp_path: Path) -> None:
    signed = sign_statement(lock_statement(), key).render()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(SignatureRefused, match="is of no signer"):
        verify_envelope(signed, "lock", trust(write_token_key(other, SoftwareToken("bob"))), NOW)


def test_an_agent_without_the_token_signs_nothing(key: Path, token: SoftwareToken, tmp_path: Path) -> None:
    gone = write_token_key(tmp_path, SoftwareToken("gone"))
    with pytest.raises(SignatureRefused, match="ssh-keygen does not sign with"):
        sign_statement(lock_statement(), gone)
