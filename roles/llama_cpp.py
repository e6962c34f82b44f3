"""Role llama_cpp: llama.cpp compiled from locked source, for exactly the cards of the rig."""

from __future__ import annotations

import json

from pyinfra.api import deploy

from rigwright.llama_cpp import Build, record
from rigwright.network import network
from rigwright.render import render
from rigwright.rig import Rig
from rigwright.tools import Tools
from roles.operations.jobs import job, sent


@deploy("llama.cpp")
def llama_cpp(rig: Rig, build: Build, tools: Tools) -> None:
    """Compile in a folder named by the digest of all inputs, beside older ones."""
    unit = f"rw-job-{build.folder}"
    job(
        name=f"Compile {build.name}",
        unit=unit,
        script=build_script(rig, build, tools, unit),
        test=built_test(rig, build),
        folder=f"{rig.roots.state}/jobs",
        files=rig.bundle.files([build.source]) if rig.bundle else (),
        present=f"[ -s {rig.roots.software}/engines/{build.folder}/build.json ]",
    )


def built_test(rig: Rig, build: Build) -> str:
    """Shell condition that holds where an engine is whole, root's, and everybody's to run."""
    folder = f"{rig.roots.software}/engines/{build.folder}"
    return f"{render('llama_cpp/unfit.sh.j2')} [ -s {folder}/build.json ] && ! unfit {folder}"


def build_script(rig: Rig, build: Build, tools: Tools, unit: str) -> str:
    """The job's script."""
    return render(
        "llama_cpp/build.sh.j2",
        build=build,
        network=network(rig),
        ledger=rig.ledger,
        urls=[] if rig.bundle else rig.urls(build.source),
        projects=[] if rig.bundle else [s[6:] for s in build.source.sources if s.startswith("index:")],
        sent=sent(f"{rig.roots.state}/jobs", unit) if rig.bundle else "",
        tools=tools.folder,
        work=f"{rig.roots.state}/build/{build.folder}",
        target=f"{rig.roots.software}/engines/{build.folder}",
        log=f"{rig.roots.state}/jobs/{unit}/log",
        inputs=json.dumps(record(build)),
    )
