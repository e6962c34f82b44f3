"""Plugins: keys in a catalogue, and plugins of an environment with what is locked for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from packaging.utils import canonicalize_name
from pydantic import Field, field_validator, model_validator

from rigwright.problems import FrozenModel
from rigwright.supply.artefact import Artefact
from rigwright.validated_types import CatalogName, Flag, Module, Name, OptionValue, Text, Variable, Version, matching

Distribution = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "a Python distribution")]
Command = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "a program name without a folder")]


class PluginMode(FrozenModel):
    """One of the ways that a plugin can run in."""

    flags: dict[Flag, OptionValue] = Field(default_factory=dict, description="Command-line options for it.")
    environment: dict[Variable, Text] = Field(default_factory=dict, description="Environment variables for it.")


class SelftestLine(FrozenModel):
    """Lines of a self-test about one subject."""

    RENAMED: ClassVar[dict[str, str]] = {"says": "match", "holds": "contains", "bare": "without_model"}

    match: Text = Field(description="Whole words that identify its lines, case-insensitive.")
    kind: Literal["verdict", "number", "text"] = Field(
        default="verdict",
        description="`verdict`: one of its lines contains PASS; `number`: a number follows its words; "
        "`text`: one of its lines contains the text of `contains`, and none its contrary. No line of any kind may "
        "contain FAIL.",
    )
    contains: Text | None = Field(default=None, description="For kind `text`: the required whole words, such as SM75.")
    without_model: bool = Field(
        default=True, strict=True, description="Whether it is also reported without a model; else only with one."
    )

    @property
    def plan(self) -> dict[str, object]:
        """The line as `rigwright.plugins.verdict` reads it on hosts. The names and their order enter a job's digest."""
        return {"says": self.match, "kind": self.kind, "holds": self.contains, "bare": self.without_model}

    @model_validator(mode="after")
    def _check_pattern(self) -> SelftestLine:
        if (self.kind == "text") != (self.contains is not None):
            raise ValueError("given contains if, and only if, its kind is text")
        return self


class SelftestKeys(FrozenModel):
    """A program of a plugin that reports whether the plugin will run."""

    command: Command = Field(description="A command of the plugin; run without arguments, and with model and options.")
    lines: dict[Name, SelftestLine] = Field(
        description="Expected reports: a name for each, and how its lines are read."
    )
    seconds: int = Field(default=300, ge=1, le=3600, strict=True, description="Timeout of each run.")

    @field_validator("lines")
    @classmethod
    def _require_lines(cls, lines: dict[str, SelftestLine]) -> dict[str, SelftestLine]:
        if not any(one.without_model for one in lines.values()):
            raise ValueError("at least one that is reported without a model")
        return lines


class PluginKeys(FrozenModel):
    """A wheel that no index has, and the parts of it that an environment may get: it contains nothing else."""

    RENAMED: ClassVar[dict[str, str]] = {"of": "target_distribution", "owns": "owned_flags", "doctor": "selftest"}

    input: CatalogName = Field(description="An input of kind `plugin`: the wheel, or a zip with it in `dist/`.")
    distribution: Distribution = Field(description="The wheel's distribution name; its version is the input's.")
    target_distribution: Distribution = Field(description="The distribution that it extends, such as `vllm`.")
    versions: tuple[Version, ...] = Field(min_length=1, description="The exact versions that it is for.")
    imports: tuple[Module, ...] = Field(
        min_length=1, description="Its modules that must import, without a card, before the environment is used."
    )
    commands: tuple[Command, ...] = Field(default=(), description="All programs that it installs.")
    launcher: Command | None = Field(
        default=None,
        description="The command to run instead of `vllm serve`, with the same arguments.",
    )
    owned_flags: dict[Flag, Text] = Field(
        default_factory=dict, description="Options that its launcher sets and no variant may, each with the reason."
    )
    modes: dict[Name, PluginMode] = Field(
        default_factory=dict, description="Modes of its launcher; a variant's key `mode` selects one."
    )

    selftest: SelftestKeys | None = Field(
        default=None, description="A self-test run before an instance is activated: its own table."
    )

    @model_validator(mode="after")
    def _check_selftest(self) -> PluginKeys:
        if self.selftest and self.selftest.command not in self.commands:
            raise ValueError(f"given a selftest whose command is one of its commands, not {self.selftest.command}")
        return self

    @model_validator(mode="after")
    def _check_launcher(self) -> PluginKeys:
        if self.launcher is None and (self.owned_flags or self.modes):
            raise ValueError("given a launcher: owned_flags and modes need one")
        if self.launcher is not None and self.launcher not in self.commands:
            raise ValueError(f"given a launcher that is one of its commands, not {self.launcher}")
        return self


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
