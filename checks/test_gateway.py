"""The gateway as its clients, and as those who are none, would find it."""

import json
import re
import shlex
from ipaddress import ip_address, ip_network

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Instance, Rig
from rigwright.gateway.entry import Gateway, ListenerEntry
from rigwright.gateway.given import GATEWAY_UNIT, ROUTER_UNIT
from rigwright.gateway.service import ADMIN, PREFIX, ROTATION, RUNTIME, door, rotation
from rigwright.serving.live import Served
from rigwright.serving.units import LINKS, OWNED

CURL = ("curl", "-sk", "--noproxy", "*", "--path-as-is", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}")
Listener = tuple[str, ListenerEntry]
EXPOSURE = 1.5  # budget of each unit, `systemd-analyze security`: 0 is nothing exposed, 10 everything
EXPIRY = 14 * 86400  # seconds that a certificate has to be valid for
LOG = f"look at `journalctl -u {GATEWAY_UNIT} -u {ROUTER_UNIT}`"
# What engines answer beside OpenAI's API, without a key of their own some of it (vLLM 0.21.0, llama.cpp 0c1e570), and
# what the gateway itself has for nobody outside.
CLOSED = (
    *("/", "/metrics", "/docs", "/openapi.json", "/invocations", "/tokenize", "/slots", "/props", "/version"),
    *("/v1/chat/completions/render", "/inference/v1/generate", "/state", "/gone/0123456789abcdef", "/route/models"),
    *("//v1/models", "/v1/..%2fstate"),
)


def _reached(entry: ListenerEntry) -> str:
    """The address of one of its places, as the host itself reaches it."""
    address = ip_address(entry.address)
    if address.is_unspecified:
        address = ip_address("127.0.0.1")
    at = f"[{address}]" if address.version == 6 else str(address)
    return f"{'https' if entry.tls else 'http'}://{at}:{entry.port}"


def _status(host: Host, entry: ListenerEntry, path: str, *options: str) -> str:
    """The status of an answer; 000 for none."""
    # who it is, D06 looks at
    words = [*CURL, *options, f"{_reached(entry)}{path}"]
    said: str = host.run(shlex.join(words)).stdout
    return said


@check(
    "D01",
    "systemd alone holds its ports, on the declared addresses and nowhere else",
    severity="critical",
    why="whoever holds one in its stead is sent the keys; on another network, models are everybody's",
)
def test_listens_where_it_is_declared(host: Host, rig: Rig, found: Served, listener: Listener) -> None:
    port = listener[1].port
    wanted = {place for one in rig.gateway.listeners.values() if one.port == port for place in one.addresses}  # type: ignore[union-attr]
    lines = host.check_output(f"ss -Hltnp 'sport = :{port:d}'").splitlines()
    # ss has a star for all addresses of a socket that takes both families
    expect(sorted({line.split()[3] for line in lines}), sorted(wanted), DEPLOY)
    expect(all('("systemd",pid=1,' in line for line in lines), True, f"end who listens there, and {DEPLOY}")
    expect(f"{PREFIX}{port}.socket" in found.sockets, True, DEPLOY)


@check(
    "D02",
    "its processes run, with the declared settings",
    severity="high",
    why="settings that were changed, by hand or by a run that died, let others in, or nobody",
)
def test_processes_are_current(host: Host, rig: Rig, found: Served, gateway: tuple[str, Gateway]) -> None:
    made = door(rig, OWNED)
    for slot in made.slots:
        one = found.processes.get(slot.unit)
        expect(one.state if one else "not there", "active", f"{DEPLOY}, or {LOG}")
        expect(one.started_from[:12] if one else "", slot.started_from[:12], DEPLOY)
        expect(one.configured_from[:12] if one else "", slot.configured_from[:12], DEPLOY)
        expect(
            host.check_output("systemctl show --property=DropInPaths --value %s", slot.unit), "", "remove the drop-in"
        )
    # what its workers have read, not what lies there
    said = host.run(f"curl -s --max-time 10 --unix-socket {ADMIN} http://localhost/state").stdout
    wanted = json.loads(made.files["gateway/settings.json"])["digest"]
    expect(_of(said, "digest")[:12], wanted[:12], f"systemctl reload {GATEWAY_UNIT}, or {DEPLOY}")


def _of(said: str, key: str) -> str:
    try:
        value = json.loads(said)[key]
    except (ValueError, KeyError, TypeError):
        return "no answer"
    return value if isinstance(value, str) else "no text"


@check("D03", "its exposure is within the budget", severity="high", why="a hole in it is a hole in the box")
def test_exposure(host: Host, listener: Listener) -> None:
    for unit in (GATEWAY_UNIT, ROUTER_UNIT):
        said = host.run("systemd-analyze security --no-pager %s", unit).stdout
        level = float((re.findall(r"exposure level for .*: ([0-9.]+)", said) or ["10"])[0])
        expect(level, f"at most {EXPOSURE}", DEPLOY, holds=level <= EXPOSURE)


@check(
    "D04",
    "who has no key, or one that is none, is turned away where keys are needed, and served where they are not",
    severity="critical",
    why="models would be everybody's; or clients without a key would be locked out",
)
def test_keys(host: Host, listener: Listener) -> None:
    entry = listener[1]
    wanted = "401" if entry.keys else "200"
    for header in ("", "Authorization: Bearer rw-rigwright-check", "Authorization:", "Authorization: Bearer "):
        found = _status(host, entry, "/v1/models", *(["-H", header] if header else []))
        expect((header, found), (header, wanted), f"{DEPLOY}, or {LOG}")


@check(
    "D05",
    "of engines nothing but OpenAI's API is open",
    severity="critical",
    why="engines have paths that take no key, read their memory, or end them",
)
def test_closed_paths(host: Host, rig: Rig, listener: Listener) -> None:
    entry = listener[1]
    scraped = any(ip_address("127.0.0.1") in ip_network(one) for one in (rig.gateway.scrapers if rig.gateway else ()))
    paths = [path for path in CLOSED if path != "/metrics" or not scraped]
    found = {path: _status(host, entry, path) for path in paths}
    expect(sorted(path for path, code in found.items() if code not in ("400", "403", "404")), [], DEPLOY)


@check("D06", "its certificate is valid for 14 days more", severity="high", why="clients will refuse it")
def test_certificate(host: Host, listener: Listener) -> None:
    entry = listener[1]
    if not entry.tls:
        pytest.skip("no TLS is declared")
    at = _reached(entry).removeprefix("https://")
    shown = f"openssl s_client -connect %s < /dev/null 2> /dev/null | openssl x509 -noout -checkend {EXPIRY:d}"
    expect(host.run(shown, at).rc, 0, "deploy again, which renews one of your own authority; or give a new cert_file")


@check("D07", "each name that is offered is answered to", severity="high", why="clients are told that there is none")
def test_names_resolve(host: Host, rig: Rig, listener: Listener) -> None:
    entry = listener[1]
    if entry.keys:
        pytest.skip("clients need a key here, of which nobody but its holder has more than a hash")
    aliases = rig.gateway.aliases if rig.gateway else {}
    offered = {one.name for one in rig.offers if not entry.models or one.name in entry.models}
    names = [*sorted(offered), *sorted(alias for alias, name in aliases.items() if name in offered)]
    found = {}
    for name in names:
        body = json.dumps({"model": name, "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1})
        found[name] = _status(host, entry, "/v1/chat/completions", "-d", body)
    expect(sorted(name for name, code in found.items() if code != "200"), [], LOG)


@check("D08", "every instance that answers is offered", severity="high", why="a card serves nobody")
def test_instances_are_in(host: Host, rig: Rig, found: Served, offered: Instance) -> None:
    process = found.processes.get(offered.unit)
    expect(process.state if process else "not there", "active", DEPLOY)
    restart = f"systemctl restart {offered.unit}"
    expect(host.run("readlink %s", f"{LINKS}/{offered.name}").stdout.strip(), offered.socket, restart)
    out = json.loads(door(rig, OWNED).files["gateway/settings.json"])["out"]
    expect(host.file(f"{out}/{offered.name}").exists, False, f"it does not answer: {LOG}, and {restart}")


@check("D09", "nobody but the gateway reads what it has", severity="critical", why="it has the keys of engines")
def test_secrets(host: Host, listener: Listener) -> None:
    modes = host.run(f"find {RUNTIME} -type f \\( -name '*.key' -o -name '*.json' \\) -perm /077").stdout.split()
    expect(modes, [], DEPLOY)


@check(
    "D10",
    "its log is put away each day",
    severity="low",
    why="it grows until the disk is full, and with it what else needs room",
)
def test_log_is_rotated(host: Host, rig: Rig, listener: Listener) -> None:
    expect(host.run("cat %s", ROTATION).stdout == rotation(rig, OWNED), True, DEPLOY)
    state = host.run("systemctl is-active logrotate.timer").stdout.strip()
    expect(state, "active", "systemctl enable --now logrotate.timer")
