"""Exit codes of verbs, and signals that end them."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial

import click

from checks.results import STATUS
from cli.safe_output import escape_controls
from cli.tables import print_prose, wrap_prose
from rigwright.local_files import SecretUnavailable

INTERRUPTED_STATUS = 130  # a shell's status of a command that an interrupt has ended


def exit_on_interrupt(words: Callable[[], str] = str) -> None:
    """From here on an interrupt ends this process with exit status 130.

    Not by an exception: that would end one greenlet, or none. And not by way of Python's streams, nor gevent: either
    can be in the middle of something.

    Args:
        words: The message on standard error; evaluated as it happens.
    """
    from gevent.monkey import get_original

    select = get_original("select", "select")

    def interrupted(*_: object) -> None:
        try:
            text = words()
            said = escape_controls(wrap_prose(text) if os.isatty(2) else text).encode()
            # the reader may be gone, and words that cannot be written must not keep the process
            if said and select([], [2], [], 0)[1]:
                os.write(2, said)
        finally:
            os._exit(INTERRUPTED_STATUS)

    signal.signal(signal.SIGINT, interrupted)


EXIT_STATUS_HELP = (
    "Exit status: 0, done, or as declared. 1, failed, or not as declared. 2, the command or a file is refused. 3, a "
    "host was not reached. 130, interrupted."
)
"""The end of each verb's help that names no exit status itself."""


class InvalidRequest(click.ClickException):
    """The input is refused, before a host is looked at; click has this status for a command line."""

    exit_code = 2


class HostFailure(click.ClickException):
    """A run failed on hosts; `causes` has the cause for each of them, where the run knows it."""

    def __init__(self, message: str, causes: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.causes = dict(causes or {})


class NotAsDeclared(HostFailure):
    """The requested state does not hold."""

    exit_code = STATUS["not as declared"]


class HostUnreached(HostFailure):
    """A host was not reached, whatever the others are."""

    exit_code = STATUS["not reached"]


class ExitStatusGroup(click.Group):
    """A group whose verbs end as STATUSES lists: a plain ClickException refuses the input."""

    def invoke(self, context: click.Context) -> object:
        """Run the verb."""
        try:
            return super().invoke(context)
        except click.ClickException as error:
            refused = InvalidRequest(error.message) if type(error) is click.ClickException else error
            # click's own ones say themselves too, of whatever class they are
            refused.__dict__["show"] = partial(_print_error, refused, type(refused).show)
            raise refused from error.__cause__
        except SecretUnavailable as error:
            raise InvalidRequest(str(error)) from None
        except (KeyboardInterrupt, click.Abort) as error:
            # click asks in a prompt and takes an interrupt there for a no
            if isinstance(error, click.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
                raise
            click.echo("\nInterrupted.", err=True)
            raise click.exceptions.Exit(INTERRUPTED_STATUS) from None


def _print_error(error: click.ClickException, show: Callable[..., None], file: object = None) -> None:
    """Say an error in lines that the terminal has room for."""
    text = io.StringIO()
    show(error, text)
    print_prose(text.getvalue().removesuffix("\n"), err=True)


def print_unreached(gone: Mapping[str, str]) -> None:
    """Say which hosts are out of reach, and why: many of them by cause.

    Args:
        gone: As `checks.connections.connect_inventory` has them.
    """
    # pyinfra's and pydantic's world, which many verbs do without
    from rigwright.host_selection import format_hosts, group_lines, is_many
    from roles.connection_failures import describe_unreachable_host, strip_address

    lines = dict(gone)
    if is_many(gone):
        causes = group_lines([(name, strip_address(why)) for name, why in gone.items()])
        lines = {format_hosts(names): why for why, names in causes.items()}
    for names, why in lines.items():
        print_prose(f"{names}: {describe_unreachable_host(why)}", err=True)


def unreached_rows(gone: Mapping[str, str]) -> list[dict[str, object]]:
    """The rows of hosts that are out of reach, for programs."""
    from roles.connection_failures import describe_unreachable_host

    return [{"host": name, "reached": False, "why": describe_unreachable_host(why)} for name, why in gone.items()]


def exit_if_unreached(gone: Mapping[str, str]) -> None:
    """Say which hosts are out of reach, and end with exit status 3 where there are any."""
    print_unreached(gone)
    if gone:
        sys.exit(STATUS["not reached"])
