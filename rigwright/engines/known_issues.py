"""Known problems of an instance on its cards: rules, each with its severity and source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rigwright.engines import kind_of
from rigwright.engines.known_issue_rule import COMPUTED_SOURCE, PlacedInstance
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import EnvSpec, Instance, patches_by_target
from rigwright.model.nvidia_tables import ToolkitSpec

if TYPE_CHECKING:
    from rigwright.model.catalog_schema import Card
    from rigwright.model.instance import Instance
    from rigwright.patches.patch import Patch


def place_instance(instance: Instance, cards: Iterable[Card], patches: Iterable[Patch]) -> PlacedInstance:
    """An instance on its cards, with what its engine or environment is changed by."""
    return PlacedInstance(instance, tuple(cards), frozenset(one.name for one in patches))


def describe_issues(one: PlacedInstance, *, refused: bool) -> Iterator[str]:
    """The messages of its kind's rules of one severity, a line each."""
    for rule in kind_of(one.instance).rules():
        if rule.refused == refused and (said := rule.describe(one)):
            yield f"{said} ({rule.source})"


def describe_warnings(
    cards: tuple[Card, ...],
    instances: tuple[Instance, ...],
    envs: tuple[EnvSpec, ...],
    toolkit_spec: ToolkitSpec,
    measured: Mapping[str, str],
) -> list[str]:
    """Known problems of a rig or its instances that do not refuse it, a line each.

    Args:
        cards: By GPU index.
        instances: The declared instances.
        envs: The declared environments.
        toolkit_spec: The toolkit, with its patches.
        measured: Instance -> the measured statement about its memory, in place of the computed one; empty if it fits.
    """
    return [
        *(f"{name}: {said}" for name, said in measured.items() if said),
        *(
            f"{one.name}: {said}"
            for one in instances
            for said in describe_issues(
                place_instance(
                    one,
                    (cards[index] for index in one.cards),
                    patches_by_target(instances, envs, toolkit_spec.patches).get(one.installed_as, ()),
                ),
                refused=False,
            )
            if one.name not in measured or not said.endswith(f"({COMPUTED_SOURCE})")
        ),
    ]
