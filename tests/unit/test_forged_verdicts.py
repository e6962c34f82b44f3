"""Attempts to forge a verdict, beyond single changed fields: docs/design/security.md has their table."""

# ruff: noqa: F811 (fixtures of another file)

import base64
import hashlib
import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from checks import verdict_verifier
from checks.verdict_verifier import NAMESPACE, build_statement, render_canonical
from tests.unit.signing_keys import public_key
from tests.unit.test_signed_verdict import NONCE, NOW, Verdicts, at, digest, keys, verdicts  # noqa: F401 (fixtures)


def replace_signature(path: Path, blob: bytes, keyid: str = "") -> None:
    """Put another signature into the envelope of a verdict."""
    envelope, line, _ = path.read_bytes().split(b"\n")
    table = json.loads(envelope)
    row = table["signatures"][0]
    table["signatures"] = [{"keyid": keyid or row["keyid"], "sig": base64.b64encode(blob).decode()}]
    path.write_bytes(render_canonical(table) + b"\n" + line + b"\n")


def read_signature(path: Path) -> bytes:
    """The signature of a verdict."""
    table = json.loads(path.read_bytes().split(b"\n")[0])
    return base64.b64decode(table["signatures"][0]["sig"])


def sign_bytes(content: bytes, key: Path, namespace: str) -> bytes:
    """A signature by ssh-keygen, as any other program has it made."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace]
    armour = subprocess.run(command, input=content, capture_output=True, check=True).stdout
    return base64.b64decode(b"".join(armour.splitlines()[1:-1]))


def payload_of(path: Path) -> bytes:
    return base64.b64decode(json.loads(path.read_bytes().split(b"\n")[0])["payload"])


def test_a_green_result_over_red_checks_is_refused_even_if_the_signer_signs_it(verdicts: Verdicts) -> None:
    red = [verdicts.details()["checks"][0] | {"verdict": "fail"}]
    assert verdicts.refusal(verdicts.write("1", verdicts.details(checks=red, result="conforms"))) == "changed"


def test_a_commit_or_file_that_the_signer_signed_is_no_verdict(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    payload, ana = payload_of(path), verdicts.keys["ana"]
    encoded = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    for content, namespace in ((encoded, "git"), (encoded, "file"), (encoded, "lock@rigwright"), (payload, NAMESPACE)):
        replace_signature(path, sign_bytes(content, ana, namespace))
        assert verdicts.refusal(path) in ("wrong_kind", "changed"), namespace


def test_the_forgers_signature_under_the_signers_name_is_refused(verdicts: Verdicts) -> None:
    (path,) = verdicts.chain(1)
    payload = payload_of(path)
    encoded = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    theirs, own = sign_bytes(encoded, verdicts.keys["eve"], NAMESPACE), read_signature(path)
    replace_signature(path, theirs)
    assert verdicts.refusal(path) == "malformed"  # the envelope names another key
    replace_signature(path, theirs, public_key(verdicts.keys["eve"]).fingerprint)
    assert verdicts.refusal(path) == "unknown_signer"
    # the signer's key in front of the forger's signature
    length, ana = 14 + int.from_bytes(own[10:14], "big"), public_key(verdicts.keys["ana"]).fingerprint
    replace_signature(path, own[:length] + theirs[14 + int.from_bytes(theirs[10:14], "big") :], ana)
    assert verdicts.refusal(path) == "changed"
    replace_signature(path, own + b"\0")
    assert verdicts.refusal(path) in ("changed", "unknown_signer", "key_not_valid")


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")
def test_a_certificate_of_the_signers_key_signs_nothing(verdicts: Verdicts, tmp_path: Path) -> None:
    (path,) = verdicts.chain(1)
    eve = tmp_path / "eve"
    shutil.copy(verdicts.keys["eve"], eve)
    shutil.copy(verdicts.keys["eve"].with_suffix(".pub"), tmp_path / "eve.pub")
    made = ["ssh-keygen", "-q", "-s", str(verdicts.keys["ana"]), "-I", "ana", "-n", "ana", str(tmp_path / "eve.pub")]
    subprocess.run(made, check=True)
    payload = payload_of(path)
    encoded = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(tmp_path / "eve-cert.pub"), "-n", NAMESPACE]
    done = subprocess.run(command, input=encoded, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this ssh-keygen signs with no certificate")
    replace_signature(path, base64.b64decode(b"".join(done.stdout.splitlines()[1:-1])))
    assert verdicts.refusal(path) == "malformed"


def test_a_file_that_changes_between_two_reads_is_refused(verdicts: Verdicts, monkeypatch: pytest.MonkeyPatch) -> None:
    # the first read has a verdict whose key counts no more, the second one another verdict whose key does
    signed = NOW - timedelta(days=2)
    old = verdicts.details(time__surveyed=at(signed), time__signed=at(signed))
    path = verdicts.write("1", old)
    eve = public_key(verdicts.keys["eve"])
    fresh = verdicts.write("2", verdicts.details(verifier__controller_key=eve.fingerprint), "eve")
    before = f',valid-before="{NOW - timedelta(days=1):%Y%m%d%H%M%S}"'
    verdicts.trust("ana", f'namespaces="{NAMESPACE}"{before}', more=f"eve {eve}\n")
    assert verdicts.refusal(path) == "key_not_valid"
    lines = iter([path.read_bytes().split(b"\n")[:2], fresh.read_bytes().split(b"\n")[:2]])
    monkeypatch.setattr(verdict_verifier, "read_verdict", lambda _: next(lines))
    assert verdicts.refusal(path) == "changed"


def test_a_verdict_of_a_clean_box_under_another_name_has_the_clean_boxes_key(verdicts: Verdicts) -> None:
    clean = verdicts.write("1", verdicts.details(subject__name="box2", subject__host_key=f"SHA256:{'B' * 43}"))
    assert verdicts.refusal(clean, options=(f"--host-key=SHA256:{'A' * 43}",)) == "other_box"


def test_an_earlier_answer_to_a_nonce_is_no_answer_to_the_next(verdicts: Verdicts) -> None:
    path = verdicts.write("1", verdicts.details(nonce=NONCE))
    assert verdicts.refusal(path, options=(f"--nonce={NONCE}",)) == ""
    assert verdicts.refusal(path, options=(f"--nonce={NONCE[::-1]}",)) == "other_nonce"


def test_a_red_link_is_neither_left_out_nor_replaced(verdicts: Verdicts) -> None:
    first, red, third = verdicts.chain(3)
    assert verdicts.refusal(first, third) == "missing"
    green = verdicts.details(2, digest(first), deep=True)
    line = render_canonical(green)
    statement = render_canonical(build_statement(green, hashlib.sha256(line).hexdigest()))
    envelope = json.loads(red.read_bytes().split(b"\n")[0])
    envelope["payload"] = base64.b64encode(statement).decode()
    red.write_bytes(render_canonical(envelope) + b"\n" + line + b"\n")
    assert verdicts.refusal(first, red, third) == "changed"
    replaced = verdicts.write("2", green)  # the signer's own second version
    assert verdicts.refusal(first, replaced, third) == "replaced"


@pytest.mark.parametrize("value", ["NaN", "1e400", "1.0", '"1"', "true", "[1]", "null", "-1"])
def test_an_odd_number_is_no_number_of_a_chain(verdicts: Verdicts, value: str) -> None:
    (path,) = verdicts.chain(1)
    envelope, line, _ = path.read_bytes().split(b"\n")
    path.write_bytes(envelope + b"\n" + line.replace(b'"sequence":1', f'"sequence":{value}'.encode()) + b"\n")
    assert verdicts.refusal(path) == "malformed"
