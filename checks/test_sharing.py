"""Weights for other boxes, as one of them, and as somebody who is none, would find them."""

import re
import shlex
from ipaddress import ip_address, ip_network
from urllib.parse import quote

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.entry import Share
from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.supply.lock import Artefact
from rigwright.weights.sharing import (
    UNIT,
    allowed,
    asked,
    asking_script,
    digest,
    endpoint,
    listening,
    listening_script,
)

EXPOSURE = 2.0  # budget of the unit, `systemd-analyze security`: 0 is nothing exposed, 10 everything
HEAD = 1 << 20  # bytes of a file that are compared
LOG = f"look at `journalctl -u {UNIT}`"


def _address(share: Share) -> str:
    return f"http://{endpoint(share)}"


def _curl(sender: str) -> str:
    """The beginning of a request that comes from one of the host's own addresses."""
    return f"curl -s --noproxy '*' --interface {shlex.quote(sender)}"


@check("H01", "weights are shared, now and after a reboot", severity="high", why="other boxes fetch from outside again")
def test_active_and_enabled(facts: HostFacts, share: Share) -> None:
    expect([facts.sharing.active, facts.sharing.enabled], ["active", "enabled"], f"{DEPLOY}, or {LOG}")


@check(
    "H02",
    "what shares them was started from the declared settings",
    severity="high",
    why="settings that were changed, by hand or by a run that died, give other files to other boxes",
)
def test_process_is_current(host: Host, rig: Rig, facts: HostFacts, share: Share) -> None:
    wanted = digest(rig, share)
    expect(facts.sharing.started_from[:12] if facts.sharing.active == "active" else "no process", wanted[:12], DEPLOY)
    expect((facts.sharing.replaced, facts.sharing.reload_needed), (False, False), DEPLOY)
    expect(host.check_output(f"systemctl show --property=DropInPaths --value {UNIT}"), "", "remove the drop-in")


@check("H03", "its exposure is within the budget", severity="high", why="a hole in the server is a hole in the box")
def test_exposure(host: Host, share: Share) -> None:
    said = host.run(f"systemd-analyze security --no-pager {UNIT}").stdout
    found = float(re.findall(r"exposure level for .*: ([0-9.]+)", said)[0])
    expect(found, f"at most {EXPOSURE}", DEPLOY, holds=found <= EXPOSURE)


@check(
    "H04",
    "it listens on the declared address and port alone",
    severity="critical",
    why="on another network, the weights are everybody's",
)
def test_listens_where_it_is_declared(host: Host, share: Share) -> None:
    expect(listening([host.check_output("sh -c %s", listening_script())]), [endpoint(share)], DEPLOY)


@check("H05", "another box gets the locked bytes", severity="high", why="a peer that gives other bytes costs a fetch")
def test_a_weight_is_given(host: Host, rig: Rig, share: Share) -> None:
    for weight in rig.weights:
        expect(given(host, rig, share, weight), wanted(host, rig, weight), f"{LOG}, or deploy again")


def given(host: Host, rig: Rig, share: Share, weight: Artefact) -> tuple[str, ...]:
    """Status, range and hash of the beginning of a file, as another box gets it."""
    url = f"{_address(share)}/{quote(weight.weight_path)}"
    curl = f"{_curl(share.address)} --max-time 60"
    head = host.run(f"{curl} --range 0-{HEAD - 1} -D - -o /dev/null %s", url).stdout
    status = head.partition("\r\n")[0].split(" ")[1:2]
    ranges = re.findall(r"(?im)^content-range: bytes (\S+)\r?$", head)
    body = host.run(f"{curl} --range 0-{HEAD - 1} %s | sha256sum", url).stdout
    return (*(status or ["no answer"]), *ranges, body.split(" ")[0])


def wanted(host: Host, rig: Rig, weight: Artefact) -> tuple[str, ...]:
    """The same as the lock and the file on the host say it."""
    body = host.run(f"head -c {HEAD} %s | sha256sum", rig.weight_path(weight)).stdout
    return ("206", f"0-{min(HEAD, weight.size) - 1}/{weight.size}", body.split(" ")[0])


@check(
    "H06",
    "nothing but whole files of the models' folder is given, and nothing is taken",
    severity="critical",
    why="half a file would be fetched for a whole one, and a link leads anywhere",
)
def test_nothing_else_is_given(host: Host, rig: Rig, share: Share) -> None:
    found = asked([host.check_output("sh -c %s", asking_script(rig, share))])
    expect(found.pop("file", "no answer"), "200", LOG)
    expect(sorted(what for what, code in found.items() if not code.startswith("4")), [], DEPLOY)
    expect(len(found), 8, "look whether the models' folder can be written")


@check(
    "H07", "who is not allowed is refused", severity="critical", why="licences and gated models are no public affair"
)
def test_strangers_are_refused(host: Host, rig: Rig, share: Share) -> None:
    stranger = "::1" if ip_address(share.address).version == 6 else "127.0.0.1"
    if any(ip_address(stranger) in ip_network(network) for network in allowed(share)):
        pytest.skip("no address of this host is refused")
    # who is allowed is told that there is no such file; 000 is no answer at all
    ask = f"{_curl(stranger)} --max-time 5 -o /dev/null -w '%%{{http_code}}'"
    found = host.run(f"{ask} %s", f"{_address(share)}/rigwright-check").stdout
    expect(found, "403 or no answer", DEPLOY, holds=found in ("403", "000"))


@check("H08", "it cannot write what it shares", severity="critical", why="a hole in the server would change weights")
def test_it_cannot_write(host: Host, rig: Rig, share: Share) -> None:
    pid = host.check_output(f"systemctl show --property=MainPID --value {UNIT}")
    # as it sees the folder, and even as root
    writes = host.run("nsenter --target %s --mount test -w %s", pid, rig.roots.models).rc == 0
    status = host.run("sed -n 's/^\\(Uid\\|CapEff\\):\\s*\\(\\S*\\).*/\\2/p' /proc/%s/status", pid).stdout.split()
    expect(len(status), 2, f"there is no process: {LOG}")
    root = status[0] == "0" or int(status[1], 16) != 0
    expect((writes, root), (False, False), DEPLOY)


@check(
    "H09", "weights are shared only where the rig says so", severity="high", why="nobody knows of what is not declared"
)
def test_nothing_undeclared(rig: Rig, facts: HostFacts) -> None:
    expect(facts.sharing.there and rig.share is None, False, DEPLOY)
