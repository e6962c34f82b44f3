"""The keys of a plugin in a catalogue."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from rigwright.problems import Frozen
from rigwright.types import CatalogName, Flag, Module, Name, OptionValue, Text, Variable, Version, matching

Distribution = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "a Python distribution")]
Command = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "a program's name, no folder")]


class Mode(Frozen):
    """One of the ways that a plugin can run in."""

    flags: dict[Flag, OptionValue] = Field(default_factory=dict, description="Options that it is chosen by.")
    environment: dict[Variable, Text] = Field(default_factory=dict, description="Variables that it is chosen by.")


class Line(Frozen):
    """What a doctor says of one thing."""

    says: Text = Field(description="Words by which its lines are known, whole and in any case.")
    kind: Literal["verdict", "number", "text"] = Field(
        default="verdict",
        description="`verdict`: one of its lines says PASS and none FAIL; `number`: one follows its words; `text`: its "
        "lines have in them what `holds` says.",
    )
    holds: Text | None = Field(default=None, description="Of kind `text`: what has to be there, such as SM75.")
    bare: bool = Field(
        default=True, strict=True, description="Whether it is said without a model, too; else with one alone."
    )

    @model_validator(mode="after")
    def _holds(self) -> Line:
        if (self.kind == "text") != (self.holds is not None):
            raise ValueError("given holds where its kind is text, and there alone")
        return self


class Doctor(Frozen):
    """A program of a plugin's that says whether it will run."""

    command: Command = Field(description="One of the plugin's; it is run without words, and with model and options.")
    lines: dict[Name, Line] = Field(description="What it is to say: a name for each, and how its lines are read.")
    seconds: int = Field(default=300, ge=1, le=3600, strict=True, description="The longest that each run may take.")

    @field_validator("lines")
    @classmethod
    def _some(cls, lines: dict[str, Line]) -> dict[str, Line]:
        if not any(one.bare for one in lines.values()):
            raise ValueError("at least one that is said without a model")
        return lines


class PluginKeys(Frozen):
    """A wheel that no index has, and what of it may come to an environment: nothing else is in it."""

    input: CatalogName = Field(description="An input of kind `plugin`: the wheel, or a zip with it in `dist/`.")
    distribution: Distribution = Field(description="What the wheel calls itself; its version is the input's.")
    of: Distribution = Field(description="The distribution that it is a plugin of, such as `vllm`.")
    versions: tuple[Version, ...] = Field(min_length=1, description="The versions of that which it is for, exactly.")
    imports: tuple[Module, ...] = Field(
        min_length=1, description="Its modules that must come in, without a card, before the environment is used."
    )
    commands: tuple[Command, ...] = Field(default=(), description="All programs that it brings.")
    launcher: Command | None = Field(
        default=None,
        description="The one of them that is started in the place of `vllm serve`, with the same words.",
    )
    owns: dict[Flag, Text] = Field(
        default_factory=dict, description="Options that its launcher sets by itself, and no variant may, each with why."
    )
    modes: dict[Name, Mode] = Field(
        default_factory=dict, description="Ways that its launcher can run in; a variant's key `mode` names one."
    )

    doctor: Doctor | None = Field(
        default=None, description="What is asked before an instance is switched to: a table of its own."
    )

    @model_validator(mode="after")
    def _examines(self) -> PluginKeys:
        if self.doctor and self.doctor.command not in self.commands:
            raise ValueError(f"given a doctor whose command is among its commands, not {self.doctor.command}")
        return self

    @model_validator(mode="after")
    def _launches(self) -> PluginKeys:
        if self.launcher is None and (self.owns or self.modes):
            raise ValueError("given a launcher: owns and modes are of one")
        if self.launcher is not None and self.launcher not in self.commands:
            raise ValueError(f"given a launcher that is among its commands, not {self.launcher}")
        return self
