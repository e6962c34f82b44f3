"""Role base: the service user, the roots and the packages that all other roles stand on."""

from __future__ import annotations

from pyinfra.api import deploy
from pyinfra.operations import server

from rigwright.preflight import HOME
from rigwright.rig import Rig
from roles.operations.files import directories
from roles.operations.packages import packages

# Fetching (curl, CA certificates), tools in Python (venv), and what llama.cpp is compiled with.
PACKAGES = ("ca-certificates", "curl", "python3-venv", "cmake", "g++", "ninja-build")


@deploy("Base")
def base(rig: Rig) -> None:
    """Bring user, folders and packages to their state."""
    roots = rig.roots
    server.user(  # noqa: S604 (a login shell, not a subprocess)
        name=f"User {rig.service_user}",
        user=rig.service_user,
        home=HOME,
        shell="/usr/sbin/nologin",
        system=True,
        create_home=False,
        ensure_home=False,
    )
    directories(
        name="Folders",
        paths={
            roots.software: ("755", "root", "root"),
            f"{roots.software}/engines": ("755", "root", "root"),
            f"{roots.software}/libexec": ("755", "root", "root"),
            roots.models: ("755", "root", "root"),
            roots.state: ("755", "root", "root"),
            f"{roots.state}/jobs": ("755", "root", "root"),
            f"{roots.state}/weights": ("755", "root", "root"),
            roots.config: ("755", "root", "root"),
            f"{roots.config}/credentials": ("700", "root", "root"),
        },
    )
    packages(name="Packages", names=PACKAGES, folder=f"{roots.state}/jobs", unit="rw-job-packages")
