"""System users."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.host import channel
from rigwright.host.channel import optional
from rigwright.host.facts import passwd
from roles.operations.look import Look

NO_LOGIN = "/usr/sbin/nologin"


class Passwd(Look[list[str]]):
    """The seven fields of a user's passwd line; none without one."""

    default = list

    def command(self, user: str) -> StringCommand:
        """templates/look/passwd.sh.j2."""
        return self.script("look/passwd.sh.j2", user=user)

    def read(self, output: list[str]) -> list[str]:
        """Read what it tells."""
        line = channel.read(output, {"passwd": (optional(passwd),)}).one("passwd")
        return line.split(":") if line else []


@operation()
def service_user(user: str, home: str, ledger: str) -> Generator[StringCommand, None, None]:
    """Have a system user that nobody can log in as, and write down that it is ours.

    + user: its name
    + home: its home, which is not made
    + ledger: the file that knows what is ours
    """
    found = host.get_fact(Passwd, user=user)
    if found[5:] == [home, NO_LOGIN]:
        host.noop(f"user {user} is as it should be")
    elif found:
        yield StringCommand("usermod --home", QuoteString(home), "--shell", NO_LOGIN, QuoteString(user))
    else:
        yield StringCommand("echo", QuoteString(f"user {user}"), ">>", QuoteString(ledger))
        made = "useradd --system --user-group --no-create-home --home-dir"
        yield StringCommand(made, QuoteString(home), "--shell", NO_LOGIN, QuoteString(user))
