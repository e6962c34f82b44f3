"""Certificates between boxes: their record, their revocation, and a deploy after it."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from rigwright.gateway import certificate_revocations
from rigwright.gateway.certificate_authority import (
    FOLDER,
    Authority,
    BrokenAuthority,
    certificate_now,
    ensure_authority,
    temporary_authority,
)
from rigwright.gateway.certificate_revocations import RECORD, REVOCATIONS, record_issued, revoke_box
from rigwright.gateway.certificates import CertificateSpec
from rigwright.model.fleet_schema import front_certificate_name, lender_certificate_name
from roles.operations import secrets
from tests.unit.gateway_host import GatewayFolderHost

NOW = certificate_now()


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return ensure_authority(tmp_path / FOLDER, NOW)


def issue(ca: Authority, folder: Path, name: str, now: datetime = NOW) -> int:
    pair = ca.issue((name,), now)
    record_issued(folder, pair)
    return x509.load_pem_x509_certificate(pair.certificates.encode()).serial_number


def revoked_serials(text: str) -> set[int]:
    return {one.serial_number for one in x509.load_pem_x509_crl(text.encode())}


def test_all_certificates_of_a_box_are_revoked_and_no_others(ca: Authority, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    load = certificate_revocations.load_revocations
    ours = {issue(ca, folder, name("two")) for name in (front_certificate_name, lender_certificate_name)}
    issue(ca, folder, front_certificate_name("two"), NOW - timedelta(days=95))
    for box in ("one", "two-b", "tw"):
        issue(ca, folder, front_certificate_name(box))
    assert revoked_serials(load(folder, ca, NOW)) == set()
    assert not (folder / REVOCATIONS).exists()
    assert revoke_box(folder, ca, "two", NOW) == 2
    assert revoked_serials(load(folder, ca, NOW)) == ours
    text = (folder / REVOCATIONS).read_text()
    assert (revoke_box(folder, ca, "two", NOW), (folder / REVOCATIONS).read_text()) == (0, text)
    # the next ones of the box are good, until they are revoked, too
    later = issue(ca, folder, front_certificate_name("two"))
    assert later not in revoked_serials(load(folder, ca, NOW))
    assert revoke_box(folder, ca, "two", NOW) == 1
    found = x509.load_pem_x509_crl(load(folder, ca, NOW).encode())
    assert {one.serial_number for one in found} == {*ours, later}
    assert found.is_signature_valid(ca.certificate.public_key())  # type: ignore[arg-type] # P-256
    assert found.next_update_utc == ca.certificate.not_valid_after_utc
    assert {(folder / name).stat().st_mode & 0o777 for name in (RECORD, REVOCATIONS)} == {0o600}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (RECORD, "zz 2026-11-29T10:00:00Z two.front.rigwright\n", "line 1 is not SERIAL TIME NAME"),
        (REVOCATIONS, "", "is not a list of revoked certificates that this CA has signed"),
        (REVOCATIONS, temporary_authority(NOW).sign_revocations({}, NOW), "that this CA has signed"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_refused(
    ca: Authority, tmp_path: Path, name: str, content: str, said: str
) -> None:
    folder = tmp_path / FOLDER
    issue(ca, folder, front_certificate_name("two"))
    (folder / name).write_text(content)
    with pytest.raises(BrokenAuthority, match=said):
        revoke_box(folder, ca, "two", NOW)


def test_a_deploy_brings_the_list_and_another_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = GatewayFolderHost(tmp_path)
    host.install_generation({}, ("_front",))
    host.run_operations(secrets, monkeypatch)
    front = [CertificateSpec("_front", (front_certificate_name("two"),), between_boxes="client")]
    assert len(host.carry_out(secrets.install_certificates, wanted=front)) == 1
    assert host.carry_out(secrets.install_certificates, wanted=front) == []
    path = host.credentials / "gateway-_front.pem"
    folder = Path(host.rig.inventory).parent / FOLDER
    ca, before = ensure_authority(folder, NOW), path.read_text()
    listed = (folder / REVOCATIONS).read_text()
    assert listed in before and ca.pem in before
    assert len((folder / RECORD).read_text().splitlines()) == 1
    assert revoke_box(folder, ca, "two", NOW) == 1
    host.run_operations(secrets, monkeypatch, executing=False)
    assert list(secrets.install_certificates._inner(inventory=host.rig.inventory, roots=host.rig.roots, wanted=front))
    # a plan has issued none
    assert len((folder / RECORD).read_text().splitlines()) == 1
    host.run_operations(secrets, monkeypatch)
    assert len(host.carry_out(secrets.install_certificates, wanted=front)) == 1
    after = path.read_text()
    assert (folder / REVOCATIONS).read_text() in after
    serials = [
        x509.load_pem_x509_certificate(text.partition("\n")[2].encode()).serial_number for text in (before, after)
    ]
    assert serials[0] != serials[1]
    assert revoked_serials((folder / REVOCATIONS).read_text()) == {serials[0]}
