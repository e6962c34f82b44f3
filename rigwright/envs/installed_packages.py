"""Which packages an environment on a host says that it has."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import canonicalize_name

from rigwright.envs.environment import Environment, prefix_folder
from rigwright.host import channel
from rigwright.host.channel import matching, tolerant
from rigwright.model.roots import Roots
from rigwright.render import render

NAME = r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,199}"
PACKAGE_SCHEMA: channel.Schema = {
    "distribution": (tolerant(matching(rf"{NAME}-[A-Za-z0-9.!+_]{{1,100}}\.dist-info", "a distribution's folder")),),
    "package": (tolerant(matching(rf"{NAME}\.json", "a conda package's record")),),
}
"""What templates/envs/installed.sh.j2 tells."""


def render_package_query(roots: Roots, made: Environment) -> str:
    """What asks a host for `installed`."""
    return render("envs/installed.sh.j2", prefix=prefix_folder(roots.installation_path(made.folder)))


def parse_installed_packages(output: Iterable[str]) -> frozenset[str]:
    """`name==version` of each distribution, names as an index spells them, and `name-version-build` of each conda
    package; none where there is no environment.

    Raises:
        ValueError: that is not what was asked for.
    """
    told = channel.parse_output(output, PACKAGE_SCHEMA)
    distributions = [name.removesuffix(".dist-info").rpartition("-") for name in told.all("distribution") if name]
    return frozenset(
        [f"{canonicalize_name(name)}=={version}" for name, _, version in distributions]
        + [name.removesuffix(".json") for name in told.all("package") if name]
    )


def locked_packages(made: Environment) -> frozenset[str]:
    """The same of what is locked."""
    return frozenset(
        [f"{name}=={version}" for name, version in made.distributions.items()]
        + [one.file.removesuffix(".conda").removesuffix(".tar.bz2") for one in made.python]
    )
