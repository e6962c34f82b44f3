"""Signed statements: each field of envelope and statement, changed, removed, duplicated, replayed, signed again and
redated, is refused with a reason. ssh-keygen is the real one."""

import base64
import json
import subprocess
from pathlib import Path

import pytest

from rigwright.signing.dsse import IN_TOTO, Envelope, parse_envelope, pre_authentication_encoding
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.ssh_signatures import sign_statement, verify_envelope
from rigwright.signing.statements import parse_statement, require_subject
from rigwright.signing.strict_json import render_canonical_json
from rigwright.signing.trusted_signers import TrustedSigners, render_allowed_signers
from tests.unit.signing_keys import DAY, NOW, lock_statement, make_key, public_key, trust


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("keys"), "alice")


@pytest.fixture(scope="module")
def other_key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("keys"), "mallory")


@pytest.fixture(scope="module")
def signed(key):
    return sign_statement(lock_statement(), key).render()


def refusal(data: bytes, signers: TrustedSigners, kind="lock", now=NOW) -> tuple[str, str]:
    with pytest.raises(SignatureRefused) as caught:
        verify_envelope(data, kind, signers, now)
    return caught.value.reason, str(caught.value)


def test_a_signed_statement_returns_as_it_was(signed, key):
    verified = verify_envelope(signed, "lock", trust(key), NOW)
    assert verified.statement == lock_statement()
    assert verified.signer.principal == "alice"


def test_ssh_keygen_itself_verifies_the_specified_bytes(signed, key, tmp_path):
    table = json.loads(signed)
    payload = base64.b64decode(table["payload"])
    blob = base64.b64encode(base64.b64decode(table["signatures"][0]["sig"])).decode()
    (tmp_path / "sig").write_text(f"-----BEGIN SSH SIGNATURE-----\n{blob}\n-----END SSH SIGNATURE-----\n")
    (tmp_path / "allowed").write_text(render_allowed_signers(trust(key)))
    words = ["ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "alice", "-n", "lock@rigwright", "-s", "sig"]
    data = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    done = subprocess.run(words, cwd=tmp_path, input=data, capture_output=True, check=True)
    assert b'Good "lock@rigwright" signature for alice' in done.stdout


@pytest.mark.parametrize("key_type", ["rsa", "ecdsa"])
def test_other_types_of_keys_sign(tmp_path, key_type):
    path = make_key(tmp_path, "bob", key_type)
    data = sign_statement(lock_statement(), path).render()
    assert verify_envelope(data, "lock", trust(path), NOW).signer.principal == "bob"


def test_an_agent_signs_with_a_public_key(key, tmp_path, monkeypatch):
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        while subprocess.run(["ssh-add", "-q", str(key)], check=False, capture_output=True).returncode:
            assert agent.poll() is None
        only_public = tmp_path / "alice.pub"
        only_public.write_text(f"{public_key(key)}\n")
        assert verify_envelope(sign_statement(lock_statement(), only_public).render(), "lock", trust(key), NOW)
    finally:
        agent.terminate()
        agent.wait()


def test_a_key_that_does_not_sign_is_named_with_the_message_of_ssh_keygen(tmp_path):
    with pytest.raises(SignatureRefused, match=r"ssh-keygen does not sign with .*absent: .*No such file"):
        sign_statement(lock_statement(), tmp_path / "absent")


def change_bits(data: bytes) -> list[bytes]:
    return [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), max(1, len(data) // 40))]


def test_each_changed_removed_or_added_byte_is_refused(signed, key):
    signers = trust(key)
    for data in [*change_bits(signed), signed[:-1], signed[1:], signed + b"\n", b" " + signed, signed * 2, b""]:
        assert refusal(data, signers)[0] in ("malformed", "changed", "unknown_signer", "wrong_kind")


FIELDS = ["payload", "payloadType", "signatures"]


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_of_the_envelope_is_required_once(signed, key, field):
    table = json.loads(signed)
    duplicate = signed.replace(b"{", f'{{"{field}":{json.dumps(table[field])},'.encode(), 1)
    reason, text = refusal(duplicate, trust(key))
    assert (reason, text) == ("malformed", f"the envelope is malformed: the key '{field}' is there twice")
    del table[field]
    assert refusal(render_canonical_json(table) + b"\n", trust(key))[0] == "malformed"


@pytest.mark.parametrize(
    ("signatures", "expected"),
    [
        (lambda row: [], "the envelope does not have exactly one signature"),
        (lambda row: [row, row], "the envelope does not have exactly one signature"),
        (lambda row: [{"sig": row["sig"]}], "the signature has other keys than keyid and sig"),
        (lambda row: [{**row, "note": "x"}], "the signature has other keys than keyid and sig"),
        (lambda row: [{**row, "sig": row["sig"].rstrip("=")[:-1]}], "sig is not base64"),
        (lambda row: [{**row, "keyid": "SHA256:" + "A" * 43}], "keyid of the envelope is not the fingerprint"),
        (lambda row: [{**row, "keyid": ""}], "keyid of the envelope is malformed"),
        (lambda row: row, "the envelope does not have exactly one signature"),
    ],
)
def test_other_signatures_in_an_envelope_are_malformed(signed, key, signatures, expected):
    table = json.loads(signed)
    table["signatures"] = signatures(table["signatures"][0])
    reason, text = refusal(render_canonical_json(table) + b"\n", trust(key))
    assert reason == "malformed"
    assert text.startswith(expected)


def with_blob(signed: bytes, change) -> bytes:
    envelope = parse_envelope(signed)
    return Envelope(IN_TOTO, envelope.payload, envelope.key_id, change(envelope.signature)).render()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda blob: blob + b"x", "the signature has additional bytes"),
        (lambda blob: blob[:-1], "the signature is truncated"),
        (lambda blob: b"SSHSIX" + blob[6:], "the signature is no SSH signature of version 1"),
        (lambda blob: blob.replace(b"sha512", b"sha51x"), "the signature has another hash than sha512 and sha256"),
        (lambda blob: blob.replace(b"lock@rigwright", b"lock@rigwrigh\n"), "the signature contains a field that"),
        (lambda blob: blob.replace(b"ssh-ed25519", b"ssh-ed25518"), "the public key has the type 'ssh-ed25518'"),
        (lambda blob: b"x" * 20000, "the signature has more than 16384 bytes"),
    ],
)
def test_a_malformed_signature_is_described(signed, key, change, expected):
    reason, text = refusal(with_blob(signed, change), trust(key))
    assert reason == "malformed"
    assert text.startswith(expected)


def test_a_namespace_that_was_exchanged_does_not_fit_the_signature(signed, key):
    forged = with_blob(signed, lambda blob: blob.replace(b"\0\x0elock@", b"\0\x10bundle@"))
    assert refusal(forged, trust(key), "bundle")[0] == "changed"


REDATED = {"serial": 8, "signed": NOW - 2 * DAY, "expires": NOW + 60 * DAY, "subjects": (("lock", "b" * 64),)}
REDATED["details"] = {"inventory": "other"}


@pytest.mark.parametrize("field", REDATED)
def test_each_field_of_the_statement_that_was_changed_does_not_fit_the_signature(signed, key, field):
    envelope = parse_envelope(signed)
    payload = lock_statement(**{field: REDATED[field]}).render()
    forged = Envelope(IN_TOTO, payload, envelope.key_id, envelope.signature).render()
    reason, text = refusal(forged, trust(key))
    assert reason == "changed"
    assert text.startswith("the signed bytes were changed, or the signature was: ssh-keygen says ")


def test_a_statement_that_a_stranger_signs_again_is_refused(signed, key, other_key):
    forged = sign_statement(lock_statement(), other_key).render()
    reason, text = refusal(forged, trust(key))
    assert reason == "unknown_signer"
    assert text == (
        f"the key {public_key(other_key).fingerprint} is of no signer; known: alice ({public_key(key).fingerprint})"
    )
    envelope, own = parse_envelope(forged), parse_envelope(signed)
    pretending = Envelope(IN_TOTO, envelope.payload, own.key_id, envelope.signature).render()
    assert refusal(pretending, trust(key))[0] == "malformed"


def test_a_signature_of_another_kind_is_refused(signed, key):
    assert refusal(signed, trust(key), "bundle") == (
        "wrong_kind",
        "the signature has the namespace lock@rigwright, and not bundle@rigwright",
    )
    assert refusal(signed, trust(key, ("bundle", "verdict"))) == (
        "wrong_kind",
        "alice may sign bundle, verdict, and not lock",
    )


def sign_bytes(key: Path, data: bytes, namespace: str) -> bytes:
    """A signature by ssh-keygen of any bytes, without its armour."""
    words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace]
    text = subprocess.run(words, input=data, check=True, capture_output=True).stdout.decode()
    return base64.b64decode("".join(text.splitlines()[1:-1]))


PAYLOAD = lock_statement().render()


@pytest.mark.parametrize(
    ("payload_type", "data", "namespace", "reason"),
    [
        # the bytes of a file that a signer was led to sign have no encoding before them
        (IN_TOTO, PAYLOAD, "lock@rigwright", "changed"),
        (IN_TOTO, pre_authentication_encoding("text/plain", PAYLOAD), "lock@rigwright", "changed"),
        ("text/plain", pre_authentication_encoding("text/plain", PAYLOAD), "lock@rigwright", "wrong_kind"),
        # signatures of other programs with the same key
        (IN_TOTO, pre_authentication_encoding(IN_TOTO, PAYLOAD), "git", "wrong_kind"),
        (IN_TOTO, pre_authentication_encoding(IN_TOTO, PAYLOAD), "file", "wrong_kind"),
        (IN_TOTO, pre_authentication_encoding(IN_TOTO, PAYLOAD), "lock@rigwright ", "wrong_kind"),
    ],
)
def test_signatures_of_other_bytes_with_the_right_key_are_refused(key, payload_type, data, namespace, reason):
    blob = sign_bytes(key, data, namespace)
    forged = Envelope(payload_type, PAYLOAD, public_key(key).fingerprint, blob).render()
    assert refusal(forged, trust(key))[0] == reason


def test_the_helper_of_forged_signatures_makes_valid_ones(key):
    blob = sign_bytes(key, pre_authentication_encoding(IN_TOTO, PAYLOAD), "lock@rigwright")
    envelope = Envelope(IN_TOTO, PAYLOAD, public_key(key).fingerprint, blob)
    assert verify_envelope(envelope.render(), "lock", trust(key), NOW)


def test_a_revoked_key_is_refused_by_its_name_and_by_ssh_keygen(signed, key):
    signers = TrustedSigners(trust(key).signers, frozenset({public_key(key).fingerprint}))
    assert refusal(signed, signers) == ("revoked", f"the key {public_key(key).fingerprint} is revoked")


@pytest.mark.parametrize(
    ("validity", "now", "expected", "text"),
    [
        (
            {"valid_before": NOW},
            NOW,
            "key_expired",
            "the key of alice is valid before 2026-11-29T12:00:00Z, and not at",
        ),
        ({"valid_after": NOW + DAY}, NOW, "key_not_yet_valid", "the key of alice is valid after 2026-11-30T12:00:00Z"),
        # signed before the key was valid: a time of the signature is its signer's own word
        ({"valid_after": NOW - DAY / 2}, NOW, "key_not_yet_valid", "the key of alice is valid after"),
        ({}, NOW + 30 * DAY, "statement_expired", "it expired at 2026-12-29T12:00:00Z: sign it again"),
        ({}, NOW - 2 * DAY, "statement_in_future", "it is signed at 2026-11-28T12:00:00Z, and now is"),
    ],
)
def test_times_are_judged_now_and_at_the_signature(signed, key, validity, now, expected, text):
    reason, message = refusal(signed, trust(key, **validity), now=now)
    assert reason == expected
    assert message.startswith(text)


def test_the_validity_of_keys_is_ssh_keygens_own_too(signed, key, monkeypatch):
    monkeypatch.setattr("rigwright.signing.ssh_signatures.require_may_sign", lambda *_: None)
    assert refusal(signed, trust(key, valid_before=NOW - DAY))[0] == "changed"
    assert refusal(signed, trust(key, ("bundle",)))[0] == "changed"
    monkeypatch.setattr(TrustedSigners, "find", lambda self, _: self.signers[0])
    revoked = frozenset({public_key(key).fingerprint})
    assert refusal(signed, TrustedSigners(trust(key).signers, revoked))[0] == "changed"


@pytest.mark.parametrize("statement", [lock_statement(expires=NOW - DAY), lock_statement(expires=NOW - 2 * DAY)])
def test_a_statement_that_expires_before_its_signature_is_malformed(key, statement):
    reason, text = refusal(sign_statement(statement, key).render(), trust(key))
    assert (reason, text) == ("malformed", "the statement expires before it is signed")


def test_another_subject_is_refused(signed, key):
    statement = verify_envelope(signed, "lock", trust(key), NOW).statement
    require_subject(statement, "lock", "a" * 64)
    with pytest.raises(SignatureRefused, match=f"it is about lock with SHA-256 {'a' * 64}, and the present one has"):
        require_subject(statement, "lock", "b" * 64)
    with pytest.raises(SignatureRefused, match=r"it is about lock, and not about bundle\.json"):
        require_subject(statement, "bundle.json", "a" * 64)


STATEMENT = json.loads(lock_statement().render())
PREDICATE = STATEMENT["predicate"]
SUBJECT = STATEMENT["subject"][0]


@pytest.mark.parametrize(
    "changes",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "urn:rigwright:bundle:v1"},
        {"more": 1},
        {"subject": []},
        {"subject": [SUBJECT, SUBJECT]},
        {"subject": [{**SUBJECT, "name": "lock\n"}]},
        {"subject": [{**SUBJECT, "digest": {"sha256": "A" * 64}}]},
        {"subject": [{**SUBJECT, "digest": {"sha256": "a" * 64, "md5": "a"}}]},
        {"subject": [{"name": "lock"}]},
        {"predicate": {**PREDICATE, "kind": "bundle"}},
        {"predicate": {**PREDICATE, "serial": 0}},
        {"predicate": {**PREDICATE, "serial": True}},
        {"predicate": {**PREDICATE, "serial": "7"}},
        {"predicate": {**PREDICATE, "signed": "2026-11-28"}},
        {"predicate": {**PREDICATE, "expires": "2026-13-28T00:00:00Z"}},
        {"predicate": {name: value for name, value in PREDICATE.items() if name != "serial"}},
        {"predicate": []},
    ],
)
def test_a_malformed_statement_is_refused_even_if_it_is_signed(changes):
    payload = render_canonical_json({**STATEMENT, **changes})
    with pytest.raises(SignatureRefused):
        parse_statement(Envelope(IN_TOTO, payload, "", b""), "lock")


def test_a_statement_has_one_form():
    payload = json.dumps(STATEMENT).encode()
    with pytest.raises(SignatureRefused, match="the statement is not canonical JSON"):
        parse_statement(Envelope(IN_TOTO, payload, "", b""), "lock")
    with pytest.raises(SignatureRefused, match="the payload has the type text/plain"):
        parse_statement(Envelope("text/plain", payload, "", b""), "lock")


def test_details_of_a_statement_return():
    statement = lock_statement(details={"inventory": "rig.py"})
    assert parse_statement(Envelope(IN_TOTO, statement.render(), "", b""), "lock") == statement
    with pytest.raises(ValueError, match="common key serial"):
        lock_statement(details={"serial": 9}).render()


def test_a_missing_ssh_keygen_is_named(signed, key, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(signed, trust(key)) == ("no_program", "ssh-keygen is not installed: apt install openssh-client")


def test_private_keys_and_passphrases_are_in_no_argument(key, tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    wrapper = folder / "ssh-keygen"
    wrapper.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$LOG"\nexec /usr/bin/ssh-keygen "$@"\n')
    wrapper.chmod(0o755)
    log = tmp_path / "arguments"
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    verify_envelope(sign_statement(lock_statement(), key).render(), "lock", trust(key), NOW)
    content = Path(key).read_text().split("\n")[1]
    assert content not in log.read_text()
    assert str(key) in log.read_text()
