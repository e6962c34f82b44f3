"""A deploy's files outside Rigwright's own folders, as a question to a host: exact paths, with their content where only
the rig decides it.

Paths that another party could choose are excluded: a unit that is merely called rigwright_x counts as foreign.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from checks.survey.section import SurveyScope
from rigwright.containers import container_files, daemon_json
from rigwright.gateway.gateway_units import (
    HEALTH_FOLDER,
    KEEPALIVED_PACKAGED_UNIT,
    ROTATION,
    ROUTER_RUNTIME,
    RUNTIME,
    render_logrotate,
)
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.instance import SOCKET_FOLDER
from rigwright.model.rig import Rig, account_names
from rigwright.monitoring.self_check import render_self_check_rules
from rigwright.nginx_package import PACKAGED_UNIT
from rigwright.nvidia.cards.card_setting_files import render_card_settings
from rigwright.nvidia.driver import driver_files
from rigwright.plan.preflight import HOME
from rigwright.plan.self_check_declaration import render_standalone_units
from rigwright.serving.instance_units import OWNED_HEADER

INSTANCE_PREFIX = "rigwright-"
TARGET = "rigwright.target"


def deployed_entries(scene: SurveyScope) -> dict[str, Mapping[str, str]]:
    """The value of `ours` for `checks.survey.host.entry_origins.attribute`."""
    rig = scene.rig
    roots = rig.roots
    units = render_standalone_units(rig)
    texts = {**units, **render_self_check_rules(rig)}
    texts |= {one.path: one.text for one in render_card_settings(roots, rig.cards, rig.driver)}
    if rig.gateway:
        texts[ROTATION] = render_logrotate(rig.accounts, OWNED_HEADER)
    links = {f"{UNIT_FOLDER}/multi-user.target.wants/{TARGET}": f"{UNIT_FOLDER}/{TARGET}"}
    for path, text in units.items():
        links |= _enablement(path, text)
    if rig.share or rig.gateway:
        # role base masks the packaged unit: each of ours runs an nginx of its own
        links[f"{UNIT_FOLDER}/{PACKAGED_UNIT}"] = "/dev/null"
    if rig.gateway and rig.gateway.fleet.pair:
        links[f"{UNIT_FOLDER}/{KEEPALIVED_PACKAGED_UNIT}"] = "/dev/null"
    known = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
    return {
        "files": dict.fromkeys(_observed_files(rig), "") | known,
        "links": links,
        # a generation's digest, which other checks compare, covers which units it has
        "linked_folders": {UNIT_FOLDER: f"{roots.config}/current/units"},
        "folders": dict.fromkeys((roots.config, roots.software, roots.state, roots.models), ""),
        "jobs": {roots.jobs: ""},
        "accounts": dict.fromkeys(account_names(rig), HOME),
        "groups": {},
        "mounts": {SOCKET_FOLDER: INSTANCE_PREFIX},
        "mount_points": _gateway_mounts(rig),
        "addresses": _shared_address(rig),
    }


def _shared_address(rig: Rig) -> dict[str, str]:
    """The key of the entry of an address that the gateway shares with another one."""
    pair = rig.gateway.fleet.pair if rig.gateway else None
    return {f"address {pair.interface} {pair.address}/{pair.prefix}": ""} if pair else {}


def _gateway_mounts(rig: Rig) -> dict[str, str]:
    """Folder -> source of the file systems that the gateway's units mount before they start (`bounded`)."""
    if not rig.gateway:
        return {}
    of_pair = {HEALTH_FOLDER: rig.accounts.gateway} if rig.gateway.fleet.pair else {}
    return {RUNTIME: rig.accounts.gateway, ROUTER_RUNTIME: rig.accounts.router} | of_pair


def _enablement(path: str, text: str) -> dict[str, str]:
    """Links by which systemd starts a unit."""
    name = path.rpartition("/")[2]
    targets = [
        word for line in text.splitlines() if line.startswith("WantedBy=") for word in line.partition("=")[2].split()
    ]
    return {f"{UNIT_FOLDER}/{target}.wants/{name}": path for target in targets}


def _observed_files(rig: Rig) -> tuple[str, ...]:
    """Files whose content depends on the host as well; checks of the driver and of containers compare it."""
    driver = (*driver_files.PATHS, driver_files.COMPONENT) if rig.driver.managed else ()
    containers = (*container_files.managed_paths(rig.roots), daemon_json.PATH) if rig.containers else ()
    return (*driver, *containers)
