"""A generation: one complete, numbered state of what a rig serves, as files, and its place among those of a host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from rigwright.delivery.tool_environments import ToolEnvironment
from rigwright.gateway.gateway_units import render_gateway
from rigwright.host.systemd_syntax import LINKS, STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.host.unit_states import UnitState
from rigwright.model.installation import Installation
from rigwright.model.instance import SOCKET_FOLDER, WARM, Instance, loaded_weights
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.serving.instance_units import OWNED_HEADER, InstanceUnit, build_unit, credential_path
from rigwright.serving.listeners import PortListener, build_listener
from rigwright.serving.manifest import render_manifest

# Beside the files that a generation's digest is made of: its digest and when it was written.
META = "meta"
# Written once all its instances have answered.
PROVEN = "proven"
# In the configuration's folder while a generation is being activated: the numbers of the old and the new one.
ACTIVATING = "activating"
SETTLE = "rigwright_settle.service"


@dataclass(frozen=True)
class Generation:
    """What a rig is to serve."""

    files: dict[str, str]
    """Path in the generation's folder -> text."""
    links: dict[str, str]
    """Path in the generation's folder -> what the link points to."""
    units: tuple[InstanceUnit, ...]
    """Those of its instances."""
    listeners: tuple[PortListener, ...]
    gateway: tuple[UnitState, ...]
    """What the units of its gateway are to be; none without one."""
    mark: str
    """In the target's description: tells which generation systemd has read."""

    @property
    def digest(self) -> str:
        """SHA-256 of all content, as templates/generation/state.sh.j2 finds it on the host."""
        lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  {path}" for path, text in sorted(self.files.items())]
        lines += [f"mode {file_mode(text)} {path}" for path, text in sorted(self.files.items())]
        lines += [f"link {path} {target}" for path, target in sorted(self.links.items())]
        return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()

    @property
    def unit_states(self) -> tuple[UnitState, ...]:
        """What its units' processes are to be, and to hold."""
        return (*(one.unit_state for one in self.units), *(one.unit_state for one in self.listeners), *self.gateway)

    @property
    def unit_files(self) -> tuple[str, ...]:
        """Names of its unit files, by name."""
        return tuple(sorted(path.removeprefix("units/") for path in self.files if path.startswith("units/")))


def file_mode(text: str) -> str:
    """The mode of a generation's file, in octal: scripts can be run."""
    return "755" if text.startswith("#!") else "644"


def build_generation(
    rig: Rig,
    installations: Mapping[str, Installation],
    tools: ToolEnvironment,
    nodes: Mapping[str, int | None] | None = None,
) -> Generation:
    """The generation that a rig asks for; the same rig on the same host gives the same bytes.

    Args:
        rig: The rig.
        installations: Engine or environment -> what it is on the host.
        tools: The host's Python tools.
        nodes: Instance -> the NUMA node that its cards are at, where they share one.
    """
    toolkits = sorted({made.toolkit.folder for made in installations.values() if made.toolkit and made.toolkit.folder})
    engines = {name: rig.roots.installation_path(made.folder) for name, made in installations.items()}
    units = tuple(
        build_unit(rig, instance, installations[instance.installed_as], (nodes or {}).get(instance.name))
        for instance in rig.instances
    )
    listeners = tuple(
        build_listener(rig.roots, rig.accounts, rig.gateway, instance, OWNED_HEADER) for instance in rig.instances
    )
    gateway = render_gateway(rig.roots, rig.accounts, rig.instances, rig.gateway, rig.monitoring, OWNED_HEADER)
    scripts = {
        "ready": render(
            "serving/ready.j2",
            started_from=STARTED_FROM_FOLDER,
            units=UNIT_FOLDER,
            starts=rig.roots.startup_records,
            warm=WARM,
            links=LINKS if rig.gateway else "",
            sockets=SOCKET_FOLDER,
            gateway=rig.accounts.gateway,
        ),
        "seed": render("serving/seed.j2", started_from=STARTED_FROM_FOLDER, warm=WARM),
        "started": render("serving/started.j2", started_from=STARTED_FROM_FOLDER, units=UNIT_FOLDER),
        "settle": render("generation/settle.j2", config=rig.roots.config, activating=ACTIVATING, units=UNIT_FOLDER),
    }
    files = {
        **scripts,
        **{f"units/{one.name}": one.text for one in units},
        **{f"env/{one.instance}": one.environment for one in units},
        **{f"requests/{one.instance}": one.ready for one in units},
        **{f"warm-up/{u.instance}.{n}": text for u in units for n, text in enumerate(u.warm_up, start=1)},
        **{f"weights/{one.instance}": one.weights for one in units},
        **{f"said/{one.instance}": "".join(f"{mark}\n" for mark in one.marks) for one in units if one.marks},
        **{f"programs/{name}": text for one in units for name, text in one.programs.items()},
        **{f"units/{one.unit}": one.text for one in listeners},
        **{f"units/{one.socket_unit}": one.socket_text for one in listeners},
        "units/rigwright.slice": render("serving/rigwright.slice.j2", owned=OWNED_HEADER),
        f"units/{SETTLE}": render(
            "generation/settle.service.j2", owned=OWNED_HEADER, roots=rig.roots, activating=ACTIVATING
        ),
        **gateway.files,
        "manifest.json": render_manifest(
            rig.name,
            rig.roots,
            rig.accounts,
            rig.cards,
            rig.instances,
            engines,
            tools.folder,
            units,
            listeners,
            gateway.unit_states,
        ),
        "references": "".join(
            f"{path}\n" for path in referenced_paths(rig.roots, rig.instances, engines, tools, toolkits, units)
        ),
    }
    mark = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:12]
    ports = [name for one in listeners for name in (one.socket_unit, one.unit)]
    wants = [SETTLE, *ports, *gateway.wanted_units, *(one.name for one in units)]
    target = render("serving/rigwright.target.j2", owned=OWNED_HEADER, mark=mark, wants=wants)
    links = {f"engines/{name}": path for name, path in engines.items()} | {"tools": tools.folder}
    return Generation({**files, "units/rigwright.target": target}, links, units, listeners, gateway.unit_states, mark)


def referenced_paths(
    roots: Roots,
    instances: tuple[Instance, ...],
    engines: dict[str, str],
    tools: ToolEnvironment,
    toolkits: list[str],
    units: tuple[InstanceUnit, ...],
) -> list[str]:
    """Absolute paths that stay on the host as long as the generation does."""
    keys = [credential_path(roots, instance) for instance in instances]
    caches = [one.cache for one in units if one.cache]
    caches += [f"{WARM}/{PurePosixPath(cache).name}" for cache in caches]
    weights = [roots.weight_path(artefact) for artefact in loaded_weights(instances)]
    return sorted({*engines.values(), *toolkits, tools.folder, *weights, *keys, *caches})
