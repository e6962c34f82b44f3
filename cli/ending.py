"""How a verb ends: its exit status, and the line that is said last."""

from __future__ import annotations

import click

from checks.results import STATUS

STATUSES = (
    "Exit status: 0, all is as declared, or done. 1, it is not. 2, the command or a file is refused, and no host was "
    "touched. 3, a host was not reached. 130, interrupted."
)
"""What each verb's help ends with, where it does not say more of them itself."""


class Refused(click.ClickException):
    """What was given is refused, before a host is looked at; click has this status for a command line."""

    exit_code = 2


class Failed(click.ClickException):
    """What was asked for is not so."""

    exit_code = STATUS["not as declared"]


class Unreached(click.ClickException):
    """A host was not reached, whatever the others are."""

    exit_code = STATUS["not reached"]


class Verb(click.Group):
    """A group whose verbs end as STATUSES says: a plain ClickException refuses what it was given."""

    def invoke(self, context: click.Context) -> object:
        """Run the verb."""
        try:
            return super().invoke(context)
        except click.ClickException as error:
            if type(error) is click.ClickException:
                raise Refused(error.message) from None
            raise
