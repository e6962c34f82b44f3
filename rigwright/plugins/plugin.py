"""Plugins of an environment: their description in the catalogue, with their locked file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from rigwright.plugins.keys import PluginKeys
from rigwright.supply.artefact import Artefact


@dataclass(frozen=True)
class Plugin:
    """A plugin of one name."""

    name: str
    keys: PluginKeys
    row: Artefact
    """The operator's file: the wheel, or a zip with it."""

    @property
    def plan(self) -> dict[str, object]:
        """The plugin as roles/envs/host/plugins.py reads it, without the path of its file."""
        return {
            "name": self.keys.distribution,
            "version": self.row.version,
            "imports": self.keys.imports,
            "commands": self.keys.commands,
        }

    def __str__(self) -> str:
        return f"{self.name} {self.row.version}"


def select_plugins(
    names: Iterable[str], described: Mapping[str, PluginKeys], rows: Mapping[str, Artefact]
) -> tuple[Plugin, ...]:
    """The plugins of an environment that the catalogue describes and the lock has.

    Args:
        names: Names of plugins.
        described: All descriptions by name.
        rows: Locked artefacts by input.
    """
    found = {name: keys for name in names if (keys := described.get(name)) and keys.input in rows}
    return tuple(Plugin(name, keys, rows[keys.input]) for name, keys in found.items())


def describe_plugins(plugins: Iterable[Plugin]) -> str:
    """The end of a plan's line about an environment; empty without plugins."""
    names = ", ".join(f"{one} ({one.row.file}, SHA-256 {one.row.sha256[:12]})" for one in plugins)
    return f", with the plugin {names}" if names else ""


def find_mismatches(keys: PluginKeys, versions: Mapping[str, str], what: str) -> Iterator[str]:
    """Why a plugin is not for the environment that names it, a line each.

    Args:
        keys: Description of the plugin.
        versions: Distribution of the environment, as an index spells it -> its version.
        what: The environment, for people.
    """
    there = versions.get(canonicalize_name(keys.target_distribution))
    if there is None:
        yield f"is of {keys.target_distribution}, which {what} does not have"
    elif there not in keys.versions:
        yield f"is for {keys.target_distribution} {', '.join(keys.versions)}, but {what} has {there}"
    if canonicalize_name(keys.distribution) in versions:
        yield f"is the distribution {keys.distribution}, which {what} already contains"


def find_plugin_conflicts(plugins: Iterable[Plugin]) -> Iterator[str]:
    """Why plugins of one environment exclude each other, a line each."""
    taken: dict[str, str] = {}
    for one in plugins:
        words = [f"the distribution {canonicalize_name(one.keys.distribution)}"]
        words += [f"the command {command}" for command in one.keys.commands]
        for word in (*words, *(["a launcher"] if one.keys.launcher else [])):
            if word in taken:
                yield f"plugins {taken[word]} and {one.name} both install {word}"
            taken.setdefault(word, one.name)
