"""Facts that a script of ours tells over the channel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rigwright.render import render
from roles.operations.ahead import Question

T = TypeVar("T")


class Look(FactBase[T], ABC):
    """A fact whose script tells it."""

    def script(self, template: str, **values: object) -> Question:
        """The command that runs a template."""
        return Question(render(template, **values))

    @abstractmethod
    def read(self, output: list[str]) -> T:
        """The fact, of what the script has printed.

        Raises:
            ValueError: that is not what was asked for.
        """

    def process(self, output: list[str]) -> T:
        """Refuse what is not what was asked for, in pyinfra's way."""
        try:
            return self.read(output)
        except ValueError as error:
            raise FactProcessError(str(error)) from error
