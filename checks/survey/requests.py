"""Requests that the survey makes of a rig, and their answers."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import quote

from checks.survey.section import Section, SurveyScope
from rigwright.engines import kind_of
from rigwright.engines.instance_request import InstanceRequest
from rigwright.gateway import keyring
from rigwright.gateway.gateway_units import ADMIN
from rigwright.gateway.nginx_conf import PATHS
from rigwright.gateway.secrets_distribution import ROUTER_SOCKETS
from rigwright.gateway.served_models import offers_of
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.instance import Instance, loaded_weights
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.monitoring_schema import Monitoring, metrics_readers
from rigwright.model.rig import Rig
from rigwright.monitoring.monitoring_units import monitoring_services
from rigwright.operate.client_target import listener_address, listener_endpoint
from rigwright.serving.instance_units import LOOPBACK, credential_path
from rigwright.supply.lock import Artefact
from rigwright.weights.weight_server import allowed_networks, share_endpoint

PATIENCE = 60.0  # seconds for an answer that an engine computes
SOON = 20.0  # seconds for any other
# The bytes of an answer that are read: a taken-over instance may send as long as it has a reader. One token takes less
# than a tenth of it.
ANSWER = 65536


@dataclass(frozen=True)
class SurveyRequest:
    """A request."""

    name: str
    at: str
    """The path of a unix socket, or ADDRESS:PORT."""
    path: str
    method: str = "GET"
    headers: tuple[str, ...] = ()
    body: str = ""
    tls: bool = False
    key: str = ""
    """The file on the host whose key is sent; none is without."""
    group: str = ""
    """The group of the process that asks; it runs as user `nobody`."""
    source: str = ""
    """The host's own address that it comes from."""
    lane: str = ""
    """Of several requests of one lane, each is made when the one before is answered; a server that has not answered one
    in time is asked no more.
    """
    again: tuple[int, ...] = ()
    """Statuses that mean: later."""
    units: tuple[str, ...] = ()
    """Services that answer it: it is not asked while none of them is active, and not again once none of them runs."""
    limit: float = SOON
    """Seconds until the answer is whole, those of asking again among them."""
    single: float = PATIENCE
    """Seconds of these until one answer is whole, that of a busy one too."""
    connect: float = SOON
    """Seconds until there is a connection."""
    most: int = ANSWER
    """Bytes of its body that are read."""
    shown: int = ANSWER
    """Bytes of them that are reported."""
    told: tuple[str, ...] = ()
    """Headers that are reported, in small letters."""
    keyless: bool = False
    """Whether it has no valid API key: its services log a refusal."""

    @staticmethod
    def from_engine_request(name: str, at: str, request: InstanceRequest, **more: object) -> SurveyRequest:
        """One that a kind of engine knows."""
        made = SurveyRequest(name, at, request.path, **more)  # type: ignore[arg-type]
        if request.body is None:
            return made
        return SurveyRequest(**{**asdict(made), "method": "POST", "body": json.dumps(request.body)})


@dataclass(frozen=True)
class FilePart:
    """Bytes of a file that an answer is compared with."""

    name: str
    path: str
    start: int
    length: int


@dataclass(frozen=True)
class SurveyAnswer:
    """The answer."""

    status: int
    """0 for no answer."""
    body: str
    sha256: str
    """Of all of the body that was read."""
    headers: dict[str, str]
    certificate: str
    """In DER and base64; empty without TLS."""
    error: str
    """Why there is no answer; empty where there is one."""

    @property
    def describe(self) -> str:
        """Its description for people: its status, or why there is none."""
        return str(self.status or self.error)

    @property
    def closed_after_tls(self) -> bool:
        """Whether a server with TLS ended the connection without an answer."""
        return bool(self.certificate) and self.error in ENDED


@dataclass(frozen=True)
class RequestAnswers:
    """All answers by the name of the request, and hashes of parts of files."""

    answers: dict[str, SurveyAnswer]
    parts: dict[str, str]


PART = 1 << 18  # bytes of a file that are compared, at its beginning, in its middle and at its end
# Errors of a connection that a server ends: with a reset, which nginx sends in place of an answer, or without.
ENDED = (os.strerror(errno.ECONNRESET), "no answer")
LANES = 4  # requests at once of what shares weights: it takes few of each client
# Seconds until an address that takes connections has taken one: the host asks itself.
TAKEN = 0.25
WITHIN = PATIENCE + 10  # seconds for all of them: of engines that hang, those with an answer have it all the same
BUSY = (429, 503)
# Seconds for an answer of what shares weights: it reads at most PART of a file, and a disk that sleeps takes some.
GIVEN = 15.0
ROUTER = f"{ROUTER_SOCKETS}/light.sock"
WRONG = "Authorization: Bearer rw-rigwright-check"
# Headers of a client without a key, or with an invalid one.
KEYLESS: tuple[tuple[str, ...], ...] = (
    *((), (WRONG,), ("Authorization:",), ("Authorization: Bearer ",)),
    ("X-Api-Key: rw-rigwright-check",),
)
# Keys that are asked for at each listener; a file of them has thousands.
TRIED = 8
# Headers of a refusal that clients read.
REFUSAL = ("content-type", "www-authenticate")
# Paths that engines answer in addition to OpenAI's API, without a key of their own some of it (vLLM 0.21.0, llama.cpp
# 0c1e570), and paths of the gateway that are closed to the outside.
CLOSED = (
    *("/metrics", "/docs", "/openapi.json", "/invocations", "/tokenize", "/slots", "/props", "/version"),
    *("/v1/chat/completions/render", "/inference/v1/generate", "/state", "/gone/0123456789abcdef", "/route/models"),
    *("//v1/models", "/v1/..%2fstate"),
)
# Missing paths, which would be refused for their names if they existed; and paths that lead out of the folder.
UNGIVEN = {
    "what is not whole": "/rigwright-check.part",
    "what is not what it is called": "/rigwright-check.wrong",
    "what is hidden": "/.rigwright-check",
    "a folder": "/",
    "what is above": "/../../../etc/passwd",
    "what is above, encoded": "/%2e%2e/%2e%2e/etc/passwd",
}
HEARD = "prometheus: silent targets"
"""The request of it."""


def instance_requests(rig: Rig, instance: Instance, scene: SurveyScope) -> Iterator[SurveyRequest]:
    """Those to an instance."""
    service = kind_of(instance).service(rig, instance, scene.desired.installations[instance.installed_as])
    port, name = f"{LOOPBACK}:{instance.port}", instance.name
    key, group = credential_path(rig.roots, instance), rig.accounts.socket_groups(instance, rig.gateway)[-1]
    units = (instance.unit,)
    for what, headers in (("no key", ()), ("wrong key", ("Authorization: Bearer wrong",))):
        yield SurveyRequest.from_engine_request(
            f"{name}: {what}", port, service.ready, headers=headers, units=units, keyless=True
        )
    for what, at in (("socket", instance.socket), ("port", port)):
        yield SurveyRequest.from_engine_request(
            f"{name}: {what}", at, service.ready, key=key, group=group, limit=PATIENCE, units=units
        )
    for what, request in (("models", service.models), ("streamed", service.streamed)):
        if request is not None:
            yield SurveyRequest.from_engine_request(
                f"{name}: {what}", instance.socket, request, key=key, group=group, limit=PATIENCE, units=units
            )


def offered_model_names(
    instances: tuple[Instance, ...], gateway: Gateway | None, entry: ListenerEntry, key: keyring.ClientKey | None = None
) -> list[str]:
    """The offers of a listener, aliases too; with a key, those that this one may use."""
    if not gateway:
        return []
    aliases = gateway.aliases
    limit = key.models if key else None
    allowed = None if limit is None else {aliases.get(one, one) for one in limit}
    offered = {one.name for one in offers_of(instances, gateway) if gateway.has_model(entry, one.name)}
    offered = offered if allowed is None else offered & allowed
    return [*sorted(offered), *sorted(alias for alias, name in aliases.items() if name in offered)]


def keys_to_test(inventory: str, gateway: Gateway | None) -> Mapping[str, keyring.ClientKey]:
    """The keys whose rights are asked for, by their names: of each the operator has only its hash."""
    if not gateway:
        return {}
    ring = keyring.load_keyring(Path(inventory).parent / gateway.keys_file)
    return dict(sorted(ring.keys.items())[:TRIED])


def closed_paths(gateway: Gateway | None, monitoring: Monitoring | None, entry: ListenerEntry) -> list[str]:
    """Paths on which a listener must not answer, seen from the host itself."""
    scraped = any(listener_address(entry) in ip_network(one) for one in metrics_readers(gateway, monitoring))
    return [path for path in CLOSED if path != "/metrics" or not scraped]


def gateway_requests(rig: Rig) -> Iterator[SurveyRequest]:
    """Those to the gateway's listeners, and to what it has for itself."""
    for listener, entry in sorted(rig.gateway.listeners.items()) if rig.gateway else ():
        at, tls = listener_endpoint(entry), entry.tls
        for number, headers in enumerate(KEYLESS):
            yield SurveyRequest(
                f"{listener}: keyless {number}", at, "/v1/models", headers=headers, tls=tls, told=REFUSAL
            )
        for path in closed_paths(rig.gateway, rig.monitoring, entry):
            yield SurveyRequest(f"{listener}: {path}", at, path, tls=tls, shown=0)
        yield from (
            router_requests(rig.inventory, rig.accounts, rig.instances, rig.gateway, listener, entry)
            if entry.keys
            else model_requests(rig.instances, rig.gateway, listener, entry)
        )
    if rig.gateway and (fleet := rig.gateway.fleet.listener):
        for name in fleet.lent:
            path, title = f"/{name}/v1/chat/completions", f"fleet: {name} without a certificate"
            yield SurveyRequest(title, fleet.endpoint, path, "POST", body=_question(""), tls=True)
    if rig.gateway:
        for what, at in (("gateway", ADMIN), ("router", ROUTER)):
            yield SurveyRequest(f"{what}: state", at, "/state", group=rig.accounts.gateway)


def waking_free_names(instances: tuple[Instance, ...], gateway: Gateway | None, entry: ListenerEntry) -> list[str]:
    """The names that a listener offers of models that no request has to load first."""
    on_demand = {
        one.name for one in offers_of(instances, gateway) if all(instance.is_on_demand for instance in one.instances)
    }
    aliases = gateway.aliases if gateway else {}
    return [name for name in offered_model_names(instances, gateway, entry) if aliases.get(name, name) not in on_demand]


def model_requests(
    instances: tuple[Instance, ...], gateway: Gateway | None, listener: str, entry: ListenerEntry
) -> Iterator[SurveyRequest]:
    """Those to models of a listener that wants no key."""
    at, tls = listener_endpoint(entry), entry.tls
    units = {one.name: tuple(instance.unit for instance in one.instances) for one in offers_of(instances, gateway)}
    for name in waking_free_names(instances, gateway, entry):
        offered = gateway.aliases.get(name, name) if gateway else name
        made = SurveyRequest(
            f"{listener}: model {name}", at, "/v1/chat/completions", "POST", body=_question(name), tls=tls
        )
        yield replace(made, lane=f"model {offered}", again=BUSY, units=units[offered], limit=PATIENCE)


def router_requests(
    inventory: str,
    accounts: ServiceAccounts,
    instances: tuple[Instance, ...],
    gateway: Gateway | None,
    listener: str,
    entry: ListenerEntry,
) -> Iterator[SurveyRequest]:
    """Those about a listener that wants keys. The controller has no keys: the survey asks the router what each may do,
    as nginx does with the key that it was shown.
    """
    for path in PATHS:
        made = SurveyRequest(
            f"{listener}: keyless {path}", listener_endpoint(entry), f"/v1/{path}", "POST", body=_question("")
        )
        yield replace(made, tls=entry.tls, told=REFUSAL)
    for owner, key in keys_to_test(inventory, gateway).items():
        known = (f"X-Rw-Listener: {listener}", f"X-Rw-Key: {key.sha256[: keyring.SHOWN]}")
        asked = {"headers": known, "group": accounts.gateway, "lane": "router"}
        yield SurveyRequest(f"{listener}: models of {owner}", ROUTER, "/models", **asked)  # type: ignore[arg-type]
        for name in offered_model_names(instances, gateway, entry, key):
            title = f"{listener}: model {name} of {owner}"
            made = SurveyRequest(title, ROUTER, "/route/chat/completions", "POST", **asked)  # type: ignore[arg-type]
            yield replace(made, body=_question(name), told=("x-rw-group",))


def _question(model: str) -> str:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1})


def compared_pieces(instances: tuple[Instance, ...]) -> Iterator[tuple[Artefact, int, int, int]]:
    """Parts of weights that are compared: the file, the part's number, where it begins and how long it is."""
    for weight in loaded_weights(instances):
        length = min(PART, weight.size)
        for number, start in enumerate(sorted({0, (weight.size - length) // 2, weight.size - length})):
            yield weight, number, start, length


def disallowed_address(share: ShareEntry) -> str:
    """An address of the host's own that may not fetch; empty where every one may."""
    found = "::1" if ip_address(share.address).version == 6 else LOOPBACK
    return "" if any(ip_address(found) in ip_network(network) for network in allowed_networks(share)) else found


def prometheus_request(rig: Rig) -> Iterator[SurveyRequest]:
    """The request to the service that asks all boxes: the targets that have not answered for two minutes."""
    for one in monitoring_services(rig):
        if one.name == "prometheus":
            query = quote("max_over_time(up[2m]) == 0")
            yield SurveyRequest(HEARD, one.endpoint, f"/api/v1/query?query={query}", source=one.at[0])


def share_requests(instances: tuple[Instance, ...], share: ShareEntry) -> Iterator[SurveyRequest]:
    """Requests to weight shares: of a box that may, and of a client that may not."""
    at, own = share_endpoint(share), share.address
    if sender := disallowed_address(share):
        # first: an address without a listener takes the longest of a host to find out
        path = "/rigwright-check"
        yield SurveyRequest("share: stranger", at, path, source=sender, shown=0, connect=TAKEN, single=GIVEN)
    for turn, (weight, number, start, length) in enumerate(compared_pieces(instances)):
        path, ranged = f"/{quote(weight.weight_path)}", f"Range: bytes={start}-{start + length - 1}"
        made = SurveyRequest(f"share: {weight.weight_path} {number}", at, path, headers=(ranged,), source=own, shown=0)
        made = replace(made, told=("content-range",), most=length, limit=PATIENCE, single=GIVEN)
        yield replace(made, lane=f"share {turn % LANES}", again=BUSY)
    ungiven = SurveyRequest("", at, "", source=own, shown=0, single=GIVEN, again=BUSY)
    for turn, (what, path) in enumerate(UNGIVEN.items()):
        yield replace(ungiven, name=f"share: {what}", path=path, lane=f"share {turn % LANES}")
    yield replace(ungiven, name="share: written", path="/rigwright-check", method="PUT", body="x")


def plan_requests(scene: SurveyScope) -> list[SurveyRequest]:
    """All of them."""
    rig = scene.rig
    found = [*share_requests(rig.instances, rig.share)] if rig.share else []
    found += [ask for instance in rig.instances for ask in instance_requests(rig, instance, scene)]
    return [*found, *gateway_requests(rig), *prometheus_request(rig)]


def _questions(scene: SurveyScope) -> object | None:
    found, rig = plan_requests(scene), scene.rig
    parts = [
        FilePart(f"{weight.weight_path} {number}", rig.roots.weight_path(weight), start, length)
        for weight, number, start, length in (compared_pieces(rig.instances) if rig.share else ())
    ]
    if not found:
        return None
    return {"asks": [asdict(one) for one in found], "parts": [asdict(one) for one in parts], "within": WITHIN}


REQUESTS: Section[RequestAnswers] = Section(
    "requests",
    RequestAnswers,
    _questions,
    limit=WITHIN + 10,
    blind="answers that are wrong only for other questions, or for clients elsewhere",
    phase="probed",
    start_order=1,
)


def find_answer(found: RequestAnswers, name: str) -> SurveyAnswer:
    """The answer to a request; none where the host has left it out."""
    return found.answers.get(name, SurveyAnswer(0, "", "", {}, "", "it was not asked"))
