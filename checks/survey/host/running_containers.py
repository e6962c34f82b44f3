"""Instances' containers, as the kernel sees them."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from checks.survey.host import common, mount_table, overlayfs_layers

GROUPS = "/sys/fs/cgroup"
PAYLOAD = "libpod-payload-"
INTERFACE = re.compile(r"^ *([^\s:]+):", re.MULTILINE)
MANY = 200  # of a list
DEEPEST = 1 << 22  # bytes of a store's list
NOTHING: dict[str, object] = {
    **{"first": 0, "group": "", "mounts": [], "elsewhere": [], "layers": [], "interfaces": [], "devices": []},
    "forged": [],
}
# The contents of a spec, as NVIDIA's toolkit writes it in YAML.
VARIABLE = re.compile(r'^ *- "?([A-Za-z_][A-Za-z0-9_]*=[^"\n]*)"?$', re.MULTILINE)


def look(asked: dict[str, object]) -> dict[str, object]:
    """All of them.

    Args:
        asked: `units`: service -> `image`, the SHA-256 of its configuration, `store`, `folder`, `spec` of its
            cards, `by`, what starts it, and `mounts`, a source and a target each; `folder`, of all containers; `slice`,
            of all that is ours.
    """
    units: dict[str, dict[str, object]] = asked["units"]  # type: ignore[assignment] # by the caller
    payloads = _groups(str(asked["slice"]), PAYLOAD)
    groups = {_unit(path): path for path in payloads}
    # crun leaves its container in the unit's own group
    crun = {
        unit: next(iter(_groups(str(asked["slice"]), unit)), "") for unit, one in units.items() if one["by"] == "crun"
    }
    own = {str(one["folder"]) for one in units.values()}
    lying = [str(path) for path in sorted(Path(str(asked["folder"])).glob("*")) if str(path) not in own]
    twice = [path for path in payloads if groups[_unit(path)] != path]
    strange = [path for unit, path in groups.items() if unit not in units or unit in crun]
    return {
        "units": {unit: _container(one, {**groups, **crun}.get(unit, "")) for unit, one in units.items()},
        "beside": [*strange, *twice, *lying][:MANY],
    }


def _groups(slice_: str, called: str) -> list[str]:
    """Control groups below a slice, by what their names begin with."""
    found = []
    for folder, names, _ in os.walk(f"{GROUPS}/{slice_}"):
        found += [f"{folder}/{name}".removeprefix(GROUPS) for name in names if name.startswith(called)]
    return sorted(found)


def _unit(path: str) -> str:
    """The service that a container's group is in."""
    return next((part for part in reversed(path.split("/")) if part.endswith(".service")), "")


def _container(one: dict[str, object], group: str) -> dict[str, object]:
    store, image = Path(str(one["store"])), str(one["image"])
    locked = {
        "locked": _chain(store, image),
        "variables": _variables(store, image),
        "brought": _cdi_variables(str(one["spec"])),
    }
    first = _first(group) if group else 0
    if not first:
        return {**NOTHING, **locked}
    mounts, hosts = mount_table.list_mounts(first), _hosts(str(one["folder"]))
    devices = dict(
        _devices(
            Path(f"/proc/{first}/root/dev"),
            {one.point for one in mounts if one.has("nodev")},
        )
    )
    pairs: list[list[str]] = one["mounts"]  # type: ignore[assignment] # by the caller
    return {
        "first": first,
        "group": group,
        "mounts": [
            {
                "target": mount.point,
                "kind": mount.kind,
                "writable": not mount.has("ro"),
                "root": mount.root,
                "hosts": mount.device in hosts,
            }
            for mount in mounts[:MANY]
        ],
        "elsewhere": [target for source, target in pairs if _other(first, source, target)],
        "layers": _layers(first, mounts, locked["locked"]),
        "interfaces": INTERFACE.findall(common.read(f"/proc/{first}/net/dev") or "")[:MANY],
        "devices": sorted(devices)[:MANY],
        "forged": sorted(path for path, is_forged in devices.items() if is_forged)[:MANY],
        **locked,
    }


def _first(group: str) -> int:
    """The process of a container that all others of it come from: number one in a namespace of its own."""
    for folder, _, files in os.walk(f"{GROUPS}{group}"):
        for pid in (common.read(f"{folder}/cgroup.procs") or "").split() if "cgroup.procs" in files else ():
            told = re.search(r"^NSpid:\s*(.*)$", common.read(f"/proc/{pid}/status") or "", re.MULTILINE)
            if told and told[1].split()[1:] == ["1"]:
                return int(pid)
    return 0


def _hosts(folder: str) -> set[str]:
    """The file systems that the host has, but for those in a container's folder."""
    return {one.device for one in mount_table.list_mounts() if not f"{one.point}/".startswith(f"{folder}/")}


def _layers(first: int, mounts: list[mount_table.Mount], locked: list[str]) -> list[str]:
    """The layers of a container's root, the uppermost first."""
    named = next((_lower(one.system_options) for one in mounts if one.point == "/"), [])
    # where the names of all of them are too long for a mount, podman has open folders in their place
    if not all(Path(one).name.isdecimal() for one in named) or len(named) != len(locked):
        return named
    return overlayfs_layers.shown(f"/proc/{first}/root", locked, {one.point for one in mounts} - {"/"})


def _lower(options: str) -> list[str]:
    """The folders that an overlay shows, where they really lie."""
    named = next((one[9:] for one in options.split(",") if one.startswith("lowerdir=")), "")
    return [os.path.realpath(mount_table.unescape(path)) for path in named.split(":") if path]


def _other(pid: int, source: str, target: str) -> bool:
    """Whether a process sees something else at a path than what the host has at another one: of a program of a
    generation the next one has the same text in a file of its own.
    """
    inside = f"/proc/{pid}/root{target}"
    try:
        there, seen = Path(source).stat(), Path(inside).stat()
    except OSError:
        return True
    if (seen.st_dev, seen.st_ino) == (there.st_dev, there.st_ino):
        return False
    text = common.read(source) if there.st_size == seen.st_size < common.MOST else None
    return text is None or common.read(inside) != text


def _chain(store: Path, image: str) -> list[str]:
    """The layers that a store has for an image, as folders, the uppermost first."""
    try:
        images = json.loads(common.read(store / "overlay-images/images.json", DEEPEST) or "[]")
        layers = json.loads(common.read(store / "overlay-layers/layers.json", DEEPEST) or "[]")
        parents = {str(one["id"]): str(one.get("parent", "")) for one in layers}
        top = next((str(one["layer"]) for one in images if one["id"] == image), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    found: list[str] = []
    while top in parents and top not in found:
        found.append(top)
        top = parents[top]
    return [os.path.realpath(store / "overlay" / one / "diff") for one in found]


def _variables(store: Path, image: str) -> list[str]:
    """The variables that an image's configuration, which the store keeps by its digest, gives to its processes."""
    name = base64.b64encode(f"sha256:{image}".encode()).decode()
    try:
        said = json.loads(common.read(store / "overlay-images" / image / f"={name}", DEEPEST) or "{}")
        return [str(one) for one in (said.get("config") or {}).get("Env") or []]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return []


def _cdi_variables(spec: str) -> list[str]:
    """The variables that the spec of the cards gives to a container."""
    return VARIABLE.findall(common.read(spec) or "") if spec else []


def _devices(folder: Path, others: set[str]) -> Iterator[tuple[str, bool]]:
    """Device files by their paths, and whether the host has another device there.

    Args:
        folder: A container's /dev.
        others: Paths that no user can open: a container may write there as much as it likes.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if f"/dev/{Path(place, name).relative_to(folder)}" not in others]
        for name in names:
            path = Path(place, name)
            try:
                there = path.lstat()
            except OSError:
                continue
            if stat.S_ISCHR(there.st_mode) or stat.S_ISBLK(there.st_mode):
                known = f"/dev/{path.relative_to(folder)}"
                yield known, _device(known) != (stat.S_IFMT(there.st_mode), there.st_rdev)


def _device(path: str) -> tuple[int, int]:
    """Kind and numbers of the host's."""
    try:
        there = os.stat(path)
    except OSError:
        return 0, 0
    return stat.S_IFMT(there.st_mode), there.st_rdev
