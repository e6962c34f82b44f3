"""Self-tests of plugins, before a generation is activated: each without arguments, then with model and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.envs.environment import prefix_folder
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED, Instance
from rigwright.model.rig import Rig
from rigwright.plugins import verdict
from rigwright.plugins.plugin import SelftestKeys
from rigwright.render import render
from rigwright.serving.instance_units import build_unit, instance_variables, sandbox_properties

# Text of the program that reads their output on hosts.
PROGRAM = Path(verdict.__file__).read_text()
# Bytes of output that a self-test may print.
LARGEST = 64 << 10
# An empty folder in place of the instance's own compile cache.
OWN_FOLDER = f"TemporaryFileSystem={COMPILED}:mode=1777"


@dataclass(frozen=True)
class PluginSelftest:
    """The self-test of a plugin for an instance."""

    title: str
    unit: str
    """Name of the job; any change of the self-test or the instance changes it."""
    script: str
    test: str
    """Shell condition that holds after the self-test has passed."""


def plan_selftests(rig: Rig, installations: Mapping[str, Installation]) -> list[PluginSelftest]:
    """Every self-test of a plugin in whose environment an instance runs.

    Args:
        rig: The rig.
        installations: Installations of the rig by name.
    """
    return [
        _plan_selftest(rig, instance, installations[instance.installed_as], plugin.keys.selftest)
        for instance in rig.instances
        for plugin in instance.plugins
        if plugin.keys.selftest
    ]


def _plan_selftest(rig: Rig, instance: Instance, made: Installation, keys: SelftestKeys) -> PluginSelftest:
    service = kind_of(instance).service(rig, instance, made)
    options = [*_systemd_run_options(rig, instance, made, service, keys)]
    program = f"{prefix_folder(rig.roots.installation_path(made.folder))}/bin/{keys.command}"
    runs = [
        {
            "words": (program, *words),
            "title": f"{keys.command} {said}",
            "plan": _render_plan(keys, said, bare=not words),
        }
        for said, words in (("bare", ()), (f"with what {instance.name} serves", service.asked))
    ]
    weights = [artefact.sha256 for artefact in instance.weights]
    cards = [(rig.cards[index].name, rig.cards[index].capability) for index in instance.cards]
    inputs = json.dumps([options, runs, weights, cards, PROGRAM])
    job = f"rw-job-doctor-{instance.name}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"
    folder = f"{rig.roots.jobs}/{job}"
    script = render(
        "serving/doctor.sh.j2", unit=job, folder=folder, options=options, runs=runs, program=PROGRAM, largest=LARGEST
    )
    return PluginSelftest(f"{keys.command} of {instance.name}", job, script, f"[ -s {folder}/verdict ]")


def _render_plan(keys: SelftestKeys, said: str, *, bare: bool) -> str:
    lines = {name: one.plan for name, one in keys.lines.items() if one.without_model or not bare}
    named = f"{keys.command} {said}"
    return json.dumps({"doctor": named, "lines": lines, "seconds": keys.seconds, "largest": LARGEST})


def _systemd_run_options(
    rig: Rig, instance: Instance, made: Installation, service: ServiceSpec, keys: SelftestKeys
) -> Iterator[str]:
    """Options of systemd-run."""
    yield from ("--quiet", "--wait", "--collect", "--pipe", "--service-type=exec", "--nice=5")
    # the sandbox of its instance, and a user without files, groups or other processes to signal
    apart = sandbox_properties(build_unit(rig, instance, made).text)
    own = (
        f"User={rig.accounts.doctor}",
        f"RuntimeMaxSec={keys.seconds}",
        "TimeoutStopSec=5",
        "LimitCORE=0",
        f"InaccessiblePaths=-{rig.roots.state}",
        OWN_FOLDER,
    )
    yield from (f"--property={one}" for one in (*apart, *own))
    yield from (f"--setenv={name}={value}" for name, value in sorted(instance_variables(instance, service).items()))
