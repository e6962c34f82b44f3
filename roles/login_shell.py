"""Commands as a user's login shell can pass them on, whichever it is: on one line, without what only sh understands.

sshd hands a command to the login shell. fish, csh and tcsh quote otherwise than sh: csh ends a quoted text at the end
of a line, replaces `!` inside of quotes, and takes no word of more than 1024 characters (csh(1)).
"""

from __future__ import annotations

import base64
import re
from functools import partial
from typing import Any

# A program with words, at most one of them a script of sh in single quotes: sh, csh, tcsh and fish read it alike.
PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+ -]+(?:'[^'!\\\n]*')?")
END = "#end-of-script-8c1f"
"""Last line of a script that is read from standard input."""
LONGEST = 1000
"""Characters of a line that goes as it is."""


def render_line(command: str) -> tuple[str, bytes]:
    """The line for the login shell, and the script that the command reads first from its standard input.

    dd reads exactly as many bytes as its argument, so that the rest is the command's own input.

    Args:
        command: For sh.
    """
    if is_plain(command):
        return command, b""
    # a script that was cut lacks the last line, and nothing of it is run
    script = f"{command}\n{END}".encode()
    read = f"x=$(dd bs={len(script)} count=1 iflag=fullblock status=none)"
    return f"sh -c '{read}; case $x in *{END}) eval \"$x\";; *) exit 255;; esac'", script


def render_terminal_line(command: str) -> str:
    """The same for a command with a terminal, whose input is what is typed: the script is in the line."""
    if is_plain(command):
        return command
    text = base64.b64encode(command.encode()).decode()
    return f"sh -c 'eval \"$(echo {text} | base64 -d)\"'"


def is_plain(command: str) -> bool:
    """Whether every login shell passes a command on as it is."""
    return len(command) <= LONGEST and PLAIN.fullmatch(command) is not None


def wrap_channel(channel: Any) -> Any:
    """A session of paramiko's whose commands pass any login shell; for those that pyinfra starts by itself."""
    execute = channel.exec_command
    channel.exec_command = partial(_exec_via_login_shell, channel, execute)
    channel.get_pty = partial(_request_terminal, channel, channel.get_pty, execute)
    return channel


def _request_terminal(channel: Any, request: Any, execute: Any, *arguments: Any, **options: Any) -> None:
    request(*arguments, **options)
    # a terminal shows its input, and passes no line on before its end: the input is no place for a script
    channel.exec_command = lambda command: execute(
        render_terminal_line(command.decode() if isinstance(command, bytes) else command)
    )


def _exec_via_login_shell(channel: Any, execute: Any, command: str | bytes) -> None:
    line, script = render_line(command.decode() if isinstance(command, bytes) else command)
    execute(line)
    if script:
        channel.sendall(script)
