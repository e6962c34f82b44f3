"""Sandboxes of instances, tried from inside: as the instance's user, in a unit with all that its own unit forbids."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Instance, Rig
from rigwright.engines.kind import Sandbox, Service
from rigwright.host.facts import HostFacts
from rigwright.host.locks import LEASE, LOCKS
from rigwright.serving.listeners import LOOPBACK, names
from rigwright.serving.units import STARTED_FROM, UNITS

PROGRAM = Path(__file__).with_name("escape.py")
KINDS = ("processes", "network", "files", "devices", "privileges")
SETTING = re.compile("[A-Z][A-Za-z]*=")
# What an empty value takes all of (systemd.exec(5)).
NONE_AT_ALL = re.compile("(CapabilityBoundingSet|AmbientCapabilities)=")
# Of a unit's settings, what is about its own process and not about what that may do.
ITS_OWN = re.compile(
    "(Type|Exec[A-Za-z]*|EnvironmentFile|LoadCredential|Restart[A-Za-z]*|Timeout[A-Za-z]*|KillMode|RuntimeDirectory"
    "[A-Za-z]*|Slice)="
)
# Devices that can be opened without a change: a watchdog's would have the box start again, a tape's would wind it back.
TRIED = re.compile(
    r"/dev/(mem|kmem|port|kmsg|kvm|fuse|net/tun|vfio/.*|dri/.*|nvidia.*|(sd|hd|vd|xvd|nvme|md|dm-|mmcblk|loop)[a-z0-9-]*)"
)
CARDS = re.compile(r"/dev/nvidia.*")
# Beside what a rig names: ssh, a resolver, and folders of the distribution's.
ADDRESSES = ((LOOPBACK, 22), ("127.0.0.53", 53), ("::1", 22))
FOLDERS = (
    "/",
    "/boot",
    "/etc",
    UNITS,
    "/home",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/usr/local/bin",
    "/var/lib",
)
SECRETS = ("/etc/shadow", "/root/.ssh/authorized_keys", "/etc/ssh/ssh_host_ed25519_key")
# Ids of other units' processes, unix sockets that somebody listens on, and devices; a line each, with what it is.
OTHERS = """
echo 'pid 1'
echo "network $(readlink /proc/1/ns/net)"
systemctl show --property=MainPID --value -- {units} | sed -n 's/^\\([1-9][0-9]*\\)$/pid \\1/p'
sed -n 's|^[^ ]* [^ ]* [^ ]* 00010000 [^ ]* [^ ]* *[0-9]* \\(/.*\\)|socket \\1|p' /proc/net/unix | sort -u
find /dev -maxdepth 2 '(' -type b -o -type c ')' -printf 'device %p\\n'
find {config}/credentials /run/credentials -type f -printf 'secret %p\\n' 2> /dev/null
"""


def others(host: Host, rig: Rig, instance: Instance) -> dict[str, list[str]]:
    """What there is on the host that is not an instance's own: by kind, as OTHERS prints it."""
    units = {name for one in rig.instances for name in (one.unit, *names(one.port))} - {instance.unit}
    script = OTHERS.format(units=shlex.join(sorted(units)), config=shlex.quote(rig.roots.config))
    own = {instance.socket, f"/run/credentials/{instance.unit}/api-key"}
    found: dict[str, list[str]] = {"pid": [], "socket": [], "device": [], "secret": [], "network": []}
    for line in host.check_output(script).splitlines():
        kind, _, value = line.partition(" ")
        # a socket's name may have a line's end in it: whose that is must not decide what is tried
        if kind in found and value not in own:
            found[kind].append(value)
    return found


def question(
    rig: Rig, instance: Instance, there: dict[str, list[str]], addresses: frozenset[str], sandbox: Sandbox
) -> dict[str, object]:
    """What checks/escape.py is asked."""
    roots = [rig.roots.models, rig.roots.software, rig.roots.state, rig.roots.config, STARTED_FROM]
    return {
        "processes": [int(pid) for pid in there["pid"]],
        "sockets": there["socket"],
        "addresses": [
            *ADDRESSES,
            *((LOOPBACK, one.port) for one in rig.instances),
            *((address, 22) for address in sorted(addresses)),
        ],
        "secrets": [*SECRETS, *there["secret"]],
        "locks": [LOCKS, LEASE],
        "folders": [*FOLDERS, *roots],
        # which of the cards' devices are its own, their driver decides
        "devices": [
            path for path in there["device"] if TRIED.fullmatch(path) and not (instance.cards and CARDS.fullmatch(path))
        ],
        "families": list(sandbox.families),
        "network": "".join(there["network"]),
        "writes_code": sandbox.writes_code,
    }


def settings(cat: str) -> list[str]:
    """What a unit forbids its process, drop-ins included, as `systemctl cat` prints them one after the other."""
    section = ""
    found: list[str] = []
    for line in cat.splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and SETTING.match(line) and not ITS_OWN.match(line):
            if line.endswith("=") and not NONE_AT_ALL.match(line):
                # in a file it takes back what came before; in a transient unit it is an empty list
                found = [one for one in found if not one.startswith(line)]
            else:
                found.append(line)
    return found


def inside(forbidden: list[str], asked: dict[str, object]) -> str:
    """The shell command that runs checks/escape.py in a sandbox.

    Args:
        forbidden: The unit's settings.
        asked: What checks/escape.py is asked.
    """
    options = ("--quiet", "--collect", "--pipe", "--wait", "--service-type=exec")
    # systemd expands what looks like a variable
    words = ("python3", "-I", "-", json.dumps(asked).replace("$", "$$"))
    command = shlex.join(["systemd-run", *options, *(f"--property={line}" for line in forbidden), "--", *words])
    return f"printf %s {shlex.quote(PROGRAM.read_text())} | {command}"


@pytest.fixture(scope="session")
def done(host: Host, rig: Rig, facts: HostFacts, instance: Instance, service: Service) -> dict[str, list[str]]:
    """What an instance can do that it must not, by kind of attempt."""
    cat = host.check_output("systemctl cat --no-pager -- %s", instance.unit)
    asked = question(rig, instance, others(host, rig, instance), facts.addresses, service.sandbox)
    result = host.run(inside(settings(cat), asked))
    try:
        found: dict[str, list[str]] = json.loads(result.stdout)
    except ValueError:
        said = " ".join((result.stderr or result.stdout).split())[-300:]
        found = {kind: [f"nothing was tried: {said}"] for kind in KINDS}
    return found


@check("E01", "it reaches no other process", severity="critical", why="a taken-over service takes its neighbours along")
def test_processes(done: dict[str, list[str]]) -> None:
    expect(done["processes"], [], DEPLOY)


@check("E02", "it has no way out but its own socket", severity="critical", why="it could send out what it is asked")
def test_network(done: dict[str, list[str]]) -> None:
    expect(done["network"], [], DEPLOY)


@check(
    "E03",
    "it reads no secret, holds no lock and writes nothing of others",
    severity="critical",
    why="a taken-over service would stay after its restart, or keep deploys away",
)
def test_files(done: dict[str, list[str]]) -> None:
    expect(done["files"], [], DEPLOY)


@check("E04", "it opens no device but cards", severity="critical", why="disks and memory can be read past all files")
def test_devices(done: dict[str, list[str]]) -> None:
    expect(done["devices"], [], DEPLOY)


@check("E05", "it cannot become more than it is", severity="critical", why="a hole in the kernel is a hole in the box")
def test_privileges(done: dict[str, list[str]]) -> None:
    expect(done["privileges"], [], DEPLOY)
