"""What `rigwright init --serve` ends with: the verbs that bring up what it has written, and where that is served."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from cli.exit_codes import NotAsDeclared
from cli.prog_name import prog_name
from rigwright.model.roots import Roots
from rigwright.paths import ROOT
from rigwright.survey.suggestions import INSTANCE


@dataclass(frozen=True)
class ServeRequest:
    """A box that is to serve."""

    file: Path
    """Its inventory."""
    connection: Mapping[str, object]
    model: str
    """By which name clients ask for it."""
    port: int
    """On the box's loopback interface."""
    listen: int | None
    """On all of its addresses; None without a gateway."""
    lock: bool
    """Whether something of it is not locked yet."""
    reboot: bool
    """Whether the box may be rebooted for its driver."""


def serve_box(box: ServeRequest) -> None:
    """Lock, validate, deploy, which has it answer a completion before it is kept, verify, and say where it is served.

    What `verify` cannot pass is shown, and ends nothing: the box serves.

    Raises:
        cli.exit_codes.NotAsDeclared: one of these ended otherwise; the text says which, and what to run once that is
        mended.
    """
    reboot = ["--reboot"] if box.reboot else []
    for verb, *options in ([["lock"]] if box.lock else []) + [["validate"], ["deploy", *reboot]]:
        words = shlex.join([verb, str(box.file), *options])
        click.echo(f"\n==> {prog_name()} {words}")
        # each in a process of its own: pyinfra's gevent has to be there before SSH was used
        if _run_rigwright([sys.executable, "-m", "cli", verb, str(box.file.resolve()), *options]):
            raise NotAsDeclared(f"{box.file} is written, and `{prog_name()} {words}` has failed, as said above")
    words = shlex.join(["verify", str(box.file)])
    click.echo(f"\n==> {prog_name()} {words}")
    if _run_rigwright([sys.executable, "-m", "cli", "verify", str(box.file.resolve())]):
        click.echo(
            f"It serves, and not all that its variant declares is proven: `{prog_name()} {words}`, as shown above."
        )
    host, user = str(box.connection["ssh_hostname"]), str(box.connection["ssh_user"])
    given = {"-p": box.connection.get("ssh_port"), "-i": box.connection.get("ssh_key")}
    way = [*(word for option, value in given.items() if value for word in (option, str(value))), f"{user}@{host}"]
    key = f"{Roots().config}/credentials/{INSTANCE}.api-key"
    sudo = ["sudo"] if box.connection.get("_sudo") else []
    click.echo(
        f"\n{box.model} answers at http://127.0.0.1:{box.port}/v1 on the box, with a key that it has made. From here:\n"
        f"  {shlex.join(['ssh', '-L', f'{box.port}:127.0.0.1:{box.port}', *way])}\n"
        f"  {shlex.join(['ssh', *way, *sudo, 'cat', key])}   # the key\n"
        + (
            f"Clients on the network: http://{host}:{box.listen}/v1, without a key."
            if box.listen
            else 'For others on your network: --listen, or "gateway" (docs/gateway.md).'
        )
    )


def _run_rigwright(words: list[str]) -> int:
    """Run a program to its end, as one types it; returns its exit status."""
    sys.stdout.flush()
    return subprocess.run(words, cwd=ROOT, check=False).returncode
