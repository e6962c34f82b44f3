"""podman starts an instance's container, and leaves it to the unit."""

from __future__ import annotations

from rigwright.engines.container_spec import ContainerSpec
from rigwright.engines.image.runtime import CALLS, TEMPORARY, ContainerStart, content_named
from rigwright.host.systemd_syntax import ExpandedWord
from rigwright.model.instance import CONTAINER_RUNTIME_FOLDER
from rigwright.model.roots import Roots

# Said by the program that makes the folder, for the next command of the unit.
OWN_USER = ExpandedWord("--user=${RW_OWNER}")
PODMAN = "/usr/bin/podman"
# What podman reads of containers in place of the host's own settings, which could add mounts, devices, variables, and
# programs that root runs for each container; where it is told nothing of these, it looks in the host's folders.
SETTINGS = """[engine]
cdi_spec_dirs = ["/run/cdi"]
events_logger = "none"
hooks_dir = ["/usr/share/empty"]
lock_type = "file"
runtime = "crun"
"""
# In place of those of the host's storage; where it is, each container's command line says.
STORAGE = f"""[storage]
driver = "overlay"
graphroot = "{CONTAINER_RUNTIME_FOLDER}/graph"
runroot = "{CONTAINER_RUNTIME_FOLDER}/run"
"""


def podman_start(roots: Roots, made: ContainerSpec) -> ContainerStart:
    """How a unit starts it.

    Args:
        roots: Directories on the host.
        made: The container.
    """
    settings, storage = content_named("containers", ".conf", SETTINGS), content_named("storage", ".conf", STORAGE)
    own = {"CONTAINERS_CONF": roots.program_path(settings), "CONTAINERS_STORAGE_CONF": roots.program_path(storage)}
    return ContainerStart(_podman_words(made), own, {settings: SETTINGS, storage: STORAGE})


def _podman_words(made: ContainerSpec) -> tuple[str, ...]:
    words = [
        PODMAN,
        f"--root={made.folder}/graph",
        f"--runroot={made.folder}/run",
        f"--tmpdir={made.folder}/tmp",  # noqa: S108 # below a folder of root's
        # its settings have no word for this one
        "--default-mounts-file=/dev/null",
        "--storage-driver=overlay",
        f"--storage-opt=overlay.imagestore={made.store}",
        "--storage-opt=overlay.skip_mount_home=true",
        f"--runtime-flag=root={made.folder}/runtime",
        "run",
        "--detach",
        "--pull=never",
        f"--name={made.name}",
        # in the unit's own control group, where its limits hold and nothing outlives it
        "--cgroups=split",
        "--sdnotify=conmon",
        # what it writes is the unit's own output
        "--log-driver=passthrough",
        "--network=none",
        "--ipc=private",
        "--read-only",
        # by itself podman gives them the modes of the image's folders, of which all are root's alone to write to
        *(f"--tmpfs={path}:rw,nosuid,nodev,mode=1777,notmpcopyup" for path in TEMPORARY),
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        f"--security-opt=seccomp={made.folder}/{CALLS}",
        OWN_USER,
        "--umask=0007",
        # those of the unit
        "--ulimit=host",
        "--pids-limit=0",
        f"--shm-size={made.shared_memory.lower()}",
        # nothing of the image's own, and nothing of the host's
        "--image-volume=ignore",
        "--no-healthcheck",
        "--no-hosts",
        "--http-proxy=false",
        "--systemd=false",
        f"--entrypoint={made.command[0]}",
    ]
    words += [f"--volume={one.source}:{one.target}:{'rw' if one.writable else 'ro'}" for one in made.mounts]
    words += [f"--device={name}" for name in made.devices]
    words += [f"--env={name}={value}" for name, value in sorted(made.environment.items())]
    return (*words, made.image, *made.command[1:])
