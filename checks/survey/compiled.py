"""What engines have compiled while they ran."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.engines import kind_of
from rigwright.model.instance import CACHES, WARM


@dataclass(frozen=True)
class CompileCacheFolder:
    """The folder of what an instance has compiled with an installation."""

    owner: str
    """Empty where there is none."""
    mode: int
    others: list[str]
    """Who else has something in it."""


@dataclass(frozen=True)
class CompileCaches:
    """All of it."""

    own: dict[str, CompileCacheFolder]
    """By its path."""
    loose: list[str]
    """Paths that others than root can change, of the folders above those and of what root keeps for others."""


def _asks(scene: SurveyScope) -> dict[str, list[str]] | None:
    rig, made = scene.rig, scene.desired.installations
    services = {one.name: kind_of(one).service(rig, one, made[one.installed_as]) for one in rig.instances}
    own = [service.cache for service in services.values() if service.cache]
    above = [one.cache_folder for one in rig.instances if services[one.name].cache]
    return {"own": own, "above": [CACHES, *above], "warm": [WARM]} if own else None


COMPILED: Section[CompileCaches] = Section(
    "compiled", CompileCaches, _asks, blind="what an engine has compiled in memory only", phase="probed", start_order=10
)
