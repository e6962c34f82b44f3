"""What a machine lacks for the GPU tests, all of it before the first host boots."""

from __future__ import annotations

from pathlib import Path

from lab import gpus, images, machine
from lab.machine import PROGRAMS, Unsupported
from rigwright.supply.bundle import INDEX
from tests.gpu.contained import RELEASE


def lacking(release: str, bundle: Path | None, vllm: Path | None = None) -> list[str]:
    """What this machine lacks, one line each. Packages and base images that a network has are brought first.

    Args:
        release: Of the throwaway host; that of containers has one of its own.
        bundle: What `tests.gpu.bundle` has made, where there is no network.
        vllm: What `tests.gpu.vllm` has made.
    """
    found = gpus.lacking() + machine.lacking()
    if found and (packages := machine.missing_packages(PROGRAMS)):
        found.append(f"missing {', '.join(packages)}")
    try:
        if not found:
            machine.install(PROGRAMS)
    except Unsupported as error:
        found.append(str(error))
    for name in dict.fromkeys((release, RELEASE)):
        tree = images.place(images.RELEASES[name])
        try:
            if not found:
                images.base(images.RELEASES[name])
            elif not tree.with_suffix(".complete").exists():
                found.append(f"no base image {tree}, which `./rig lab` makes from Debian's archive")
        except (Unsupported, OSError) as error:
            found.append(f"no base image {tree}: {error}")
    for folder, name in ((bundle, "bundle"), (vllm and vllm / "bundle", "vllm")):
        if folder and not (folder / INDEX).is_file():
            found.append(
                f"{folder} is no bundle: `.venv/bin/python -m tests.gpu.{name}` makes it where there is a network"
            )
    return found
