"""A rig's environments, with what is locked for each."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.utils import canonicalize_name

from rigwright.model.catalog_schema import Catalog
from rigwright.model.instance import EnvSpec
from rigwright.model.inventory_feature import Feature, Fields, RigDraft
from rigwright.model.inventory_schema import RigEntry
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.patches.patch import select_patches
from rigwright.plugins.plugin import Plugin, find_mismatches, find_plugin_conflicts
from rigwright.problems import describe_unknown, suggestion
from rigwright.supply.cuda_machine_code import find_machine_code_refusals
from rigwright.supply.lock import ArtefactKind, Lock
from rigwright.supply.root_programs import INSTALLERS

# Files without code for a card that are named: a whole environment for other cards has dozens.
LISTED = 3


def compute_capabilities(entry: RigEntry, catalog: Catalog) -> frozenset[str]:
    """The compute capabilities of an entry's cards, as far as they are known."""
    cards = (catalog.cards.get(one) if isinstance(one, str) else one for one in entry.cards)
    return frozenset(card.capability for card in cards if card)


def _resolve_envs(draft: RigDraft) -> Fields:
    """The environments that an entry names and its instances run in, by name; those that cannot be had are refused."""
    entry, catalog, lock, inventory, refuse = draft.entry, draft.catalog, draft.lock, draft.file, draft.refuse
    locking = draft.is_locking
    env_of = {one.name: one.env for one in draft.fields["instances"]}
    running = {f"instances.{name}.variant": env for name in entry.instances if (env := env_of.get(name))}
    found: dict[str, EnvSpec] = {}
    asked_for = [(f"envs[{index}]", name) for index, name in enumerate(entry.envs)]
    for key, name in (*asked_for, *running.items()):
        if name in found and key in running:
            continue
        keys = catalog.envs.get(name)
        if keys is None:
            refuse(key, describe_unknown("environment", name, catalog.envs))
            continue
        if name in found:
            refuse(key, f"{name} is listed twice")
        if name in catalog.engines and catalog.engines[name].environment is None:
            refuse(key, f"{name} is also an engine's name: both would be installed in one place")
        inputs: tuple[tuple[str, ArtefactKind], ...] = ((keys.python, "conda"), (keys.packages, "wheel"))
        for source, kind in inputs:
            if wrong := describe_uncovered(source, kind, catalog.inputs, lock, inventory):
                refuse(key, f"{name}: {wrong}")
        packages, asked = lock.groups.get(keys.packages, ()), catalog.inputs.get(keys.packages)
        python = lock.groups.get(keys.python, ())
        if python and not locking and all(one.name != "python" for one in python):
            refuse(key, f"{name}: {keys.python} does not include python: add it to requirements")
        names = {canonicalize_name(one.name) for one in packages}
        if packages and not locking and canonicalize_name(keys.distribution) not in names:
            said = f"{keys.packages} has no distribution {keys.distribution}, whose version is the environment's"
            refuse(key, f"{name}: {said}{suggestion(keys.distribution, names)}")
        versions: dict[str, str] = {canonicalize_name(one.name): one.version for one in packages}
        known = {} if locking else versions
        patches, wrong_patches = select_patches(keys.patches, catalog.patches, known or None, name)
        plugins, wrong_plugins = _resolve_plugins(name, catalog, lock, inventory, known)
        for line in (*wrong_patches, *wrong_plugins):
            refuse(key, f"{name}: {line}")
        patterns = asked.for_other_cards if asked else ()
        brought = [own for plugin in plugins if (own := catalog.inputs.get(plugin.keys.input))]
        patterns += tuple(pattern for own in brought for pattern in own.for_other_cards)
        compiled = (*packages, *(plugin.row for plugin in plugins))
        for capability in sorted(compute_capabilities(entry, catalog)):
            refused, _ = find_machine_code_refusals(compiled, patterns, capability)
            for line in refused[:LISTED]:
                refuse(key, f"{name}: {line}")
            if len(refused) > LISTED:
                refuse(key, f"{name}: {len(refused) - LISTED} more of its files have no code for it")
        found[name] = EnvSpec(name, keys, python, packages, patterns, patches, plugins)
    return {"envs": tuple(found[name] for name in sorted(found))}


def _resolve_installers(draft: RigDraft) -> Fields:
    """The wheels that install environments; none where the rig has no environment."""
    context = "the environment installer cannot be used: "
    installers = draft.select_wheels(INSTALLERS, "envs", context) if draft.fields["envs"] else ()
    draft.artefacts += installers
    return {"installers": installers}


def _add_packages(draft: RigDraft) -> Fields:
    draft.artefacts += [one for env in draft.fields["envs"] for one in env.artefacts]
    return {}


def _resolve_plugins(
    name: str, catalog: Catalog, lock: Lock, inventory: str, versions: Mapping[str, str]
) -> tuple[tuple[Plugin, ...], list[str]]:
    """The plugins that an environment names, and what is wrong with that, a line each.

    Args:
        name: The environment's.
        catalog: The catalogue of its names.
        lock: The lock of its inputs.
        inventory: The file, for messages.
        versions: Its packages, as an index spells them -> their versions; empty while they are unknown.
    """
    found: list[Plugin] = []
    wrong: list[str] = []
    for one in catalog.envs[name].plugins:
        keys = catalog.plugins.get(one)
        if keys is None:
            wrong.append(describe_unknown("plugin", one, catalog.plugins))
        elif one in (other.name for other in found):
            wrong.append(f"plugin {one} is listed twice")
        elif missing := describe_uncovered(keys.input, "plugin", catalog.inputs, lock, inventory):
            wrong.append(f"plugin {one}: {missing}")
        else:
            found.append(Plugin(one, keys, lock.artefacts[keys.input]))
            wrong += [f"plugin {one} {line}" for line in find_mismatches(keys, versions, name)] if versions else []
    return tuple(found), [*wrong, *find_plugin_conflicts(found)]


ENVS = Feature("envs", resolve=_resolve_envs)
# parts of their own: a bundle names missing packages in the order of the features
INSTALLER_WHEELS = Feature("installers", resolve=_resolve_installers)
ENV_PACKAGES = Feature("env_packages", resolve=_add_packages)
