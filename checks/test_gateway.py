"""The gateway as its clients and as outsiders find it."""

import json
import time
from base64 import b64decode
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checks import DEPLOY, Drift, ItemText, check, digest_text, expect, report_drift
from checks.drift_text import describe_certificate, describe_issuer, format_day, shorten_digest
from checks.gateway_key_answers import (
    LOG,
    READABLE,
    check_key_permissions,
    describe_refusal_mismatch,
    parse_model_names,
)
from checks.remedy import STOP_LISTENER, Remedy, host_command, instruction, restart_units, rig_command, show_log
from checks.service_processes import expect_started_from
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import GATES
from checks.survey.managed_files import OURS
from checks.survey.requests import (
    KEYLESS,
    REQUESTS,
    closed_paths,
    find_answer,
    offered_model_names,
    waking_free_names,
)
from checks.survey.service_exposure import REACH
from rigwright.gateway import keyring
from rigwright.gateway.deployed_keys import keys_file_path
from rigwright.gateway.gateway_units import (
    GATEWAY_PREFIX,
    ROTATION,
    ROUTER_KEYS,
    gateway_services,
    render_gateway,
    render_logrotate,
)
from rigwright.gateway.keys_file_version import is_replaceable
from rigwright.gateway.nginx_conf import PATHS
from rigwright.gateway.rotation import LAST_RESORT, ROTATION_SERVICE
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, KEEPALIVED_UNIT, ROUTER_UNIT, keys_path, pair_path
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.instance import Instance
from rigwright.model.monitoring_schema import Monitoring
from rigwright.model.roots import Roots
from rigwright.serving.instance_units import OWNED_HEADER

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

Listener = tuple[str, ListenerEntry]
DAY = 24 * 3600  # seconds
EXPOSURE = 1.5  # budget of each unit, `systemd-analyze security`: 0 is nothing exposed, 10 everything
# keepalived sets addresses as root, with the capabilities for that
EXPOSURES = {KEEPALIVED_UNIT: 3.0}
RELOAD = host_command("systemctl reload {}", GATEWAY_UNIT)
NEWER_KEYS = instruction(
    "take the newer file from the controller that changed the keys last, or replace the host's keys with these"
) + rig_command("key sync", "--replace-newer")
EXPIRY = timedelta(days=14)  # for which a certificate has to be valid
LATER = 2  # seconds: the recorder of the settings records them once workers with them answer

SENT = {0: "no key", 1: "a wrong key", 2: "an empty header", 3: "an empty key", 4: "a wrong key in x-api-key"}


@check(
    "D01",
    "only systemd holds the listener's port, and only on the declared addresses",
    severity="critical",
    why="clients send keys to any other program at the port; on another network, the models are open to everyone",
)
def test_listens_where_it_is_declared(survey: SurveyAnswers, gateway_entry: Gateway | None, listener: Listener) -> None:
    port = listener[1].port
    entries = gateway_entry.listeners.values() if gateway_entry else ()
    wanted = {place for one in entries if one.port == port for place in one.addresses}
    there = [one for one in survey.read(REACH).listeners if one.port == port]
    expect(", ".join(sorted({one.at for one in there})) or "nothing", ", ".join(sorted(wanted)), DEPLOY)
    others = sorted({name for one in there for name in one.holders if not name.endswith(f" of {GATEWAY_UNIT}")})
    unheld = [] if all(one.systemd for one in there) else ["not systemd"]
    found = ", ".join([*others, *unheld])
    expect(found or "systemd", "systemd", STOP_LISTENER + DEPLOY)
    expect(survey.read(GATES).unit_state(f"{GATEWAY_PREFIX}{port}.socket").active, "active", DEPLOY)


@check(
    "D02",
    "the gateway's processes run with the declared settings",
    severity="high",
    why="settings changed by hand or by an interrupted deploy admit other clients, or none",
)
def test_processes_are_current(
    survey: SurveyAnswers,
    roots: Roots,
    service_accounts: ServiceAccounts,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    monitoring_entry: Monitoring | None,
    gateway: tuple[str, Gateway],
) -> None:
    made, gates = (
        render_gateway(roots, service_accounts, declared_instances, gateway_entry, monitoring_entry, OWNED_HEADER),
        survey.read(GATES),
    )
    for unit_state in made.unit_states:
        one = gates.unit_state(unit_state.unit)
        expect(f"{unit_state.unit} {one.active}", f"{unit_state.unit} active", DEPLOY + LOG)
        expect_started_from(unit_state.unit, one.started_from, unit_state.started_from)
        expect(shorten_digest(one.configured), shorten_digest(unit_state.configured_from), DEPLOY)
        expect(ItemText.without_value("another program") if one.replaced else "", "", restart_units(unit_state.unit))
    # the settings that its processes have read, not the files
    wanted = json.loads(made.files["gateway/settings.json"])["digest"]
    for what in ("gateway", "router"):
        said = _of(find_answer(survey.read(REQUESTS), f"{what}: state").body, "digest")
        expect(shorten_digest(said), shorten_digest(wanted), DEPLOY)


def _of(said: str, key: str) -> str:
    try:
        value = json.loads(said)[key]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no answer"
    return value if isinstance(value, str) else "no text"


@check(
    "D03",
    "the gateway's exposure level is within budget",
    severity="high",
    why="a flaw in the gateway exposes the box",
)
def test_exposure(survey: SurveyAnswers, gateway_entry: Gateway | None, gateway: tuple[str, Gateway]) -> None:
    for unit in gateway_services(gateway_entry):
        level, limit = survey.read(GATES).unit_state(unit).exposure or "10", EXPOSURES.get(unit, EXPOSURE)
        expect(f"{unit} {level}", f"{unit} at most {limit}", DEPLOY, holds=float(level) <= limit)


@check(
    "D04",
    "the listener rejects missing and wrong keys where it requires one, and only there",
    severity="critical",
    why="models would be open to everyone, or clients without a key locked out",
)
def test_keys(survey: SurveyAnswers, listener: Listener) -> None:
    name, entry = listener
    wanted = "401" if entry.keys else "200"
    requests = survey.read(REQUESTS)
    found = {
        SENT[number]: find_answer(requests, f"{name}: keyless {number}").describe for number in range(len(KEYLESS))
    }
    wrong = [f"{said} for {what}" for what, said in found.items() if said != wanted]
    expect(", ".join(wrong) or wanted, wanted, DEPLOY + LOG)
    if entry.keys:
        asked = {f"/v1/models with {what}": f"keyless {number}" for number, what in SENT.items()}
        found = {
            what: describe_refusal_mismatch(find_answer(requests, f"{name}: {one}")) for what, one in asked.items()
        }
        found |= {
            f"/v1/{path}": describe_refusal_mismatch(find_answer(requests, f"{name}: keyless {path}"), path)
            for path in PATHS
        }
        wrong = [f"{what} ({said})" for what, said in found.items() if said]
        expect(", ".join(wrong) or READABLE, READABLE, DEPLOY + LOG)


@check(
    "D05",
    "the listener exposes only the engines' OpenAI and Anthropic APIs",
    severity="critical",
    why="engines have endpoints that need no key, read their memory, or shut them down",
)
def test_closed_paths(
    survey: SurveyAnswers, gateway_entry: Gateway | None, monitoring_entry: Monitoring | None, listener: Listener
) -> None:
    requests = survey.read(REQUESTS)
    found = {
        path: find_answer(requests, f"{listener[0]}: {path}").describe
        for path in closed_paths(gateway_entry, monitoring_entry, listener[1])
    }
    opened = [f"{path} ({code})" for path, code in found.items() if code not in ("400", "403", "404")]
    expect(", ".join(opened) or "nothing", "nothing", DEPLOY)


@check("D06", "the listener's certificate is valid for another 14 days", severity="high", why="clients will reject it")
def test_certificate(survey: SurveyAnswers, listener: Listener) -> None:
    shown = _shown(survey, listener)
    now = datetime.now(timezone.utc)
    step = DEPLOY + instruction("provide a new cert_file") if listener[1].cert_file else RELOAD + DEPLOY
    ends, begins = shown.not_valid_after_utc, shown.not_valid_before_utc
    expect(f"until {ends:%Y-%m-%d}", f"until {now + EXPIRY:%Y-%m-%d} or later", step, holds=ends >= now + EXPIRY)
    expect(
        f"from {begins:%Y-%m-%d}",
        f"from {now:%Y-%m-%d} or earlier",
        host_command("timedatectl set-ntp true") + step,
        holds=begins <= now,
    )


def _shown(survey: SurveyAnswers, listener: Listener) -> "Certificate":
    if not listener[1].tls:
        pytest.skip("no TLS is declared")
    from cryptography import x509  # slow to load, and for few

    first = find_answer(survey.read(REQUESTS), f"{listener[0]}: keyless 0")
    try:
        return x509.load_der_x509_certificate(b64decode(first.certificate))
    except ValueError:
        raise Drift("a certificate", first.error or "none", DEPLOY + LOG) from None


@check(
    "D13",
    "the listener's certificate is the declared one",
    severity="critical",
    why="clients reject a certificate of another CA, or trust a foreign one",
)
def test_certificate_is_ours(survey: SurveyAnswers, inventory_file: str, roots: Roots, listener: Listener) -> None:
    shown, entry = _shown(survey, listener), listener[1]
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    from rigwright.gateway.certificate_authority import CERTIFICATE, FOLDER
    from rigwright.gateway.certificates import certificate_names, subject_alt_names

    beside = Path(inventory_file).parent
    step = RELOAD + DEPLOY
    # the file holds from its next start on
    first = find_answer(survey.read(REQUESTS), f"{listener[0]}: keyless 0").certificate
    lying = survey.read(OURS).certificates.get(pair_path(roots, listener[0]), "")
    same = lying == sha256(b64decode(first)).hexdigest()
    there = "the same" if same else ItemText("another", f"another: {lying}") if lying else "none"
    expect(there, "the same on disk", DEPLOY, holds=same)
    if entry.cert_file:
        own = x509.load_pem_x509_certificates((beside / entry.cert_file).read_bytes())[0]
        other = describe_certificate("another", shown)
        expect("the one of cert_file" if shown == own else other, "the one of cert_file", step)
        return
    if not (beside / FOLDER / CERTIFICATE).exists():
        pytest.skip(f"{FOLDER}/{CERTIFICATE} is missing next to the inventory")
    above = x509.load_pem_x509_certificate((beside / FOLDER / CERTIFICATE).read_bytes())
    try:
        shown.verify_directly_issued_by(above)
    except (ValueError, TypeError, InvalidSignature):
        report_drift(Drift("a certificate of your own CA", describe_issuer(shown), step))
    wanted = subject_alt_names(entry.names, [entry.address])
    expect(", ".join(certificate_names(shown)), ", ".join(sorted(wanted)), step)


@check(
    "D07",
    "the listener answers for every model name that it offers",
    severity="high",
    why="clients get the error that the model does not exist",
)
def test_names_resolve(
    survey: SurveyAnswers,
    inventory_file: str,
    declared_instances: tuple[Instance, ...],
    gateway_entry: Gateway | None,
    listener: Listener,
) -> None:
    requests = survey.read(REQUESTS)
    if listener[1].keys:
        check_key_permissions(requests, inventory_file, declared_instances, gateway_entry, *listener)
        return
    found = {
        name: find_answer(requests, f"{listener[0]}: model {name}").describe
        for name in waking_free_names(declared_instances, gateway_entry, listener[1])
    }
    lacking = [f"{name} ({said})" for name, said in found.items() if said != "200"]
    expect(
        ItemText.from_items(lacking) or "an answer for every name",
        "an answer for every name",
        restart_units(ROUTER_UNIT) + DEPLOY,
    )
    shown = find_answer(requests, f"{listener[0]}: keyless 0").body
    offered = offered_model_names(declared_instances, gateway_entry, listener[1])
    expect(", ".join(parse_model_names(shown)), ", ".join(sorted(offered)), restart_units(ROUTER_UNIT) + DEPLOY)


@check(
    "D08", "the gateway forwards requests to the instance", severity="high", why="the instance's cards serve no client"
)
def test_instances_are_in(survey: SurveyAnswers, offered: Instance) -> None:
    gates = survey.read(GATES)
    expect(gates.unit_state(offered.unit).active, "active", DEPLOY)
    restart = restart_units(offered.unit)
    expect(gates.offered.get(offered.name, "nothing"), offered.socket, restart)
    expect("left out" if offered.name in gates.out else "in", "in", restart + LOG)
    kept_out = {offered.name, f"{offered.name}{LAST_RESORT}"} & {*gates.rotation}
    expect("out of the rotation" if kept_out else "in it", "in it", show_log(ROTATION_SERVICE))


@check("D09", "only the gateway can read its files", severity="critical", why="the files contain the engines' keys")
def test_secrets(survey: SurveyAnswers, gateway: tuple[str, Gateway]) -> None:
    loose = survey.read(GATES).loose
    keys = [path for path in loose if path.endswith((".key", ".json"))]
    logs = [path for path in loose if path not in keys]
    cure = host_command("chmod go= {}", keys) if keys else Remedy(())
    cure += host_command("chmod g-w,o= {}", logs) if logs else Remedy(())
    expect(", ".join(loose) or "none", "none", cure)


@check(
    "D10",
    "the gateway's log is rotated daily",
    severity="low",
    why="the log grows until the disk is full, also for other programs",
)
def test_log_is_rotated(survey: SurveyAnswers, service_accounts: ServiceAccounts, gateway: tuple[str, Gateway]) -> None:
    gates = survey.read(GATES)
    text = gates.files.get(ROTATION)
    words = {None: "not there", render_logrotate(service_accounts, OWNED_HEADER): "as declared"}
    what = words.get(text, "changed")
    shown = f"{ROTATION} {what}"
    rotation = ItemText(shown, f"{shown}: {digest_text(text)}" if text else shown)
    expect(rotation, f"{ROTATION} as declared", DEPLOY)
    # a day that is still to come is one until which nothing is rotated
    step = host_command("sed --in-place '/rigwright_gateway/d' /var/lib/logrotate/status")
    fits = gates.rotated < time.time() + 2 * DAY
    expect(f"rotated at {format_day(gates.rotated)}", "rotated on a day that has been", step, holds=fits)
    timer = gates.unit_state("logrotate.timer")
    states = f"{timer.active}, {timer.enabled}"
    expect(
        states,
        "active, enabled",
        host_command("systemctl unmask logrotate.timer; systemctl enable --now logrotate.timer"),
    )


@check(
    "D11",
    "the gateway accepts exactly the keys in its keys file",
    severity="critical",
    why="the gateway accepts unknown or revoked keys",
)
def test_keys_in_force(survey: SurveyAnswers, inventory_file: str, gateway: tuple[str, Gateway]) -> None:
    _skip_without_clients(gateway[1])
    wanted, described = _declared_keys(inventory_file, gateway[1])[1:]
    step = restart_units(ROUTER_UNIT) + DEPLOY
    found = _of(find_answer(survey.read(REQUESTS), "router: state").body, "keys")
    expect(shorten_digest(found, "keys "), described, step, holds=found == wanted)
    # the router's process reads its copy again at any SIGHUP
    copied = survey.read(OURS).files.get(ROUTER_KEYS, "")
    expect(shorten_digest(copied or "of no file", f"{ROUTER_KEYS} with keys "), described, step, holds=copied == wanted)


@check(
    "D14",
    "the gateway will accept exactly the keys in its keys file after a restart",
    severity="critical",
    why="a key that was added on the host works after a restart",
)
def test_keys_at_rest(survey: SurveyAnswers, inventory_file: str, roots: Roots, gateway: tuple[str, Gateway]) -> None:
    _skip_without_clients(gateway[1])
    ring, wanted, described = _declared_keys(inventory_file, gateway[1])
    ours = survey.read(OURS)
    found = ours.files.get(keys_path(roots), "")
    serial, _, identifier = ours.keys_version.partition(" ")
    numbered: str = "no keys"
    if found:
        begin, end = f"{keys_path(roots)} with keys ", f", serial {serial or 'none'}"
        numbered = ItemText(f"{begin}{found[:12]}{end}", f"{begin}{found}{end}")
    # the file is older than the host's keys: a deploy is refused
    step = DEPLOY if is_replaceable(ring.current_version, identifier) else NEWER_KEYS
    expect(numbered, described, step, holds=found == wanted)


def _skip_without_clients(declared: Gateway) -> None:
    if not declared.serves_clients:
        pytest.skip("no client of its own has a key: gateways of other boxes judge them")


def _declared_keys(inventory_file: str, declared: Gateway) -> tuple[keyring.ClientKeyring, str, str]:
    """Those of the operator's file, their SHA-256 as hosts get them, and both in words."""
    ring = keyring.load_keyring(keys_file_path(inventory_file, declared))
    wanted = keyring.keys_digest(keyring.keys_json(ring))
    return ring, wanted, f"keys {wanted[:12]}, serial {ring.current_version.serial}, of {declared.keys_file}"


@check(
    "D12",
    "nginx workers date from the gateway's last start or reload by systemd",
    severity="high",
    why="no file contains settings given to nginx by hand",
)
def test_workers_are_known(survey: SurveyAnswers, gateway: tuple[str, Gateway]) -> None:
    later = survey.read(GATES).unit_state(GATEWAY_UNIT).later
    found = f"workers started {later}s later" if later > LATER else "no later ones"
    expect(found, "no later ones", RELOAD)
