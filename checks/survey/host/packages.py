"""Installed packages, what apt would do with them, and which package files were stored."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from checks.survey.host import apt, common, dpkg, rollback_packages
from checks.survey.host.thread_pool import Pool

ROOT = ""  # a test has a folder for a host
NVIDIA = re.compile(r"/(?:cuda/repos/([a-z]+[0-9]+)/|cuda-repo-([a-z]+[0-9]+)-)")
OFF = re.compile(r"^enabled:[ \t]*(?:no|false|without|off|disable|0)[ \t]*$", re.IGNORECASE | re.MULTILINE)
# Address and origin of a list; the address has its scheme (sources.list(5))
ORIGIN = re.compile(r"([a-z][a-z0-9+-]*:/\S*) (\S.*)")


def policy(names: list[str]) -> dict[str, dict[str, object]]:
    """Package -> what apt would install, where the installed version is from, and security updates above it."""
    rows = apt.read_policies(names)
    # an archive's own word for itself, asked without the cache that takes long to make
    told = common.run("apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)", limit=apt.LIMIT)
    known = (matched.groups() for line in common.lines(told) if (matched := ORIGIN.fullmatch(line)))
    origins = {uri.rstrip("/"): name.replace(" ", "_") for uri, name in known}

    def named(one: apt.AptVersion) -> list[str]:
        return [name for source in one.sources if (name := origins.get(source.split(" ")[0].rstrip("/"), ""))]

    found: dict[str, dict[str, object]] = {}
    for name, row in rows.items():
        exact = [origin for one in row.offers if one.version == row.installed for origin in named(one)]
        others = [origin for one in row.offers for origin in named(one)]
        above = [one.version for one in row.above if any("-security/" in source for source in one.sources)]
        found[name] = {
            "candidate": row.candidate,
            "origin": (exact or others or [""])[0],
            "security": list(dict.fromkeys(above)),
        }
    return found


def parts(path: str) -> list[str]:
    """The effective part of a file of sources: a paragraph that is switched off does not count (sources.list(5))."""
    text = common.read(f"{ROOT}{path}") or ""
    text = "\n".join(line for line in common.lines(text) if not line.lstrip().startswith("#"))
    if not path.endswith(".sources"):
        return common.lines(text)
    return [one for one in re.split(r"\n[ \t]*\n", text) if one.strip() and not OFF.search(one)]


def pins() -> list[dict[str, str]]:
    """Paragraphs of apt's preferences (apt_preferences(5))."""
    paths = [f"{ROOT}/etc/apt/preferences", *sorted(glob.glob(f"{ROOT}/etc/apt/preferences.d/*"))]
    found = []
    for path in paths:
        text = "\n".join(line for line in common.lines(common.read(path) or "") if not line.startswith("#"))
        for part in re.split(r"\n[ \t]*\n", text):
            rows = dict(re.findall(r"^(Package|Pin|Pin-Priority):[ \t]*(.*?)[ \t]*$", part, re.MULTILINE))
            if "Package" in rows:
                values = {
                    "packages": rows["Package"],
                    "pin": rows.get("Pin", ""),
                    "priority": rows.get("Pin-Priority", ""),
                }
                found.append({"path": path.removeprefix(ROOT), **values})
    return found


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `packages`, shell patterns of names, of which `drivers` are the driver's; `store`, our folder of it;
            `record`, our file about it; `deep`, whether all bytes of kept files are read.
    """
    patterns, store = asked["packages"], asked["store"]
    there = dpkg.packages()
    installed = [one for one in there if one.state == "installed"]
    drivers = sorted({one.name for one in installed if dpkg.matches(one.name, asked["drivers"])})
    holds = sorted({one.name for one in there if one.want == "hold"})
    with Pool(3) as pool:
        offered = pool.submit(policy, sorted({*drivers, *holds}))
        dumped = pool.submit(common.run, "apt-config", "dump", limit=apt.LIMIT)
        files = pool.submit(rollback_packages.kept, store, bool(asked["deep"]))
        config = dumped.result()
        found = offered.result()
        nvidia = {
            (one[0] or one[1], path) for path in apt.sources() for part in parts(path) for one in NVIDIA.findall(part)
        }
        return {
            **apt.release(),
            "packages": dpkg.describe_states(patterns),
            "policy": found,
            "unattended": any(one.name == "unattended-upgrades" for one in installed),
            "blacklist": re.findall(r'^Unattended-Upgrade::Package-Blacklist::.* "(.*)";$', config, re.MULTILINE),
            "reboot": os.path.exists(f"{ROOT}/run/reboot-required"),
            "reboot_for": sorted(set((common.read(f"{ROOT}/run/reboot-required.pkgs") or "").split())),
            "sources": [list(row) for row in sorted(nvidia)],
            "runs": [
                path
                for path in ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")
                if os.path.exists(f"{ROOT}{path}") and not dpkg.owners([path])
            ],
            "recorded": [
                line.split(" ", 1)
                for line in common.lines(common.read(f"{ROOT}{store}/installed") or "")
                if " " in line
            ],
            "record": common.read(f"{ROOT}{asked['record']}") or "",
            "kept": files.result(),
            "pins": pins(),
        }
