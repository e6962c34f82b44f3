"""Facts that a script of ours tells over the channel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from rigwright.render import render
from roles.operations.prefetch import ReadOnlyScript

T = TypeVar("T")


class ChannelFact(FactBase[T], ABC):
    """A fact whose script tells it."""

    def render_command(self, template: str, **values: object) -> ReadOnlyScript:
        """The command that runs a template."""
        return ReadOnlyScript(render(template, **values))

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
