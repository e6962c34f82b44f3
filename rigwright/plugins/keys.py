"""The keys of a plugin in a catalogue."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from rigwright.problems import FrozenModel
from rigwright.types import CatalogName, Flag, Module, Name, OptionValue, Text, Variable, Version, matching

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
        description="The one of them to run instead of `vllm serve`, with the same arguments.",
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
