"""Which packages an environment on a host is to have."""

from __future__ import annotations

from rigwright.envs.environment import Environment


def locked_packages(made: Environment) -> frozenset[str]:
    """`name==version` of each locked distribution, and `name-version-build` of each conda package."""
    return frozenset(
        [f"{name}=={version}" for name, version in made.distributions.items()]
        + [one.file.removesuffix(".conda").removesuffix(".tar.bz2") for one in made.python]
    )
