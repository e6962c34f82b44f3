"""A small environment as it is declared and locked, and what it is on a host."""

from __future__ import annotations

from rigwright.envs.env import Environment, environment
from rigwright.model.envs.keys import EnvKeys
from rigwright.model.rig import DeclaredEnv, Rig
from rigwright.supply.lock import Artefact
from tests.unit.samples import artefact, facts, rig, wheel


def conda(name: str = "python", version: str = "3.10.20", build: str = "0_a", **changes: object) -> Artefact:
    """A locked conda package."""
    file = f"{name}-{version}-{build}.conda"
    own = {"kind": "conda", "name": name, "version": version, "group": "py", "file": file, "sha256": "c" * 64}
    own |= {"build": build, "selection": "0" * 12}
    return artefact(**(own | {"sources": [f"forge:linux-64/{file}"]} | changes))


def declared(*more: Artefact, cuda: bool = False) -> DeclaredEnv:
    """One of a Python and a wheel."""
    keys = EnvKeys(python="py", packages="pk", distribution="Demo", imports=("demo",), cuda=cuda)
    return DeclaredEnv("env", keys, (conda(),), (wheel("demo", version="2.0", group="pk"), *more))


def made(rig_: Rig | None = None, env: DeclaredEnv | None = None) -> Environment:
    """What it comes to on a host."""
    return environment(rig_ or rig(), env or declared(), facts())
