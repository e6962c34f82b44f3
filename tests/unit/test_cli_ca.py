"""`rigwright key ca`: the certificate on standard output, how clients trust it on standard error, no key anywhere."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from cli import main
from rigwright.gateway.certificate_authority import certificate_now, ensure_authority
from rigwright.gateway.certificate_revocations import record_issued
from rigwright.model.fleet_schema import front_certificate_name
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

GATEWAY = {"listeners": {"lan": {"address": "0.0.0.0", "port": 8443, "tls": True, "names": ["llm.example.org"]}}}


@pytest.fixture
def inventory(box: OperatorFolder) -> Path:
    return write_inventory(box, gateway=GATEWAY, instances=chat_instances())


def write_inventory(box: OperatorFolder, **changes: object) -> Path:
    text = f"from rigwright.inventory import hosts\nrigs = hosts({{'box': {sample_entry(**changes)!r}}})\n"
    return box.write("rig.py", text)


def run(inventory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["key", "ca", str(inventory), *options])


def test_it_is_made_once_beside_the_inventory_and_printed_alone(inventory: Path) -> None:
    first, again = run(inventory), run(inventory)
    assert (first.exit_code, again.exit_code, first.stdout) == (0, 0, again.stdout)
    made = x509.load_pem_x509_certificate(first.stdout.encode())
    folder = inventory.parent / "gateway-ca"
    assert (folder / "ca.crt").read_text() == first.stdout
    assert first.stderr.startswith(f"Created a new CA in {folder}/ca.crt")
    assert again.stderr.startswith(f"The CA in {folder}/ca.crt")
    assert made.fingerprint(hashes.SHA256()).hex(":").upper() in again.stderr
    for words in ("curl --cacert", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "update-ca-certificates", "Firefox"):
        assert words in again.stderr
    assert "PRIVATE KEY" not in first.output + again.output


def test_an_unusable_file_is_reported_in_one_line_and_stays(inventory: Path) -> None:
    run(inventory)
    key = inventory.parent / "gateway-ca/ca.key"
    key.chmod(0o644)
    before = key.read_text()
    done = run(inventory)
    assert (done.exit_code, done.stdout, key.read_text()) == (2, "", before)
    assert done.stderr.count("\n") == 1
    assert f"{key} is readable by others: `chmod 600`" in done.stderr


def test_a_folder_that_is_invalid_is_reported(inventory: Path) -> None:
    (inventory.parent / "gateway-ca").write_text("")
    done = run(inventory)
    assert (done.exit_code, done.stdout, "gateway-ca" in done.stderr) == (2, "", True)


def test_no_authority_is_made_where_no_listener_uses_tls(box: OperatorFolder) -> None:
    plain = {"listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}}
    done = run(write_inventory(box, gateway=plain, instances=chat_instances()))
    assert (done.exit_code, done.stdout) == (2, "")
    said = "no listener uses TLS, and no gateway an instance of another box, so no CA was made: add"
    assert f'{said} "tls": True to a listener first' in " ".join(done.stderr.split())
    assert not (box.folder / "gateway-ca").exists()


def test_no_authority_is_made_where_no_host_has_a_gateway(box: OperatorFolder) -> None:
    done = run(write_inventory(box))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith("rig.py: no host has a gateway\n")
    assert not (box.folder / "gateway-ca").exists()


def write_fleet(box: OperatorFolder) -> Path:
    lan = {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}
    gateway = {"listeners": lan, "models": {"m": {"instances": ["two/chat"]}}}
    entries = {
        "one": sample_entry(gateway=gateway, instances=chat_instances()),
        "two": sample_entry(instances=chat_instances(), ssh_hostname="192.0.2.8", fleet={"address": "192.0.2.8"}),
    }
    return box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({entries!r})\n")


def test_a_fleet_without_a_listener_with_tls_has_an_authority(box: OperatorFolder) -> None:
    done = run(write_fleet(box))
    assert (done.exit_code, done.stdout.startswith("-----BEGIN CERTIFICATE-----")) == (0, True), done.stderr


def test_certificates_of_a_box_are_revoked_by_its_name(box: OperatorFolder) -> None:
    inventory = write_fleet(box)
    done = run(inventory, "--revoke", "one")
    assert done.exit_code == 2
    assert 'there is no box with certificates for connections between boxes "one"' in done.stderr
    assert not (box.folder / "gateway-ca").exists()
    folder, now = box.folder / "gateway-ca", certificate_now()
    ours = ensure_authority(folder, now)
    record_issued(folder, ours.issue((front_certificate_name("one"),), now, is_client=True))
    done = run(inventory, "--revoke", "oen")
    assert (done.exit_code, 'did you mean "one"?' in done.stderr) == (2, True)
    done = run(inventory, "--revoke", "one")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("Revoked 1 certificate of one. ")
    assert f"`rigwright deploy {inventory}`" in " ".join(done.stdout.split())
    assert len(x509.load_pem_x509_crl((folder / "revoked.crl").read_bytes())) == 1
    assert run(inventory, "--revoke", "one").stdout.startswith("All certificates of one are revoked already")
