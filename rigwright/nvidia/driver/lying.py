"""Whether a managed driver's settings lie there as they are rendered: the decision of check N28."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rigwright.declaration.rig import Rig
from rigwright.host.channel import Schema, matching, optional, path, read, said, sha256, unit, word
from rigwright.nvidia.cards.files import Setting
from rigwright.nvidia.cards.live import units
from rigwright.nvidia.difference import Difference
from rigwright.nvidia.driver.files import paths
from rigwright.render import render

OWNER = "root:root"
STEP = "deploy again: it is put right"


@dataclass(frozen=True)
class Lying:
    """What lies at a path."""

    kind: str
    """"file", or words for what else it is."""
    mode: str = ""
    owner: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Found:
    """One host, as found."""

    files: dict[str, Lying] = field(default_factory=dict)
    """By path; without those where nothing lies."""
    enabled: dict[str, str] = field(default_factory=dict)
    """Unit -> whether it starts at boot, in systemd's words."""


TOLD: Schema = {
    "link": (path, said),
    "file": (path, matching("[0-7]{3,4}", "a file's mode"), word, sha256),
    "other": (path,),
    "unit": (unit, optional(word, "none")),
}


def script(rig: Rig) -> str:
    """The probe of a rig's host; what it prints is for `parse`."""
    return render("probe/driver_files.sh.j2", paths=paths(rig), units=units(rig))


def parse(output: Iterable[str]) -> Found:
    """Read what the probe has printed.

    Raises:
        ValueError: it is not what a host can tell.
    """
    told = read(output, TOLD)
    files = {where: Lying("file", *row) for where, *row in told.many("file")}
    links = {where: Lying(f"a link to {target}") for where, target in told.many("link")}
    others = {where: Lying("something that is no file") for where in told.all("other")}
    return Found({**files, **links, **others}, dict(told.many("unit")))


def packed(kernels: Iterable[str]) -> list[Difference]:
    """N28: what counts before the disks are there has the driver's settings too.

    Args:
        kernels: Those whose initial file system has not our options.
    """
    return [
        Difference(
            f"our options in the initial file system of kernel {kernel}",
            "none, or other ones",
            "before a reboot, deploy again: it makes that anew",
        )
        for kernel in kernels
    ]


def as_rendered(rig: Rig, files: Sequence[Setting], found: Found) -> list[Difference]:
    """N28: each of the driver's settings lies there as it is rendered, no other one does, and its units start at boot.

    Args:
        rig: The rig.
        files: The settings that its driver has.
        found: Its host.
    """
    rows = []
    for one in files:
        there = found.files.get(one.path)
        said = "nothing" if there is None else there.kind
        if there is not None and there.kind == "file":
            text = hashlib.sha256(one.text.encode()).hexdigest()
            said = "another text" if there.sha256 != text else ""
            if not said and (there.mode, there.owner) != (one.mode, OWNER):
                said = f"mode {there.mode} of {there.owner}"
        if said:
            rows.append(Difference(f"{one.path} as it is rendered", said, STEP))
    declared = {one.path for one in files}
    rows += [
        Difference(f"no {path}", "one", STEP) for path in paths(rig) if path in found.files and path not in declared
    ]
    rows += [
        Difference(f"{unit} to start at boot", state, STEP)
        for unit in units(rig)
        if (state := found.enabled.get(unit, "nothing")) != "enabled"
    ]
    return rows
