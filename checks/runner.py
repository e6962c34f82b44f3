"""The checks, run by pytest in this process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pluggy import HookimplMarker

from checks.results import STATUS
from checks.survey_run import ShowReading, SurveyRun
from checks.testinfra_backend import UnknownHost

if TYPE_CHECKING:
    from pytest import Config

    from checks.pytest_frame import ChecksPlugin

HERE = Path(__file__).parent
REFUSED = 2
"""The exit status where nothing was looked at."""
UNUSED = [
    f"-pno:{name}"
    for name in (
        *("debugging", "doctest", "faulthandler", "legacypath", "logging", "pastebin", "setuponly", "setupplan"),
        *("stepwise", "threadexception", "unittest", "unraisableexception"),
    )
]
"""Of pytest's own plugins those that no check has to do with: together they take as long as asking a host."""
OWN = "checks"
"""The folder of a user's own checks, beside an inventory."""


def pytest_arguments(inventory: str, *options: str) -> list[str]:
    """The arguments of pytest.

    Raises:
        ValueError: the folder of a user's own checks cannot be run with ours.
    """
    words = ["-c", str(HERE / "pytest.ini"), "--import-mode=importlib", "--capture=sys", *UNUSED, str(HERE)]
    own = Path(inventory).absolute().parent / OWN
    if own.is_dir() and own.resolve() != HERE.resolve():
        if (own / "__init__.py").exists():
            raise ValueError(f"{own}/__init__.py is refused: remove it, because the package {OWN} is Rigwright's")
        words.append(str(own))
    else:
        # the rewriting that has an assert say more is compiled anew where Python may keep nothing, and ours have none
        words.append("--assert=plain")
    return [*words, f"--inventory={inventory}", *options]


class ChecksRejected(click.ClickException):
    """The command or the inventory is not as it should be: every mistake found in it."""

    exit_code = REFUSED


@dataclass(eq=False)
class StartedRunPlugin:
    """A plugin of pytest's: hosts are being looked at already. Keeps what is refused, which pytest says otherwise."""

    NAME = "rigwright-begun"
    look: SurveyRun
    refused: str = ""
    frame: ChecksPlugin | None = None
    """All that was found, once the run has ended."""
    broken: bool = False
    """Whether a mistake is pytest's own, or one of ours outside a check."""

    def pytest_internalerror(self) -> None:
        """It ends with a status that we have for a host out of reach."""
        self.broken = True

    def pytest_unconfigure(self, config: Config) -> None:
        """Keep the results: pytest forgets its plugins."""
        self.frame = config.pluginmanager.get_plugin("rigwright-frame")

    @HookimplMarker("pytest")(wrapper=True)
    def pytest_cmdline_main(self) -> Generator[None, object, object]:
        """Run the checks."""
        import pytest  # takes long: hosts are being looked at meanwhile

        try:
            return (yield)
        except pytest.UsageError as error:
            self.refused = "\n".join(map(str, error.args))
            return REFUSED


def run_checks(
    inventory: str,
    *options: str,
    limit: str | None = None,
    deep: bool = False,
    writers: Iterable[Callable[[ChecksPlugin], None]] = (),
    show_reading: ShowReading | None = None,
) -> int:
    """Run all of them over an inventory; returns the exit status: 0, 1 or 3 as STATUS says, 2 for what is refused.

    Args:
        inventory: The file.
        options: For pytest, of those in checks/conftest.py and its own.
        limit: Which hosts of it; all without one.
        writers: Called with the results of a run that has any.
        deep: Whether every byte is read of weights and environments.
        show_reading: Shows the bytes that hosts read then.

    Raises:
        ChecksRejected: no host is looked at.
    """
    try:
        words = pytest_arguments(inventory, *options, *(["--deep"] if deep else []))
    except ValueError as error:
        raise ChecksRejected(str(error)) from None
    # plugins of another project's tests have no say here, and looking for them takes as long as asking a host
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.pop("PYTEST_PLUGINS", None)
    # a host out of reach has its line: pyinfra's log of it has no more
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        # before pytest is imported, and all that judges: hosts answer meanwhile
        look = SurveyRun(inventory, limit, deep, show_reading)
    except (UnknownHost, SystemExit) as error:
        raise ChecksRejected(str(error)) from None
    import pytest

    writers = [*writers]
    look.keeps_answers = bool(writers)
    look.yield_to_hosts()
    begun = StartedRunPlugin(look)
    try:
        status = int(pytest.main(words, plugins=[begun]))
    finally:
        look.end()
    if begun.refused:
        raise ChecksRejected(begun.refused)
    if begun.frame and not begun.broken and (begun.frame.results or begun.frame.gone):
        for write in writers:
            write(begun.frame)
    return status if status in STATUS.values() and not begun.broken else REFUSED
