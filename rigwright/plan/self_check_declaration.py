"""The declaration with which a box's check of itself compares it, as far as the box does not have it already.

A generation's manifest and files, records of weights, the driver's record and markers of what was stopped by hand lie
on the host: the program reads them there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from rigwright.fetch_job_spec import authority_path
from rigwright.gateway.gateway_units import ROTATION, render_logrotate
from rigwright.gateway.rotation import ROTATION_FOLDER
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.host.generation_layout import JOB
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.instance import POWER_UNIT, loaded_weights
from rigwright.model.rig import Rig
from rigwright.model.shared_results import share_results
from rigwright.monitoring.monitoring_units import monitoring_services
from rigwright.monitoring.self_check import (
    declaration_path,
    metrics_path,
    render_program,
    render_pull_files,
    render_rotation_files,
    render_self_check_rules,
    render_self_check_units,
    render_units_of_pull,
    render_units_of_rotation,
    result_path,
    results_folder,
    running_units,
    self_check_paths,
)
from rigwright.monitoring.textfile import textfile_folder
from rigwright.nvidia.cards.card_setting_files import render_card_settings
from rigwright.nvidia.cards.xids import RECOVERED, UNUSABLE_XIDS, XID
from rigwright.nvidia.driver.driver_files import store_folder
from rigwright.plan.host_probe import required_packages
from rigwright.serving.instance_units import OWNED_HEADER, STOPPED
from rigwright.weights import weight_server
from rigwright.weights.verification import REHASH_UNITS, records_folder, render_rehash_units
from rigwright.weights.weight_server import share_endpoint

FREE_BYTES = 256 << 20
"""That have to be free below each root but the models' (O08)."""


@share_results
def render_standalone_units(rig: Rig) -> Mapping[str, str]:
    """Path -> text of the units of a rig that are no part of a generation."""
    texts = dict(render_rehash_units(rig.roots)) if loaded_weights(rig.instances) else {}
    if rig.share:
        texts[weight_server.PATH] = weight_server.render_share_unit(rig.roots, rig.share)
    texts |= {f"{UNIT_FOLDER}/{one.unit_name}": one.unit for one in monitoring_services(rig)}
    settings = render_card_settings(rig.roots, rig.cards, rig.driver)
    texts |= {one.path: one.text for one in settings if one.path.startswith(f"{UNIT_FOLDER}/")}
    return texts | render_self_check_units(rig) | render_units_of_rotation(rig) | render_units_of_pull(rig)


def render_declaration(rig: Rig, system: str) -> str:
    """The declaration's text.

    Args:
        rig: The host's target.
        system: Its release, such as debian-12.
    """
    # the settings of a box that pulls have its name
    return _build_declaration(rig, system) if rig.pull else _share_declaration(rig, system)


def _build_declaration(rig: Rig, system: str) -> str:
    roots = rig.roots
    value: dict[str, object] = {
        "schema": 1,
        "config": roots.config,
        "models": roots.models,
        "folder": results_folder(roots),
        "records": records_folder(roots),
        "held": f"{store_folder(roots)}/held",
        "metrics": metrics_path(rig),
        "unit_folder": UNIT_FOLDER,
        "started_from": STARTED_FROM_FOLDER,
        "stopped": f"{roots.config}/{STOPPED}",
        "lock": DEPLOY_LOCK,
        "job": f"{JOB}.service",
        "cards": len(rig.cards),
        "packages": sorted(required_packages(rig, system)),
        "disks": dict.fromkeys((roots.config, roots.software, roots.state), FREE_BYTES) | {roots.models: 0},
        "units": _declared_units(rig),
        "files": _declared_files(rig),
    }
    if rig.waivers:
        value["waivers"] = [[one.check, one.part or "", one.observed, one.until] for one in rig.waivers]
    if rig.gateway:
        value["rotation"] = {
            "folder": ROTATION_FOLDER,
            "config": roots.config,
            "checks": list(rig.gateway.rotation_checks),
            "result": result_path(roots),
            "disks": value["disks"],
            "metrics": f"{textfile_folder(roots)}/rotation.prom" if rig.monitoring else "",
            "xids": {str(code): text for code, text in UNUSABLE_XIDS.items()},
            "xid": XID.pattern,
            "recovered": RECOVERED.pattern,
        }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


_share_declaration = share_results(_build_declaration)


def _declared_units(rig: Rig) -> list[dict[str, object]]:
    """Units next to a generation's: their target files, and those that have to run, with the check that covers it."""
    judged: dict[str, tuple[str, str, tuple[str, str] | None]] = {REHASH_UNITS[0]: ("W05", "high", None)}
    judged |= dict.fromkeys(running_units(rig), ("Y01", "low", None))
    judged[POWER_UNIT] = ("N47", "high", None)
    if rig.share:
        judged[weight_server.SHARE_UNIT] = ("H01", "high", ("H04", share_endpoint(rig.share)))
    judged |= {one.unit_name: ("Q01", "high", ("Q04", one.endpoint)) for one in monitoring_services(rig)}
    rows: list[dict[str, object]] = []
    for path, text in sorted(render_standalone_units(rig).items()):
        name = path.rpartition("/")[2]
        check, severity, listens = judged.get(name, ("U09", "critical", None))
        wanted = [line.removeprefix("WantedBy=") for line in text.splitlines() if line.startswith("WantedBy=")]
        row = {"unit": name, "sha256": _sha256(text), "wanted_by": wanted, "runs": name in judged}
        rows.append({**row, "check": check, "severity": severity, "listens": list(listens) if listens else None})
    return rows


def _declared_files(rig: Rig) -> dict[str, list[str]]:
    """Path -> digest, mode, and the check that covers the file with its severity."""
    found: dict[str, list[str]] = {}

    def add(texts: Mapping[str, str], check: str, severity: str, mode: str = "644") -> None:
        found.update({path: [_sha256(text), mode, check, severity] for path, text in texts.items()})

    for one in render_card_settings(rig.roots, rig.cards, rig.driver):
        if not one.path.startswith(f"{UNIT_FOLDER}/"):
            kernel = one.path.startswith("/etc/sysctl.d/")
            add({one.path: one.text}, *(("N12", "low") if kernel else ("N46", "high")), mode=one.mode)
    for service in monitoring_services(rig):
        add(service.files, "Q02", "high")
    if rig.share:
        config = weight_server.render_share_config(rig.roots, rig.share)
        add({weight_server.config_path(rig.roots): config}, "H02", "high")
    if rig.gateway:
        add({ROTATION: render_logrotate(rig.accounts, OWNED_HEADER)}, "D10", "low")
    if rig.network.ca_certificates:
        add({authority_path(rig.roots): rig.network.ca_certificates}, "O06", "high")
    program = {**render_program(rig.roots), **render_rotation_files(rig), **render_pull_files(rig)}
    add({**program, **render_self_check_rules(rig)}, "Y02", "high")
    return found


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def render_self_check(rig: Rig, system: str) -> dict[str, str]:
    """Path -> text of all its files on a host, in the order in which their digest is made.

    Args:
        rig: The host's target.
        system: Its release, such as debian-12.
    """
    declaration = {declaration_path(rig.roots): render_declaration(rig, system)}
    texts = {**render_program(rig.roots), **declaration}
    texts |= render_self_check_units(rig) | render_self_check_rules(rig)
    texts |= {**render_rotation_files(rig), **render_units_of_rotation(rig)}
    texts |= render_pull_files(rig) | render_units_of_pull(rig)
    return {path: texts[path] for path in self_check_paths(rig.roots) if path in texts}


def self_check_digest(rig: Rig, system: str) -> str:
    """SHA-256 of all its files, as templates/self_check/state.sh.j2 makes it."""
    return _sha256("".join(render_self_check(rig, system).values()))
