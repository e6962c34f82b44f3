"""Connections between boxes: access to the port for gateways of others, and the certificates of both ends."""

import json
import re
from base64 import b64decode, b64encode
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from checks import DEPLOY, Drift, ItemText, check, digest_text, expect, report_drift
from checks.drift_text import describe_certificate, describe_issuer, shorten_digest
from checks.gateway_key_answers import LOG
from checks.remedy import STOP_LISTENER, host_command, instruction, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import GATES
from checks.survey.managed_files import OURS
from checks.survey.requests import REQUESTS, find_answer
from checks.survey.service_exposure import REACH
from checks.survey_run import SurveyedHost
from rigwright.gateway.gateway_units import GATEWAY_PREFIX, ROUTER_KEYS
from rigwright.gateway.secrets_distribution import FLEET, FRONT, GATEWAY_UNIT, KEEPALIVED_UNIT, pair_path
from rigwright.model.fleet_schema import (
    FleetLinks,
    FleetListener,
    FrontPair,
    front_certificate_name,
    lender_certificate_name,
)
from rigwright.model.gateway_schema import Gateway
from rigwright.model.roots import Roots
from rigwright.serving.generation import Generation

RELOAD = host_command("systemctl reload {}", GATEWAY_UNIT)
EXPIRY = timedelta(days=14)  # for which a certificate has to be valid


@check(
    "D15",
    "systemd holds the port for gateways of other boxes, which closes connections without a certificate",
    severity="critical",
    why="a client of that port uses the instances without a key and without limits",
)
def test_port_needs_a_certificate(survey: SurveyAnswers, fleet_port: tuple[str, FleetListener]) -> None:
    entry = fleet_port[1]
    there = [one for one in survey.read(REACH).listeners if one.port == entry.port]
    expect(", ".join(sorted({one.at for one in there})) or "nothing", entry.endpoint, DEPLOY)
    others = sorted({name for one in there for name in one.holders if not name.endswith(f" of {GATEWAY_UNIT}")})
    unheld = [] if all(one.systemd for one in there) else ["not systemd"]
    expect(", ".join([*others, *unheld]) or "systemd", "systemd", STOP_LISTENER + DEPLOY)
    expect(survey.read(GATES).unit_state(f"{GATEWAY_PREFIX}{entry.port}.socket").active, "active", DEPLOY)
    requests = survey.read(REQUESTS)
    answers = {name: find_answer(requests, f"fleet: {name} without a certificate") for name in entry.lent}
    wrong = [f"{one.describe} for {name}" for name, one in answers.items() if not one.closed_after_tls]
    expect(", ".join(wrong) or "a closed connection", "a closed connection", DEPLOY + LOG)


@check(
    "D16",
    "the certificates between boxes are of the inventory's CA, not revoked, and valid for another 14 days",
    severity="critical",
    why="the boxes refuse each other, or accept a box of another CA",
)
def test_certificates_between_boxes(
    survey: SurveyAnswers, inventory_file: str, rig_name: str, roots: Roots, fleet: tuple[str, FleetLinks]
) -> None:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import Encoding

    from rigwright.gateway.certificate_authority import CERTIFICATE, FOLDER
    from rigwright.gateway.certificate_revocations import REVOCATIONS
    from rigwright.gateway.certificates import certificate_names

    beside = Path(inventory_file).parent / FOLDER / CERTIFICATE
    if not beside.exists():
        pytest.skip(f"{FOLDER}/{CERTIFICATE} is missing next to the inventory")
    above, now = x509.load_pem_x509_certificate(beside.read_bytes()), datetime.now(timezone.utc)
    listed = beside.with_name(REVOCATIONS)
    revoked = x509.load_pem_x509_crl(listed.read_bytes()) if listed.exists() else None
    ends = {
        FRONT: front_certificate_name(rig_name) if fleet[1].remote else "",
        FLEET: lender_certificate_name(rig_name) if fleet[1].listener else "",
    }
    for owner, name in ends.items():
        if not name:
            continue
        encoded = survey.read(OURS).between_boxes.get(pair_path(roots, owner), [])
        try:
            own, trusted = [x509.load_der_x509_certificate(b64decode(one)) for one in encoded]
        except ValueError:
            report_drift(Drift("a certificate and that of its CA", "another file" if encoded else "none", DEPLOY))
            continue
        found = "the CA" if trusted == above else describe_certificate("another CA", trusted)
        expect(found, "the CA", DEPLOY)
        try:
            own.verify_directly_issued_by(above)
        except (ValueError, TypeError, InvalidSignature):
            report_drift(Drift("a certificate of the CA", describe_issuer(own), DEPLOY))
        expect(", ".join(certificate_names(own)), name, DEPLOY)
        if revoked:
            gone = revoked.get_revoked_certificate_by_serial_number(own.serial_number) is not None
            expect("revoked" if gone else "not revoked", "not revoked", DEPLOY)
            known = survey.read(OURS).revocations.get(pair_path(roots, owner), "")
            same = known == b64encode(revoked.public_bytes(Encoding.DER)).decode()
            other = ItemText("another list", f"another list: {digest_text(known)}")
            expect("this list" if same else other, "this list", DEPLOY)
        until, limit = own.not_valid_after_utc, now + EXPIRY
        expect(f"until {until:%Y-%m-%d}", f"until {limit:%Y-%m-%d} or later", RELOAD + DEPLOY, holds=until >= limit)


@check(
    "D17",
    "both gateways of a shared address have the same keys, certificate names and CA, and run as declared",
    severity="critical",
    why="a revoked key opens the other gateway, or clients fail when the address moves",
)
def test_gateways_of_an_address_are_equal(
    survey: SurveyAnswers,
    rig_name: str,
    gateway_entry: Gateway | None,
    target_generation: Generation,
    front_pair: tuple[str, FrontPair],
    partner: SurveyedHost,
) -> None:
    name, other = front_pair[1].partner, partner.survey or SurveyAnswers({}, "the connection was lost")
    boxes = ((rig_name, survey, target_generation), (name, other, partner.desired.generation))
    for box, one, generation in boxes:
        state = find_answer(one.read(REQUESTS), "gateway: state")
        wanted = json.loads(generation.files["gateway/settings.json"])["digest"]
        found = re.search(r'"digest":"([0-9a-f]{12,64})', state.body)
        there = shorten_digest(found[1], f"{box} ") if found else f"{box} {state.describe}"
        expect(there, shorten_digest(wanted, f"{box} "), DEPLOY)
    keys = [one.read(OURS).files.get(ROUTER_KEYS, "") or "none" for one in (survey, other)]
    shown = f"keys {shorten_digest(keys[0])}, at {name} "
    both = ItemText(f"{shown}{shorten_digest(keys[1])}", f"keys {keys[0]}, at {name} {keys[1]}")
    expect(both, f"{shown}{shorten_digest(keys[0])}", DEPLOY, holds=keys[0] == keys[1])
    for listener, entry in gateway_entry.listeners.items() if gateway_entry else ():
        if not entry.tls or entry.address != front_pair[1].address:
            continue
        mine, others = (_describe_shown(one, listener) for one in (survey, other))
        expect(f"{listener}: {mine}, at {name} {others}", f"{listener}: {mine}, at {name} {mine}", DEPLOY)


def _describe_shown(survey: SurveyAnswers, listener: str) -> str:
    """The names in the certificate that a listener shows, and its CA."""
    from cryptography import x509

    from rigwright.gateway.certificates import certificate_names

    answer = find_answer(survey.read(REQUESTS), f"{listener}: keyless 0")
    try:
        shown = x509.load_der_x509_certificate(b64decode(answer.certificate))
        key = shown.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier or b""
    except (ValueError, x509.ExtensionNotFound):
        return answer.error or "an invalid certificate"
    return f"{' '.join(certificate_names(shown))} of CA {key.hex()[:12]}"


@check(
    "D18",
    "exactly one of both gateways has the address that they share",
    severity="critical",
    why="without the address, clients reach no gateway; with both, connections break and limits of keys double",
)
def test_one_gateway_has_the_address(
    survey: SurveyAnswers, rig_name: str, front_pair: tuple[str, FrontPair], partner: SurveyedHost
) -> None:
    pair = front_pair[1]
    surveys = {rig_name: survey, pair.partner: partner.survey or SurveyAnswers({}, "the connection was lost")}
    found = sorted(name for name, one in surveys.items() if pair.address in one.read(REACH).addresses)
    allow = instruction(f"allow protocol 112 (VRRP) between {pair.source} and {pair.partner_source}")
    step = allow if found else show_log(KEEPALIVED_UNIT) + DEPLOY
    expect(" and ".join(found) or "none", "one of both", step, holds=len(found) == 1)
