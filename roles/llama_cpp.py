"""Role llama_cpp: llama.cpp compiled from locked source, for exactly the cards of the rig."""

from __future__ import annotations

import json

from pyinfra.api import deploy

from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build, record
from rigwright.render import render
from rigwright.supply.network import network
from rigwright.supply.tools import Tools
from roles.operations.jobs import job, sent


@deploy("llama.cpp")
def llama_cpp(rig: Rig, build: Build, tools: Tools) -> None:
    """Compile in a folder named by the digest of all inputs, beside older ones."""
    engines = f"{rig.roots.software}/engines"
    unit = f"rw-job-{build.folder}"
    job(
        name=f"Compile {build.name}",
        unit=unit,
        script=build_script(rig, build, tools, unit),
        test=f"[ -s {engines}/{build.folder}/build.json ]",
        folder=f"{rig.roots.state}/jobs",
        files=rig.bundle.files([build.source]) if rig.bundle else (),
    )


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
