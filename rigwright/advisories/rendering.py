"""Units of a rig as a deploy would render them, without its host: no option and no sandbox depends on what that has."""

from __future__ import annotations

from types import MappingProxyType

from rigwright.advisories.predicates import PredicateScene
from rigwright.engines import kind_of
from rigwright.engines.kind import ServiceSpec
from rigwright.model.facts import HostFacts
from rigwright.model.models import MissingModelFile
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import build_target_state
from rigwright.supply.lock import Lock

# A host of the newest supported Debian. Of its values units have the release's way to run containers alone.
NOMINAL = HostFacts(
    os_id="debian",
    os_version="13",
    architecture="x86_64",
    kernel="6.12.0-amd64",
    systemd=257,
    uid=0,
    memory_kib=64 << 20,
    disk_free_kib=MappingProxyType({}),
    cuda_version="13.0",
    apt_lock_holder="",
)


def render_scene(rig: Rig, lock: Lock) -> PredicateScene:
    """A rig with its lock and units. An instance that cannot be rendered, because something of it is not locked, has
    none: predicates then answer unknown.
    """
    services: dict[str, ServiceSpec] = {}
    units: dict[str, str] = {}
    try:
        made = build_target_state(rig, NOMINAL)
        texts = {one.instance: one.text for one in made.generation.units}
        for one in rig.instances:
            services[one.name] = kind_of(one).service(rig, one, made.installations[one.installed_as])
            units[one.name] = texts[one.name]
    except (ArithmeticError, AttributeError, LookupError, MissingModelFile, StopIteration, TypeError, ValueError):
        # stand-ins for what is not locked lack what units are made of
        return PredicateScene(rig, lock)
    return PredicateScene(rig, lock, services, units)
