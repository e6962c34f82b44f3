"""The checks of connections between boxes: failures by the answers of a host."""

from base64 import b64encode
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, test_fleet
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import Gates, GateUnit, ShareProcess
from checks.survey.host import managed_files
from checks.survey.managed_files import LedgerFile, ManagedEntry, ManagedFiles
from checks.survey.requests import RequestAnswers, SurveyAnswer
from checks.survey.service_exposure import ReachSurvey, TcpListener
from rigwright.gateway.certificate_authority import (
    FOLDER,
    Authority,
    certificate_now,
    ensure_authority,
    temporary_authority,
)
from rigwright.gateway.certificate_revocations import (
    ensure_revocations,
    load_revocations,
    record_issued,
    revoke_box,
)
from rigwright.gateway.certificates import CertificatePair
from rigwright.gateway.gateway_units import ROUTER_KEYS
from rigwright.gateway.secrets_distribution import FLEET, pair_path
from rigwright.model.fleet_schema import (
    FleetLinks,
    FleetListener,
    FrontPair,
    front_certificate_name,
    lender_certificate_name,
)
from rigwright.model.gateway_schema import Gateway
from rigwright.model.roots import Roots

LISTENER = FleetListener(
    address="192.0.2.8", port=8555, lent={"chat": ("m",)}, variants={}, users={"chat": ("one",)}, bounds={"one": 9}
)
LINKS = FleetLinks(listener=LISTENER)


RESET = "Connection reset by peer"


def port_answers(
    error: str = RESET, at: str = "192.0.2.8:8555", *, status: int = 0, systemd: bool = True, tls: bool = True
) -> SurveyAnswers:
    """The answer of a host about its port, which answers so without a certificate."""
    gates = Gates(
        {"rigwright_gateway-8555.socket": GateUnit("active", "enabled")}, {}, 0, {}, [], [], ShareProcess(0, False, [])
    )
    reach = ReachSurvey([TcpListener(at, systemd, [])], [], {}, {}, {}, [], [], [])
    answer = SurveyAnswer(status, "", "", {}, "TUlJ" if tls else "", error)
    requests = RequestAnswers({"fleet: chat without a certificate": answer}, {})
    told = {"frontend_services": gates, "service_exposure": reach, "requests": requests}
    answers: dict[str, Any] = {name: {"told": asdict(one)} for name, one in told.items()}
    return SurveyAnswers(answers)


def test_a_port_that_refuses_whoever_has_no_certificate_is_green() -> None:
    for error in (RESET, "no answer"):
        test_fleet.test_port_needs_a_certificate(port_answers(error), ("fleet", LISTENER))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (port_answers("", status=200), "200 for chat"),
        (port_answers("", status=404), "404 for chat"),
        (port_answers("no answer in time"), "no answer in time for chat"),
        # something else has the port, and is silent
        (port_answers(tls=False), "Connection reset by peer for chat"),
        (port_answers(at="0.0.0.0:8555"), "0.0.0.0:8555"),
        (port_answers(systemd=False), "not systemd"),
    ],
)
def test_a_port_that_is_open_or_elsewhere_is_red(answers: SurveyAnswers, said: str) -> None:
    with pytest.raises(Drift, match=said):
        test_fleet.test_port_needs_a_certificate(answers, ("fleet", LISTENER))


def judge_certificate(
    folder: Path,
    signing: Authority,
    name: str,
    above: str,
    *,
    days: int = 0,
    links: FleetLinks = LINKS,
    pair: CertificatePair | None = None,
) -> None:
    """Check D16 of a host with a certificate of that name, made so many days ago, beside another of an authority."""
    roots = Roots()
    pair = pair or signing.issue((name,), certificate_now() - timedelta(days=days))
    file = folder / "gateway-_fleet.pem"
    file.write_text(replace(pair, certificates=pair.certificates + above).text)
    entry = ManagedEntry(roots.ledger, "file", 0o644, 0, 0, 0.0)
    found = {pair_path(roots, FLEET): managed_files._all_certificates(file)}
    lists = {pair_path(roots, FLEET): managed_files._revocations(file)}
    own = ManagedFiles([], [], [], LedgerFile(entry, [], True), [], [], [], [], [], {}, "", {}, found, lists)
    told: dict[str, Any] = {"managed_files": {"told": asdict(own)}}
    inventory = str(folder / "rig.py")
    test_fleet.test_certificates_between_boxes(SurveyAnswers(told), inventory, "two", roots, ("fleet", links))


def test_certificates_of_the_inventorys_authority_are_green_and_others_red(tmp_path: Path) -> None:
    ours = ensure_authority(tmp_path / FOLDER, certificate_now())
    other = temporary_authority(certificate_now())
    name = lender_certificate_name("two")
    judge_certificate(tmp_path, ours, name, ours.pem)
    for what, signing, called, above, days in (
        ("another CA's", other, name, ours.pem, 0),
        ("trusts another CA", ours, name, other.pem, 0),
        ("trusts none", ours, name, "", 0),
        ("another box's", ours, lender_certificate_name("three"), ours.pem, 0),
        ("of the other side", ours, front_certificate_name("two"), ours.pem, 0),
        ("ends soon", ours, name, ours.pem, 80),
    ):
        with pytest.raises(Drift):
            judge_certificate(tmp_path, signing, called, above, days=days)
            pytest.fail(what)


def test_a_revoked_certificate_and_an_earlier_list_are_red(tmp_path: Path) -> None:
    folder, name = tmp_path / FOLDER, lender_certificate_name("two")
    ours = ensure_authority(folder, certificate_now())
    before = ours.pem + ensure_revocations(folder, ours, certificate_now())
    judge_certificate(tmp_path, ours, name, before)
    pair = ours.issue((name,), certificate_now())
    record_issued(folder, pair)
    assert revoke_box(folder, ours, "two", certificate_now()) == 1
    with pytest.raises(Drift, match="another list"):
        judge_certificate(tmp_path, ours, name, before)
    now = ours.pem + load_revocations(folder, ours, certificate_now())
    judge_certificate(tmp_path, ours, name, now)
    with pytest.raises(Drift, match="expected not revoked"):
        judge_certificate(tmp_path, ours, name, now, pair=pair)


SHARED = "192.0.2.100"
PAIR = FrontPair(
    address=SHARED,
    prefix=24,
    source="192.0.2.7",
    interface="eth0",
    priority=150,
    partner="two",
    partner_source="192.0.2.8",
)
DIGEST = "0123456789abcdef"


def gateway_answers(
    addresses: tuple[str, ...] = (), digest: str = DIGEST, keys: str = "k", shown: str = ""
) -> SurveyAnswers:
    """The answers of a host with a gateway: its addresses, and what its processes have."""
    entry = ManagedEntry("/x", "file", 0o644, 0, 0, 0.0)
    files = {ROUTER_KEYS: keys}
    requests = {
        "gateway: state": SurveyAnswer(200, f'{{"digest":"{digest}"}}', "", {}, "", ""),
        "office: keyless 0": SurveyAnswer(401, "", "", {}, shown, ""),
    }
    told = {
        "service_exposure": ReachSurvey([], [], {}, {}, {}, [], [*addresses], []),
        "requests": RequestAnswers(requests, {}),
        "managed_files": ManagedFiles([], [], [], LedgerFile(entry, [], True), [], [], [], [], [], files, "", {}, {}),
    }
    return SurveyAnswers({name: {"told": asdict(one)} for name, one in told.items()})


def other_gateway(answers: SurveyAnswers) -> Any:
    """The host of the other gateway."""
    return SimpleNamespace(survey=answers, desired=SimpleNamespace(generation=declared_settings()))


def declared_settings() -> Any:
    return SimpleNamespace(files={"gateway/settings.json": f'{{"digest": "{DIGEST}"}}'})


@pytest.mark.parametrize(
    ("own", "other", "found"),
    [((SHARED,), (), ""), ((), (SHARED,), ""), ((SHARED,), (SHARED,), "one and two"), ((), (), "none")],
)
def test_an_address_is_at_one_gateway(own: tuple[str, ...], other: tuple[str, ...], found: str) -> None:
    def judge() -> None:
        partner = other_gateway(gateway_answers(other))
        test_fleet.test_one_gateway_has_the_address(gateway_answers(own), "one", ("fleet", PAIR), partner)

    if not found:
        judge()
        return
    with pytest.raises(Drift, match=found):
        judge()


def certificate_of(authority: Authority, *names: str) -> str:
    """A certificate, as a survey reports it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    pair = authority.issue(names, certificate_now())
    return b64encode(x509.load_pem_x509_certificate(pair.certificates.encode()).public_bytes(Encoding.DER)).decode()


def test_gateways_of_one_address_are_equal() -> None:
    listener = {"address": SHARED, "port": 8443, "tls": True}
    shared = {"address": f"{SHARED}/24", "source": "192.0.2.7", "interface": "eth0", "priority": 150}
    gateway = Gateway.model_validate({"listeners": {"office": listener}, "virtual_address": shared})
    ours, foreign = temporary_authority(certificate_now()), temporary_authority(certificate_now())
    # of one CA and for the same names, each with a key of its own
    mine, theirs = certificate_of(ours, SHARED), certificate_of(ours, SHARED)

    def judge(**changes: str) -> None:
        values: dict[str, Any] = {"shown": theirs} | changes
        partner, own = other_gateway(gateway_answers(**values)), gateway_answers(shown=mine)
        test_fleet.test_gateways_of_an_address_are_equal(
            own, "one", gateway, declared_settings(), ("fleet", PAIR), partner
        )

    judge()
    for changes in (
        {"digest": "f" * 16},
        {"keys": "other"},
        {"keys": ""},
        {"shown": certificate_of(foreign, SHARED)},
        {"shown": certificate_of(ours, "llm.example.org")},
        {"shown": ""},
    ):
        with pytest.raises(Drift):
            judge(**changes)
            pytest.fail(str(changes))
