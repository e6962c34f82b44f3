"""System users."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FactBase, QuoteString, StringCommand, operation

NO_LOGIN = "/usr/sbin/nologin"


class Passwd(FactBase[str]):
    """A user's passwd line; empty without one."""

    default = str

    def command(self, user: str) -> StringCommand:
        """Ask every source that the system has."""
        return StringCommand("getent passwd", QuoteString(user), "|| true")

    def process(self, output: list[str]) -> str:
        """The only line."""
        return output[0]


@operation()
def service_user(user: str, home: str, ledger: str) -> Generator[StringCommand, None, None]:
    """Have a system user that nobody can log in as, and write down that it is ours.

    + user: its name
    + home: its home, which is not made
    + ledger: the file that knows what is ours
    """
    found = host.get_fact(Passwd, user=user).split(":")
    if found[5:] == [home, NO_LOGIN]:
        host.noop(f"user {user} is as it should be")
    elif len(found) == 7:
        yield StringCommand("usermod --home", home, "--shell", NO_LOGIN, QuoteString(user))
    else:
        yield StringCommand("echo", QuoteString(f"user {user}"), ">>", QuoteString(ledger))
        yield StringCommand(
            *("useradd --system --user-group --no-create-home --home-dir", home, "--shell", NO_LOGIN, QuoteString(user))
        )
