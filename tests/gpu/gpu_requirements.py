"""The missing parts of a machine for the GPU tests, all of them before the first host boots."""

from pathlib import Path

from lab import base_images, gpu_passthrough, machine_requirements
from lab.machine_requirements import PROGRAMS, UnsupportedMachine
from rigwright.supply.bundle import INDEX
from tests.gpu.container_layer import RELEASE


def missing_requirements(release: str, bundle: Path | None, vllm: Path | None = None) -> list[str]:
    """The missing parts of this machine, one line each. Packages and base images that a network has are brought first.

    Args:
        release: Of the throwaway host; that of containers has one of its own.
        bundle: The output of `tests.gpu.gpu_bundle`, where there is no network.
        vllm: The output of `tests.gpu.vllm_bundle`.
    """
    found = gpu_passthrough.missing_requirements() + machine_requirements.missing_requirements()
    if found and (packages := machine_requirements.missing_packages(PROGRAMS)):
        found.append(f"missing {', '.join(packages)}")
    try:
        if not found:
            machine_requirements.install_programs(PROGRAMS)
    except UnsupportedMachine as error:
        found.append(str(error))
    for name in dict.fromkeys((release, RELEASE)):
        tree = base_images.tree_path(base_images.RELEASES[name])
        try:
            if not found:
                base_images.build_base(base_images.RELEASES[name])
            elif not tree.with_suffix(".complete").exists():
                found.append(f"no base image {tree}, which `./rig lab` makes from Debian's archive")
        except (UnsupportedMachine, OSError) as error:
            found.append(f"no base image {tree}: {error}")
    for folder, name in ((bundle, "bundle"), (vllm and vllm / "bundle", "vllm")):
        if folder and not (folder / INDEX).is_file():
            found.append(
                f"{folder} is no bundle: `.venv/bin/python -m tests.gpu.{name}` makes it where there is a network"
            )
    return found
