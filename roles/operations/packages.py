"""Distribution packages, in one transaction that survives a lost connection."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pyinfra.api import FunctionCommand, operation

from roles.operations.jobs import job


@operation()
def packages(names: Sequence[str], folder: str, unit: str) -> Generator[FunctionCommand, None, None]:
    """Install packages that are missing, from the archives the host is configured with.

    Waits up to ten minutes for another program to let go of dpkg's lock.

    + names: package names
    + folder: where jobs are kept
    + unit: the job's unit name

    **Example:**

    .. code:: python

        packages(name="Install packages", names=["curl"], folder="/var/lib/rigwright/jobs", unit="rw-job-base")
    """
    listing = " ".join(names)
    states = f"dpkg-query -W -f '${{db:Status-Status}}\\n' {listing} 2>/dev/null"
    installed = f'[ "$({states} | grep -cx installed)" = {len(names)} ]'
    script = f"""set -eu
export DEBIAN_FRONTEND=noninteractive
echo '==> reading package lists'
apt-get -q -o DPkg::Lock::Timeout=600 update
echo '==> installing packages'
apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 install {listing}
"""
    yield from job._inner(unit=unit, script=script, test=installed, folder=folder)
