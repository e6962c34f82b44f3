"""Write what crun starts of an image: its root, of the store's layers, and config.json (OCI runtime specification).

Root runs this on the host before each start, by the distribution's Python: `python3 -I bundle.py DECLARED`, where
podman is too old to do it. DECLARED is a JSON file with the fields of `rigwright.engines.container.Container`, and
`temporary`, folders of its own that it may write to. In the container's folder lie its user's numbers, which system
calls it may make (container.sh), and the spec of the cards, as NVIDIA's toolkit says it (Container Device Interface,
SPEC.md, 0.7): what nothing is known of in that is refused.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("nosuid", "nodev")
# What podman and Docker give to each container, but for /sys/fs/cgroup: its processes are in the unit's own group.
KERNELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("/proc", "proc", (*OWN, "noexec")),
    ("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    ("/dev/mqueue", "mqueue", (*OWN, "noexec")),
    ("/sys", "sysfs", (*OWN, "noexec", "ro")),
    ("/run", "tmpfs", (*OWN, "mode=755")),
)
# What of the kernel's own they cover, or show read-only (github.com/moby/moby, oci/defaults.go).
MASKED = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap"),
    "/sys/firmware",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
SPACES = ("cgroup", "ipc", "mount", "network", "pid", "uts")
# What a spec may say of a card; groups are left out, for a container has but its user's own.
EDITS = {"additionalGids", "deviceNodes", "env", "hooks", "mounts"}
HOOK = {"args", "env", "hookName", "path", "timeout"}


class Unfit(Exception):
    """It cannot be started."""


def image(store: Path, digest: str) -> tuple[list[Path], Json]:
    """An image's layers in a store of containers/storage, as folders, the uppermost first, and its configuration.

    Raises:
        Unfit: it has no such image.
    """
    known = {one["id"]: one for one in json.loads((store / "overlay-layers/layers.json").read_text())}
    images = json.loads((store / "overlay-images/images.json").read_text())
    top = next((one["layer"] for one in images if one["id"] == digest), None)
    if top is None:
        raise Unfit(f"{store} has no image {digest}")
    layers = []
    while top:
        layers.append(store / "overlay" / top / "diff")
        top = known.pop(top).get("parent")
    name = base64.b64encode(f"sha256:{digest}".encode()).decode()
    said = json.loads((store / "overlay-images" / digest / f"={name}").read_text())
    return layers, said.get("config") or {}


def calls(profile: Json) -> Json:
    """A filter of system calls as runtimes read it, of one as podman and Docker keep it, for who has no capability."""
    rules = []
    for rule in profile["syscalls"]:
        needs, never = rule.get("includes") or {}, rule.get("excludes") or {}
        if needs.get("caps") or "amd64" in never.get("arches", ()) or "amd64" not in needs.get("arches", ("amd64",)):
            continue
        made = {"names": rule["names"], "action": rule["action"], "args": rule.get("args") or []}
        rules.append(made | ({"errnoRet": rule["errnoRet"]} if "errnoRet" in rule else {}))
    (x86,) = (one for one in profile["archMap"] if one["architecture"] == "SCMP_ARCH_X86_64")
    default = {"defaultErrnoRet": profile["defaultErrnoRet"]} if "defaultErrnoRet" in profile else {}
    known = [x86["architecture"], *(x86.get("subArchitectures") or ())]
    return {"defaultAction": profile["defaultAction"], **default, "architectures": known, "syscalls": rules}


def edits(spec: Json, names: Iterable[str]) -> list[Json]:
    """What a spec adds to a container with some of its devices, in order.

    Raises:
        Unfit: it has not all of them, or says what nothing is known of.
    """
    devices = {f"{spec['kind']}={one['name']}": one["containerEdits"] for one in spec["devices"]}
    if missing := [name for name in names if name not in devices]:
        raise Unfit(f"unresolvable CDI devices {', '.join(missing)}")
    found: list[Json] = [spec.get("containerEdits") or {}, *(devices[name] for name in names)]
    strange = {name for one in found for name in one} - EDITS
    strange |= {name for one in found for hook in one.get("hooks", ()) for name in hook} - HOOK
    if strange:
        raise Unfit(f"the CDI spec contains {', '.join(sorted(strange))}, which is unsupported")
    return found


def device(node: Json) -> Json:
    """A device file for a container, as the host has it.

    Raises:
        Unfit: the host has none.
    """
    path = node.get("hostPath") or node["path"]
    try:
        there = Path(path).stat()
    except OSError as error:
        raise Unfit(f"failed to stat CDI host device {path}: {error.strerror}") from None
    if not stat.S_ISCHR(there.st_mode):
        raise Unfit(f"{path} is not a character device")
    numbers = {"major": os.major(there.st_rdev), "minor": os.minor(there.st_rdev)}
    return {"path": node["path"], "type": "c", **numbers, "fileMode": there.st_mode & 0o666}


def mount(target: str, source: str, options: Iterable[str]) -> Json:
    """A file or folder of the host's, and how a container sees it."""
    return {"destination": target, "type": "bind", "source": source, "options": ["bind", *options]}


def configuration(declared: Json, said: Json, owner: tuple[int, int], filtering: Json, added: list[Json]) -> Json:
    """What the runtime reads.

    Args:
        declared: What is declared of the container.
        said: What the image says of itself.
        owner: The numbers of its user and group.
        filtering: The system calls that it may make.
        added: What its cards add to it.
    """
    told = (said.get("Env") or [], *(one.get("env") or [] for one in added))
    given = [line for lines in ([PATH], *told) for line in lines if "=" in line]
    variables = dict(line.split("=", 1) for line in given) | declared["environment"]
    folder, memory = declared["folder"], declared["shared_memory"].lower()
    mounts = [{"destination": at, "type": kind, "source": kind, "options": [*how]} for at, kind, how in KERNELS]
    temporary = [(path, "mode=1777") for path in declared["temporary"]]
    temporary.append(("/dev/shm", f"mode=1777,size={memory}"))  # noqa: S108 # a container's
    for path, how in temporary:
        mounts.append({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": [*OWN, *how.split(",")]})
    mounts += [mount(f"/etc/{name}", f"{folder}/{name}", ("ro", *OWN)) for name in ("group", "passwd")]
    for one in declared["mounts"]:
        mounts.append(mount(one["target"], one["source"], ("rw" if one["writable"] else "ro", *OWN, "rprivate")))
    hooks: dict[str, list[Json]] = {}
    nodes: dict[str, Json] = {}
    for one in added:
        for file in one.get("mounts", ()):
            mounts.append(mount(file["containerPath"], file["hostPath"], file.get("options") or ("ro", *OWN)))
        nodes |= {node["path"]: device(node) for node in one.get("deviceNodes", ())}
        for hook in one.get("hooks", ()):
            hooks.setdefault(hook["hookName"], []).append({k: v for k, v in hook.items() if k != "hookName"})
    return {
        "ociVersion": "1.0.2",
        "hostname": declared["name"],
        # hooks are told it as it is here
        "root": {"path": f"{folder}/root", "readonly": True},
        "process": {
            "user": {"uid": owner[0], "gid": owner[1], "umask": 0o007},
            "args": declared["command"],
            "cwd": said.get("WorkingDir") or "/",
            "env": [f"{name}={value}" for name, value in sorted(variables.items())],
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "mounts": mounts,
        "hooks": hooks,
        "linux": {
            "namespaces": [{"type": kind} for kind in SPACES],
            "devices": [*nodes.values()],
            "maskedPaths": [*MASKED],
            "readonlyPaths": [*READ_ONLY],
            "seccomp": filtering,
        },
    }


def overlay(layers: list[Path], folder: Path) -> None:
    """Mount an image's layers, below an empty one of the container's own: the runtime makes places to mount at in it.

    Raises:
        OSError: the kernel refuses it.
    """
    for name in ("upper", "work", "root"):
        (folder / name).mkdir()
    # by open folders: what a mount says is a page long, and an image has up to 127 layers (moby, layer/layer.go)
    handles = [os.open(layer, os.O_PATH | os.O_DIRECTORY) for layer in layers]
    os.chdir("/proc/self/fd")
    options = f"lowerdir={':'.join(map(str, handles))},upperdir={folder}/upper,workdir={folder}/work"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"container", os.fsencode(folder / "root"), b"overlay", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder / "root"))


def accounts(name: str, owner: tuple[int, int]) -> dict[str, str]:
    """Whom a container knows by name: root, and who runs in it."""
    uid, gid = owner
    return {
        "passwd": f"root:x:0:0::/:/bin/sh\n{name}:x:{uid}:{gid}::/:/bin/sh\n",
        "group": f"root:x:0:\n{name}:x:{gid}:\n",
    }


def main(path: str) -> None:
    """Write it."""
    os.umask(0o022)  # its user is to pass its root
    declared: Json = json.loads(Path(path).read_text())
    folder = Path(declared["folder"])
    uid, gid = (folder / "owner").read_text().strip().partition("=")[2].split(":")
    owner = int(uid), int(gid)
    layers, said = image(Path(declared["store"]), declared["image"])
    added = edits(json.loads((folder / "cards.json").read_text()), declared["devices"]) if declared["devices"] else []
    made = configuration(declared, said, owner, calls(json.loads((folder / "seccomp.json").read_text())), added)
    for name, text in (accounts(declared["name"], owner) | {"config.json": json.dumps(made)}).items():
        (folder / name).write_text(text)
    overlay(layers, folder)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Unfit as unfit:
        sys.exit(str(unfit))
