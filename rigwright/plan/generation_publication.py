"""A box's generation as it is published for pulls: its files, and the scripts that activate it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rigwright.host.systemd import UnitState
from rigwright.model.installation import MARKER
from rigwright.model.instance import CACHES, WARM, loaded_weights
from rigwright.model.rig import Rig, account_names
from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.self_check_declaration import render_declaration
from rigwright.pull.publication import PullPayload, RootJob
from rigwright.serving.activation import Activation, ActivationGoal, goal_of, plan_activation
from rigwright.serving.activation_script import render_activation
from rigwright.serving.generation import Generation, parse_manifest
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, ObservedUnit

MARK = "Description="
RUNNING = ObservedUnit("active", "running")


@dataclass(frozen=True)
class BaseGeneration:
    """A generation that a box may serve when it pulls."""

    digest: str
    mark: str
    unit_files: tuple[str, ...]
    unit_states: tuple[UnitState, ...]


def base_of_observed(kept: ObservedGeneration) -> BaseGeneration:
    """A generation that lies on a host."""
    return BaseGeneration(kept.sealed, kept.mark, kept.unit_files, kept.unit_states)


def base_of_payload(payload: PullPayload) -> BaseGeneration:
    """A generation that was published before.

    Raises:
        ValueError: its manifest is invalid.
    """
    names = tuple(sorted(path.removeprefix("units/") for path in payload.files if path.startswith("units/")))
    lines = payload.files.get("units/rigwright.target", "").splitlines()
    mark = next((line.rpartition(" ")[2] for line in lines if line.startswith(MARK)), "")
    return BaseGeneration(payload.digest, mark, names, parse_manifest(payload.files["manifest.json"], {}).unit_states)


def build_settled_serving(config: str, base: BaseGeneration) -> ObservedServing:
    """A host that serves a generation completely, as it was activated: a box verifies that before it pulls.

    Args:
        config: The configuration's folder.
        base: The generation.
    """
    kept = ObservedGeneration(1, base.digest, base.digest, "", mark=base.mark, unit_files=base.unit_files)
    return ObservedServing(
        generations=(replace(kept, unit_states=base.unit_states),),
        current=1,
        loaded=base.mark,
        enabled=True,
        links={name: f"{config}/current/units/{name}" for name in base.unit_files},
        processes={
            one.unit: replace(RUNNING, started_from=one.started_from, configured_from=one.configured_from)
            for one in base.unit_states
        },
        sockets={holder.unit: holder.addresses for one in base.unit_states for holder in one.holders},
    )


def render_ways(
    rig: Rig, generation: Generation, bases: Iterable[BaseGeneration]
) -> tuple[dict[str, str], dict[str, str]]:
    """Digest of a generation -> the script that activates the new one, and the script that activates it again.

    Args:
        rig: The box.
        generation: The new one.
        bases: Generations that the box may serve.
    """
    config, activate, restore = rig.roots.config, dict[str, str](), dict[str, str]()
    goal = ActivationGoal(None, generation.mark, generation.unit_files, generation.unit_states)
    new = BaseGeneration(generation.digest, generation.mark, generation.unit_files, generation.unit_states)
    for base in bases:
        if base.digest == generation.digest:
            continue
        ahead = plan_activation(build_settled_serving(config, base), config, goal) or Activation()
        kept = build_settled_serving(config, base).generations[0]
        back = plan_activation(build_settled_serving(config, new), config, goal_of(kept)) or Activation()
        activate[base.digest] = render_activation(rig, None, ahead)
        restore[base.digest] = render_activation(rig, None, back)
    return activate, restore


def build_payload(
    desired: TargetState, bases: Iterable[BaseGeneration], fetch: RootJob | None, record: RootJob | None = None
) -> PullPayload:
    """All that a box needs to activate its generation.

    Args:
        desired: The box's target state.
        bases: Generations that it may serve.
        fetch: The job that fetches its weights; None where a deploy has to.
        record: The job that records what is installed.
    """
    rig, generation = desired.rig, desired.generation
    activate, restore = render_ways(rig, generation, bases)
    weights = {rig.roots.weight_path(one) for one in loaded_weights(rig.instances)} if fetch else set()
    paths = [
        path
        for path in generation.files["references"].splitlines()
        if not path.startswith((f"{CACHES}/", f"{WARM}/")) and path not in weights
    ]
    paths += [f"{rig.roots.installation_path(one.folder)}/{MARKER}" for one in desired.installations.values()]
    users = account_names(rig)
    return PullPayload(
        generation.files, generation.links, activate, restore, tuple(dict.fromkeys(paths)), tuple(users), fetch, record
    )


def digest_declaration(desired: TargetState) -> str:
    """SHA-256 of the declaration with which the box compares itself: it has all that a deploy installs beside."""
    return hashlib.sha256(render_declaration(desired.rig, desired.facts.system).encode()).hexdigest()


def parse_published(content: bytes) -> PullPayload:
    """A payload that this machine wrote before.

    Raises:
        ValueError: it is malformed.
    """
    table: Mapping[str, Mapping[str, str]] = json.loads(content)
    try:
        return PullPayload(table["files"], table["links"], {}, {})
    except (KeyError, TypeError):
        raise ValueError("a malformed payload") from None
