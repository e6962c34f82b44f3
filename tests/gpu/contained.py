"""What a throwaway host of the containers' test has of its distribution: podman and what a rig needs beside it.

`.venv/bin/python -m tests.gpu.contained` makes it where there is a network, and says where: a folder to bring to a
machine without one, to the same place, with the base image beside it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys

from lab import images
from lab.hosts import HostSpec
from lab.labs import Lab
from lab.machine import CACHE, Unsupported
from rigwright.engines.image import KIND
from rigwright.host.facts import PACKAGES

# of Debian's releases the one whose podman reads what the container toolkit writes
RELEASE = "debian-13"
NEEDED = tuple(dict.fromkeys((*PACKAGES, *KIND.needs(RELEASE), "podman")))
BASE = images.place(images.RELEASES[RELEASE])
PLACE = CACHE / f"{RELEASE}-contained-{hashlib.sha256(' '.join((BASE.name, *NEEDED)).encode()).hexdigest()[:12]}"
INSTALL = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get -q update && "
    f"apt-get -qy install --no-install-recommends {' '.join(NEEDED)} && "
    "apt-get clean && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man"
)


def layer(lab: Lab) -> str:
    """The layer for such hosts, made where it is not there yet.

    Raises:
        Unsupported: it is not there, and the distribution's archive is out of reach.
    """
    if not PLACE.exists():
        (host,) = lab.up([HostSpec("layer", RELEASE)])
        try:
            host.run(INSTALL)
        except RuntimeError as error:
            host.destroy()
            raise Unsupported(
                f"podman comes from Debian's archive, which this machine does not reach ({str(error)[-200:]}): run "
                f"`.venv/bin/python -m tests.gpu.contained` where it is reached, and bring {BASE}, {BASE}.complete and "
                f"{PLACE} here"
            ) from None
        host.freeze(PLACE)
    return str(PLACE)


def main() -> int:
    """Make it; the exit status."""
    lab = Lab("boxed")
    try:
        made = layer(lab)
    except (Unsupported, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        lab.down()
    print("\n".join((str(BASE), f"{BASE}.complete", made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
