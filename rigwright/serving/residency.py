"""The residency service of a box with instances on demand: its units, its program and its declaration, as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from rigwright.engines import kind_of
from rigwright.engines.known_issues import place_instance
from rigwright.engines.memory_assessment import DRIVER_RESERVE
from rigwright.engines.memory_fit import MIB
from rigwright.gateway.gateway_units import ADMIN, WAKE_SOCKET, WAKE_STATES, GatewayFiles
from rigwright.gateway.secrets_distribution import RESIDENCY, RESIDENCY_SOCKET, RESIDENCY_UNIT
from rigwright.host import script_output
from rigwright.host.generation_layout import ACTIVATING, JOB
from rigwright.host.systemd import LINKS, STARTED_FROM_FOLDER, UNIX, SocketUnit, UnitState
from rigwright.model.instance import Instance, patches_by_target
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.monitoring.textfile import textfile_folder
from rigwright.project_root import ROOT
from rigwright.render import render
from rigwright.serving.instance_units import OWNED_HEADER, STOPPED, InstanceUnit
from rigwright.serving.takeover import drain_seconds

HOST = "host"
"""The device of an instance without cards: the host's memory."""
PROGRAM = (
    *("admission.py", "ledger.py", "ledger_file.py", "needs.py", "observation.py", "service.py", "state.py"),
    "wake_states.py",
)
# Bytes that an engine takes beside weights and KV cache, of each card or of RAM, until its use was measured.
CARD_MORE, HOST_MORE = 1536 * MIB, 512 * MIB
# Bytes of an empty card that the driver has, or tells as used: a whole card is so much less, and no engine fits beside.
EMPTY_CARD_USE = DRIVER_RESERVE + 384 * MIB
TIMED_OUT = 124  # timeout(1)


def estimate_floor(rig: Rig, instance: Instance) -> dict[str, int]:
    """Device -> bytes that an instance needs, as computed: GPU indexes as text, or the host.

    Args:
        rig: Its rig.
        instance: The instance.
    """
    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches).get(instance.installed_as, ())
    cards = [rig.cards[index] for index in instance.cards]
    found = kind_of(instance).memory(place_instance(instance, cards, patches))
    weights = sum(file.size for file in instance.weights)
    kept = found.cache_bytes if found else 0
    if not cards:
        return {HOST: weights + kept + HOST_MORE}
    # where nothing is known of it, a card has room for nothing else
    each = (found.weights + kept) // len(cards) + CARD_MORE if found else 0
    share = found.share if found and found.share < 1 else 0.0 if found else 1.0
    sizes = [_fit_empty_card(max(each, int(card.vram_mib * MIB * share)), card.vram_mib * MIB) for card in cards]
    return {str(index): size for index, size in zip(instance.cards, sizes, strict=True)}


def _fit_empty_card(size: int, whole: int) -> int:
    """Bytes that count for a computed need: those that an empty card has, unless its need is more than a whole card."""
    return size if size > whole else min(size, max(whole // 2, whole - EMPTY_CARD_USE))


def render_residency_config(rig: Rig, units: tuple[InstanceUnit, ...]) -> str:
    """The declaration that the service reads.

    Args:
        rig: The rig.
        units: Those of its instances.
    """
    declared: Mapping[str, Instance] = {one.name: one for one in rig.instances}
    value: dict[str, object] = {
        "schema": 1,
        "socket": WAKE_SOCKET,
        "states": WAKE_STATES,
        "admin": ADMIN,
        "folder": rig.roots.residency,
        "links": LINKS,
        "records": f"{rig.roots.state}/memory",
        "stopped": f"{rig.roots.config}/{STOPPED}",
        "activating": f"{rig.roots.config}/{ACTIVATING}",
        "job": f"{JOB}.service",
        "metrics": f"{textfile_folder(rig.roots)}/residency.prom" if rig.monitoring else "",
        "drain": drain_seconds(rig.gateway),
        "host_memory": rig.on_demand.host_memory or "100%",
        "instances": {
            one.instance: {
                "unit": one.name,
                "fingerprint": one.unit_state.started_from,
                "floor": estimate_floor(rig, declared[one.instance]),
                "memory_max": declared[one.instance].memory_max,
                "idle": declared[one.instance].idle,
                "priority": declared[one.instance].priority,
                "keep_warm": declared[one.instance].keep_warm,
                "residence": rig.on_demand.residence,
            }
            for one in units
            if one.on_demand
        },
    }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def render_proof_script(roots: Roots, name: str, seconds: float) -> str:
    """The script with which root has the residency service load an instance once.

    Args:
        roots: Directories on the host.
        name: The instance.
        seconds: After which the proof has failed.
    """
    return render("serving/prove.sh.j2", current=f"{roots.config}/current", name=name, seconds=int(seconds))


def parse_proof(output: Iterable[str]) -> str:
    """Why a proof has failed; empty if the instance has answered.

    Raises:
        ValueError: the host has told something else, or was cut off.
    """
    told = script_output.parse_output(output, {"proof": (script_output.number, script_output.free_text)})
    ((status, text),) = told.many("proof")
    if not status:
        return ""
    return "it did not answer in time" if status == TIMED_OUT else str(text) or f"its proof ended with status {status}"


def load_residency_modules() -> dict[str, str]:
    """Path in its folder -> text of the program's files."""
    start = f"{OWNED_HEADER}\nimport sys\n\nfrom {RESIDENCY}.service import main\n\nsys.exit(main(sys.argv[1:]))\n"
    source = ROOT / "roles/residency/host"
    return {"__main__.py": start, **{f"{RESIDENCY}/{name}": (source / name).read_text() for name in PROGRAM}}


def render_residency(rig: Rig, units: tuple[InstanceUnit, ...]) -> GatewayFiles:
    """The residency service of a rig as files of a generation and a unit; nothing without instances on demand.

    Args:
        rig: The rig.
        units: Those of its instances.
    """
    if not rig.gateway or not any(one.on_demand for one in units):
        return GatewayFiles({}, ())
    modules = load_residency_modules()
    config = render_residency_config(rig, units)
    digest = hashlib.sha256(f"{config}{sorted(modules.items())}".encode()).hexdigest()[:16]
    values: dict[str, object] = {
        "owned": OWNED_HEADER,
        "roots": rig.roots,
        "accounts": rig.accounts,
        "service": RESIDENCY_UNIT,
        "socket": RESIDENCY_SOCKET,
        "path": WAKE_SOCKET,
        "runtime": WAKE_STATES.removeprefix("/run/").rpartition("/")[0],
        "folder": rig.roots.residency,
        "metrics": textfile_folder(rig.roots) if rig.monitoring else "",
        "started_from": STARTED_FROM_FOLDER,
        "cards": bool(rig.cards),
        "digest": digest,
    }
    service = render("residency/residency.service.j2", **values)
    state = UnitState(
        *(RESIDENCY_UNIT, hashlib.sha256(service.encode()).hexdigest(), 0, frozenset()),
        holders=(SocketUnit(RESIDENCY_SOCKET, frozenset({UNIX})),),
    )
    files = {
        "residency.json": config,
        **{f"residency/{name}": text for name, text in modules.items()},
        f"units/{RESIDENCY_UNIT}": service,
        f"units/{RESIDENCY_SOCKET}": render("residency/residency.socket.j2", **values),
    }
    return GatewayFiles(files, (state,))
