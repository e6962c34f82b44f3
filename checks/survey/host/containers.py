"""The needs of containers to get cards: packages, Docker's options and daemon, CDI specs and their units."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from typing import Any

from checks.survey.host import apt, common, docker, dpkg, rollback_packages, systemd_properties

ROOT = ""  # a test has a folder for a host
LARGEST = 1 << 20  # of a spec; one of sixteen cards has 60 KB
LOADED = re.compile(r"^NVRM version:.*  ([0-9]+\.[0-9.]+)  ", re.MULTILINE)
PROPERTIES = ("UnitFileState", "ActiveState", "Result", "ExecStart", "ExecCondition", "NeedDaemonReload")
# a line of YAML as the toolkit writes it
ROW = re.compile(r'^\s*(?:- )?"?(hostPath|path|name)"?:\s*"?([^"\n]*?)"?,?\s*$', re.MULTILINE)
# in every spelling, the whole file on one line too
KIND = re.compile(r"""["']?\bkind["']?\s*:\s*["']?([A-Za-z0-9.-]+/[A-Za-z0-9_.-]+)""")


def lying(path: str) -> dict[str, object] | None:
    """The object at a path; None for nothing."""
    try:
        seen = os.lstat(f"{ROOT}{path}")
    except OSError:
        return None
    kind = "file" if stat.S_ISREG(seen.st_mode) else "link" if stat.S_ISLNK(seen.st_mode) else "no file"
    text = common.read(f"{ROOT}{path}") if kind == "file" else None
    return {
        "path": path,
        "kind": kind,
        "mode": f"{stat.S_IMODE(seen.st_mode):o}",
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "sha256": hashlib.sha256((text or "").encode()).hexdigest(),
    }


def specs(folders: list[str]) -> list[dict[str, object]]:
    """The specs in some folders; a folder that is a link to another of them is looked at once."""
    found = []
    for path in sorted({os.path.realpath(one) for folder in folders for one in glob.glob(f"{ROOT}{folder}/*")}):
        if not path.endswith((".yaml", ".json")):
            continue
        text = common.read(path, most=LARGEST) or ""
        rows, kind = ROW.findall(text), KIND.search(text)
        said = sorted({value for key, value in rows if key in ("hostPath", "path") and value.startswith("/")})
        found.append(
            {
                "path": path.removeprefix(ROOT),
                "kind": kind[1] if kind else "",
                "names": sorted({value for key, value in rows if key == "name"}),
                "paths": said,
                "missing": [one for one in said if not os.path.exists(f"{ROOT}{one}")],
            }
        )
    return found


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `packages` and `candidates`, names; `store`, our folder; `groups`, of packages whose files are kept
            there, and `deep`, whether all bytes of those are read; `options`, Docker's; `socket`, of its daemon;
            `files`, paths that may be ours; `specs`, folders; `units`, names.
    """
    offered = apt.read_policies(asked["candidates"])
    recorded = common.lines(common.read(f"{ROOT}{asked['store']}/installed") or "")
    about = apt.release()
    loaded = LOADED.search(common.read(f"{ROOT}/proc/driver/nvidia/version") or "")
    return {
        "os_id": about["os_id"],
        "os_version": about["os_version"],
        "packages": dpkg.describe_states(asked["packages"]),
        "candidates": [[name, row.candidate] for name, row in offered.items() if row.candidate],
        "recorded": [line.split(" ", 1) for line in recorded if " " in line],
        "kept": {
            name: rollback_packages.kept(f"{asked['store']}/kept/{name}", asked["deep"]) for name in asked["groups"]
        },
        "sources": [[path, common.read(f"{ROOT}{path}") or ""] for path in apt.sources()],
        "options": common.read(f"{ROOT}{asked['options']}"),
        "record": common.read(f"{ROOT}{asked['store']}/daemon.json") or "",
        "daemon": docker.running(asked["socket"]),
        "files": [one for path in asked["files"] if (one := lying(path))],
        "specs": specs(asked["specs"]),
        "loaded": loaded[1] if loaded else "",
        "units": systemd_properties.read_properties(asked["units"], PROPERTIES),
    }
