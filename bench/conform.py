"""How soon all checks are decided: on one host and on eight, beside the same list asked one by one by testinfra.

testinfra asks over its own ssh, one connection a host kept open, and each question is a command or several. What a
check of ours looks at is one question there, or a few, each the smallest that its modules have for it: for what looks
into processes or trees they have none, and a command is asked.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.converge import converge, inventory_of, own_lab
from bench.start import RIG, Failed, Report, Row, Verb, timed
from checks.looking import boxes
from checks.survey.carry import COMMAND, answers, asked, program
from checks.survey.section import Scene
from checks.survey.sections import SECTIONS
from lab.hosts import Host
from rigwright.inventory import load
from rigwright.model.rig import Rig
from roles import root

ASKED = Path(__file__).with_name("asked.py")
LONGEST = 8
"""Sections of the survey that are told of."""
GOAL = "1 s, beside the completions' own"


@dataclass(frozen=True)
class Measured:
    """What was measured, and how much was asked."""

    report: Report
    checks: int
    """That are decided on one host: those that do not apply to it are not counted."""
    questions: int
    """To one host, by testinfra."""
    longest: list[tuple[str, float]]
    """Sections of the survey of one host, and the least seconds of each: what takes longest of it."""


def measure(
    release: str, layers: tuple[str, ...], counts: Sequence[int], runs: int, say: Callable[[str], None]
) -> Measured:
    """Boot hosts, converge them, and time both over some of them.

    Args:
        release: The hosts' Debian.
        layers: Folders laid over its base image that hold a compiled engine; none takes what was kept, or compiles one.
        counts: Over how many hosts; the largest of them are booted.
        runs: How often each is timed.
        say: Told what is under way.

    Raises:
        Failed: a check does not hold, or a question has another answer.
        lab.machine.Unsupported: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say(f"converging {max(counts)} hosts")
        converge(lab, folder, release, layers, max(counts))
        verbs, questions = [], 0
        for count in counts:
            hosts = lab.hosts[:count]
            inventory = inventory_of(folder, lab, hosts)
            verbs.append(Verb(Row("check", count, GOAL if count == 1 else "2 x one"), [RIG, "check", inventory], hosts))
            if count == min(counts):
                # one by one on more hosts it takes minutes, and says nothing else
                theirs = asks(rig_of(inventory, hosts[0]))
                questions = len(theirs)
                verbs.append(Verb(Row("testinfra", count, ""), peer(folder, hosts, theirs), hosts))
        decided = checks(inventory_of(folder, lab, lab.hosts[:1]))
        report = timed(verbs, release, runs, say)
        return Measured(report, decided, questions, longest(inventory_of(folder, lab, lab.hosts[:1]), runs))


def rig_of(inventory: str, host: Host) -> Rig:
    """What an inventory says of a host."""
    members: list[tuple[str, dict[str, Any]]] = runpy.run_path(inventory)["rigs"]
    return load(dict(members)[host.name]["rig"])


def checks(inventory: str) -> int:
    """How many checks are decided on the host of an inventory.

    Raises:
        Failed: one does not hold.
    """
    done = subprocess.run([RIG, "check", inventory, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"check: {(done.stdout + done.stderr)[-2000:]}")
    return sum(one["verdict"] == "ok" for host in json.loads(done.stdout)["hosts"] for one in host["checks"])


def longest(inventory: str, runs: int) -> list[tuple[str, float]]:
    """The sections of a host's survey that take longest, all of them asked at once, and the least seconds of each.

    Raises:
        Failed: the survey was not run to its end, or a section has no answer.
    """
    (box,) = boxes(inventory, None)[0]
    questions = asked(Scene(box.rig, box.desired()), SECTIONS)
    least: dict[str, float] = {}
    for _ in range(runs):
        try:
            found = answers(root.run(box.target, COMMAND, program(questions)).out)
        except ValueError as error:
            raise Failed(str(error)) from None
        if lacking := [name for name, one in found.items() if "told" not in one]:
            raise Failed(f"no answer about {', '.join(lacking)}")
        least = {name: min(float(str(one["took"])), least.get(name, math.inf)) for name, one in found.items()}
    return sorted(least.items(), key=lambda one: -one[1])[:LONGEST]


def peer(folder: Path, hosts: Sequence[Host], asked: list[list[str]]) -> list[str]:
    """The command that asks all of them by testinfra."""
    questions, config = folder / f"asked{len(hosts)}.json", folder / "ssh_config"
    questions.write_text(json.dumps({host.address: asked for host in hosts}))
    known = folder / "known_hosts"
    known.write_text("".join(host.known_hosts.read_text() for host in hosts))
    config.write_text(f"Host *\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n  BatchMode yes\n")
    where = ",".join(f"ssh://root@{host.address}" for host in hosts)
    options = [f"--hosts={where}", f"--ssh-config={config}", f"--ssh-identity-file={hosts[0].key}"]
    plain = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ASKED.parent), "-c", os.devnull]
    words = [sys.executable, "-m", "pytest", *plain, str(ASKED), *options]
    return ["env", f"ASKED={questions}", *words]


def asks(rig: Rig) -> list[list[str]]:
    """What is asked of a host: of each thing that our checks look at, the smallest question."""
    roots = (rig.roots.software, rig.roots.state, rig.roots.config, rig.roots.models)
    found = [["mode", root, "755"] for root in roots] + [["owner", root, "root"] for root in roots]
    units = ["rigwright.target", "rigwright_rehash.timer"]
    for one in rig.instances:
        unit = f"rigwright-{one.name}.service"
        units += [unit, f"rigwright_listener-{one.port}.socket"]
        shown = f"$(systemctl show --property=MainPID --value {unit})"
        held = f"/proc/{shown}"
        found += [["shell", f"rigwright-{one.name}", "/usr/sbin/nologin"], ["groups", f"rigwright-{one.name}"]]
        found += [["listening", f"tcp://127.0.0.1:{one.port}"]]
        found += [["property", unit, key] for key in ("ExecStart", "User", "FragmentPath", "MemoryMax", "TasksMax")]
        lines = {
            "limits": "open files",
            "status": "NoNewPrivs",
            "cgroup": "rigwright",
            "mountinfo": " / ",
            "maps": ".so",
        }
        found += [["says", f"cat {held}/{name}", text] for name, text in lines.items()]
        found += [
            ["says", f"tr '\\0' ' ' < {held}/{name}", text] for name, text in (("cmdline", "-"), ("environ", "="))
        ]
        found += [["says", f"systemd-analyze security --no-pager {unit}", "Overall exposure level"]]
        url = f"http://127.0.0.1:{one.port}/v1/models"
        found += [["says", f"curl -s -o /dev/null -w '%{{http_code}}' {url}", "401"]]
    keys = ("FragmentPath", "UnitFileState", "NeedDaemonReload")
    for unit in units:
        found += [["running", unit], *(["property", unit, key] for key in keys)]
    for weight in rig.weights:
        path = rig.weight_path(weight)
        found += [["mode", path, "444"], ["owner", path, "root"], ["sha256", path, weight.sha256]]
    for name in ("systemd", "openssh-server", "python3", "curl", "libc6"):
        found.append(["package", name])
    for command, text in SYSTEM.items():
        found.append(["says", command, text])
    return found


SYSTEM = {
    "getent passwd": "root",
    "getent group": "root",
    "dpkg --audit; echo audited": "audited",
    "df --output=pcent /": "%",
    "ss -tlnp": "LISTEN",
    "ss -xlnp": "u_str",
    "cat /proc/self/mountinfo": " / ",
    "systemctl show --property=DefaultEnvironment --property=DefaultLimitNOFILE": "DefaultLimitNOFILE",
    "systemctl list-timers --all --no-pager": "rigwright",
    "systemctl --failed --no-pager": "loaded units",
    "readlink -f /etc/rigwright/current": "generations",
    "find /opt/rigwright -xdev ! -type l -perm /022 -print; echo looked": "looked",
    "find /etc/rigwright -xdev -type f -exec sha256sum {} +": "/etc/rigwright",
    "find /opt/rigwright/engines -xdev -type f -exec sha256sum {} +": "llama",
    "cat /etc/ld.so.preload 2>/dev/null; echo read": "read",
    "cat /etc/sudoers /etc/sudoers.d/* 2>/dev/null; echo read": "read",
    "sysctl -n kernel.randomize_va_space": "2",
    "journalctl -k -n 100 --no-pager; echo read": "read",
    "ls /etc/modprobe.d /etc/sysctl.d /etc/udev/rules.d 2>/dev/null; echo read": "read",
    "apt-mark showhold; echo read": "read",
    "uname -r": ".",
    "date +%s": "1",
}
