"""The parts of a throwaway host of the containers' test from elsewhere: podman, packages and tools that a rig needs.

`.venv/bin/python -m tests.gpu.container_layer` makes it where there is a network, and says where: a folder to bring to
a machine without one, to the same place, with the base image beside it.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import base_images
from lab.hosts import HostSpec
from lab.machine_requirements import CACHE, UnsupportedMachine
from lab.throwaway_lab import ThrowawayLab
from rigwright.engines.image import KIND
from rigwright.plan.host_probe import PACKAGES
from rigwright.project_root import ROOT
from tests.hosts.support import run_deploy, write_inventory

# of Debian's releases the one whose podman reads what the container toolkit writes
RELEASE = "debian-13"
NEEDED = tuple(dict.fromkeys((*PACKAGES, *KIND.needs(RELEASE), "podman")))
BASE = base_images.tree_path(base_images.RELEASES[RELEASE])
_OF = " ".join((BASE.name, *NEEDED, (ROOT / "locks/tools.lock.toml").read_text()))
# where the layer has a rig's tools once more: images want a disk of their own, which hides what lies below it
CACHE_MOUNT = "/srv/rigwright-kept"
PLACE = CACHE / f"{RELEASE}-contained-{hashlib.sha256(_OF.encode()).hexdigest()[:12]}"
INSTALL = (
    "export DEBIAN_FRONTEND=noninteractive; apt-get -q update && "
    f"apt-get -qy install --no-install-recommends {' '.join(NEEDED)} && "
    "apt-get clean && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man"
)


def make_layer(lab: ThrowawayLab) -> str:
    """The layer for such hosts, made where it is not there yet.

    Raises:
        UnsupportedMachine: it is not there, and the distribution's archive is out of reach.
    """
    if not PLACE.exists():
        (host,) = lab.up([HostSpec("layer", RELEASE)])
        try:
            host.run(INSTALL)
            with tempfile.TemporaryDirectory() as folder:
                path = write_inventory(Path(folder), lab, host, instances={}, containers={"engines": ["podman"]})
                done = run_deploy(path)
            if done.status:
                raise RuntimeError(done.said)
            host.run(f"cp -a /opt/rigwright {CACHE_MOUNT}")
        except RuntimeError as error:
            host.destroy()
            raise UnsupportedMachine(
                "podman comes from Debian's archive and tools from a package index, which this machine does not reach "
                f"({str(error)[-200:]}): run `.venv/bin/python -m tests.gpu.container_layer` where it reaches "
                f"both, and "
                f"bring {BASE}, {BASE}.complete and {PLACE} here"
            ) from None
        host.freeze_layer(PLACE)
    return str(PLACE)


def main() -> int:
    """Make it; the exit status."""
    lab = ThrowawayLab("boxed")
    try:
        made = make_layer(lab)
    except (UnsupportedMachine, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        lab.down()
    print("\n".join((str(BASE), f"{BASE}.complete", made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
