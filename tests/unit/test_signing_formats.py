"""Formats of signatures: strict JSON, DSSE's encoding, public keys, and the file of allowed signers."""

import subprocess

import pytest

from rigwright.signing.dsse import pre_authentication_encoding
from rigwright.signing.public_keys import parse_public_key
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.strict_json import parse_strict_json
from rigwright.signing.trusted_signers import Signer, TrustedSigners, render_allowed_signers
from tests.unit.signing_keys import DAY, NOW, make_key, public_key


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("keys"), "alice")


@pytest.fixture(scope="module")
def other_key(tmp_path_factory):
    return make_key(tmp_path_factory.mktemp("keys"), "mallory")


def test_the_encoding_is_that_of_dsse():
    # the example of its specification, protocol.md
    assert pre_authentication_encoding("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_certificates_do_not_sign(key, tmp_path):
    authority = make_key(tmp_path, "authority")
    for end in ("", ".pub"):
        (tmp_path / f"user{end}").write_bytes(key.with_name(f"{key.name}{end}").read_bytes())
    (tmp_path / "user").chmod(0o600)
    words = ["ssh-keygen", "-q", "-s", str(authority), "-I", "alice", "-n", "alice", str(tmp_path / "user.pub")]
    subprocess.run(words, check=True)
    line = " ".join((tmp_path / "user-cert.pub").read_text().split()[:2])
    with pytest.raises(SignatureRefused, match=r"has the type 'ssh-ed25519-cert-v01@openssh\.com'"):
        parse_public_key(line)


@pytest.mark.parametrize(
    "data",
    [b'{"a":1,"a":1}', b"1.0", b"NaN", b"-0", b"9007199254740992", b'"\\ud800"', b"[" * 60 + b"]" * 60, b"\xff", b"{"],
)
def test_json_outside_of_the_strict_form_is_malformed(data):
    with pytest.raises(SignatureRefused) as caught:
        parse_strict_json(data, "the statement")
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize(
    "line",
    ["", "ssh-ed25519", "ssh-dss AAAAB3NzaC1kc3M" + "A" * 20, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5!AAAA", "x\ny"],
)
def test_a_line_that_is_no_public_key_is_refused(line):
    with pytest.raises(SignatureRefused):
        parse_public_key(line)


def test_a_public_key_is_of_the_type_of_its_line(key):
    line = str(public_key(key))
    assert parse_public_key(f"{line} a comment") == public_key(key)
    with pytest.raises(SignatureRefused, match="the public key is a ssh-ed25519 key, and its line begins otherwise"):
        parse_public_key(line.replace("ssh-ed25519", "ssh-rsa", 1))


def test_short_rsa_keys_are_refused(tmp_path):
    path = tmp_path / "short"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "1024", "-N", "", "-f", str(path)], check=True)
    with pytest.raises(SignatureRefused, match="RSA of 1024 bits; at least 2048"):
        public_key(path)


@pytest.mark.parametrize("name", ["*", "a b", 'a"', "", "!alice", "a,b"])
def test_names_of_signers_are_no_patterns(key, name):
    with pytest.raises(ValueError, match="letters, digits"):
        Signer(name, public_key(key), ("lock",))


def test_the_file_of_allowed_signers(key, other_key):
    signers = TrustedSigners(
        (
            Signer("alice", public_key(key), ("lock", "bundle"), NOW - DAY, NOW),
            Signer("bob", public_key(other_key), ("verdict",)),
        )
    )
    assert render_allowed_signers(signers) == (
        'alice namespaces="lock@rigwright,bundle@rigwright",valid-after="20261128120000",valid-before="20261129120000" '
        f'{public_key(key)}\nbob namespaces="verdict@rigwright" {public_key(other_key)}\n'
    )
