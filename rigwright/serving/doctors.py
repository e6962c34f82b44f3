"""How plugins' doctors are asked, before an instance is switched to: each bare, and with its own model and options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigwright.engines import kind_of
from rigwright.engines.kind import Service
from rigwright.envs.env import prefix
from rigwright.model.installation import Installation
from rigwright.model.rig import COMPILED, Instance, Rig
from rigwright.plugins import verdict
from rigwright.plugins.keys import Doctor
from rigwright.render import render
from rigwright.serving.units import environment, restrictions, unit

# What reads on hosts what they say, as text.
PROGRAM = Path(verdict.__file__).read_text()
# Bytes that one may say.
LARGEST = 64 << 10
# Where its instance would find what it has compiled, which is a folder of that one.
OWN_FOLDER = f"TemporaryFileSystem={COMPILED}:mode=1777"


@dataclass(frozen=True)
class Examination:
    """A doctor and an instance."""

    title: str
    unit: str
    """The job's; another one where anything of it is another."""
    script: str
    test: str
    """Shell condition that holds once it has found all well."""


def examinations(rig: Rig, installations: Mapping[str, Installation]) -> list[Examination]:
    """Every doctor of a plugin in whose environment an instance runs.

    Args:
        rig: The rig.
        installations: Its own, by name.
    """
    return [
        _examination(rig, instance, installations[instance.installed_as], plugin.keys.doctor)
        for instance in rig.instances
        for plugin in instance.plugins
        if plugin.keys.doctor
    ]


def _examination(rig: Rig, instance: Instance, made: Installation, doctor: Doctor) -> Examination:
    service = kind_of(instance).service(rig, instance, made)
    options = [*_options(rig, instance, made, service, doctor)]
    program = f"{prefix(rig.installed(made.folder))}/bin/{doctor.command}"
    runs = [
        {"words": (program, *words), "title": f"{doctor.command} {said}", "plan": _plan(doctor, said, bare=not words)}
        for said, words in (("bare", ()), (f"with what {instance.name} serves", service.asked))
    ]
    weights = [artefact.sha256 for artefact in instance.weights]
    cards = [(rig.cards[index].name, rig.cards[index].capability) for index in instance.cards]
    inputs = json.dumps([options, runs, weights, cards, PROGRAM])
    job = f"rw-job-doctor-{instance.name}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"
    folder = f"{rig.jobs}/{job}"
    script = render(
        "serving/doctor.sh.j2", unit=job, folder=folder, options=options, runs=runs, program=PROGRAM, largest=LARGEST
    )
    return Examination(f"{doctor.command} of {instance.name}", job, script, f"[ -s {folder}/verdict ]")


def _plan(doctor: Doctor, said: str, *, bare: bool) -> str:
    lines = {name: one.model_dump() for name, one in doctor.lines.items() if one.bare or not bare}
    named = f"{doctor.command} {said}"
    return json.dumps({"doctor": named, "lines": lines, "seconds": doctor.seconds, "largest": LARGEST})


def _options(rig: Rig, instance: Instance, made: Installation, service: Service, doctor: Doctor) -> Iterator[str]:
    """Those of systemd-run."""
    yield from ("--quiet", "--wait", "--collect", "--pipe", "--service-type=exec", "--nice=5")
    # as little as its instance may, and as a user who has nothing, not even a process of that to signal
    apart = restrictions(unit(rig, instance, made).text)
    own = (
        f"User={rig.doctor_user}",
        f"RuntimeMaxSec={doctor.seconds}",
        "TimeoutStopSec=5",
        "LimitCORE=0",
        f"InaccessiblePaths=-{rig.roots.state}",
        OWN_FOLDER,
    )
    yield from (f"--property={one}" for one in (*apart, *own))
    yield from (f"--setenv={name}={value}" for name, value in sorted(environment(instance, service).items()))
