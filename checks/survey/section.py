"""Sections of the survey: questions, shapes of answers, and facts of paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter

from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import TargetState

T = TypeVar("T")

Phase = Literal["early", "probed", "separate"]
"""When a host is asked: at once while a probe runs, by what the probe has found, or in a program of its own."""
TRY = "rw-check-"
"""The prefix of units in which checks try things as our users; another run may be under way."""


@dataclass(frozen=True)
class SurveyScope:
    """The target state of a host, as far as questions to it need it."""

    rig: Rig
    desired: TargetState
    deep: bool = False
    """Whether all bytes are to be read."""
    compares_entries: bool = True
    """Whether entries of the host are compared with accepted ones: the checks that end a deploy do not."""


@dataclass(frozen=True)
class Section(Generic[T]):
    """One part of the survey.

    A module of checks/survey/ has it, and the survey finds it there. On the host it is the module of this name in
    checks/survey/host/, whose `look(asked)` is given what `asks` returns
    and returns what is of `shape`, both as JSON has it.
    """

    name: str
    shape: Any
    """The type of the answer: dataclasses, dicts, lists and the like, judged strictly: a host's answer is hostile."""
    asks: Callable[[SurveyScope], object | None]
    """The question to the host; None where the rig has nothing of it."""
    limit: float | Callable[[SurveyScope], float] = 45.0
    """Seconds that it may take, after which it has no answer; where it reads bytes, as many as there may be.
    On a host that is busy with something else, what takes half a second takes twenty."""
    blind: str = field(kw_only=True)
    """Its limits, on which a passing check proves nothing."""
    phase: Phase = "early"
    start_order: int = 100
    """Its place among those of its phase: those that take longest start first."""

    @cached_property
    def validator(self) -> TypeAdapter[T]:
        """The validator of answers, made once: that takes longer than to judge one."""
        return TypeAdapter(self.shape)

    def time_limit(self, scene: SurveyScope) -> float:
        """The limit for a host."""
        return self.limit(scene) if callable(self.limit) else self.limit


@dataclass(frozen=True)
class PathFacts:
    """The object at a path."""

    kind: str
    mode: int
    owner: str
    group: str
    listed: bool
    """Whether an access list lets in others than its mode says."""
