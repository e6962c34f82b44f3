"""Distribution packages, in one transaction that survives a lost connection."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType

from pyinfra.api import FunctionCommand, operation

from rigwright.delivery.network import job_network
from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.supply.bundle import Bundle, BundledPackages
from roles.operations.jobs import ensure_job, sent_files_folder


@operation()
def install_distribution_packages(
    names: Sequence[str],
    roots: Roots,
    network: DownloadNetwork,
    bundle: Bundle | None,
    system: str,
    masked: Mapping[str, Sequence[str]] = MappingProxyType({}),
    accounts: Mapping[str, str] = MappingProxyType({}),
) -> Generator[FunctionCommand, None, None]:
    """Install packages that are missing, from the rig's bundle, its apt mirrors or else the archives the host is
    configured with, and write down which are new.

    Waits up to ten minutes for another program to release dpkg's lock.

    + names: package names
    + rig: the rig
    + system: the host's, such as debian-12
    + masked: units that these packages bring and would start, each with files that its package leaves behind; one that
      is there already is somebody else's, and stays as it is
    + accounts: of these packages, the user that each makes and leaves behind

    **Example:**

    .. code:: python

        packages(name="Install packages", names=["curl"], rig=rig, system="debian-12")
    """
    listing = shlex.join(names)
    states = f"dpkg-query -W -f '${{db:Status-Status}}\\n' {listing} 2>/dev/null"
    installed = f'[ "$({states} | grep -cx installed)" = {len(names)} ]'
    unit, folder = "rw-job-packages", roots.jobs
    bundled = bundle.packages(system) if bundle else BundledPackages()
    script = render(
        "packages/install.sh.j2",
        names=names,
        network=job_network(roots, network),
        ledger=roots.ledger,
        masked=masked,
        accounts=accounts,
        packages=bundled,
        sent=sent_files_folder(folder, unit) if bundled.files else "",
    )
    yield from ensure_job._inner(unit=unit, script=script, test=installed, folder=folder, files=bundled.files)
