"""Facts that a script reports over the channel, prefetched in one command.

Operations compare the host with what is wanted, each by a question of its own. Where nothing changes, asking them one
after another is most of the time that a deploy takes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar, cast

import gevent
from paramiko import SSHException
from pyinfra import host, state
from pyinfra.api import FactBase, QuoteString, StringCommand
from pyinfra.api.exceptions import FactProcessError, PyinfraError
from pyinfra.connectors.util import CommandOutput, OutputLine

from rigwright.host import script_output
from rigwright.render import render
from roles import root_shell

ASKING = 900.0  # seconds for what changes nothing, at most: a tree of an engine may be read from a slow disk
FRESH = 30.0  # seconds for which an answer counts: others change hosts too, and a busy controller comes to it late


class ReadOnlyScript(StringCommand):
    """A script that changes nothing. Its output may be given again for as long as nothing else is run."""

    def __init__(self, script: str) -> None:
        super().__init__("sh", "-c", QuoteString(script))
        self.script = script


class FactUnavailable(PyinfraError):
    """An operation cannot go on without a host's answer."""


class PrefetchConnector:
    """A pyinfra connector that remembers answers until it is used for anything but a question."""

    def __init__(self, connector: Any) -> None:
        self._connector = connector
        self._answers: dict[tuple[str, str], tuple[float, CommandOutput]] = {}
        self._together: dict[tuple[str, str], tuple[list[tuple[str, str]], dict[str, Any]]] = {}
        """Question -> all that were asked in one command with it."""
        self._arguments: dict[str, Any] = {}
        """The arguments of the last question, and in `_alike` their text: most questions have the same."""
        self._alike = repr([])
        self._gathered: dict[tuple[str, str], tuple[str, dict[str, Any]]] | None = None

    def __getattr__(self, name: str) -> Any:
        """Whatever else it can do, or its connection itself: either may change the host."""
        self._forget_if_changing()
        return getattr(self._connector, name)

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        """Run a command, or give the answer that is known; returns whether it succeeded, and its output.

        Raises:
            FactUnavailable: questions are gathered, and this is another command.
        """
        if not isinstance(command, ReadOnlyScript):
            self._forget_if_changing()
            return self._run(root_shell.LIMIT, command, print_output, print_input, **arguments)
        if arguments != self._arguments:
            self._arguments, self._alike = arguments, repr(sorted(arguments.items()))
        key = command.script, self._alike
        asked = time.monotonic()
        if known := self._find_fresh(key):
            return True, known
        if self._gathered is not None:
            self._gathered[key] = command.script, arguments
            return True, CommandOutput([])
        succeeded, output = self._run(ASKING, command, print_output, print_input, **arguments)
        if succeeded:
            self._answers[key] = asked, output
        return succeeded, output

    def _find_fresh(self, key: tuple[str, str]) -> CommandOutput | None:
        """The answer of a question; one that has expired is asked again, with those that the host gave with it."""
        if key not in self._answers:
            return None
        if not self._is_fresh(key) and (together := self._together.pop(key, None)):
            self._fetch_answers(*together)
        return self._answers[key][1] if self._is_fresh(key) else None

    def _is_fresh(self, key: tuple[str, str]) -> bool:
        at, known = self._answers[key]
        return bool(known.combined_lines) and time.monotonic() - at < FRESH

    def prefetch(self, operations: list[Any]) -> None:
        """Ask at once the first questions of operations; each operation asks again for a missing answer.

        Args:
            operations: pyinfra's generators of their commands, not begun.
        """
        self._gathered = {}
        try:
            for operation in operations:
                # the answer of a host is not known yet: some go on as if it had nothing, others cannot; a real fault of
                # one ends it again where it runs
                with closing(operation()) as commands, suppress(Exception):
                    next(commands, None)
        finally:
            gathered, self._gathered = self._gathered, None
        alike: dict[str, list[tuple[str, str]]] = {}
        for key in gathered:
            alike.setdefault(key[1], []).append(key)
        for keys in alike.values():
            self._fetch_answers(keys, gathered[keys[0]][1])

    def _fetch_answers(self, keys: list[tuple[str, str]], arguments: dict[str, Any]) -> None:
        scripts = [script for script, _ in keys]
        # one text: of a list pyinfra sends each line as a message of its own
        asked, stdin = time.monotonic(), script_output.render_parallel(scripts)
        # without an answer each is asked by itself, which reports a broken connection
        with suppress(ValueError, OSError, SSHException):
            succeeded, output = self._run(ASKING, StringCommand("sh"), **{**arguments, "_stdin": stdin})
            if not succeeded:
                return
            for script, answer in script_output.parse_outputs(output.stdout_lines, scripts).items():
                lines = [OutputLine("stdout", line) for line in answer]
                self._answers[script, keys[0][1]] = asked, CommandOutput(lines)
            self._together |= dict.fromkeys(keys, (keys, arguments))

    def _run(self, limit: float, command: StringCommand, *words: bool, **arguments: Any) -> tuple[bool, CommandOutput]:
        """Run a command; pyinfra itself waits as long as something comes, and for an exit status without end.

        Raises:
            HostTooSlow: it has not ended within `limit` seconds.
        """
        began = str(command).strip().splitlines()[0][:60]
        late = root_shell.HostTooSlow(f"`{began}` has not ended within {limit:.0f} s, given up")
        with gevent.Timeout(limit, late):
            succeeded, output = self._connector.run_shell_command(command, *words, **arguments)
        return succeeded, output

    def forget(self) -> None:
        """Ask everything anew."""
        self._answers.clear()
        self._together.clear()

    def _forget_if_changing(self) -> None:
        if self._gathered is not None:
            raise FactUnavailable("only questions are asked ahead")
        self.forget()


def enable_prefetch() -> None:
    """From now on, remember what the host of the running deploy answers."""
    host.connector = cast("Any", PrefetchConnector(host.connector))


def prefetch_operations() -> None:
    """Ask the host of the running deploy what all its operations so far will ask; without effect in a plan, where
    each has asked already.
    """
    if isinstance(host.connector, PrefetchConnector) and not state.should_check_for_changes():
        host.connector.prefetch([made.command_generator for made in state.ops[host].values()])


def prefetch_facts(*looks: Callable[[], object]) -> None:
    """Ask the host of the running deploy in one command what looks will ask; each then finds its answer.

    Args:
        *looks: They get facts, change nothing, and come to an end where there are none.
    """

    def asking(look: Callable[[], object]) -> Iterator[None]:
        look()
        yield

    if isinstance(host.connector, PrefetchConnector):
        host.connector.prefetch([partial(asking, look) for look in looks])


def forget_prefetched() -> None:
    """Ask the host of the running deploy anew: time has changed it, or was to."""
    if isinstance(host.connector, PrefetchConnector):
        host.connector.forget()


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
