"""A wheel with llama.cpp's server on a host: its files, and the program that starts it."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass

from rigwright.engines.llama_cpp_wheel.catalog_keys import WheelEngine
from rigwright.engines.llama_cpp_wheel.server_fields import LAUNCHER, LAUNCHER_DIGEST
from rigwright.model.installation import FILES, MARKER, Installation, InstallJob
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import below_models

# Raised when the steps change in a way that changes what they install.
RECIPE = 1
# KiB. Measured: the wheel unpacks to 101 MiB.
INSTALLED_KIB = 128 * 1024
# The most that a wheel may unpack to, bytes: other builds of it are for cards, and take several times that.
LARGEST = 512 << 20
# CPU features that the wheel's code needs, as /proc/cpuinfo lists them: llama.cpp's defaults without GGML_NATIVE, which
# its `get_system_info` confirms. It has no other code to choose at run time.
CPU_FEATURES = ("avx", "avx2", "bmi2", "f16c", "fma", "sse4_2")


@dataclass(frozen=True)
class WheelInstallation(Installation):
    """One unpacked wheel."""

    @property
    def wheel(self) -> Artefact:
        """The wheel."""
        return self.artefacts[0]


def plan_wheel(wheel: Artefact, name: str, engine: WheelEngine) -> WheelInstallation:
    """An engine's installation, the same on each host: its code is for every Python from 3.10 on."""
    inputs = {"recipe": RECIPE, "wheel": wheel.sha256, "launcher": LAUNCHER_DIGEST}
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]
    return WheelInstallation(
        name=name,
        version=wheel.version,
        digest=digest,
        artefacts=(wheel,),
        what=f"unpack {wheel}, llama.cpp b{engine.build} for the CPU",
        record={"engine": name, "digest": digest, "wheel": wheel.identity, "launcher": LAUNCHER_DIGEST},
        work_kib=INSTALLED_KIB,
        installed_kib=INSTALLED_KIB,
    )


def render_install_job(roots: Roots, made: WheelInstallation, job: InstallJob) -> str:
    """The job that has it unpacked and tried, and installs it."""
    return render(
        "llama_cpp_wheel/install.sh.j2",
        job=job,
        ledger=roots.ledger,
        wheel=made.wheel,
        fetched=f"{roots.models}/{below_models(made.wheel)}",
        unpack=render("llama_cpp_wheel/unpack.sh.j2", wheel=made.wheel, largest=LARGEST),
        launcher=LAUNCHER,
        trial=f"exec {shlex.quote(f'{job.target}/bin/llama-server')} --version",
        version=made.version,
        inputs=json.dumps(made.record),
        marker=MARKER,
        files=FILES,
    )
