"""An authority of the operator's own, what it signs, when that is made anew, and pairs that the operator brings."""

from __future__ import annotations

import multiprocessing
import os
import ssl
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from rigwright.gateway import certificate_authority, certificates
from rigwright.gateway.certificate_authority import Authority, BrokenAuthority
from rigwright.gateway.certificates import CertificatePair, UnusableCertificate
from rigwright.gateway.secrets_distribution import CertificateFacts

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
TODAY = certificate_authority.certificate_now()
SANS = certificates.subject_alt_names(["gpu.lan", "10.0.0.7"], ["10.0.0.5", "::1"])


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return certificate_authority.ensure_authority(tmp_path / "gateway-ca", TODAY)


def shakes_hands(ca: Authority, pair: CertificatePair, name: str, folder: Path) -> bool:
    """Whether a client that trusts the authority, and no other, accepts the pair under a name."""
    crt, key = folder / "x.crt", folder / "x.key"
    crt.write_text(pair.expected_facts.head)
    key.write_text(pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(crt, key)
    client = ssl.create_default_context(cadata=ca.pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return not ends


@pytest.mark.parametrize(
    ("name", "accepted"),
    [("gpu.lan", True), ("10.0.0.5", True), ("10.0.0.7", True), ("::1", True), ("other.lan", False)],
)
def test_a_client_that_trusts_the_authority_accepts_a_leaf_for_its_names_alone(ca, tmp_path, name, accepted):
    assert shakes_hands(ca, ca.issue(SANS, TODAY), name, tmp_path) is accepted


def test_another_authority_does_not_help(ca: Authority, tmp_path: Path) -> None:
    other = certificate_authority.ensure_authority(tmp_path / "other", TODAY)
    assert not shakes_hands(other, ca.issue(SANS, TODAY), "gpu.lan", tmp_path)


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "gateway-ca"
    assert certificate_authority.load_authority(folder, TODAY) is None
    assert not folder.exists()
    made = certificate_authority.ensure_authority(folder, TODAY)
    again = certificate_authority.ensure_authority(folder, TODAY)
    assert (made.pem, made.fingerprint) == (again.pem, again.fingerprint)
    assert sorted(path.name for path in folder.iterdir()) == ["ca.crt", "ca.key"]
    assert (folder.stat().st_mode & 0o777, (folder / "ca.key").stat().st_mode & 0o777) == (0o700, 0o600)
    assert "PRIVATE" not in made.pem + repr(made)


def test_one_that_was_cut_off_after_its_key_goes_on_with_it(tmp_path: Path, ca: Authority) -> None:
    (tmp_path / "gateway-ca/ca.crt").unlink()
    assert certificate_authority.load_authority(tmp_path / "gateway-ca", TODAY) is None
    again = certificate_authority.ensure_authority(tmp_path / "gateway-ca", TODAY)
    assert again.certificate.public_key() == ca.certificate.public_key()


def _make(folder: Path, told: multiprocessing.Queue[str]) -> None:
    told.put(certificate_authority.ensure_authority(folder, TODAY).fingerprint)


def test_two_that_make_one_at_once_have_the_same(tmp_path: Path) -> None:
    told: multiprocessing.Queue[str] = multiprocessing.Queue()
    makers = [multiprocessing.Process(target=_make, args=(tmp_path / "ca", told)) for _ in range(4)]
    for one in makers:
        one.start()
    found = {told.get(timeout=30) for _ in makers}
    for one in makers:
        one.join()
    assert len(found) == 1
    assert sorted(path.name for path in (tmp_path / "ca").iterdir()) == ["ca.crt", "ca.key"]


def _short_rsa() -> bytes:
    return rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _hold_lock() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))


def path_identity(path: Path) -> tuple[int, ...] | None:
    return (path.lstat().st_ino, path.lstat().st_mode, path.lstat().st_mtime_ns) if path.exists() else None


@pytest.mark.parametrize(
    ("file", "spoil", "said"),
    [
        ("ca.key", lambda path: path.write_bytes(b""), "contains no PEM private key"),
        ("ca.key", lambda path: path.write_bytes(b"\xff\0"), "contains no PEM private key"),
        ("ca.key", lambda path: path.write_bytes(_hold_lock()), "contains no PEM private key without a passphrase"),
        ("ca.key", lambda path: path.write_bytes(_short_rsa()), "contains no P-256 key"),
        (
            "ca.key",
            lambda path: path.chmod(0o640),
            "is readable by others: `chmod 600` it, or create a new CA if they read it",
        ),
        ("ca.key", lambda path: path.unlink(), "is missing: restore it"),
        (
            "ca.crt",
            lambda path: path.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n"),
            "contains no PEM certificate",
        ),
        ("ca.crt", lambda path: (path.unlink(), os.mkfifo(path)), "is not a file"),
        (
            "ca.crt",
            lambda path: path.write_text(certificate_authority.temporary_authority(TODAY).pem),
            "is not the certificate of",
        ),
        ("ca.key", lambda path: path.open("r+b").truncate(1 << 40), "has more than 65536 bytes"),
    ],
)
def test_files_that_are_not_its_own_are_refused_and_not_written_over(tmp_path, ca, file, spoil, said):
    path = tmp_path / "gateway-ca" / file
    spoil(path)
    before = path_identity(path)
    with pytest.raises(BrokenAuthority, match=said) as caught:
        certificate_authority.ensure_authority(tmp_path / "gateway-ca", TODAY)
    assert "PRIVATE" not in str(caught.value)
    assert path_identity(path) == before


def test_one_that_has_ended_is_refused_and_one_that_is_about_to_signs_no_longer(tmp_path: Path, ca: Authority) -> None:
    ends = ca.certificate.not_valid_after_utc
    assert ends - TODAY > timedelta(days=3649)
    assert ca.issue(SANS, ends - timedelta(days=40)).certificates
    with pytest.raises(BrokenAuthority, match="the CA expires on"):
        ca.issue(SANS, ends - timedelta(days=29))
    with pytest.raises(BrokenAuthority, match="expired on"):
        certificate_authority.ensure_authority(tmp_path / "gateway-ca", ends)


@pytest.mark.parametrize("sans", [(), (".lan",)], ids=["none", "a domain"])
def test_a_leaf_has_a_name_of_a_host(ca: Authority, sans: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="needs a name"):
        ca.issue(sans, TODAY)


def test_names_are_reported_once_and_no_address_stands_for_all() -> None:
    assert certificates.subject_alt_names(["GPU.lan.", "gpu.lan", "10.0.0.5"], ["10.0.0.5", "0.0.0.0", "::"]) == (
        "10.0.0.5",
        "gpu.lan",
    )


HOSTILE = ["", "key\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "\0\x1b[2J", "é" * 9]


def test_a_leaf_is_made_anew_where_it_has_to_be(ca: Authority, tmp_path: Path) -> None:
    there = ca.issue(SANS, TODAY).expected_facts
    assert ca.renewal_reason(there, SANS, TODAY) == ""
    assert ca.renewal_reason(there, SANS, TODAY + timedelta(days=59, hours=23)) == ""
    assert ca.renewal_reason(there, SANS, TODAY + timedelta(days=60)).startswith("it expires on")
    assert ca.renewal_reason(there, SANS[:-1], TODAY) == "its names differ"
    assert ca.renewal_reason(None, SANS, TODAY) == "none exists yet"
    other = certificate_authority.ensure_authority(tmp_path / "other", TODAY)
    assert other.renewal_reason(there, SANS, TODAY) == "it was issued by another CA"
    assert (
        ca.renewal_reason(replace(there, key="0" * 64), SANS, TODAY)
        == "the existing files are not a certificate with its key"
    )
    assert (
        ca.renewal_reason(replace(there, key=""), SANS, TODAY)
        == "the existing files are not a certificate with its key"
    )
    for head in HOSTILE:
        assert ca.renewal_reason(CertificateFacts(head, there.key), SANS, TODAY)
        assert ca.renewal_reason(CertificateFacts(f"key {there.key}\n{head}", there.key), SANS, TODAY)


def test_a_pair_is_never_shown(ca: Authority) -> None:
    pair = ca.issue(SANS, TODAY)
    assert pair.key not in repr(pair)
    assert pair.key in pair.text
    assert pair.key not in pair.expected_facts.head


def write_pair(folder: Path, pair: CertificatePair, above: str = "") -> tuple[str, str]:
    """A pair as the operator has it in files."""
    (folder / "own.crt").write_text(pair.certificates + above)
    (folder / "own.key").write_text(pair.key)
    return str(folder / "own.crt"), str(folder / "own.key")


def test_a_pair_of_the_operators_is_taken_with_what_is_above_it(ca: Authority, tmp_path: Path) -> None:
    pair = ca.issue(SANS, TODAY)
    files = write_pair(tmp_path, pair, ca.pem)
    assert certificates.load_pair(*files, SANS, TODAY) == CertificatePair(pair.certificates + ca.pem, pair.key)
    # the key beside its certificate, in one file, stays out of what others are shown
    (tmp_path / "own.crt").write_text(pair.key + pair.certificates)
    assert "PRIVATE" not in certificates.load_pair(*files, SANS, TODAY).certificates


@pytest.mark.parametrize(
    ("own", "wanted", "accepted"),
    [
        ("*.lan", "gpu.lan", True),
        ("*.lan", "a.gpu.lan", False),
        ("*.lan", "lan", False),
        ("gpu.lan", "gpu.lan", True),
        ("gpu.lan", "10.0.0.5", False),
    ],
)
def test_a_name_may_be_meant_by_a_star(ca: Authority, own: str, wanted: str, accepted: bool) -> None:
    made = x509.load_pem_x509_certificate(ca.issue((own,), TODAY).certificates.encode())
    assert certificates.is_valid_for(made, wanted) is accepted


def test_a_pair_that_cannot_be_used_is_refused_with_the_file(ca: Authority, tmp_path: Path) -> None:
    pair, other = ca.issue(SANS, TODAY), ca.issue(SANS, TODAY)
    cert, key = write_pair(tmp_path, pair)

    def refusal(when: datetime = TODAY, wanted: tuple[str, ...] = SANS) -> tuple[str, str]:
        with pytest.raises(UnusableCertificate) as caught:
            certificates.load_pair(cert, key, wanted, when)
        assert "PRIVATE" not in str(caught.value)
        return caught.value.field, str(caught.value)

    assert refusal(TODAY + timedelta(days=90))[1].startswith(f"{cert} is valid until ")
    assert refusal(TODAY - timedelta(days=1))[1].startswith(f"{cert} is valid from ")
    assert refusal(wanted=(*SANS, "door.lan"))[1].startswith(f"{cert} is not for door.lan; it is for ")
    Path(cert).write_text(pair.certificates + other.certificates)
    assert refusal() == ("cert_file", f"{cert}: each certificate must be signed by the next one")
    Path(cert).write_text(other.certificates)
    assert refusal() == ("key_file", f"{key} is not the key of the first certificate in {cert}")
    for path, field in ((Path(cert), "cert_file"), (Path(key), "key_file")):
        path.write_bytes(b"\xff\0nonsense")
        assert refusal()[0] == field
        path.unlink()
        for make in (lambda path: None, os.mkfifo):
            make(path)
            found, said = refusal()
            assert (found, said.startswith((f"{path} is not a file", f"{path} does not exist"))) == (field, True), said
        path.unlink()
        write_pair(tmp_path, pair)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (lambda: _hold_lock(), "has a passphrase"),
        (
            lambda: x25519.X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "cannot sign",
        ),
        (
            lambda: ed25519.Ed25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            ),
            "is not the key of",
        ),
    ],
)
def test_keys_that_do_not_fit_a_certificate(ca, tmp_path, key, said):
    files = write_pair(tmp_path, ca.issue(SANS, TODAY))
    Path(files[1]).write_bytes(key())
    with pytest.raises(UnusableCertificate, match=said):
        certificates.load_pair(*files, SANS, TODAY)
