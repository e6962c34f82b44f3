"""The program, the settings and the units by which a box pulls its generations, as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from rigwright.fetch_job_spec import authority_path
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.local_files import read_program
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.project_root import ROOT
from rigwright.render import render
from rigwright.supply.supply_signatures import INVENTORY, name_inventory
from rigwright.weights.weight_server import PROGRESS

PULL = "rigwright_pull"
PULL_SERVICE, PULL_TIMER = f"{PULL}.service", f"{PULL}.timer"
PULL_FETCH_SERVICE = f"{PULL}_fetch.service"
FETCHED = f"/run/{PULL}"
OWNED = "# Written by rigwright to pull generations; changes here are undone by the next deploy."
MOST_DELAY = 300  # seconds by which a run is delayed, at random: boxes of a fleet do not begin at once
PROGRAM = ("__init__.py", "fetch.py", "root_jobs.py", "run.py", "served_generation.py", "settings.py", "transfer.py")
SHARED = (
    *("rigwright/host/generation_layout.py", "rigwright/pull/publication.py", "rigwright/safe_text.py"),
    *(f"rigwright/signing/{name}.py" for name in ("dsse", "public_keys", "refusals", "signed_kinds", "ssh_signatures")),
    *(f"rigwright/signing/{name}.py" for name in ("statements", "strict_json", "timestamps", "trusted_signers")),
    *("rigwright/signing/wire_format.py", "roles/ssh_keygen.py"),
)
"""Modules of Rigwright that verify on a box, too."""
START = f"""{OWNED}
import sys
from importlib import import_module

sys.exit(import_module(f"{PULL}.{{sys.argv[1]}}").main(sys.argv[2:]))
"""


def pull_folder(folder: str) -> str:
    """The program's folder.

    Args:
        folder: That of the box's check of itself.
    """
    return f"{folder}/pull"


def pull_state(roots: Roots) -> str:
    """The folder of the box's record."""
    return f"{roots.state}/pull"


@lru_cache(64)
def render_pull_program(folder: str) -> Mapping[str, str]:
    """Path -> text of the program's files.

    Args:
        folder: The program's.
    """
    source = ROOT / "roles/pull/host"
    return {
        f"{folder}/__main__.py": START,
        **{f"{folder}/{PULL}/{name}": read_program(source / name) for name in PROGRAM},
        **{f"{folder}/{name}": read_program(ROOT / name) for name in SHARED},
    }


def pull_folders(folder: str) -> list[str]:
    """All folders of the program, each after the one that it is in."""
    return sorted({path.rpartition("/")[0] for path in render_pull_program(folder)} | {folder, f"{folder}/rigwright"})


def settings_path(folder: str) -> str:
    """The file with the settings."""
    return f"{folder}/settings.json"


def render_pull_settings(rig: Rig, self_check: str, declaration: str, metrics: str) -> str:
    """The settings.

    Args:
        rig: The box, which pulls.
        self_check: The folder of the box's check of itself.
        declaration: The file with which that compares the box.
        metrics: The file for node exporter; empty without monitoring.
    """
    signers = rig.signers
    value = {
        "inventory": name_inventory(Path(rig.inventory), signers)[INVENTORY] if signers else "",
        "box": rig.name,
        "url": rig.pull.url if rig.pull else "",
        "certificates": authority_path(rig.roots) if rig.network.ca_certificates else "",
        "config": rig.roots.config,
        "self_check": self_check,
        "declaration": declaration,
        "state": pull_state(rig.roots),
        "fetched": FETCHED,
        "deploy_lock": DEPLOY_LOCK,
        "jobs": rig.roots.jobs,
        "download_progress": f"{rig.roots.models}/{PROGRESS}",
        "started_from": STARTED_FROM_FOLDER,
        "metrics": metrics,
        "signers": [
            {
                "name": one.principal,
                "key": str(one.key),
                "signs": [kind for kind in one.kinds if kind in ("generation", "timestamp")],
                "valid_after": _render_moment(one.valid_after),
                "valid_before": _render_moment(one.valid_before),
            }
            for one in (signers.signers if signers else ())
            if {"generation", "timestamp"} & {*one.kinds}
        ],
        "revoked": sorted(signers.revoked) if signers else [],
    }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _render_moment(moment: datetime | None) -> str:
    return moment.replace(tzinfo=None).isoformat() if moment else ""


def render_pull_units(rig: Rig, folder: str, metrics: str) -> dict[str, str]:
    """Path -> text of the units; empty for a box that does not pull.

    Args:
        rig: The box.
        folder: The program's.
        metrics: The folder for node exporter; empty without monitoring.
    """
    if not rig.pull:
        return {}
    seconds = rig.pull.interval_minutes * 60
    values = {
        **{"owned": OWNED, "program": folder, "settings": settings_path(folder), "fetched": FETCHED},
        **{"user": rig.accounts.pull, "runtime": PULL, "roots": rig.roots},
        **{"state": pull_state(rig.roots), "metrics": metrics},
        **{"service": PULL_SERVICE, "fetch": PULL_FETCH_SERVICE, "seconds": seconds},
        **{"minutes": rig.pull.interval_minutes, "delay": min(MOST_DELAY, seconds)},
    }
    templates = {PULL_SERVICE: "pull.service", PULL_FETCH_SERVICE: "fetch.service", PULL_TIMER: "pull.timer"}
    return {f"{UNIT_FOLDER}/{unit}": render(f"pull/{name}.j2", **values) for unit, name in templates.items()}
