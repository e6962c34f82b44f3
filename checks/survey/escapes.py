"""What an instance can do that it must not, tried from inside its sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from checks.survey.processes import TRIES
from checks.survey.section import Section, SurveyScope
from rigwright.engines import kind_of
from rigwright.host.locks import DEPLOY_LOCK, LOCKS
from rigwright.host.systemd_syntax import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.serving.listeners import LOOPBACK, listener_units

PROGRAM = Path(__file__).resolve().parents[1] / "escape.py"
# Beside what a rig names: ssh, a resolver, and folders of the distribution's.
ADDRESSES = ((LOOPBACK, 22), ("127.0.0.53", 53), ("::1", 22))
FOLDERS = (
    *("/", "/boot", "/etc", UNIT_FOLDER, "/home", "/opt", "/root", "/run", "/srv", "/usr/local/bin", "/var/lib"),
)
SECRETS = ("/etc/shadow", "/root/.ssh/authorized_keys", "/etc/ssh/ssh_host_ed25519_key")


@dataclass(frozen=True)
class EscapeResult:
    """What came through, in words; each is empty where the sandbox is what it is for."""

    processes: list[str]
    network: list[str]
    files: list[str]
    devices: list[str]
    privileges: list[str]


def _asks(scene: SurveyScope) -> object:
    rig, desired = scene.rig, scene.desired
    if not rig.instances:
        return None
    addresses = [*ADDRESSES, *((LOOPBACK, one.port) for one in rig.instances)]
    addresses += [(address, 22) for address in sorted(desired.facts.addresses)]
    roots = [rig.roots.models, rig.roots.software, rig.roots.state, rig.roots.config, STARTED_FROM_FOLDER]
    asked = {}
    for instance in rig.instances:
        service = kind_of(instance).service(rig, instance, desired.installations[instance.installed_as])
        if service.container:
            continue
        sandbox = service.sandbox
        asked[instance.unit] = {
            "own": [instance.socket, f"/run/credentials/{instance.unit}/api-key"],
            "cards": bool(instance.cards),
            "asked": {
                "addresses": addresses,
                "secrets": list(SECRETS),
                "locks": [LOCKS, DEPLOY_LOCK],
                "folders": [*FOLDERS, *roots],
                "families": list(sandbox.families),
                "writes_code": sandbox.writes_code,
            },
        }
    units = sorted({name for one in rig.instances for name in (one.unit, *listener_units(one.port))})
    return {
        "program": PROGRAM.read_text(),
        "instances": asked,
        "units": units,
        "credentials": [rig.roots.credentials, "/run/credentials"],
        "name": TRIES,
    }


ESCAPES: Section[dict[str, EscapeResult]] = Section(
    "escapes",
    dict[str, EscapeResult],
    _asks,
    limit=60.0,
    blind="escapes that are not among those tried: a sandbox is tested, not proven",
    phase="probed",
    start_order=2,
)
"""By instance's service."""
