"""Changes of a scene that turn an advisory's predicates."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rigwright.advisories.audit import render_scene
from rigwright.advisories.predicates import PredicateScene
from rigwright.model.instance import ModelPart
from rigwright.supply.lock import Lock
from tests.unit.checkpoints import CHECKPOINT_PATHS, checkpoint_rows

Change = Callable[[PredicateScene], PredicateScene]


def with_instance(scene: PredicateScene, **changes: Any) -> PredicateScene:
    """The same rig with a change to its first instance, rendered again."""
    first, *others = scene.rig.instances
    return render_scene(replace(scene.rig, instances=(replace(first, **changes), *others)), scene.lock)


def with_variant(**changes: Any) -> Change:
    return lambda scene: with_instance(scene, variant=scene.rig.instances[0].variant.model_copy(update=changes))


def with_flags(**flags: Any) -> Change:
    return with_variant(flags={name.replace("_", "-"): value for name, value in flags.items()})


def with_model(config: dict[str, Any]) -> Change:
    """Another model, locked."""

    def change(scene: PredicateScene) -> PredicateScene:
        files = tuple(
            one.model_copy(update={"group": "other", "name": "other"})
            for one in checkpoint_rows(CHECKPOINT_PATHS, config)
        )
        lock = Lock(scene.lock.artefacts, {**scene.lock.groups, "other": files}, scene.lock.keys)
        part = ModelPart("model", tuple(sorted(files, key=lambda row: row.path != "config.json")))
        return replace(with_instance(scene, parts=(part,)), lock=lock)

    return change


def without_lock(scene: PredicateScene) -> PredicateScene:
    return replace(scene, lock=Lock({}))


def without_units(scene: PredicateScene) -> PredicateScene:
    return replace(scene, services={}, units={})


def with_network(scene: PredicateScene) -> PredicateScene:
    return replace(scene, units={name: text.replace("PrivateNetwork=yes\n", "") for name, text in scene.units.items()})


def with_words(change: Callable[[str], str]) -> Change:
    return lambda scene: replace(
        scene,
        services={
            name: replace(one, command=tuple(change(str(word)) for word in one.command))
            for name, one in scene.services.items()
        },
    )


def with_options(*words: str) -> Change:
    return lambda scene: replace(
        scene, services={name: replace(one, command=(*one.command, *words)) for name, one in scene.services.items()}
    )
