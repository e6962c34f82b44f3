"""Distribution packages, in one transaction that survives a lost connection."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pyinfra.api import FunctionCommand, operation

from rigwright.network import network
from rigwright.render import render
from rigwright.rig import Rig
from roles.operations.jobs import job


@operation()
def packages(names: Sequence[str], rig: Rig) -> Generator[FunctionCommand, None, None]:
    """Install packages that are missing, from the rig's apt mirrors or else the archives the host is configured with,
    and write down which are new.

    Waits up to ten minutes for another program to let go of dpkg's lock.

    + names: package names
    + rig: the rig

    **Example:**

    .. code:: python

        packages(name="Install packages", names=["curl"], rig=rig)
    """
    listing = " ".join(names)
    states = f"dpkg-query -W -f '${{db:Status-Status}}\\n' {listing} 2>/dev/null"
    installed = f'[ "$({states} | grep -cx installed)" = {len(names)} ]'
    script = render("packages/install.sh.j2", names=names, network=network(rig), ledger=rig.ledger)
    yield from job._inner(unit="rw-job-packages", script=script, test=installed, folder=f"{rig.roots.state}/jobs")
