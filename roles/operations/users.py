"""System users."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.host import script_output
from rigwright.host.script_output import optional
from rigwright.plan.host_probe import passwd
from roles.operations.facts import ChannelFact

NO_LOGIN = "/usr/sbin/nologin"


@dataclass(frozen=True)
class LoginAccount:
    """How a user can be logged in as."""

    home: str
    shell: str
    joined: bool = False
    """Whether it is in more groups than its first one."""
    open: bool = False
    """Whether it has a password, be it an empty one."""


SCHEMA: script_output.Schema = {
    "passwd": (optional(passwd),),
    "joined": (script_output.word,),
    "open": (script_output.word,),
}
"""The output of templates/look/passwd.sh.j2."""


class PasswdFact(ChannelFact[dict[str, LoginAccount]]):
    """User -> its login; without those that are not there."""

    default = dict

    def command(self, users: Sequence[str]) -> StringCommand:
        """templates/look/passwd.sh.j2."""
        return self.render_command("look/passwd.sh.j2", users=list(users))

    def read(self, output: list[str]) -> dict[str, LoginAccount]:
        """Read what it tells."""
        told = script_output.parse_output(output, SCHEMA)
        joined, open_ = told.all("joined"), told.all("open")
        lines = [line.split(":") for line in told.all("passwd") if line]
        return {one[0]: LoginAccount(one[5], one[6], one[0] in joined, one[0] in open_) for one in lines}


@operation()
def ensure_service_users(users: Sequence[str], home: str, ledger: str) -> Generator[StringCommand, None, None]:
    """Have system users without a login, each with a group of its own, and record that they are Rigwright's.

    + users: their names
    + home: their home, which is not made
    + ledger: the file that knows what is ours
    """
    found = host.get_fact(PasswdFact, users=list(users)) if users else {}
    wrong = [user for user in users if found.get(user) != LoginAccount(home, NO_LOGIN)]
    if not wrong:
        host.noop(f"{len(users)} users are up to date")
    for user in wrong:
        if user in found:
            named = ("usermod --home", QuoteString(home), "--shell", NO_LOGIN, "--groups ''", "--password '!'")
            yield StringCommand(*named, QuoteString(user))
            continue
        yield StringCommand("echo", QuoteString(f"user {user}"), ">>", QuoteString(ledger))
        made = "useradd --system --user-group --no-create-home --home-dir"
        yield StringCommand(made, QuoteString(home), "--shell", NO_LOGIN, QuoteString(user))
