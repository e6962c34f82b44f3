"""What a build by the role costs beside the plain commands: unpack, configure, compile, with the same options."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from checks.looking import Box
from rigwright.engines import apart
from rigwright.engines.llama_cpp.build import Build
from rigwright.host.channel import number, path
from roles.operations.shell import Shell
from roles.root import Root


class NotMeasured(Exception):
    """There is nothing to measure; the text says why."""


@dataclass(frozen=True)
class Report:
    """Both builds, in seconds."""

    engine: str
    architectures: str
    """CMAKE_CUDA_ARCHITECTURES; empty for a CPU build."""
    cpus: int
    role: int
    """The role's whole job, by its own record of when it was made."""
    role_compiling: int
    """The part of it that was unpacking, configuring and compiling."""
    plain: int

    @property
    def ratio(self) -> float:
        """How many times as long the role takes."""
        return self.role / self.plain


def measure(box: Box, engine: str) -> Report:
    """Build an installed engine again on its host, with its own options and the plain commands; nothing is kept.

    Args:
        box: The host, whose rig has a bundle: the source comes from there.
        engine: The engine's name.

    Raises:
        NotMeasured: no bundle, or the engine is not installed.
        roles.root.Failed: the build fails; its last words are the text.
    """
    if box.rig.bundle is None:
        raise NotMeasured("the rig has no bundle to take the source from")
    made = box.desired().installations[engine]
    if not isinstance(made, Build):
        raise NotMeasured(f"{engine} is not compiled")
    source = box.rig.bundle.find(made.source)
    host = Root(box.target)
    record = json.loads(host.run(f"cat {shlex.quote(f'{box.rig.roots.config}/current/engines/{engine}/build.json')}"))
    if source is None or "build_seconds" not in record:
        raise NotMeasured(f"{engine} was installed before builds were timed, or is not in the bundle")
    if wrong := source.refusal():
        raise NotMeasured(wrong)
    # a folder that nobody else can get at, and in it one for what compiles as nobody
    work = path(host.run("mktemp -d -p /var/tmp").strip())
    folder = f"{work}/plain"
    try:
        host.run(f"mkdir {shlex.quote(folder)} && chmod 0777 {shlex.quote(folder)}")
        Shell(box.target).append(source.path, f"{folder}/{source.name}", lambda there: None)
        plainly = script(apart.WORK, record["inputs"]["options"], source.name, made.subtree)
        command = apart.command(box.rig.roots, ("/bin/sh", "-c", plainly), folder)
        plain = number(host.run(shlex.join(command)).strip())
    finally:
        host.run(f"rm -rf {shlex.quote(work)}")
    architectures = record["inputs"]["options"].get("CMAKE_CUDA_ARCHITECTURES", "")
    cpus = number(host.run("nproc").strip())
    return Report(engine, architectures, cpus, record["build_seconds"], record["compile_seconds"], plain)


def script(work: str, options: dict[str, Any], archive: str, subtree: str) -> str:
    """The plain build of an archive in a folder, which prints its seconds."""
    flags = shlex.join(f"-D{name}={value}" for name, value in sorted(options.items()))
    return f"""set -e
cd {shlex.quote(work)} && mkdir source
began=$(date +%s)
{{
  tar -xzf {shlex.quote(archive)} -C source --strip-components=1
  cmake -S {shlex.quote(f"source/{subtree}")} -B build -G Ninja {flags}
  ninja -C build llama-server
}} > log 2>&1 || {{ tail -n 5 log >&2; exit 1; }}
echo $(($(date +%s) - began))"""
