"""Keys of archives: the facts of one, packet by packet."""

import base64
import hashlib

import pytest

from rigwright.nvidia.driver import openpgp

CREATED = 1_700_000_000
BODY = b"\x04" + CREATED.to_bytes(4, "big") + b"\x01\x00\x08\xff\x00\x02\x03"
NAME, DIRECT, SUBKEY = 0x13, 0x1F, 0x18
SHA1, SHA512 = 2, 10


def packet(tag: int, body: bytes) -> bytes:
    return bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body


def make_signature(
    kind: int, created: int, lasts: int | None = None, digest: int = SHA512, issuer: bytes = b""
) -> bytes:
    """A signature, with a number that proves nothing."""
    parts = b"\x05\x02" + created.to_bytes(4, "big")
    parts += b"" if lasts is None else b"\x05\x09" + lasts.to_bytes(4, "big")
    beside = bytes([len(issuer) + 1, 16]) + issuer if issuer else b""
    hashed = len(parts).to_bytes(2, "big") + parts + len(beside).to_bytes(2, "big") + beside
    return packet(2, bytes([4, kind, 1, digest]) + hashed + b"\x00\x00" + b"\x00\x01\x01")


def armoured(*packets: bytes) -> str:
    body = base64.encodebytes(b"".join(packets)).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{body}-----END PGP PUBLIC KEY BLOCK-----\n"


@pytest.mark.parametrize(
    ("signatures", "lasts"),
    [
        ([], None),
        ([make_signature(NAME, 1)], None),
        ([make_signature(NAME, 1, 500)], 500),
        ([make_signature(NAME, 1, 500), make_signature(NAME, 2, 900)], 900),
        ([make_signature(NAME, 2, 900), make_signature(NAME, 1, 500)], 900),
        ([make_signature(NAME, 1, 500), make_signature(NAME, 2)], None),
        ([make_signature(NAME, 1, 500), make_signature(DIRECT, 2)], 500),
        ([make_signature(NAME, 3, 500), make_signature(DIRECT, 2, 900)], 900),
        ([make_signature(NAME, 1, 500), make_signature(SUBKEY, 2, 900)], 500),
        ([make_signature(NAME, 1, 500), make_signature(NAME, 2, 900, issuer=b"somebody")], 500),
    ],
)
def test_a_key_ends_when_it_says_so_itself(signatures: list[bytes], lasts: int | None) -> None:
    found = openpgp.parse_openpgp_key(armoured(packet(6, BODY), *signatures))
    assert found.expires == (None if lasts is None else CREATED + lasts)
    assert found.fingerprint == hashlib.sha1(b"\x99\x00" + bytes([len(BODY)]) + BODY).hexdigest().upper()


def test_a_key_is_weak_if_nothing_but_sha1_binds_it() -> None:
    weak, strong = make_signature(NAME, 1, digest=SHA1), make_signature(NAME, 2)
    assert openpgp.parse_openpgp_key(armoured(packet(6, BODY), weak)).sha1
    assert not openpgp.parse_openpgp_key(armoured(packet(6, BODY), weak, strong)).sha1
    assert not openpgp.parse_openpgp_key(armoured(packet(6, BODY))).sha1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "is not an ASCII-armoured OpenPGP key"),
        (f"{armoured(packet(6, BODY))}more", "is not an ASCII-armoured OpenPGP key"),
        (armoured(packet(6, BODY)) * 2, "is not an ASCII-armoured OpenPGP key"),
        (armoured(packet(6, BODY)).replace("PUBLIC", "PRIVATE"), "is not an ASCII-armoured OpenPGP key"),
        (armoured(packet(6, BODY), packet(6, BODY)), "contains 2 keys, not one"),
        (armoured(make_signature(NAME, 1)), "contains 0 keys, not one"),
        (armoured(packet(6, b"\x06" + BODY[1:])), "is an OpenPGP key of version 6"),
        (armoured(packet(6, BODY)[:-3]), "is not a complete OpenPGP key"),
        (armoured(packet(6, BODY), b"\x00\x00"), "is not a complete OpenPGP key"),
        (armoured(packet(6, BODY), packet(2, b"\x04")), "is not a complete OpenPGP key"),
    ],
)
def test_text_of_more_or_less_than_one_key_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        openpgp.parse_openpgp_key(text)
