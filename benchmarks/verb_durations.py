"""How long verbs take that change nothing, and what memory they need: also of engines that hang, all checks, and a
deploy.

Seconds of the wall are those of a machine that does nothing else; processor seconds hold on a busy one too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.noop_deploy import converge, inventory_of, own_lab
from benchmarks.timed_verbs import Report, Row, Verb, timed
from rigwright.project_root import ROOT

RIG = str(ROOT / "rig")
NOT_AS_DECLARED = 1  # exit status of a verb that looks (README)
CHECKS = "1 s, beside the completions' own"
FEW = 8  # the most hosts at which a verb's seconds count; beyond it the controller's memory limits them


def measure(
    release: str, layers: tuple[str, ...], counts: Sequence[int], runs: int, say: Callable[[str], None]
) -> Report:
    """Boot hosts, converge them, and time verbs over some of them.

    Args:
        release: The hosts' Debian.
        layers: Folders laid over its base image that hold a compiled engine; none takes what was kept, or compiles one.
        counts: Over how many hosts; the largest of them are booted.
        runs: How often each is timed.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: a verb fails.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say(f"converging {max(counts)} hosts")
        converge(lab, folder, release, layers, max(counts))
        verbs, frozen = [Verb(Row("--help", 0, "0.3 s"), [RIG, "--help"], ())], []
        for count in counts:
            hosts = lab.hosts[:count]
            inventory = inventory_of(folder, lab, hosts)
            goals = _goals(count)
            # engines of more hosts than a machine has processors can be too slow for a token to be called well
            slow = ("status",) if count > (os.cpu_count() or 1) else ()
            for verb, goal in goals.items():
                statuses = (0, NOT_AS_DECLARED) if verb in slow else (0,)
                verbs.append(Verb(Row(verb, count, goal), [RIG, verb, inventory], hosts, statuses))
            frozen_row = Row("status, frozen", count, goals["status"])
            frozen.append(Verb(frozen_row, [RIG, "status", inventory], hosts, (NOT_AS_DECLARED,)))
        serving = timed(verbs, release, runs, say)
        for host in lab.hosts:
            host.run("systemctl kill --signal=STOP rigwright-chat.service")
        hanging = timed(frozen, release, runs, say)
        return replace(hanging, load=(serving.load[0], hanging.load[1]), rows=serving.rows + hanging.rows)


def _goals(hosts: int) -> dict[str, str]:
    """The verbs that are timed, and what is asked of each."""
    if hosts == 1:
        return {"validate": "0.5 s", "status": "0.6 s", "plan": "", "deploy": "0.8 s", "check": CHECKS}
    twice = "2 x one" if hosts <= FEW else ""
    return {"validate": "", "status": twice, "plan": "", "deploy": twice or "300 MB", "check": twice}
