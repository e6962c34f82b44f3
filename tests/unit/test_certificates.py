"""Authorities: certificates of a file reach the host, and nothing else that the file holds."""

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from rigwright import fetch_job_spec
from rigwright.inventory import load_rig
from tests.unit.samples import OperatorFolder, sample_entry


def authority(name: str) -> tuple[str, str]:
    """A certificate and its private key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return made.public_bytes(Encoding.PEM).decode(), secret.decode()


ONE, SECRET = authority("one")
TWO, _ = authority("two")
PRIVATE = "PRIVATE KEY"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ONE, ONE),
        (ONE + TWO, ONE + TWO),
        (TWO + ONE, TWO + ONE),
        (SECRET + ONE, ONE),
        (ONE + SECRET + TWO, ONE + TWO),
        ("# our own authority\n\n" + ONE, ONE),
        (ONE.replace("\n", "\r\n"), ONE),
        (ONE.rstrip("\n"), ONE),
    ],
    ids=["one", "two", "order", "key before", "key between", "comment", "line ends", "no end"],
)
def test_certificates_are_read_and_nothing_else(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(content.encode())
    found = fetch_job_spec.load_ca_certificates(str(path))
    assert found == expected
    assert PRIVATE not in found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"hello",
        SECRET.encode(),
        ONE.encode()[:200],
        ONE.replace("M", "!", 3).encode(),
        b"\xff\xfe\0",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ONE.encode() + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
    ids=["empty", "line", "word", "key", "cut", "spoilt", "bytes", "no certificate", "one of two"],
)
def test_an_invalid_certificate_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="contains no PEM certificate") as caught:
        fetch_job_spec.load_ca_certificates(str(path))
    assert PRIVATE not in str(caught.value)


def test_special_or_endless_files_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "gone", tmp_path, pipe, Path("/dev/zero")):
        with pytest.raises(ValueError, match=r"does not exist|is not a file"):
            fetch_job_spec.load_ca_certificates(str(path))
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte, of which nothing is on the disk
    with pytest.raises(ValueError, match="has more than 4 MiB"):
        fetch_job_spec.load_ca_certificates(str(large))


def test_authorities_are_found_from_the_inventorys_folder_and_their_key_stays_there(box: OperatorFolder) -> None:
    box.write("ca.pem", SECRET + ONE)
    ((_, data),) = box.load_group({"box": sample_entry(ca_file="ca.pem")})
    assert load_rig(data["rig"]).network.ca_certificates == ONE
    assert PRIVATE not in repr(data)


@pytest.mark.parametrize(
    "name",
    ["gone.pem", "/gone", "a b", "x\0y", "é", "~nobody-at-all/ca.pem", pytest.param("a" * 300, id="long"), ""],
    ids=ascii,
)
def test_authorities_that_cannot_be_read_are_refused_while_the_inventory_loads(box: OperatorFolder, name: str) -> None:
    (line,) = box.refusal_lines(ca_file=name)
    assert line.startswith(f"{box.inventory}: box.ca_file: ")
