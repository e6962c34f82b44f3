"""System users."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.host import channel
from rigwright.host.channel import optional
from rigwright.host.facts import passwd
from roles.operations.look import Look

NO_LOGIN = "/usr/sbin/nologin"


class Passwd(Look[dict[str, list[str]]]):
    """User -> the seven fields of its passwd line; without those that are not there."""

    default = dict

    def command(self, users: Sequence[str]) -> StringCommand:
        """templates/look/passwd.sh.j2."""
        return self.script("look/passwd.sh.j2", users=list(users))

    def read(self, output: list[str]) -> dict[str, list[str]]:
        """Read what it tells."""
        lines = channel.read(output, {"passwd": (optional(passwd),)}).all("passwd")
        return {line.split(":")[0]: line.split(":") for line in lines if line}


@operation()
def service_users(users: Sequence[str], home: str, ledger: str) -> Generator[StringCommand, None, None]:
    """Have system users that nobody can log in as, each with a group of its own, and write down that they are ours.

    + users: their names
    + home: their home, which is not made
    + ledger: the file that knows what is ours
    """
    found = host.get_fact(Passwd, users=list(users)) if users else {}
    wrong = [user for user in users if found.get(user, [])[5:] != [home, NO_LOGIN]]
    if not wrong:
        host.noop(f"{len(users)} users are as they should be")
    for user in wrong:
        if user in found:
            yield StringCommand("usermod --home", QuoteString(home), "--shell", NO_LOGIN, QuoteString(user))
            continue
        yield StringCommand("echo", QuoteString(f"user {user}"), ">>", QuoteString(ledger))
        made = "useradd --system --user-group --no-create-home --home-dir"
        yield StringCommand(made, QuoteString(home), "--shell", NO_LOGIN, QuoteString(user))
