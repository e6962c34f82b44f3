"""Plugins as an environment has them: what is described, with what is locked for it."""

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
    """The operator's file: the wheel, or what it is in."""

    @property
    def plan(self) -> dict[str, object]:
        """It as roles/envs/host/plugins.py reads it, but for where its file lies."""
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
    """Those of an environment's plugins that can be had.

    Args:
        names: As it names them.
        described: All that there are.
        rows: What is locked.
    """
    found = {name: keys for name in names if (keys := described.get(name)) and keys.input in rows}
    return tuple(Plugin(name, keys, rows[keys.input]) for name, keys in found.items())


def describe_plugins(plugins: Iterable[Plugin]) -> str:
    """What a plan adds of plugins to what will be done; nothing without any."""
    names = ", ".join(f"{one} ({one.row.file}, SHA-256 {one.row.sha256[:12]})" for one in plugins)
    return f", with the plugin {names}" if names else ""


def find_mismatches(keys: PluginKeys, versions: Mapping[str, str], what: str) -> Iterator[str]:
    """Why a plugin is not for the environment that names it, a line each.

    Args:
        keys: What is described of it.
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
