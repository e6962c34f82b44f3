"""The gateway as its clients, and as those who are none, find it."""

import json
from base64 import b64decode
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checks import DEPLOY, Drift, check, expect
from checks.survey.clients import KEYLESS, REQUESTS, answer, closed, names
from checks.survey.gates import GATES
from checks.survey.ours import OURS
from checks.survey.reach import REACH
from checks.survey.taken import Survey
from rigwright.declaration.rig import Instance, Rig
from rigwright.gateway import keyring
from rigwright.gateway.entry import Gateway, ListenerEntry
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_UNIT, keys_path
from rigwright.gateway.service import PREFIX, ROTATION, door, rotation
from rigwright.serving.units import OWNED

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

Listener = tuple[str, ListenerEntry]
EXPOSURE = 1.5  # budget of each unit, `systemd-analyze security`: 0 is nothing exposed, 10 everything
EXPIRY = timedelta(days=14)  # for which a certificate has to be valid
LATER = 2  # seconds: what notes the settings does so once workers with them answer
LOG = f"look at `journalctl -u {GATEWAY_UNIT} -u {ROUTER_UNIT}`"
SENT = {0: "no key", 1: "a wrong key", 2: "an empty header", 3: "an empty key"}


@check(
    "D01",
    "systemd alone holds its ports, on the declared addresses and nowhere else",
    severity="critical",
    why="whoever holds one in its stead is sent the keys; on another network, models are everybody's",
)
def test_listens_where_it_is_declared(survey: Survey, rig: Rig, listener: Listener) -> None:
    port = listener[1].port
    entries = rig.gateway.listeners.values() if rig.gateway else ()
    wanted = {place for one in entries if one.port == port for place in one.addresses}
    there = [one for one in survey.read(REACH).listeners if one.port == port]
    expect(", ".join(sorted({one.at for one in there})) or "nothing", ", ".join(sorted(wanted)), DEPLOY)
    others = sorted({name for one in there for name in one.holders if not name.endswith(f" of {GATEWAY_UNIT}")})
    unheld = [] if all(one.systemd for one in there) else ["not systemd"]
    found = ", ".join([*others, *unheld])
    expect(found or "systemd", "systemd", f"end who listens there, and {DEPLOY}")
    expect(survey.read(GATES).gate(f"{PREFIX}{port}.socket").active, "active", DEPLOY)


@check(
    "D02",
    "its processes run, with the declared settings",
    severity="high",
    why="settings that were changed, by hand or by a run that died, let others in, or nobody",
)
def test_processes_are_current(survey: Survey, rig: Rig, gateway: tuple[str, Gateway]) -> None:
    made, gates = door(rig, OWNED), survey.read(GATES)
    for unit_state in made.unit_states:
        one = gates.gate(unit_state.unit)
        expect(f"{unit_state.unit} {one.active}", f"{unit_state.unit} active", f"{DEPLOY}, or {LOG}")
        expect(one.started[:12], unit_state.started_from[:12], DEPLOY)
        expect(one.configured[:12], unit_state.configured_from[:12], DEPLOY)
        expect("another program" if one.replaced else "", "", f"systemctl restart {unit_state.unit}")
    # what its processes have read, not what lies there
    wanted = json.loads(made.files["gateway/settings.json"])["digest"]
    for what, step in (("gateway", "reload"), ("router", "restart")):
        said = _of(answer(survey.read(REQUESTS), f"{what}: state").body, "digest")
        expect(said[:12], wanted[:12], f"systemctl {step} rigwright_{what}, or {DEPLOY}")


def _of(said: str, key: str) -> str:
    try:
        value = json.loads(said)[key]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no answer"
    return value if isinstance(value, str) else "no text"


@check("D03", "its exposure is within the budget", severity="high", why="a hole in it is a hole in the box")
def test_exposure(survey: Survey, gateway: tuple[str, Gateway]) -> None:
    for unit in (GATEWAY_UNIT, ROUTER_UNIT):
        level = survey.read(GATES).gate(unit).exposure or "10"
        expect(f"{unit} {level}", f"{unit} at most {EXPOSURE}", DEPLOY, holds=float(level) <= EXPOSURE)


@check(
    "D04",
    "who has no key, or one that is none, is turned away where keys are needed, and served where they are not",
    severity="critical",
    why="models would be everybody's; or clients without a key would be locked out",
)
def test_keys(survey: Survey, listener: Listener) -> None:
    name, entry = listener
    wanted = "401" if entry.keys else "200"
    requests = survey.read(REQUESTS)
    found = {SENT[number]: answer(requests, f"{name}: keyless {number}").said for number in range(len(KEYLESS))}
    wrong = [f"{said} for {what}" for what, said in found.items() if said != wanted]
    expect(", ".join(wrong) or wanted, wanted, f"{DEPLOY}, or {LOG}")


@check(
    "D05",
    "of engines nothing but OpenAI's API is open",
    severity="critical",
    why="engines have paths that take no key, read their memory, or end them",
)
def test_closed_paths(survey: Survey, rig: Rig, listener: Listener) -> None:
    requests = survey.read(REQUESTS)
    found = {path: answer(requests, f"{listener[0]}: {path}").said for path in closed(rig)}
    opened = [f"{path} ({code})" for path, code in found.items() if code not in ("400", "403", "404")]
    expect(", ".join(opened) or "nothing", "nothing", DEPLOY)


@check("D06", "its certificate is valid for 14 days more", severity="high", why="clients will refuse it")
def test_certificate(survey: Survey, listener: Listener) -> None:
    shown = _shown(survey, listener)
    now = datetime.now(timezone.utc)
    step = "deploy again, which renews one of your own authority; or give a new cert_file"
    ends, begins = shown.not_valid_after_utc, shown.not_valid_before_utc
    expect(f"until {ends:%Y-%m-%d}", f"until {now + EXPIRY:%Y-%m-%d} or later", step, holds=ends >= now + EXPIRY)
    expect(
        f"from {begins:%Y-%m-%d}", f"from {now:%Y-%m-%d} or before", f"set the clocks, or {step}", holds=begins <= now
    )


def _shown(survey: Survey, listener: Listener) -> "Certificate":
    if not listener[1].tls:
        pytest.skip("no TLS is declared")
    from cryptography import x509  # slow to load, and for few

    first = answer(survey.read(REQUESTS), f"{listener[0]}: keyless 0")
    try:
        return x509.load_der_x509_certificate(b64decode(first.certificate))
    except ValueError:
        raise Drift("a certificate", first.error or "none", f"{DEPLOY}, or {LOG}") from None


@check(
    "D13",
    "its certificate is the declared one",
    severity="critical",
    why="clients refuse one of another authority; or they were told to trust somebody else",
)
def test_certificate_is_ours(survey: Survey, rig: Rig, listener: Listener) -> None:
    shown, entry = _shown(survey, listener), listener[1]
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    from rigwright.gateway.authority import CERTIFICATE, FOLDER
    from rigwright.gateway.pairs import of_certificate, sans

    beside = Path(rig.inventory).parent
    step = f"systemctl reload {GATEWAY_UNIT}, or {DEPLOY}"
    if entry.cert_file:
        own = x509.load_pem_x509_certificates((beside / entry.cert_file).read_bytes())[0]
        expect("the one of cert_file" if shown == own else "another", "the one of cert_file", step)
        return
    if not (beside / FOLDER / CERTIFICATE).exists():
        pytest.skip(f"{FOLDER}/{CERTIFICATE} is not beside the inventory here")
    above = x509.load_pem_x509_certificate((beside / FOLDER / CERTIFICATE).read_bytes())
    try:
        shown.verify_directly_issued_by(above)
    except (ValueError, TypeError, InvalidSignature):
        raise Drift("one of your own authority", f"one of {shown.issuer.rfc4514_string()[:80]}", step) from None
    wanted = sans(entry.names, [entry.address])
    expect(", ".join(of_certificate(shown)), ", ".join(sorted(wanted)), step)


@check("D07", "each name that is offered is answered to", severity="high", why="clients are told that there is none")
def test_names_resolve(survey: Survey, rig: Rig, listener: Listener) -> None:
    if listener[1].keys:
        pytest.skip("clients need a key here, of which nobody but its holder has more than a hash")
    requests = survey.read(REQUESTS)
    found = {name: answer(requests, f"{listener[0]}: model {name}").said for name in names(rig, listener[1])}
    lacking = [f"{name} ({said})" for name, said in found.items() if said != "200"]
    expect(", ".join(lacking) or "all answer", "all answer", LOG)
    shown = answer(requests, f"{listener[0]}: keyless 0").body
    aliases = rig.gateway.aliases if rig.gateway else {}
    wanted = sorted(name for name in found if name not in aliases)
    expect(", ".join(_ids(shown)), ", ".join(wanted), f"systemctl restart {ROUTER_UNIT}")


def _ids(said: str) -> list[str]:
    try:
        return sorted(str(one["id"]) for one in json.loads(said)["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ["no list"]


@check("D08", "every instance that answers is offered", severity="high", why="a card serves nobody")
def test_instances_are_in(survey: Survey, offered: Instance) -> None:
    gates = survey.read(GATES)
    expect(gates.gate(offered.unit).active, "active", DEPLOY)
    restart = f"systemctl restart {offered.unit}"
    expect(gates.offered.get(offered.name, "nothing"), offered.socket, restart)
    expect("left out" if offered.name in gates.out else "in", "in", f"it does not answer: {LOG}, and {restart}")


@check("D09", "nobody but the gateway reads what it has", severity="critical", why="it has the keys of engines")
def test_secrets(survey: Survey, gateway: tuple[str, Gateway]) -> None:
    cure = f"systemctl reload {GATEWAY_UNIT}, or {DEPLOY}; of its log, `chmod 640` the files and `chmod 750` the folder"
    expect(", ".join(survey.read(GATES).loose) or "none", "none", cure)


@check(
    "D10",
    "its log is put away each day",
    severity="low",
    why="it grows until the disk is full, and with it what else needs room",
)
def test_log_is_rotated(survey: Survey, rig: Rig, gateway: tuple[str, Gateway]) -> None:
    gates = survey.read(GATES)
    text = gates.files.get(ROTATION)
    what = "as declared" if text == rotation(rig, OWNED) else "changed" if text is not None else "not there"
    expect(f"{ROTATION} {what}", f"{ROTATION} as declared", DEPLOY)
    timer = gates.gate("logrotate.timer")
    states = f"{timer.active}, {timer.enabled}"
    expect(states, "active, enabled", "systemctl unmask logrotate.timer; systemctl enable --now logrotate.timer")


@check(
    "D11",
    "the keys that it takes are those of its file, and no others",
    severity="critical",
    why="a key that nobody knows of lets somebody in, and one that was taken away still does",
)
def test_keys_in_force(survey: Survey, rig: Rig, gateway: tuple[str, Gateway]) -> None:
    declared = gateway[1]
    ring = keyring.load(Path(rig.inventory).parent / declared.keys_file)
    wanted = keyring.digest(keyring.keys_json(ring))
    found = _of(answer(survey.read(REQUESTS), "router: state").body, "keys")
    expect(
        f"keys {found[:12]}",
        f"keys {wanted[:12]} of {declared.keys_file}",
        f"systemctl restart {ROUTER_UNIT}; then {DEPLOY}",
        holds=found == wanted,
    )


@check(
    "D14",
    "the keys that its next start takes are those of its file, and no others",
    severity="critical",
    why="a key that somebody wrote down on the host lets him in after a restart",
)
def test_keys_at_rest(survey: Survey, rig: Rig, gateway: tuple[str, Gateway]) -> None:
    declared = gateway[1]
    wanted = keyring.digest(keyring.keys_json(keyring.load(Path(rig.inventory).parent / declared.keys_file)))
    found = survey.read(OURS).files.get(keys_path(rig), "")
    said = f"keys {found[:12]}" if found else "no keys"
    expect(said, f"keys {wanted[:12]} of {declared.keys_file}", DEPLOY, holds=found == wanted)


@check(
    "D12",
    "its workers are those that its last start, or reload by systemd, began",
    severity="high",
    why="settings that nginx was given by hand are in no file any more, and nobody sees them",
)
def test_workers_are_known(survey: Survey, gateway: tuple[str, Gateway]) -> None:
    later = survey.read(GATES).gate(GATEWAY_UNIT).later
    found = f"workers that began {later} s after" if later > LATER else "none of later"
    expect(found, "none of later", f"systemctl reload {GATEWAY_UNIT}")
